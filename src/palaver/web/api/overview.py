"""API endpoints for the token itself, platform accounts, usage and the event stream."""

from datetime import UTC, date, timedelta

from starlette.responses import Response

from palaver.model.problem import ProblemArea
from palaver.operations.operation import Schema, Timestamp, fill
from palaver.store.people.api_tokens import Right
from palaver.store.people.usage import GroupBy
from palaver.web.api.endpoints import endpoint
from palaver.web.api.schemas import UsageSchema
from palaver.web.routes import WebRequest
from palaver.web.sse import event_stream

_DEFAULT_SPAN = timedelta(days=30)


class MeSchema(Schema, frozen=True, kw_only=True):
    identity: str | None
    """On whose behalf you read; null for the owner, who sees everything."""
    profile: str | None
    """The profile that answers you; null if the rules choose it."""
    scopes: list[Right]
    expires: Timestamp | None


@endpoint("GET", "/me", summary="Show what your token can do", needs=None)
async def get_me(request: WebRequest) -> MeSchema:
    key = request.caller.key
    return MeSchema(identity=key.identity, profile=key.profile, scopes=sorted(key.rights), expires=key.expires)


class AccountSchema(Schema, frozen=True, kw_only=True):
    name: str
    state: str
    connected_since: Timestamp | None
    last_error: str | None
    failed_at: Timestamp | None


class AccountsSchema(Schema, frozen=True, kw_only=True):
    accounts: list[AccountSchema]


@endpoint("GET", "/platforms", summary="List platform accounts, their state and last error", owner_only=True)
async def list_platforms(request: WebRequest) -> AccountsSchema:
    found = await request.store.read(request.store.accounts.list_health(request.now))
    return AccountsSchema(accounts=[fill(AccountSchema, account) for account in found])


class ProblemSchema(Schema, frozen=True, kw_only=True):
    area: ProblemArea
    subject: str
    """The profile whose agent fails, or the account without a connection."""
    kind: str
    cause: str
    fix: str
    since: Timestamp
    last: Timestamp
    turn: int | None
    """The turn that failed last: trace it as `turn:7`."""
    detail: str | None
    """What the provider said."""


class ProblemsSchema(Schema, frozen=True, kw_only=True):
    problems: list[ProblemSchema]


@endpoint("GET", "/problems", summary="List what does not work now, why, and how to fix it", owner_only=True)
async def list_problems(request: WebRequest) -> ProblemsSchema:
    found = await request.store.read(request.store.problems.list_problems(request.now))
    return ProblemsSchema(problems=[fill(ProblemSchema, problem) for problem in found])


class _UsageQuery(Schema, frozen=True, kw_only=True):
    by: GroupBy = GroupBy.DAY
    since: Timestamp | None = None
    """Default: thirty days ago."""
    until: Timestamp | None = None


class UsageRowSchema(Schema, frozen=True, kw_only=True):
    of: str
    """A day, a person or a model."""
    used: UsageSchema


class UsageTableSchema(Schema, frozen=True, kw_only=True):
    by: GroupBy
    usage: list[UsageRowSchema]


@endpoint("GET", "/usage", summary="Show usage by day, person or model; other people's only to the owner")
async def get_usage(request: WebRequest, query: _UsageQuery) -> UsageTableSchema:
    since = query.since or request.now - _DEFAULT_SPAN
    table = request.store.usage.totals_by
    found = await request.browse(lambda who: table(query.by, who, since=since, until=query.until, zone=UTC))
    rows = [
        UsageRowSchema(of=of.isoformat() if isinstance(of, date) else of, used=fill(UsageSchema, spent))
        for of, spent in found.items()
    ]
    return UsageTableSchema(by=query.by, usage=rows)


class _EventsQuery(Schema, frozen=True, kw_only=True):
    after: str | None = None
    """The id of the last event you know; the same as the header Last-Event-ID."""


@endpoint(
    "GET",
    "/events",
    summary="Stream events of what you can see",
    media_type="text/event-stream",
    headers={"Last-Event-ID": "Resume after this event, without gaps."},
)
async def stream_events(request: WebRequest, query: _EventsQuery) -> Response:
    del query  # checked here, read from the HTTP request
    return event_stream(request.http, request.caller, request.services.hub, request.services.auth)


ENDPOINTS = (get_me, list_platforms, list_problems, get_usage, stream_events)
