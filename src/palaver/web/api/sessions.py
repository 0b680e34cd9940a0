"""The API: sessions, their transcripts, search, files."""

from typing import Annotated

from msgspec import Meta
from starlette.exceptions import HTTPException

from palaver.model.errors import BadArgument
from palaver.model.lifecycle import SessionState
from palaver.model.transcript import Role
from palaver.store.people.api_tokens import Right
from palaver.store.search.search import Order, SearchFilter
from palaver.store.status.session_list import ListFilter
from palaver.web.api.endpoints import Ask, Endpoint, Schema
from palaver.web.api.schemas import EntrySchema, Limit, Moment, SessionSchema, entry_schema, session_schema
from palaver.web.authorization import rename
from palaver.web.caller import principal_of
from palaver.web.http import download

__all__ = [
    "ENDPOINTS",
    "AnswerSchema",
    "CommandSchema",
    "EntriesSchema",
    "HitSchema",
    "HitsSchema",
    "RenameSchema",
    "SessionsSchema",
]

_Seq = Annotated[int, Meta(ge=0, le=1 << 24)]


class _SessionsQuery(Schema, frozen=True, kw_only=True):
    platform: str | None = None
    profile: str | None = None
    state: SessionState | None = None
    title: str | None = None
    """Text somewhere in the title."""
    person: str | None = None
    """The identity of somebody who took part: `telegram:7`."""
    since: Moment | None = None
    until: Moment | None = None
    after: str | None = None
    """Where the page before ended."""
    limit: Limit = 50


class SessionsSchema(Schema, frozen=True, kw_only=True):
    sessions: list[SessionSchema]
    after: str | None
    """Where the next page begins; null on the last one."""


async def _list(ask: Ask) -> SessionsSchema:
    query: _SessionsQuery = ask.query
    wanted = ListFilter(
        platform=query.platform,
        profile=query.profile,
        state=query.state,
        title=query.title,
        person=query.person,
        since=query.since,
        until=query.until,
    )
    lists = ask.services.store.session_list
    page = await ask.services.read(
        ask.caller,
        lambda principal: lists.list_sessions(principal, wanted=wanted, after=query.after, limit=query.limit),
    )
    return SessionsSchema(
        sessions=[session_schema(each.session, each.last_said) for each in page.previews], after=page.after
    )


async def _get(ask: Ask) -> SessionSchema:
    sessions = ask.services.store.sessions
    return session_schema(await ask.services.read(ask.caller, lambda who: sessions.get_visible(ask.path["id"], who)))


class RenameSchema(Schema, frozen=True, kw_only=True):
    title: Annotated[str, Meta(min_length=1, max_length=200)]


async def _rename(ask: Ask) -> SessionSchema:
    return session_schema(await rename(ask.services, ask.caller, ask.path["id"], ask.body.title))


class CommandSchema(Schema, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=2, max_length=10_000)]


class AnswerSchema(Schema, frozen=True, kw_only=True):
    answer: str


async def _command(ask: Ask) -> AnswerSchema:
    services, caller = ask.services, ask.caller
    principal = await services.store.read(principal_of(caller, services.store))
    answer = await services.engine.run_command(ask.body.command, ask.path["id"], principal)
    services.hub.hint("sessions", "turns")
    return AnswerSchema(answer=answer)


class _EntriesQuery(Schema, frozen=True, kw_only=True):
    before: _Seq | None = None
    """The last entries before this seq."""
    after: _Seq | None = None
    """The first entries after this seq."""
    hidden: bool = False
    """Also what was undone or summarised: for the owner."""
    limit: Limit = 100


class EntriesSchema(Schema, frozen=True, kw_only=True):
    entries: list[EntrySchema]


async def _entries(ask: Ask) -> EntriesSchema:
    query, transcripts = ask.query, ask.services.store.transcript
    if query.before is not None and query.after is not None:
        raise BadArgument("Entries are given in one direction, not in", found="two", allowed="one", example="?after=7")
    if query.hidden and not ask.caller.is_owner:
        raise HTTPException(403, "What was hidden is the owner's to see.")
    found = await ask.services.read(
        ask.caller,
        lambda principal: transcripts.passage(
            ask.path["id"],
            principal,
            before=query.before,
            after=query.after,
            limit=query.limit,
            hidden=query.hidden,
        ),
    )
    return EntriesSchema(entries=[entry_schema(entry) for entry in found])


class _SearchQuery(Schema, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    platform: str | None = None
    person: str | None = None
    role: Role | None = None
    session: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    order: Order = Order.NEWEST
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class HitSchema(Schema, frozen=True, kw_only=True):
    session: SessionSchema
    entry: EntrySchema
    snippet: str
    marks: list[tuple[int, int]]
    """Where in the snippet the words stand."""


class HitsSchema(Schema, frozen=True, kw_only=True):
    hits: list[HitSchema]


async def _search(ask: Ask) -> HitsSchema:
    query, store = ask.query, ask.services.store
    wanted = SearchFilter(
        platform=query.platform,
        people=frozenset({query.person} if query.person else ()),
        roles=frozenset({query.role} if query.role else ()),
        session=query.session,
        since=query.since,
        until=query.until,
    )
    principal = await store.read(principal_of(ask.caller, store))
    hits = await store.search.find(query.q, principal, filter=wanted, order=query.order, limit=query.limit)
    return HitsSchema(
        hits=[
            HitSchema(
                session=session_schema(hit.session),
                entry=entry_schema(hit.entry),
                snippet=hit.snippet,
                marks=list(hit.marks),
            )
            for hit in hits
        ]
    )


async def _file(ask: Ask) -> object:
    files = ask.services.store.attachments
    found = await ask.services.read(ask.caller, lambda principal: files.find(ask.path["id"], principal))
    return download(found, ask.services.shelf)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/sessions",
        does=_list,
        asks=_SessionsQuery,
        gives=SessionsSchema,
        summary="Sessions that you may see, those used last in front",
    ),
    Endpoint(method="GET", path="/sessions/{id}", does=_get, gives=SessionSchema, summary="One session"),
    Endpoint(
        method="PATCH",
        path="/sessions/{id}",
        does=_rename,
        takes=RenameSchema,
        example={"title": "Holiday plans"},
        gives=SessionSchema,
        needs=Right.MANAGE,
        summary="Give a session another title",
    ),
    Endpoint(
        method="POST",
        path="/sessions/{id}/commands",
        does=_command,
        takes=CommandSchema,
        example={"command": "/undo"},
        gives=AnswerSchema,
        needs=Right.MANAGE,
        summary="Do a command in a session that is open, as if it had been said there; the answer comes to you alone",
    ),
    Endpoint(
        method="GET",
        path="/sessions/{id}/entries",
        does=_entries,
        asks=_EntriesQuery,
        gives=EntriesSchema,
        summary="The transcript of a session: its newest entries, or those before or after one",
    ),
    Endpoint(
        method="GET",
        path="/search",
        does=_search,
        asks=_SearchQuery,
        gives=HitsSchema,
        summary="Find what was said in sessions that you may see",
    ),
    Endpoint(
        method="GET",
        path="/files/{id}",
        does=_file,
        gives=None,
        media_type="application/octet-stream",
        summary="The content of a file of a session that you may see",
    ),
)
