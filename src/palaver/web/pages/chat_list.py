"""The list of conversations beside the chat: grouped by day, searched, pinned, renamed, archived and deleted."""

import asyncio
from collections.abc import Iterable
from datetime import date, timedelta

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import SessionBusy
from palaver.model.session import Principal, Session
from palaver.model.value import value
from palaver.store.conversations.deletion import ProcessRuns
from palaver.store.people.api_tokens import Right
from palaver.store.status.chat_list import ListedChat
from palaver.web.caller import person_of
from palaver.web.chat_rooms import MAIN_CHAT, OTHER_CHATS, name_of_chat, path_of_chat, platform_title, source_of_chat
from palaver.web.pages.common import parse_number, query_value, read_form, show_page
from palaver.web.routes import WebRequest, action, page

_MAX_HITS = 30
_MAX_QUERY = 200
_DAYS = (("Today", 0), ("Yesterday", 1), ("Last 7 days", 7), ("Last 30 days", 30))


@value
class Row:
    chat: ListedChat
    path: str
    platform: str
    """Where it comes from, if not from the web chat."""
    snippet: str = ""


@value
class ChatGroup:
    heading: str
    rows: tuple[Row, ...]


@value
class ChatList:
    groups: tuple[ChatGroup, ...]
    after: str | None = None
    query: str = ""
    archived: bool = False


async def read_list(request: WebRequest) -> ChatList:
    """Read the conversations of the caller, or those in which their words are found."""
    query, archived = query_value(request, "q")[:_MAX_QUERY], bool(query_value(request, "archived"))

    if query:
        return ChatList(groups=await _search(request, query), query=query)
    find, after, identity = request.store.chat_list.list_chats, query_value(request, "after"), request.caller.identity
    found = await request.read_as_person(lambda who: find(who, identity, archived=archived, after=after or None))
    rows = [await _row(request, chat) for chat in found.chats]
    return ChatList(groups=tuple(_by_day(request, rows)), after=found.after, archived=archived)


async def newest_path(request: WebRequest) -> str | None:
    """Return the page of the conversation that the caller used last, if there is one that they can open."""
    source_of_chat(request, MAIN_CHAT)
    found = await request.read_as_person(lambda person: request.store.session_list.recent_sessions(person, 1))
    path = await _path(request, found[0].session) if found else None
    return path if request.caller.has(Right.READ) or not (path and path.startswith(OTHER_CHATS)) else None


async def _search(request: WebRequest, query: str) -> tuple[ChatGroup, ...]:
    principal = await request.store.read(person_of(request.caller, request.store))
    hits = await request.search_beginnings(principal, query, _MAX_HITS)
    snippets: dict[str, str] = {}
    for hit in hits:
        snippets.setdefault(hit.session.id, hit.snippet if hit.entry else "")
    sessions = list({hit.session.id: hit.session for hit in hits}.values())
    chats = await request.store.read(request.store.chat_list.describe(request.caller.identity, sessions))
    rows = [await _row(request, chat, snippets.get(chat.session.id, "")) for chat in chats]
    return (ChatGroup(heading="Found" if rows else "Nothing found", rows=tuple(rows)),)


async def _row(request: WebRequest, chat: ListedChat, snippet: str = "") -> Row:
    path = await _path(request, chat.session)
    return Row(chat=chat, path=path, platform=platform_title(request, chat.session), snippet=snippet)


async def _path(request: WebRequest, session: Session) -> str:
    """Return the page of the web chat in which a session is open, else its own."""
    home = session.origin
    is_mine = session.ended is None and (home.platform, home.user_id) == ("web", request.caller.web_user)
    if is_mine and await request.services.engine.place_of(home) == session.key:
        return path_of_chat(name_of_chat(home.chat_id or ""))
    return f"{OTHER_CHATS}{session.id}"


_PINNED = "Pinned"


