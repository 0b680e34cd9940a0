"""Speaking: what a program says comes in like every other message, once, and what came of it."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.attachment import Attachment
from palaver.model.busy import BusyMode
from palaver.model.errors import StoreUnavailable
from palaver.model.ids import decode_id, encode_id
from palaver.model.key import SessionKey
from palaver.model.lifecycle import InboxState
from palaver.model.session import Session
from palaver.model.source import Source, Trust
from palaver.model.turn import ClientTool, Inbound, Received, outbound_to
from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.store.status.message_status import Reply
from palaver.web.authorization import entitled
from palaver.web.caller import OWNER, Caller, principal_of
from palaver.web.event_hub import HEARTBEAT
from palaver.web.routes import check
from palaver.web.services import Services

__all__ = [
    "LONGEST_TEXT",
    "Said",
    "Speaking",
    "conversation_for",
    "refuse_elsewhere",
    "refuse_other",
]

LONGEST_TEXT = 200_000
"""Characters of one message."""
_PLATFORM = "api"


@value
class Said:
    """What a program says, and with what."""

    text: str
    files: tuple[Attachment, ...] = ()
    offers: tuple[ClientTool, ...] = ()
    plain: bool = False
    """It is no command, whoever says it."""


def conversation_for(key: str | None) -> str:
    """The name of a conversation that nobody named: said again under the same key, it is the same one."""
    return hashlib.sha256(key.encode()).hexdigest()[:20] if key else secrets.token_hex(10)


@value(kw_only=False)
class Speaking:
    """Somebody with a token, who talks."""

    services: Services
    caller: Caller

    @property
    def user(self) -> str:
        """As whom they speak here. Raises where they are at home elsewhere: nobody knows them here."""
        identity = self.caller.key.identity
        if identity is None:
            return OWNER
        platform, _, name = identity.partition(":")
        if platform != _PLATFORM:
            raise HTTPException(
                403,
                f"This token reads for {identity}, who has no voice here; allowed: a token of the owner's, or one made"
                " with --as api:NAME; for example: palaver web tokens create robot --as api:robot",
            )
        return decode_id(name)

    def at(self, conversation: str, message: str | None = None) -> Source:
        """Every conversation is somebody's: two who call theirs alike do not meet in it. `alice/plans`."""
        user = self.user
        chat = f"{encode_id(user)}/{encode_id(conversation)}"
        return Source(platform=_PLATFORM, chat_id=chat, user_id=user, message_id=message)

    async def in_session(self, session: Session, message: str | None) -> Source:
        """Where to speak so that it is heard in a session: its own place, or one that is attached to it."""
        if session.ended is not None:
            raise HTTPException(
                409,
                f"The session {session.id} has ended: say it without a session, which begins another conversation, or"
                f" say /resume {session.id} in a conversation of yours, where it then goes on.",
            )
        if await self._is_own(session):
            return replace(session.origin, message_id=message)
        check(self.caller, Right.READ)
        source = self.at(f"session-{session.id}", message)
        place = await self.services.engine.place_of(source)
        await self.services.store.transact(_attach(self, session, place, source))
        return source

    async def refuse_foreign(self, session: Session) -> None:
        """Raises where somebody who may not read would speak in, and hear of, what did not begin and stay with them."""
        if not await self._is_own(session):
            check(self.caller, Right.READ)

    async def _is_own(self, session: Session) -> bool:
        return await _began_and_stayed(self.services, session, _PLATFORM, self.user)

    async def say(self, source: Source, said: Said) -> Received:
        """Safe when it returns. What was said before under this id is given as it was; other words are refused."""
        talk_only = self.caller.talk_only
        inbound = Inbound(
            source=source,
            text=said.text,
            at=self.services.clock.now(),
            files=said.files,
            client_tools=said.offers,
            plain=said.plain or talk_only,
        )
        found = await self.earlier([source])
        if found is None:
            await refuse_elsewhere(self.services, self.caller, source)
            await self.services.engine.receive(inbound, Trust(talk_only=talk_only))
            found = await self.earlier([source])
        if found is None:
            raise StoreUnavailable("The message was not taken: try again.")
        if found.state is InboxState.REFUSED:
            raise HTTPException(
                403, f"This was refused: {found.reason}. Once that has changed, send it under a new id."
            )
        meant = self.services.engine.as_stored(inbound)
        refuse_other(found, [meant.text], said.files, meant.busy)
        return found

    async def earlier(self, sources: Sequence[Source]) -> Received | None:
        """What was said under one of these ids."""
        answers = self.services.store.message_status
        return await self.services.read(self.caller, lambda principal: answers.find_received(sources, principal))

    async def reply(self, number: int, seconds: float = 0.0, receive: Receive | None = None) -> Reply:
        """What came of a message, as soon as something did, or whoever waits has gone, or their key."""
        answers = self.services.store.message_status
        found = await self.services.read(self.caller, lambda principal: answers.load_reply(number, principal))
        if seconds and receive:
            with self.services.waiting.waiting(number) as waiter:
                await waiter.until_settled(seconds, self._present(receive))
            await self.refuse_revoked()
            found = await self.services.read(self.caller, lambda principal: answers.load_reply(number, principal))
        return found

    async def refuse_revoked(self) -> None:
        """Raises where the key was taken back meanwhile: whatever comes then is not for whoever has it."""
        with suppress(StoreUnavailable):  # then it is asked next time
            if not await self.services.auth.still_stands(self.caller):
                raise HTTPException(401, "This token was taken back.")

    def _present(self, receive: Receive) -> Receive:
        """Who waits with a key that was taken back is as good as gone."""

        async def heard() -> Message:
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        return await receive()
                except TimeoutError:
                    try:
                        await self.refuse_revoked()
                    except HTTPException:
                        return {"type": "http.disconnect"}

        return heard

    async def keep(self, name: str, media_type: str, content: bytes) -> Attachment:
        """A file that comes with a message: it is safe before the message is."""
        return await self.services.webchat.keep(
            name, media_type, _pieces(content), self.services.engine.options.file_size
        )


