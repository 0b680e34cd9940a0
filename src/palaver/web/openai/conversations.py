"""Find the conversation that a chat completion request belongs to.

A client can name a session (header or `metadata`) or a conversation (`user`). Otherwise its history says which one it
continues: a client sends its whole history each time, or its last messages. Conversations that begin alike have names
that begin alike. Instructions (the system text) can change with every request, so they identify nothing. If the history
leaves ours earlier, we branch where they part; if it is empty or differs, we start a new conversation with the client's
history in the first message.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from palaver.db.transaction import Lock, Statements, transaction
from palaver.engine import texts
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import TurnState
from palaver.model.value import value
from palaver.store.records import SEQS
from palaver.web.message_service import MessageService, ProgramRequest, conversation_for
from palaver.web.openai.items import name_in_ids
from palaver.web.openai.schema import ChatInput, ChatMessage, check_length, merge_turns
from palaver.web.routes import WebRequest

_MAX_NAME_LENGTH = 100
_AUTO = "auto"
"""How the names of conversations begin that a client does not name."""
_AUTO_NAME = re.compile(rf"{_AUTO}-[0-9a-f]{{24}}(?=-[0-9a-f]+$)")
"""What conversations that begin alike have in common, at the end of a chat id."""
_MAX_CANDIDATES = 20
"""How many conversations that begin alike to compare with a history, newest first."""
_UNMISTAKABLE_CHARACTERS = 200
"""A shorter exchange can be in a conversation that is not compared, too."""
_MAX_WAITING = 1000
"""How many turns that wait for a client to compare with its results."""


@value(kw_only=False)
class Destination:
    """Where a message goes."""

    source: Source
    begins: bool = False
    """It begins a conversation."""
    parent: str | None = None
    """It begins a branch of this session, which leaves it at `at_seq`."""
    at_seq: int | None = None
    continues: int | None = None
    """It continues a session after this entry, if no other message does."""


@value
class ConversationFinder:
    service: MessageService
    chat: ChatInput
    asked: ProgramRequest | None
    """The request, if it has an idempotency key."""
    session: str | None
    """The session the client names, by id or title."""
    user: str | None
    previous: int | None = None
    """The message whose answer the client follows."""

    @property
    def request(self) -> WebRequest:
        return self.service.request

    @property
    def is_named(self) -> bool:
        """Whether the client names its conversation, so that its history does not decide."""
        return self.session is not None or self.previous is not None or self.user is not None

    @property
    def key(self) -> str | None:
        return self.asked.key if self.asked else None

    @property
    def name(self) -> str:
        if self.user is not None:
            # Databases limit the length of a key.
            return f"user-{self.user if len(self.user) <= _MAX_NAME_LENGTH else conversation_for(self.user)}"
        first = next((message.text for message in self.chat.history if message.is_user), self.chat.text)
        return conversation_name(first)

    @property
    def opening(self) -> str:
        """The text that begins a new conversation. One with a name has no history: the client keeps its own."""
        history = () if self.user is not None else self.chat.history
        return fold_history(self.chat.system, history, self.chat.text)

    def _checked_opening(self) -> str:
        check_length("The first message of a conversation, with instructions and history,", len(self.opening))
        return self.opening

    async def destination(self, *, branches: bool = False) -> "Destination":
        """Return where the message goes; a branch of its own if another message continues the same history."""
        message = self.key or secrets.token_hex(12)
        if self.chat.results and not self.is_named and (after := await self._after_calls(message)):
            return after
        if self.session is not None:
            return Destination(await self.service.source_in(await self._bound_session(self.session), message))
        if self.previous is not None:
            return await self._after_previous(self.previous, message, branches=branches)
        if self.user is not None or await self._is_one_conversation():
            return Destination(self.service.source(self.name, message))
        return await self._by_history(message, branches=branches)

    async def _after_calls(self, message: str) -> "Destination | None":
        """Continue the conversation whose tool calls wait for the results that come with the message."""
        turn, find = await self.turn_of_results(), self.request.store.overview.list_open_turns
        if turn is None:
            return None
        items = await self.request.read(lambda who: find(who, 1, number=turn, states=[TurnState.PARKED]))
        return Destination(await self.service.source_in(items[0].session, message)) if items else None

    async def _is_one_conversation(self) -> bool:
        """Tell whether all chats of this user are one conversation, as configured."""
        place_of = self.request.services.engine.place_of
        return await place_of(self.service.source(self.name)) == await place_of(self.service.source(""))

    def _fresh_source(self, name: str, message: str) -> Source:
        return self.service.source(f"{name}-{conversation_for(self.key)}", message)

    async def _by_history(self, message: str, *, branches: bool) -> "Destination":
        """Choose a conversation that ends as the client's history does; else one that the history branches from."""
        found = await self._find_matches(match_history, await self.sessions()) if self.chat.history else []
        if not found and self.chat.history:
            found = await self._find_overlapping()
        # Those that began with the same instructions come first.
        found.sort(key=lambda each: not each.match.has_same_system)
        for each in () if branches else found:
            if each.match.is_end and not each.is_busy:
                origin = replace(each.session.origin, message_id=message)
                return Destination(origin, continues=_entry(each.session, each.match))
        fresh = self._fresh_source(self.name, message)
        if found:
            return Destination(fresh, parent=found[0].session.id, at_seq=found[0].match.seq)
        return Destination(fresh, begins=True)

    async def _find_overlapping(self) -> list["_Candidate"]:
        """Return the conversation with the last messages of a client that keeps no others, if it is the only one.

        Two that have them can be two people's, and what came before is not the other's to read.
        """
        sessions = await self._unnamed_sessions()
        kept = sum(len(message.text) for message in self.chat.history)
        if len(sessions) > _MAX_CANDIDATES and kept < _UNMISTAKABLE_CHARACTERS:
            return []
        found = await self._find_matches(match_last_messages, sessions)
        return found if len(found) == 1 else []

    async def _find_matches(self, matches: "Matching", sessions: Sequence[Session]) -> list["_Candidate"]:
        known = [each for each in sessions if each.ended is None and await self.service.is_own(each)]
        found = [await self.request.read(partial(self._match, matches, each)) for each in known[:_MAX_CANDIDATES]]
        return [each for each in found if each]

    @transaction
    def _match(self, matches: "Matching", session: Session, principal: Principal) -> Statements["_Candidate | None"]:
        entries = yield from self.request.store.transcript.load_all(session.id, principal)
        match = matches(self.chat.system, self.chat.history, entries)
        return _Candidate(session, match, (yield from self._is_busy(session, principal))) if match else None

    async def _unnamed_sessions(self) -> list[Session]:
        """Return the sessions of conversations that were found by their history before, newest first."""
        place = await self.request.services.engine.place_of(self.service.source(_AUTO))
        find = self.request.store.message_status.sessions_by_key
        found = await self.request.read(lambda principal: find([place], principal, with_suffixes=True))
        return [each for each in found if _AUTO_NAME.search(each.origin.chat_id or "")]

    @transaction
    def _is_busy(self, session: Session, principal: Principal) -> Statements[bool]:
        """While a turn runs or a message waits, more than the client knows is about to be said."""
        store = self.request.store
        turns = yield from store.overview.list_open_turns(principal, 1, session.id)
        status = yield from store.turn_control.get_status(session.key, principal)
        return status.waiting > 0 or any(each.turn.state is not TurnState.PARKED for each in turns)

    async def _after_previous(self, number: int, message: str, *, branches: bool) -> "Destination":
        """Continue after an answer if it is the last thing said in its session; else branch from there."""
        session = await self._previous_session(number)
        match, is_busy = await self.request.read(partial(self._match_previous, session, number))
        if match is None:
            return Destination(await self.service.source_in(session, message))
        if session.ended is None and match.is_end and not is_busy and not branches:
            return Destination(await self.service.source_in(session, message), continues=_entry(session, match))
        name = _AUTO_NAME.search(session.origin.chat_id or "") if await self.service.is_own(session) else None
        source = self._fresh_source(name[0] if name else self.name, message)
        return Destination(source, parent=session.id, at_seq=match.seq)

    @transaction
    def _match_previous(
        self, session: Session, number: int, principal: Principal
    ) -> Statements[tuple["HistoryMatch | None", bool]]:
        store = self.request.store
        reply = yield from store.message_status.load_reply(number, principal)
        if not reply.entries:
            return None, False
        last = reply.entries[-1].seq
        spoken = _spoken((yield from store.transcript.load_all(session.id, principal)))
        is_busy = yield from self._is_busy(session, principal)
        return HistoryMatch(last, all(run.seq <= last for run in spoken)), is_busy

    async def text(self, to: "Destination") -> str:
        """Bring the conversation to where the client's history ends; return the text to send there."""
        if self.session is None and self.previous is None and self.user is not None:
            place = await self.request.services.engine.place_of(to.source)
            return self.chat.text if await self._sessions_at(place) else self._checked_opening()
        if to.begins:
            return self._checked_opening()
        if to.parent is not None:
            place = await self.request.services.engine.place_of(to.source)
            await self.request.write(lambda principal: self._branch(principal, place, to))
        return self.chat.text

    async def instructions(self, to: "Destination") -> str:
        """Return the client's instructions, unless the conversation that the message goes to began with them."""
        if to.begins or not self.chat.system.strip():
            return ""
        return await self.request.read(
            partial(self._instructions, await self.request.services.engine.key_of(to.source))
        )

    @transaction
    def _instructions(self, key: SessionKey, principal: Principal) -> Statements[str]:
        store, system = self.request.store, self.chat.system.strip()
        session = (yield from store.turn_control.get_status(key, principal)).session
        spoken = _spoken((yield from store.transcript.load_all(session.id, principal))) if session else []
        return system if spoken and not _begins_with(spoken[0].text, system) else ""

    @transaction
    def _branch(self, principal: Principal, place: SessionKey, to: "Destination") -> Statements[None]:
        store, now = self.request.store, self.request.now
        yield Lock(place.text)
        if not (yield from store.message_status.sessions_by_key([place], principal)):  # else sent twice at once
            yield from store.branches.branch(
                place, to.source, principal, now, by=principal.name, from_session=to.parent, at_seq=to.at_seq
            )

    async def sessions(self) -> list[Session]:
        """Return the sessions whose tool calls the client can answer."""
        if self.session is not None:
            return [await self._bound_session(self.session)]
        if self.previous is not None:
            return [await self._previous_session(self.previous)]
        place = await self.request.services.engine.place_of(self.service.source(self.name))
        find = self.request.store.message_status.sessions_by_key
        return await self.request.read(lambda principal: find([place], principal, with_suffixes=self.user is None))

    @transaction
    def calling_turn(self, session: Session, principal: Principal) -> Statements[int | None]:
        """Return the turn of a session that made the calls which the client answers.

        Other conversations can have calls of the same name, so the client's history says whether it is this one.
        """
        entries = yield from self.request.store.transcript.load_all(session.id, principal)
        calls = [
            entry for entry in _not_undone(entries) if self.chat.results.keys() & {call.id for call in entry.calls}
        ]
        if self.is_named:
            calls = calls[-1:]
        else:
            match = match_history(self.chat.system, self.chat.history, entries)
            calls = [entry for entry in calls if match and entry.seq >= match.seq]
        return int(calls[0].turn) if calls and calls[0].turn else None

    @transaction
    def waiting_turn(self, principal: Principal) -> Statements[int | None]:
        """Return the caller's only turn that waits for a result which the client gives, if its history names none."""
        store, found = self.request.store, list[int]()
        open_turns = yield from store.overview.list_open_turns(principal, _MAX_WAITING, states=[TurnState.PARKED])
        for turn in reversed([item.turn for item in open_turns]):
            message = yield from store.message_status.last_message_of_turn(turn.number, principal)
            if message and self.service.is_sender(message.inbound.source) and message.inbound.client_tools:
                reply = yield from store.message_status.load_reply(message.number, principal)
                if self.chat.results.keys() & {call.id for call in reply.pending_tool_calls}:
                    found.append(turn.number)
        return found[0] if len(found) == 1 else None

    async def _bound_session(self, name: str) -> Session:
        session = await self.request.read(lambda who: self.request.store.sessions.find(name, who))
        await self.service.require_readable(session)
        return session

    async def _previous_session(self, number: int) -> Session:
        reply = await self.service.reply(number)
        if reply.turn is None:
            raise NotFound("response", f"resp_in_{name_in_ids(number, self.request.store.epochs)}")
        return await self._bound_session(reply.turn.session)

    async def _sessions_at(self, place: SessionKey) -> list[Session]:
        find = self.request.store.message_status.sessions_by_key
        return await self.request.read(lambda principal: find([place], principal))

    def with_results_as_text(self) -> "ConversationFinder":
        """Return the same for calls that nobody made here: what they returned is part of what the client says."""
        chat = self.chat
        if not chat.text.strip() and not chat.files:
            chat = replace(chat, text=chat.returned)
        else:
            returned = ChatMessage(is_user=False, text=chat.returned, is_result=True)
            chat = replace(chat, history=(*chat.history, returned))
        return replace(self, chat=replace(chat, results={}))

    async def turn_of_results(self) -> int | None:
        """Return the turn that made the calls whose results come with a message."""
        for session in await self.sessions():
            turn = await self.request.read(partial(self.calling_turn, session))
            if turn is not None:
                return turn
        return None if self.is_named else await self.request.read(self.waiting_turn)

    async def end_calls(self, source: Source) -> None:
        """End tool calls that wait for the client: its message comes with their results, or instead of them."""
        key = await self.request.services.engine.key_of(source)
        await self.request.write(lambda principal: self._drop_parked(principal, key))

    @transaction
    def _drop_parked(self, principal: Principal, key: SessionKey) -> Statements[None]:
        store, now = self.request.store, self.request.now
        current = (yield from store.turn_control.get_status(key, principal)).session
        for item in (yield from store.overview.list_open_turns(principal, 1, current.id)) if current else ():
            message = yield from store.message_status.last_message_of_turn(item.turn.number, principal)
            reply = (yield from store.message_status.load_reply(message.number, principal)) if message else None
            if reply and {call.id for call in reply.pending_tool_calls} & self.chat.results.keys():
                yield from store.turn_control.end_with_results(key, self.chat.results, now)
            elif reply and reply.pending_tool_calls:
                yield from store.turn_control.abandon_parked(
                    key, now, note=texts.LEFT_NOTE, error="its tool calls were not answered"
                )


