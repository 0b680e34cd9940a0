"""Finding: in which conversation something is said by a client that may or may not know of conversations."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta

from palaver.domain.key import SessionKey
from palaver.domain.session import Principal, Session
from palaver.domain.source import Source
from palaver.domain.value import value
from palaver.engine import words
from palaver.ports.work import Lock, Steps, work
from palaver.web.access.visitor import principal_of
from palaver.web.openai.asked import Read, bounded
from palaver.web.openai.matching import Standing, folded, name_of, opening, standing
from palaver.web.speaking import Speaking, conversation_for

__all__ = ["Finding"]

_PLACES = 32
"""How many conversations of one person that begin alike can be told apart."""
_LOOKED_AT = 16
_LONGEST_NAME = 100
_OLD = timedelta(hours=1)
"""A conversation that nobody went on with for so long makes room for another, where there is no other room."""


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
            is_new = not await self._sessions([await self.speaking.desk.engine.place_of(source)])
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
        return {await self.speaking.desk.engine.place_of(source): source for source in sources}

    async def _key_at(self, conversation: str) -> SessionKey:
        return await self.speaking.desk.engine.place_of(self.speaking.at(conversation))

    async def _bound(self, name: str) -> Session:
        desk = self.speaking.desk
        found = await desk.read(self.speaking.visitor, lambda who: desk.store.sessions.find(name, who))
        await self.speaking.refuse_foreign(found)
        return found

    async def _sessions(self, keys: Sequence[SessionKey]) -> list[Session]:
        desk = self.speaking.desk
        return await desk.read(self.speaking.visitor, lambda who: desk.store.answers.at(keys, who))

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
        beside = await self.speaking.desk.engine.place_of(elsewhere), elsewhere
        source = await self.speaking.desk.store.transact(_allot(self.speaking, places, beside, found))
        return source, text

    async def _standing(self, session: Session) -> Standing | None:
        transcripts = self.speaking.desk.store.transcripts
        load = self.speaking.desk.read(self.speaking.visitor, lambda who: transcripts.load_all(session.id, who))
        return standing(self.read.system, self.read.before, await load)

    async def leave_calls(self, source: Source) -> None:
        """Whoever says something else than what came of the calls they were asked for lets them be."""
        key = await self.speaking.desk.engine.key_of(source)
        await self.speaking.desk.store.transact(_leave(self.speaking, key))


def _named(user: str) -> str:
    """Long names are shortened: databases take only so much for the name of a conversation."""
    return f"user-{user if len(user) <= _LONGEST_NAME else conversation_for(user)}"


def _first(text: str) -> str:
    bounded("The first message of a conversation, with instructions and what was said before,", len(text))
    return text


@work
def _allot(
    speaking: Speaking,
    places: Mapping[SessionKey, Source],
    beside: tuple[SessionKey, Source],
    found: tuple[Session, Standing] | None,
) -> Steps[Source]:
    """A place for one more conversation, which goes on from another, or begins. It is taken in this step."""
    store, now = speaking.desk.store, speaking.desk.clock.now()
    principal = yield from principal_of(speaking.visitor, store)
    yield Lock(f"conversations of {beside[1].user_id}")
    taken = yield from store.answers.at([*places, beside[0]], principal)
    for session in taken:
        if session.origin.message_id == beside[1].message_id:  # asked twice at once, it is one request
            return session.origin
    key = next((each for each in places if each not in {session.key for session in taken}), None)
    for session in reversed(taken):
        if key is None and now - session.last_active > _OLD:
            is_busy = yield from store.overview.flights(principal, 1, session.id)
            key = None if is_busy else session.key
    place, source = (key, places[key]) if key else beside
    if found:
        session, stands = found
        yield from store.moves.branch(
            place, source, principal, now, by=principal.name, from_session=session.id, at_seq=stands.seq
        )
    else:
        yield from store.sessions.reset(place, source, now, by=principal.name)
    return source


@work
def _leave(speaking: Speaking, key: SessionKey) -> Steps[None]:
    store, now = speaking.desk.store, speaking.desk.clock.now()
    principal: Principal = yield from principal_of(speaking.visitor, store)
    current = (yield from store.steering.status(key, principal)).session
    for flight in (yield from store.overview.flights(principal, 1, current.id)) if current else ():
        received = yield from store.answers.heard(flight.turn.number, principal)
        if received and (yield from store.answers.reply(received.number, principal)).waits_with:
            yield from store.steering.drop_parked(
                key, now, note=words.LEFT_NOTE, error="what it called was left without an answer"
            )
