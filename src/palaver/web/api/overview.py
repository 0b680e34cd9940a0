"""The API: who you are here, what is connected, what was used, and what happens."""

from datetime import UTC, date, timedelta

from palaver.model.quotas import UsageTotal
from palaver.store.people.api_tokens import Right
from palaver.store.people.usage import GroupBy
from palaver.web.api.endpoints import Ask, Endpoint, Schema
from palaver.web.api.schemas import Moment, UsageSchema
from palaver.web.sse import stream

__all__ = ["ENDPOINTS", "AccountSchema", "AccountsSchema", "MeSchema", "UsedSchema", "UsesSchema"]

_LATELY = timedelta(days=30)


class MeSchema(Schema, frozen=True, kw_only=True):
    identity: str | None
    """On whose behalf you read; null for the owner, who sees everything."""
    scopes: list[Right]
    expires: Moment | None


async def _me(ask: Ask) -> MeSchema:
    key = ask.caller.key
    return MeSchema(identity=key.identity, scopes=sorted(key.rights), expires=key.expires)


class AccountSchema(Schema, frozen=True, kw_only=True):
    name: str
    state: str
    connected_since: Moment | None
    last_error: str | None
    failed_at: Moment | None


class AccountsSchema(Schema, frozen=True, kw_only=True):
    accounts: list[AccountSchema]


async def _platforms(ask: Ask) -> AccountsSchema:
    found = await ask.services.store.read(ask.services.store.accounts.list_health(ask.services.clock.now()))
    return AccountsSchema(
        accounts=[
            AccountSchema(
                name=each.name,
                state=each.state,
                connected_since=each.connected_since,
                last_error=each.last_error,
                failed_at=each.failed_at,
            )
            for each in found
        ]
    )


class _UsageQuery(Schema, frozen=True, kw_only=True):
    by: GroupBy = GroupBy.DAY
    since: Moment | None = None
    """By default thirty days ago."""
    until: Moment | None = None


class UsedSchema(Schema, frozen=True, kw_only=True):
    of: str
    """A day, a person or a model."""
    used: UsageSchema


class UsesSchema(Schema, frozen=True, kw_only=True):
    by: GroupBy
    usage: list[UsedSchema]


async def _usage(ask: Ask) -> UsesSchema:
    query, uses = ask.query, ask.services.store.usage
    since = query.since or ask.services.clock.now() - _LATELY
    found = await ask.services.read(
        ask.caller, lambda who: uses.table(query.by, who, since=since, until=query.until, zone=UTC)
    )
    return UsesSchema(by=query.by, usage=[UsedSchema(of=_name(of), used=_shape(spent)) for of, spent in found.items()])


def _name(of: str | date) -> str:
    return of.isoformat() if isinstance(of, date) else of


def _shape(spent: UsageTotal) -> UsageSchema:
    return UsageSchema(
        turns=spent.turns,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost_micros=spent.cost_micros,
    )


class _EventsQuery(Schema, frozen=True, kw_only=True):
    after: str | None = None
    """The id of the last event that you know, as the header Last-Event-ID."""


async def _events(ask: Ask) -> object:
    return stream(ask.request, ask.caller, ask.services.hub, ask.services.auth)


ENDPOINTS = (
    Endpoint(method="GET", path="/me", does=_me, gives=MeSchema, needs=None, summary="Who you are here"),
    Endpoint(
        method="GET",
        path="/platforms",
        does=_platforms,
        gives=AccountsSchema,
        for_owner=True,
        summary="Which accounts are connected, since when, and what went wrong last",
    ),
    Endpoint(
        method="GET",
        path="/usage",
        does=_usage,
        asks=_UsageQuery,
        gives=UsesSchema,
        summary="What was used, by day, person or model; of others only for the owner",
    ),
    Endpoint(
        method="GET",
        path="/events",
        does=_events,
        asks=_EventsQuery,
        gives=None,
        media_type="text/event-stream",
        headers={"Last-Event-ID": "Where you were cut off: nothing is left out."},
        summary="What happens to what you may see, as it happens",
    ),
)