def _entry(session: Session, match: "HistoryMatch") -> int:
    return session.number * SEQS + match.seq


def conversation_name(first: str) -> str:
    """Hash the first user message."""
    digest = hashlib.sha256(f"0:{first.strip()}".encode("utf-8", "replace")).hexdigest()
    return f"{_AUTO}-{digest[:24]}"


def fold_history(system: str, history: Sequence[ChatMessage], text: str) -> str:
    """Return a first message that contains the client's instructions and the history we do not have."""
    if history:
        lines = "\n\n".join(
            message.text if message.is_result else f"{'I' if message.is_user else 'You'} said: {message.text}"
            for message in history
        )
        text = f"So far:\n\n{lines}\n\nNow: {text}"
    return f"{system}\n\n{text}" if system.strip() else text


@value(kw_only=False)
class HistoryMatch:
    seq: int
    """The entry at which the client's history ends."""
    is_end: bool
    """Nothing was said since."""
    has_same_system: bool = False
    """The conversation began with the client's instructions."""


Matching = Callable[[str, Sequence[ChatMessage], Sequence[Entry]], HistoryMatch | None]
"""Finds where a client's history, with its instructions, ends in a transcript."""


@value(kw_only=False)
class _Candidate:
    session: Session
    match: HistoryMatch
    is_busy: bool


