"""Find the conversation that a chat completion request belongs to.

A client can name a session (header or `metadata`) or a conversation (`user`). Otherwise the system prompt and the first
user message name it: a client that sends its whole history each time continues one conversation. If that history
differs from ours, we branch where they part, or start fresh with the client's history in the first message.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from palaver.db.transaction import Lock, Statements, transaction
from palaver.engine import texts
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.web.message_service import MessageService, conversation_for
from palaver.web.openai.schema import ChatInput, ChatMessage, check_length
from palaver.web.routes import WebRequest

_MAX_NAME_LENGTH = 100


@value
class ConversationFinder:
    service: MessageService
    chat: ChatInput
    key: str | None
    """The idempotency key."""
    session: str | None
    """The session the client names, by id or title."""
    user: str | None
    previous: int | None = None
    """The message whose answer the client follows."""

    @property
    def request(self) -> WebRequest:
        return self.service.request

    @property
    def name(self) -> str:
        if self.user is not None:
            # Databases limit the length of a key.
            return f"user-{self.user if len(self.user) <= _MAX_NAME_LENGTH else conversation_for(self.user)}"
        first = next((message.text for message in self.chat.history if message.is_user), self.chat.text)
        return conversation_name(self.chat.system, first)

    @property
    def opening(self) -> str:
        """The text that begins a new conversation. One with a name has no history: the client keeps its own."""
        history = () if self.user is not None else self.chat.history
        return fold_history(self.chat.system, history, self.chat.text)

    def _checked_opening(self) -> str:
        check_length("The first message of a conversation, with instructions and history,", len(self.opening))
        return self.opening

    async def source(self) -> Source:
        message = self.key or secrets.token_hex(12)
        if self.session is not None:
            return await self.service.source_in(await self._bound_session(self.session), message)
        if self.previous is not None:
            session = await self._previous_session(self.previous)
            if session.ended is not None and await self.service.is_own(session):
                return replace(session.origin, message_id=message)
            return await self.service.source_in(session, message)
        return self.service.source(self.name, message)

    async def text(self, source: Source) -> str:
        """Bring the conversation to where the client's history ends; return the text to send there."""
        engine = self.request.services.engine
        if self.session is not None:
            return self.chat.text
        place = await engine.place_of(source)
        if self.previous is not None:
            number = self.previous
            await self.request.write(lambda principal: self._follow(principal, place, source, number))
            return self.chat.text
        if self.user is not None:
            return self.chat.text if await self._sessions_at(place) else self._checked_opening()
        if place == await engine.place_of(self.service.source("")):
            return self.chat.text  # as configured, all chats of this user are one conversation
        return await self.request.write(lambda principal: self._align(principal, place, source))

    @transaction
    def _align(self, principal: Principal, place: SessionKey, source: Source) -> Statements[str]:
        store, now, text = self.request.store, self.request.now, self.chat.text
        yield Lock(place.text)
        sessions = yield from store.message_status.sessions_by_key([place], principal)
        current = next((session for session in sessions if session.ended is None), None)
        if current is None:
            return self._checked_opening()
        if current.origin.message_id == source.message_id:  # the same request, sent twice at once
            return text if current.parent else self._checked_opening()
        if (yield from store.overview.list_open_turns(principal, 1, current.id)):
            return text  # queued behind the turn that is running
        entries = yield from store.transcript.load_all(current.id, principal)
        match = match_history(self.chat.system, self.chat.history, entries)
        if match is None:
            text = self._checked_opening()
            yield from store.sessions.reset(place, source, now, by=principal.name)
        elif not match.is_end:
            yield from store.history.branch(
                place, source, principal, now, by=principal.name, from_session=current.id, at_seq=match.seq
            )
        return text

    @transaction
    def _follow(self, principal: Principal, place: SessionKey, source: Source, number: int) -> Statements[None]:
        """Branch unless the answer that the client follows is the last thing said in the open session."""
        store, now = self.request.store, self.request.now
        yield Lock(place.text)
        reply = yield from store.message_status.load_reply(number, principal)
        if reply.turn is None or not reply.entries:
            return
        parent, last = reply.turn.session, reply.entries[-1].seq
        sessions = yield from store.message_status.sessions_by_key([place], principal)
        current = next((session for session in sessions if session.ended is None), None)
        if current is not None and current.id == parent:
            entries = yield from store.transcript.load_all(parent, principal)
            later = any(seq > last for _, seq in _spoken(entries))
            if not later or (yield from store.overview.list_open_turns(principal, 1, parent)):
                return
        yield from store.history.branch(
            place, source, principal, now, by=principal.name, from_session=parent, at_seq=last
        )

    async def sessions(self) -> list[Session]:
        """Return the sessions whose tool calls the client can answer."""
        if self.session is not None:
            return [await self._bound_session(self.session)]
        if self.previous is not None:
            return [await self._previous_session(self.previous)]
        return await self._sessions_at(await self.request.services.engine.place_of(self.service.source(self.name)))

    async def _bound_session(self, name: str) -> Session:
        session = await self.request.read(lambda who: self.request.store.sessions.find(name, who))
        await self.service.require_readable(session)
        return session

    async def _previous_session(self, number: int) -> Session:
        reply = await self.service.reply(number)
        if reply.turn is None:
            raise NotFound("response", f"resp_in_{number}")
        return await self._bound_session(reply.turn.session)

    async def _sessions_at(self, place: SessionKey) -> list[Session]:
        find = self.request.store.message_status.sessions_by_key
        return await self.request.read(lambda principal: find([place], principal))

    async def abandon_calls(self, source: Source) -> None:
        """Drop tool calls that wait for the client: it sends a message instead of their results."""
        key = await self.request.services.engine.key_of(source)
        await self.request.write(lambda principal: self._drop_parked(principal, key))

    @transaction
    def _drop_parked(self, principal: Principal, key: SessionKey) -> Statements[None]:
        store, now = self.request.store, self.request.now
        current = (yield from store.turn_control.get_status(key, principal)).session
        for item in (yield from store.overview.list_open_turns(principal, 1, current.id)) if current else ():
            message = yield from store.message_status.last_message_of_turn(item.turn.number, principal)
            reply = (yield from store.message_status.load_reply(message.number, principal)) if message else None
            if reply and reply.pending_tool_calls:
                yield from store.turn_control.abandon_parked(
                    key, now, note=texts.LEFT_NOTE, error="its tool calls were not answered"
                )


