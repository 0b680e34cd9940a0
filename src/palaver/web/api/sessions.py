"""The API: sessions, their transcripts, search, files."""

from typing import Annotated

from msgspec import Meta
from starlette.exceptions import HTTPException

from palaver.model.errors import BadArgument
from palaver.model.lifecycle import SessionState
from palaver.model.transcript import Role
from palaver.store.search.search import Order, SearchFilter
from palaver.store.status.journal_feed import Right
from palaver.store.status.session_list import ListFilter
from palaver.web.api.endpoints import Ask, Endpoint, Shape
from palaver.web.api.schemas import EntryShape, Limit, Moment, SessionShape, entry_shape, session_shape
from palaver.web.authorization import rename
from palaver.web.http import download
from palaver.web.visitor import principal_of

__all__ = [
    "ENDPOINTS",
    "AnswerShape",
    "CommandShape",
    "EntriesShape",
    "HitShape",
    "HitsShape",
    "RenameShape",
    "SessionsShape",
]

_Seq = Annotated[int, Meta(ge=0, le=1 << 24)]


class _SessionsQuery(Shape, frozen=True, kw_only=True):
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


class SessionsShape(Shape, frozen=True, kw_only=True):
    sessions: list[SessionShape]
    after: str | None
    """Where the next page begins; null on the last one."""


async def _list(ask: Ask) -> SessionsShape:
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
    lists = ask.desk.store.session_list
    page = await ask.desk.read(
        ask.visitor,
        lambda principal: lists.list_sessions(principal, wanted=wanted, after=query.after, limit=query.limit),
    )
    return SessionsShape(
        sessions=[session_shape(each.session, each.last_said) for each in page.previews], after=page.after
    )


async def _get(ask: Ask) -> SessionShape:
    sessions = ask.desk.store.sessions
    return session_shape(await ask.desk.read(ask.visitor, lambda who: sessions.get_visible(ask.path["id"], who)))


class RenameShape(Shape, frozen=True, kw_only=True):
    title: Annotated[str, Meta(min_length=1, max_length=200)]


async def _rename(ask: Ask) -> SessionShape:
    return session_shape(await rename(ask.desk, ask.visitor, ask.path["id"], ask.body.title))


class CommandShape(Shape, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=2, max_length=10_000)]


class AnswerShape(Shape, frozen=True, kw_only=True):
    answer: str


async def _command(ask: Ask) -> AnswerShape:
    desk, visitor = ask.desk, ask.visitor
    principal = await desk.store.read(principal_of(visitor, desk.store))
    answer = await desk.engine.order(ask.body.command, ask.path["id"], principal)
    desk.hub.hint("sessions", "turns")
    return AnswerShape(answer=answer)


class _EntriesQuery(Shape, frozen=True, kw_only=True):
    before: _Seq | None = None
    """The last entries before this seq."""
    after: _Seq | None = None
    """The first entries after this seq."""
    hidden: bool = False
    """Also what was undone or summarised: for the owner."""
    limit: Limit = 100


class EntriesShape(Shape, frozen=True, kw_only=True):
    entries: list[EntryShape]


async def _entries(ask: Ask) -> EntriesShape:
    query, transcripts = ask.query, ask.desk.store.transcript
    if query.before is not None and query.after is not None:
        raise BadArgument("Entries are given in one direction, not in", found="two", allowed="one", example="?after=7")
    if query.hidden and not ask.visitor.is_owner:
        raise HTTPException(403, "What was hidden is the owner's to see.")
    found = await ask.desk.read(
        ask.visitor,
        lambda principal: transcripts.passage(
            ask.path["id"],
            principal,
            before=query.before,
            after=query.after,
            limit=query.limit,
            hidden=query.hidden,
        ),
    )
    return EntriesShape(entries=[entry_shape(entry) for entry in found])


class _SearchQuery(Shape, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    platform: str | None = None
    person: str | None = None
    role: Role | None = None
    session: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    order: Order = Order.NEWEST
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class HitShape(Shape, frozen=True, kw_only=True):
    session: SessionShape
    entry: EntryShape
    snippet: str
    marks: list[tuple[int, int]]
    """Where in the snippet the words stand."""


class HitsShape(Shape, frozen=True, kw_only=True):
    hits: list[HitShape]


async def _search(ask: Ask) -> HitsShape:
    query, store = ask.query, ask.desk.store
    wanted = SearchFilter(
        platform=query.platform,
        people=frozenset({query.person} if query.person else ()),
        roles=frozenset({query.role} if query.role else ()),
        session=query.session,
        since=query.since,
        until=query.until,
    )
    principal = await store.read(principal_of(ask.visitor, store))
    hits = await store.search.find(query.q, principal, filter=wanted, order=query.order, limit=query.limit)
    return HitsShape(
        hits=[
            HitShape(
                session=session_shape(hit.session),
                entry=entry_shape(hit.entry),
                snippet=hit.snippet,
                marks=list(hit.marks),
            )
            for hit in hits
        ]
    )


async def _file(ask: Ask) -> object:
    files = ask.desk.store.attachments
    found = await ask.desk.read(ask.visitor, lambda principal: files.find(ask.path["id"], principal))
    return download(found, ask.desk.shelf)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/sessions",
        does=_list,
        asks=_SessionsQuery,
        gives=SessionsShape,
        summary="Sessions that you may see, those used last in front",
    ),
    Endpoint(method="GET", path="/sessions/{id}", does=_get, gives=SessionShape, summary="One session"),
    Endpoint(
        method="PATCH",
        path="/sessions/{id}",
        does=_rename,
        takes=RenameShape,
        example={"title": "Holiday plans"},
        gives=SessionShape,
        needs=Right.MANAGE,
        summary="Give a session another title",
    ),
    Endpoint(
        method="POST",
        path="/sessions/{id}/commands",
        does=_command,
        takes=CommandShape,
        example={"command": "/undo"},
        gives=AnswerShape,
        needs=Right.MANAGE,
        summary="Do a command in a session that is open, as if it had been said there; the answer comes to you alone",
    ),
    Endpoint(
        method="GET",
        path="/sessions/{id}/entries",
        does=_entries,
        asks=_EntriesQuery,
        gives=EntriesShape,
        summary="The transcript of a session: its newest entries, or those before or after one",
    ),
    Endpoint(
        method="GET",
        path="/search",
        does=_search,
        asks=_SearchQuery,
        gives=HitsShape,
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