@value(kw_only=False)
class _Run:
    """What one side said in its turn, without surrounding blanks."""

    is_user: bool
    text: str
    seq: int
    """Of its last entry."""


def match_history(system: str, history: Sequence[ChatMessage], entries: Sequence[Entry]) -> HistoryMatch | None:
    """Return where the client's history ends in the transcript; None if they differ.

    Our first message can stand for several of the client's: for instructions, and for a folded history.
    """
    spoken = _spoken(entries)
    for start in (place for place, message in enumerate(history) if message.is_user or message.is_result):
        opening = ChatMessage(is_user=True, text=fold_history("", history[:start], history[start].text))
        followed = _without_results([opening, *history[start + 1 :]])
        if _says(spoken, followed):
            return _matched(system, spoken, len(followed))
    return None


def match_last_messages(system: str, history: Sequence[ChatMessage], entries: Sequence[Entry]) -> HistoryMatch | None:
    """Return where the history of a client that keeps only its last messages ends in the transcript."""
    spoken, history = _spoken(entries), _without_results(history)
    for start in reversed(range(1, len(spoken) - len(history) + 1)) if len(history) > 1 else ():
        if _says(spoken[start:], history):
            return _matched(system, spoken, start + len(history))
    return None


def _without_results(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Leave out what tools returned: the transcript has it."""
    return merge_turns([message for message in history if not message.is_result])


def _matched(system: str, spoken: Sequence[_Run], length: int) -> HistoryMatch:
    same_system = _begins_with(spoken[0].text, system.strip())
    return HistoryMatch(spoken[length - 1].seq, is_end=len(spoken) == length, has_same_system=same_system)


def _says(spoken: Sequence[_Run], history: Sequence[ChatMessage]) -> bool:
    """Return whether the runs begin with the history. Its first message can be the end of one."""
    if len(history) > len(spoken) or not _ends_with(spoken[0].text, history[0].text.strip()):
        return False
    pairs = list(zip(spoken, history, strict=False))
    is_same = all(run.text == message.text.strip() for run, message in pairs[1:])
    return is_same and all(run.is_user == message.is_user for run, message in pairs)


def _begins_with(text: str, paragraphs: str) -> bool:
    return text == paragraphs or not paragraphs or text.startswith(f"{paragraphs}\n")


def _ends_with(text: str, paragraphs: str) -> bool:
    """Return whether a text ends with some paragraphs; blanks around the break do not count."""
    before = text.removesuffix(paragraphs)
    return text == paragraphs or (before != text and before.rstrip(" \t").endswith("\n\n"))


def _spoken(entries: Sequence[Entry]) -> list[_Run]:
    """Return what each speaker said in turn."""
    said = [entry for entry in _not_undone(entries) if entry.role in {Role.USER, Role.ASSISTANT} and entry.text.strip()]
    runs = [list(run) for _, run in groupby(said, key=lambda entry: entry.role)]
    return [
        _Run(run[0].role is Role.USER, "\n\n".join(entry.text.strip() for entry in run), run[-1].seq) for run in runs
    ]


def _not_undone(entries: Sequence[Entry]) -> list[Entry]:
    """Return what is shown, and what a summary covers."""
    covers = [entry.covers for entry in entries if entry.covers and entry.hidden_by is None]
    return [
        entry
        for entry in entries
        if entry.hidden_by is None or any(first <= entry.seq <= last for first, last in covers)
    ]