def refuse_other(
    found: Received, texts: Collection[str], files: Sequence[Attachment], busy: BusyMode | None = None
) -> None:
    """Raises where something else was said under this id: none of these texts, or with other files."""
    said = found.inbound
    are_files_same = [file.handle for file in said.files] == [file.handle for file in files]
    if said.text not in texts or said.busy is not busy or not are_files_same:
        raise HTTPException(409, "This Idempotency-Key was used for another message; take another one.")


async def refuse_elsewhere(services: Services, caller: Caller, source: Source) -> None:
    """A place of theirs may lead to a conversation that is not, attached or resumed there: that is for who may read."""
    if caller.may(Right.READ):
        return
    key = await services.engine.key_of(source)
    current = await services.store.read(services.store.sessions.open_by_key(key))
    if current and not await _began_and_stayed(services, current, source.platform, source.user_id):
        check(caller, Right.READ)


async def _began_and_stayed(services: Services, session: Session, platform: str, user: str | None) -> bool:
    home = session.origin
    return (home.platform, home.user_id) == (platform, user) and await services.engine.place_of(home) == session.key


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


@transaction
def _attach(speaking: Speaking, session: Session, place: SessionKey, source: Source) -> Statements[None]:
    store, now = speaking.services.store, speaking.services.clock.now()
    principal = yield from principal_of(speaking.caller, store)
    yield from entitled(speaking.services, principal, session.id, "attach")
    if (yield from store.attach.conversation_of(place)) == session.key:
        return
    held = yield from store.attach.find_attachable(session.id, place, principal)
    farewell = outbound_to(source, texts.PARTED)
    yield from store.attach.attach(place, held, now, by=principal.name, farewell=farewell)