def _by_day(request: WebRequest, rows: Iterable[Row]) -> Iterable[ChatGroup]:
    zone = request.services.engine.settings.zones.default
    today = request.now.astimezone(zone).date()
    groups: dict[str, list[Row]] = {_PINNED: []}
    for row in rows:
        day = row.chat.session.last_active.astimezone(zone).date()
        groups.setdefault(_PINNED if row.chat.is_pinned else _heading(day, today), []).append(row)
    return (ChatGroup(heading=heading, rows=tuple(members)) for heading, members in groups.items() if members)


def _heading(day: date, today: date) -> str:
    """Return `Today`, `Yesterday`, a recent span, or the month."""
    for heading, days in _DAYS:
        if day >= today - timedelta(days=days):
            return heading
    return f"{day:%B}" if day.year == today.year else f"{day:%B %Y}"


@page("/chat/-/list", needs=Right.CHAT)
async def show_list(request: WebRequest) -> Response:
    return show_page(
        request, "parts/chat_list.html", listed=await read_list(request), current=query_value(request, "here")
    )


@action("/chat/-/{id}/mark", needs=Right.CHAT)
async def mark(request: WebRequest) -> Response:
    """Pin, archive, or say what was seen."""
    form = await read_form(request)
    asked = {name: form[name] == "1" for name in ("pinned", "archived") if name in form}
    seen, set_mark = parse_number(form.get("seen", "")), request.store.chat_list.mark
    identity, now = request.caller.identity, request.now
    changed = await request.write(lambda who: set_mark(request.path["id"], identity, who, now, **asked, seen=seen))
    if changed:
        request.services.hub.hint("sessions")
    return PlainTextResponse("")


@action("/chat/-/{id}/rename")
async def rename(request: WebRequest) -> Response:
    renamed = await request.rename_session(request.path["id"], (await read_form(request)).get("title", ""))
    return PlainTextResponse(renamed.title or "")


@action("/chat/-/{id}/delete")
async def delete(request: WebRequest) -> Response:
    """Delete a conversation with all its versions."""
    store = request.store

    @transaction
    def find(principal: Principal) -> Statements[list[str]]:
        session = yield from store.sessions.get_visible(request.path["id"], principal)
        versions = yield from store.chat_list.list_versions(session)
        return [version.id for version in versions] or [session.id]

    # The last version first: what is deleted halfway is still one conversation.
    for session in reversed(await request.read(find)):
        await _stop_and_delete(request, session)
    return PlainTextResponse("Deleted.")


async def _stop_and_delete(request: WebRequest, session: str) -> None:
    """Delete a session; stop first what is being answered in it."""
    for _ in range(_STOP_CHECKS):
        try:
            await request.delete_session(session)
        except ProcessRuns as error:
            raise HTTPException(409, _PROCESS_RUNS) from error
        except SessionBusy:
            await request.run_command(session, "/stop all")
            await asyncio.sleep(_STOP_PAUSE)
        else:
            return
    raise HTTPException(409, "It was not deleted: its answer has not stopped yet. Try again in a moment.")


_STOP_CHECKS, _STOP_PAUSE = 100, 0.1
_PROCESS_RUNS = (
    "It was not deleted: a background process of it still runs. Stop it on the page Processes, then try again."
)


@action("/chat/-/{id}/instructions")
async def instruct(request: WebRequest) -> Response:
    text, session = (await read_form(request)).get("instructions", ""), request.path["id"]
    if len(text) > MAX_INSTRUCTIONS:
        raise HTTPException(413, f"Instructions can have at most {MAX_INSTRUCTIONS:,} characters, not {len(text):,}.")

    @transaction
    def change(principal: Principal) -> Statements[None]:
        yield from request.check_command(principal, session, "model")
        yield from request.store.chat_list.set_instructions(session, text, principal)

    await request.write(change)
    request.services.hub.hint("sessions")
    return PlainTextResponse("Saved. It applies from your next message.")


MAX_INSTRUCTIONS = 8_000

ROUTES = (show_list, mark, rename, delete, instruct)
