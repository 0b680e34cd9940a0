"""Finding: in which conversation something is said by a client that may or may not know of conversations."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby

from palaver.db.transaction import Lock, Statements, transaction
from palaver.engine import texts
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.web.caller import principal_of
from palaver.web.message_service import Speaking, conversation_for
from palaver.web.openai.schema import Read, Utterance, bounded

__all__ = [
    "Finding",
    "Standing",
    "folded",
    "name_of",
    "opening",
    "standing",
]

_PLACES = 32
"""How many conversations of one person that begin alike can be told apart."""
_LOOKED_AT = 16
_LONGEST_NAME = 100
_OLD = timedelta(hours=1)
"""A conversation that nobody went on with for so long makes room for another, where there is no other room."""


@value(kw_only=False)
class Standing:
    """How a conversation stands to what a client says was said: it ends there, or has gone on since."""

    seq: int
    """The last entry of what was said."""
    is_end: bool


@value
class Finding:
    speaking: Speaking
    read: Read
    key: str | None
    """Under which the request is the same when it is sent again."""
    session: str | None
    """What it is bound to, if the client says so: a session, or else a name."""
    user: str | None

    async def place(self) -> tuple[Source, str]:
        """Where to speak, and what is to be said there."""
        message = self.key or secrets.token_hex(12)
        if self.session is not None:
            return await self.speaking.in_session(await self._bound(self.session), message), self.read.text
        if self.user is not None:
            source = self.speaking.at(_named(self.user), message)
            is_new = not await self._sessions([await self.speaking.services.engine.place_of(source)])
            return source, _first(opening(self.read.system, self.read.text)) if is_new else self.read.text
        return await self._matched(message)

    async def candidates(self) -> list[Session]:
        """Where the client may have been before."""
        if self.session is not None:
            return [await self._bound(self.session)]
        named = [await self._key_at(_named(self.user))] if self.user is not None else None
        return (await self._sessions(named or list(await self._places(None))))[:_LOOKED_AT]

    async def earlier(self) -> Sequence[Source]:
        """Under which ids the request was said, if it was."""
        if self.key is None or self.session is not None or self.user is not None:
            return []
        return [*(await self._places(self.key)).values(), self._elsewhere(self.key)]

    @property
    def _name(self) -> str:
        first = next((each.text for each in self.read.before if each.by_user), self.read.text)
        return name_of(self.read.system, first)

    def _elsewhere(self, message: str) -> Source:
        """For one conversation too many: it is found again only by its key."""
        return self.speaking.at(f"{self._name}-{conversation_for(self.key)}", message)

    async def _places(self, message: str | None) -> Mapping[SessionKey, Source]:
        sources = [self.speaking.at(f"{self._name}-{place}", message) for place in range(_PLACES)]
        return {await self.speaking.services.engine.place_of(source): source for source in sources}

    async def _key_at(self, conversation: str) -> SessionKey:
        return await self.speaking.services.engine.place_of(self.speaking.at(conversation))

    async def _bound(self, name: str) -> Session:
        services = self.speaking.services
        found = await services.read(self.speaking.caller, lambda who: services.store.sessions.find(name, who))
        await self.speaking.refuse_foreign(found)
        return found

    async def _sessions(self, keys: Sequence[SessionKey]) -> list[Session]:
        services = self.speaking.services
        return await services.read(
            self.speaking.caller, lambda who: services.store.message_status.sessions_by_key(keys, who)
        )

    async def _matched(self, message: str) -> tuple[Source, str]:
        places = await self._places(message)
        if len(places) < _PLACES:  # by the configuration all chats of theirs are one conversation
            return next(iter(places.values())), self.read.text
        found: tuple[Session, Standing] | None = None
        if self.read.before:
            for session in (await self._sessions(list(places)))[:_LOOKED_AT]:
                stands = await self._standing(session)
                if stands and stands.is_end and session.ended is None:
                    return places[session.key], self.read.text
                found = found or ((session, stands) if stands else None)
        text = self.read.text if found else _first(folded(self.read.system, self.read.before, self.read.text))
        elsewhere = self._elsewhere(message)
        beside = await self.speaking.services.engine.place_of(elsewhere), elsewhere
        source = await self.speaking.services.store.transact(_allot(self.speaking, places, beside, found))
        return source, text

    async def _standing(self, session: Session) -> Standing | None:
        transcripts = self.speaking.services.store.transcript
        load = self.speaking.services.read(self.speaking.caller, lambda who: transcripts.load_all(session.id, who))
        return standing(self.read.system, self.read.before, await load)

    async def leave_calls(self, source: Source) -> None:
        """Whoever says something else than what came of the calls they were asked for lets them be."""
        key = await self.speaking.services.engine.key_of(source)
        await self.speaking.services.store.transact(_leave(self.speaking, key))


def _named(user: str) -> str:
    """Long names are shortened: databases take only so much for the name of a conversation."""
    return f"user-{user if len(user) <= _LONGEST_NAME else conversation_for(user)}"


def _first(text: str) -> str:
    bounded("The first message of a conversation, with instructions and what was said before,", len(text))
    return text


@transaction
def _allot(
    speaking: Speaking,
    places: Mapping[SessionKey, Source],
    beside: tuple[SessionKey, Source],
    found: tuple[Session, Standing] | None,
) -> Statements[Source]:
    """A place for one more conversation, which goes on from another, or begins. It is taken in this step."""
    store, now = speaking.services.store, speaking.services.clock.now()
    principal = yield from principal_of(speaking.caller, store)
    yield Lock(f"conversations of {beside[1].user_id}")
    taken = yield from store.message_status.sessions_by_key([*places, beside[0]], principal)
    for session in taken:
        if session.origin.message_id == beside[1].message_id:  # asked twice at once, it is one request
            return session.origin
    key = next((each for each in places if each not in {session.key for session in taken}), None)
    for session in reversed(taken):
        if key is None and now - session.last_active > _OLD:
            is_busy = yield from store.overview.list_open_turns(principal, 1, session.id)
            key = None if is_busy else session.key
    place, source = (key, places[key]) if key else beside
    if found:
        session, stands = found
        yield from store.history.branch(
            place, source, principal, now, by=principal.name, from_session=session.id, at_seq=stands.seq
        )
    else:
        yield from store.sessions.reset(place, source, now, by=principal.name)
    return source


@transaction
def _leave(speaking: Speaking, key: SessionKey) -> Statements[None]:
    store, now = speaking.services.store, speaking.services.clock.now()
    principal: Principal = yield from principal_of(speaking.caller, store)
    current = (yield from store.turn_control.get_status(key, principal)).session
    for flight in (yield from store.overview.list_open_turns(principal, 1, current.id)) if current else ():
        received = yield from store.message_status.last_message_of_turn(flight.turn.number, principal)
        if received and (yield from store.message_status.load_reply(received.number, principal)).pending_tool_calls:
            yield from store.turn_control.abandon_parked(
                key, now, note=texts.LEFT_NOTE, error="what it called was left without an answer"
            )


def name_of(system: str, first: str) -> str:
    """What all conversations that begin so are called."""
    return "auto-" + hashlib.sha256(f"{len(system)}:{system}{first}".encode("utf-8", "replace")).hexdigest()[:24]


def opening(system: str, text: str) -> str:
    """The first message of a conversation: the instructions of a client are words of whoever sends them."""
    return f"{system}\n\n{text}" if system.strip() else text


def folded(system: str, before: Sequence[Utterance], text: str) -> str:
    """The first message of a conversation that began elsewhere: what was said before is told in it."""
    if not before:
        return opening(system, text)
    told = "\n\n".join(f"{'I' if each.by_user else 'You'} said: {each.text}" for each in before)
    return opening(system, f"So far:\n\n{told}\n\nNow: {text}")


def standing(system: str, before: Sequence[Utterance], entries: Sequence[Entry]) -> Standing | None:
    """None where something else was said than the client says."""
    spoken = _spoken(entries)
    for start in (place for place, each in enumerate(before) if each.by_user):
        length = len(before) - start
        if length > len(spoken) or any(
            each.text != text for each, (text, _) in zip(before[start + 1 :], spoken[1:], strict=False)
        ):
            continue
        # Where it began elsewhere, its first message stands for everything up to there.
        if spoken[0][0] == folded(system, before[:start], before[start].text):
            return Standing(spoken[length - 1][1], len(spoken) == length)
    return None


def _spoken(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """What was said in turn, and where each ends: also what a summary now stands for, but not what was taken back."""
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
