"""API endpoints for sessions, their transcripts, search and files."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict
from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.model.errors import BadArgument
from palaver.model.session import SessionState
from palaver.model.transcript import Role
from palaver.operations.operation import Limit, Schema, Timestamp, fill
from palaver.store.people.api_tokens import Right
from palaver.store.search.search import Order, SearchFilter
from palaver.store.status.session_list import ListFilter
from palaver.web.api.endpoints import endpoint
from palaver.web.api.schemas import EntrySchema, SessionSchema, entry_schema, session_schema
from palaver.web.files import download
from palaver.web.routes import WebRequest

_Seq = Annotated[int, Meta(ge=0, le=1 << 24)]


class _SessionsQuery(Schema, frozen=True, kw_only=True):
    platform: str | None = None
    profile: str | None = None
    state: SessionState | None = None
    title: str | None = None
    """Part of the title."""
    person: str | None = None
    """The identity of somebody who took part: `telegram:7`."""
    since: Timestamp | None = None
    until: Timestamp | None = None
    latest_versions: bool = False
    """Of the versions of a conversation, only the one that is open or was last used."""
    after: str | None = None
    """Where the previous page ended."""
    limit: Limit = 50


class SessionsSchema(Schema, frozen=True, kw_only=True):
    sessions: list[SessionSchema]
    after: str | None
    """Where the next page begins; null on the last one."""


@endpoint("GET", "/sessions", summary="List the sessions you can see, last used first")
async def list_sessions(request: WebRequest, query: _SessionsQuery) -> SessionsSchema:
    wanted = ListFilter(**{name: given for name, given in asdict(query).items() if name not in {"after", "limit"}})
    find = request.store.session_list.list_sessions
    page = await request.browse(lambda principal: find(principal, wanted=wanted, after=query.after, limit=query.limit))
    sessions = [session_schema(preview.session, preview.last_said) for preview in page.previews]
    return SessionsSchema(sessions=sessions, after=page.after)


@endpoint("GET", "/sessions/{id}", summary="Get a session")
async def get_session(request: WebRequest) -> SessionSchema:
    find = request.store.sessions.get_visible
    return session_schema(await request.read(lambda principal: find(request.path["id"], principal)))


class RenameSchema(Schema, frozen=True, kw_only=True):
    title: Annotated[str, Meta(min_length=1, max_length=200)]


@endpoint("PATCH", "/sessions/{id}", summary="Rename a session", needs=Right.MANAGE, example={"title": "Holiday plans"})
async def rename_session(request: WebRequest, body: RenameSchema) -> SessionSchema:
    return session_schema(await request.rename_session(request.path["id"], body.title))


class RemovedSchema(Schema, frozen=True, kw_only=True):
    id: str
    entries: int
    turns: int


@endpoint("DELETE", "/sessions/{id}", summary="Permanently delete a session", needs=Right.MANAGE)
async def delete_session(request: WebRequest) -> RemovedSchema:
    removed = await request.delete_session(request.path["id"])
    return fill(RemovedSchema, removed, id=removed.session.id)


class CommandSchema(Schema, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=2, max_length=10_000)]


class AnswerSchema(Schema, frozen=True, kw_only=True):
    answer: str


@endpoint(
    "POST",
    "/sessions/{id}/commands",
    summary="Run a command in an open session; only you get its answer",
    needs=Right.MANAGE,
    example={"command": "/undo"},
)
async def run_command(request: WebRequest, body: CommandSchema) -> AnswerSchema:
    return AnswerSchema(answer=await request.run_command(request.path["id"], body.command))


class _EntriesQuery(Schema, frozen=True, kw_only=True):
    before: _Seq | None = None
    """The last entries before this seq."""
    after: _Seq | None = None
    """The first entries after this seq."""
    summarised: bool = False
    """Include entries that a summary stands for."""
    hidden: bool = False
    """Include entries that were undone or summarised; for the owner only."""
    limit: Limit = 100


class EntriesSchema(Schema, frozen=True, kw_only=True):
    entries: list[EntrySchema]


@endpoint(
    "GET", "/sessions/{id}/entries", summary="Read a transcript: its newest entries, or those before or after one"
)
async def get_entries(request: WebRequest, query: _EntriesQuery) -> EntriesSchema:
    if query.before is not None and query.after is not None:
        problem = "Give before or after, not both."
        raise BadArgument(problem, found="both", allowed="before or after", fix="", example="?after=7")
    if query.hidden and not request.caller.is_owner:
        raise HTTPException(403, "Only the owner can see hidden entries.")
    find = request.store.transcript.page
    found = await request.read(lambda principal: find(request.path["id"], principal, **asdict(query)))
    return EntriesSchema(entries=[entry_schema(entry) for entry in found])


class _SearchQuery(Schema, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    platform: str | None = None
    person: str | None = None
    role: Role | None = None
    session: str | None = None
    since: Timestamp | None = None
    until: Timestamp | None = None
    order: Order | None = None
    """By default the best come first for several plain words, else the newest."""
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class HitSchema(Schema, frozen=True, kw_only=True):
    session: SessionSchema
    entry: EntrySchema | None
    """Null if the title of the session matches."""
    snippet: str
    marks: Sequence[tuple[int, int]]
    """Start and end of each match in the snippet."""


class HitsSchema(Schema, frozen=True, kw_only=True):
    hits: list[HitSchema]


@endpoint("GET", "/search", summary="Search the sessions you can see")
async def search(request: WebRequest, query: _SearchQuery) -> HitsSchema:
    wanted = SearchFilter(
        platform=query.platform,
        people=frozenset({query.person} if query.person else ()),
        roles=frozenset({query.role} if query.role else ()),
        session=query.session,
        since=query.since,
        until=query.until,
    )
    principal = await request.principal()
    hits = await request.store.search.find(query.q, principal, filter=wanted, order=query.order, limit=query.limit)
    return HitsSchema(
        hits=[
            fill(HitSchema, hit, session=session_schema(hit.session), entry=hit.entry and entry_schema(hit.entry))
            for hit in hits
        ]
    )


@endpoint(
    "GET", "/files/{id}", summary="Download a file of a session you can see", media_type="application/octet-stream"
)
async def get_file(request: WebRequest) -> Response:
    find = request.store.attachments.find
    file = await request.read(lambda principal: find(request.path["id"], principal))
    return download(file, request.services.shelf)


ENDPOINTS = (list_sessions, get_session, rename_session, delete_session, run_command, get_entries, search, get_file)
