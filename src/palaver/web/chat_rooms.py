"""Rooms of the chat: which conversation a page shows, what of it, and from where messages reach it."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from starlette.exceptions import HTTPException

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.source import MAIN, Source, decode_id
from palaver.model.transcript import Entry, Role
from palaver.model.turn import outbound_to
from palaver.model.value import value
from palaver.model.versions import choices
from palaver.store.people.api_tokens import Right
from palaver.store.status.chat_list import ListedChat
from palaver.store.status.overview import OpenTurn
from palaver.store.status.webchat_log import WebchatMessage
from palaver.web.caller import person_of, principal_of
from palaver.web.conversation_view import Around, Item, arrange
from palaver.web.routes import WebRequest

MAIN_CHAT = "main"
OTHER_CHATS = "/chat/s/"
"""Where conversations are shown that are not at home in a web chat of the reader."""
_CHAT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_PAGE_SIZE = 40
_FIRST_TIME = datetime.fromtimestamp(0).astimezone()


@value
class Room:
    """A conversation that a page shows, and the web chat from which messages reach it."""

    path: str
    source: Source
    place: SessionKey
    session: Session | None = None
    home: str | None = None
    """The page of the reader's web chat in which it is open, if that is another page."""
    listed: ListedChat | None = None

    @property
    def is_open(self) -> bool:
        return self.session is not None and self.session.ended is None

    @property
    def profile(self) -> str:
        return self.session.key.profile if self.session else MAIN

    @property
    def title(self) -> str:
        return self.listed.title if self.listed else "New conversation"


def source_of_chat(request: WebRequest, name: str) -> Source:
    if request.caller.web_user is None:
        raise HTTPException(403, "This login has no web chat. Use one made with --as web:NAME.")
    return request.services.webchat.source(request.caller.web_user, name)


def chat_name(request: WebRequest) -> str:
    name = request.path.get("name", MAIN_CHAT)
    if not _CHAT_NAME.fullmatch(name):
        raise HTTPException(404, "There is no such chat.")
    return name


def name_of_chat(chat: str) -> str:
    """Return the name in the id of a web chat."""
    _, _, name = chat.partition("/")
    return decode_id(name) if name else MAIN_CHAT


def path_of_chat(name: str) -> str:
    return f"/chat/{name}"


async def find_room(request: WebRequest) -> Room:
    """Return the room of a web chat of the caller: what is open there, even if it is attached to another place."""
    name = chat_name(request)
    source, store, engine = source_of_chat(request, name), request.store, request.services.engine
    place, key = await engine.place_of(source), await engine.key_of(source)
    room = Room(path=path_of_chat(name), source=source, place=place)

    @transaction
    def read(person: Principal) -> Statements[Room]:
        status = yield from store.turn_control.get_status(key, person)
        return (yield from _described(request, room, status.session))

    return await request.read_as_person(read)


@transaction
def _described(request: WebRequest, room: Room, session: Session | None) -> Statements[Room]:
    if session is None:
        return room
    listed = yield from request.store.chat_list.describe(request.caller.identity, [session])
    return replace(room, session=session, listed=listed[0])


async def find_room_of(request: WebRequest, id_: str) -> Room:
    """Return the room of any conversation that the caller can read."""
    request.require(Right.READ)
    store, engine = request.store, request.services.engine

    @transaction
    def find(principal: Principal) -> Statements[Session]:
        session = yield from store.sessions.get_visible(id_, principal)
        return (yield from store.chat_list.find_open_version(session))

    session = await request.read(find)
    source = source_of_chat(request, f"s-{session.root}")
    place, home = await engine.place_of(source), session.origin
    is_home = (home.platform, home.user_id) == (source.platform, source.user_id) and session.ended is None
    name = name_of_chat(home.chat_id or "")
    if is_home and _CHAT_NAME.fullmatch(name) and await engine.place_of(home) == session.key:
        return Room(path="", source=source, place=place, session=session, home=path_of_chat(name))
    room = Room(path=f"{OTHER_CHATS}{session.id}", source=source, place=place)
    return await request.read(lambda _: _described(request, room, session))


async def continue_here(request: WebRequest, id_: str) -> Source:
    """Lead a web chat of the caller to a conversation; return it.

    One that is open elsewhere goes on in both places. One that has ended is resumed here if it is the caller's own,
    else it goes on in a branch.
    """
    room = await find_room_of(request, id_)
    session, source, place, store = room.session, room.source, room.place, request.store
    if room.home is not None and session is not None:
        return session.origin

    @transaction
    def lead(principal: Principal) -> Statements[None]:
        if session is None or (yield from store.attach.conversation_of(place)) == session.key:
            return
        yield from request.check_command(principal, session.id, "attach")
        by = principal.name
        if session.ended is None:
            held = yield from store.attach.find_attachable(session.id, place, principal)
            farewell = outbound_to(source, texts.PARTED)
            yield from store.attach.attach(place, held, request.now, by=by, farewell=farewell)
            return
        person = yield from person_of(request.caller, store)
        if session.can_move_with(person.identities):
            yield from store.sessions.switch(place, source, session.id, principal, request.now, by=by)
        else:
            yield from store.branches.branch(place, source, principal, request.now, by=by, from_session=session.id)

    await request.write(lead)
    return source