def conversation_name(system: str, first: str) -> str:
    """Hash the system prompt and the first user message. The length keeps the two apart."""
    digest = hashlib.sha256(f"{len(system)}:{system}{first}".encode("utf-8", "replace")).hexdigest()
    return f"auto-{digest[:24]}"


def fold_history(system: str, history: Sequence[ChatMessage], text: str) -> str:
    """Return a first message that contains the client's instructions and the history we do not have."""
    if history:
        lines = "\n\n".join(f"{'I' if message.is_user else 'You'} said: {message.text}" for message in history)
        text = f"So far:\n\n{lines}\n\nNow: {text}"
    return f"{system}\n\n{text}" if system.strip() else text


@value(kw_only=False)
class HistoryMatch:
    seq: int
    """The entry at which the client's history ends."""
    is_end: bool
    """Nothing was said since."""


def match_history(system: str, history: Sequence[ChatMessage], entries: Sequence[Entry]) -> HistoryMatch | None:
    """Return where the client's history ends in the transcript; None if they differ.

    Our first message can stand for several of the client's: for instructions, and for a folded history.
    """
    spoken = _spoken(entries)
    for start in (place for place, message in enumerate(history) if message.is_user):
        length = len(history) - start
        if length > len(spoken) or spoken[0][0] != fold_history(system, history[:start], history[start].text):
            continue
        if all(message.text == spoken[place][0] for place, message in enumerate(history[start:]) if place):
            return HistoryMatch(spoken[length - 1][1], len(spoken) == length)
    return None


def _spoken(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """Return each speaker's text in turn with its last seq: what a summary covers too, but not what was undone."""
    covers = [entry.covers for entry in entries if entry.covers and entry.hidden_by is None]
    shown = [
        entry
        for entry in entries
        if entry.role in {Role.USER, Role.ASSISTANT}
        and entry.text.strip()
        and (entry.hidden_by is None or any(first <= entry.seq <= last for first, last in covers))
    ]
    runs = [list(run) for _, run in groupby(shown, key=lambda entry: entry.role)]
    return [("\n\n".join(entry.text for entry in run), run[-1].seq) for run in runs]