@value
class Window:
    """The part of a conversation that is shown."""

    items: tuple[Item, ...] = ()
    earlier: int | None = None
    """Before which entry there is more."""
    first: int = 0
    last: int = 0
    open_turn: OpenTurn | None = None
    waiting: int = 0
    """How many messages wait."""

    @property
    def is_running(self) -> bool:
        return self.open_turn is not None and self.open_turn.question is None

    @property
    def question(self) -> str:
        return (self.open_turn and self.open_turn.question) or ""


async def read_window(request: WebRequest, room: Room, *, before: int | None = None) -> Window:
    """Read the newest messages, or those before an entry, with all that belongs to them."""
    store, session, hub = request.store, room.session, request.services.hub

    @transaction
    def read(person: Principal) -> Statements[Window]:
        # What is listed as the reader's own is read as them; only a conversation of others needs the owner's sight.
        if session is None:
            asides = yield from _asides(request, room, person, _FIRST_TIME, None)
            waiting = sum(aside.waits for aside in asides)
            return Window(items=tuple(arrange((), None, Around(asides=asides))), waiting=waiting)
        principal = (yield from principal_of(request.caller, store)) if request.caller.has(Right.READ) else person
        page = partial(store.transcript.page, session.id, principal)
        entries, earlier = yield from _read_turns(page, before)
        later = (yield from page(after=before - 1, limit=1)) if before else []
        turns = sorted({int(entry.turn) for entry in entries if entry.turn})
        facts = yield from store.chat_list.answer_facts(turns)
        failed = [turn for turn, each in facts.items() if each.is_failed]
        open_turns = [] if before else (yield from store.overview.list_open_turns(principal, 1, session.id))
        # A message can be older than the session that it opened.
        since = entries[0].at if earlier else min((entry.at for entry in entries), default=_FIRST_TIME)
        asides = yield from _asides(request, room, person, since, later[0].at if later else None)
        versions = choices((yield from store.chat_list.list_versions(session)), session.id)
        marked = yield from store.chat_list.mark_edits(versions)
        around = Around(
            facts=facts,
            failures=(yield from store.webchat_log.failure_notices(failed)),
            choices={seq: each for seq, each in marked.items() if entries and each.message >= entries[0].seq},
            asides=asides,
            open_turn=open_turns[0] if open_turns else None,
            growing=hub.growing(session.id),
            users=frozenset(identity.partition(":")[2] for identity in person.identities),
        )
        return Window(
            items=tuple(arrange(entries, session, around)),
            earlier=earlier,
            first=entries[0].seq if entries else 0,
            last=session.counters.entries,
            open_turn=around.open_turn,
            waiting=sum(aside.waits for aside in asides),
        )

    return await request.read_as_person(read)


def _asides(
    request: WebRequest, room: Room, person: Principal, since: datetime, until: datetime | None
) -> Statements[list[WebchatMessage]]:
    read = request.store.webchat_log.list_asides
    return (yield from read(room.place, room.source.chat_id or "", person, since=since, until=until))


@transaction
def _read_turns(
    page: Callable[..., Transaction[list[Entry]]], before: int | None
) -> Statements[tuple[list[Entry], int | None]]:
    """Return a page of whole turns, however long the last one is, and before which entry there is more."""
    entries = found = yield from page(before=before, limit=_PAGE_SIZE)
    while len(found) == _PAGE_SIZE and _is_inside_turn(found):
        found = yield from page(before=entries[0].seq, limit=_PAGE_SIZE)
        entries = [*found, *entries]
    if len(found) < _PAGE_SIZE:
        return entries, None
    # Leave out the end of a turn whose beginning is not read.
    start = next((at for at, entry in enumerate(entries) if entry.role is Role.USER), 0)
    return entries[start:], entries[start].seq


def _is_inside_turn(entries: list[Entry]) -> bool:
    turn = entries[0].turn
    return turn is not None and all(entry.turn == turn and entry.role is not Role.USER for entry in entries)


def platform_title(request: WebRequest, session: Session | None) -> str:
    """Return the name of the platform a conversation comes from; nothing for the web chat itself."""
    name = session.origin.platform if session else "web"
    known = request.services.platforms.get(name)
    return "" if name == "web" else known.title if known else name.title()
