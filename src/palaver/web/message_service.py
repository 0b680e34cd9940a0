"""Send a program's message through the engine, once, and wait for what comes of it."""

import asyncio
import hashlib
import secrets
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Sequence, Sized
from contextlib import suppress
from dataclasses import replace

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from palaver.db.transaction import PEOPLE, Statements, transaction
from palaver.engine import texts
from palaver.model.attachment import Attachment, NewFile, TooLarge
from palaver.model.errors import BadArgument, NotFound, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.source import MAIN, Source, Trust, encode_id, source_of_identity
from palaver.model.turn import ANY_FORM, AnswerForm, ClientTool, Inbound, InboxState, Received, outbound_to
from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.store.status.message_status import Reply
from palaver.store.status.trace import Trace
from palaver.web.caller import OWNER
from palaver.web.event_hub import HEARTBEAT_SECONDS
from palaver.web.limits import TooManyRequests
from palaver.web.routes import WebRequest
from palaver.web.services import Services

MAX_TEXT_LENGTH = 200_000
_PLATFORM = "api"


def conversation_for(key: str | None) -> str:
    """Name a conversation that the client did not name: the same idempotency key gives the same name."""
    return hashlib.sha256(key.encode()).hexdigest()[:20] if key else secrets.token_hex(10)


class AlreadyContinued(Exception):
    """Another message continues the conversation after the same entry."""


@value(kw_only=False)
class ProgramRequest:
    """A request that its program can repeat."""

    key: str
    """The idempotency key."""
    digest: str
    """Of everything that it asks for."""

    @classmethod
    def of(cls, key: str | None, files: Sequence[NewFile], *asked: object) -> "ProgramRequest | None":
        if key is None:
            return None
        contents = [(file.name, file.media_type, hashlib.sha256(file.content).hexdigest()) for file in files]
        return cls(key, hashlib.sha256(msgspec.json.encode((contents, *asked))).hexdigest())


@value(kw_only=False)
class MessageService:
    """Messages of one caller on the platform `api`."""

    request: WebRequest

    @property
    def user(self) -> str:
        """The caller's user id on this platform. Raises 403 if their identity is on another one."""
        identity = self.request.caller.key.identity
        if identity is None:
            return OWNER
        source = source_of_identity(identity)
        if source.platform != _PLATFORM or source.user_id is None:
            raise HTTPException(
                403,
                f"This token reads for {identity} and cannot send. Use a token of the owner's, or one made with"
                " --as api:NAME, for example: palaver web tokens create robot --as api:robot",
            )
        return source.user_id

    def count_message(self) -> None:
        """Raise TooManyRequests if this login or token has sent too many messages in the last minute."""
        messages, key = self.request.services.messages, self.request.caller.key.number
        now = asyncio.get_running_loop().time()
        if wait := messages.retry_after(key, now):
            raise TooManyRequests(f"Send at most {messages.per_caller:,} messages per minute.", wait)
        messages.record(key, now)

    def source(self, conversation: str, message: str | None = None) -> Source:
        """Return the source of a named conversation. User and profile are part of its id, so names never collide."""
        user, profile = self.user, self.request.caller.key.profile
        chat = "/".join(map(encode_id, [user, *([profile] if profile else []), conversation]))
        return Source(platform=_PLATFORM, chat_id=chat, user_id=user, message_id=message, profile=profile or MAIN)

    async def source_in(self, session: Session, message: str | None) -> Source:
        """Return a source whose messages reach the session: its own, or one attached to it."""
        if session.ended is not None:
            raise HTTPException(
                409,
                f"The session {session.id} has ended. Send without a session to start a new conversation, or send"
                f" /resume {session.id} in one of yours to continue it there.",
            )
        if await self.is_own(session):
            return replace(session.origin, message_id=message)
        self.request.require(Right.READ)
        source = self.source(f"session-{session.id}", message)
        place = await self.request.services.engine.place_of(source)
        await self.request.write(lambda principal: self._attach(principal, session, place, source))
        return source

    @transaction
    def _attach(self, principal: Principal, session: Session, place: SessionKey, source: Source) -> Statements[None]:
        store, now = self.request.store, self.request.now
        yield from self.request.check_command(principal, session.id, "attach")
        if (yield from store.attach.conversation_of(place)) == session.key:
            return
        held = yield from store.attach.find_attachable(session.id, place, principal)
        farewell = outbound_to(source, texts.PARTED)
        yield from store.attach.attach(place, held, now, by=principal.name, farewell=farewell)

    async def require_readable(self, session: Session) -> None:
        """Without the scope READ a caller can only talk in sessions that began, and still are, with them."""
        if not await self.is_own(session):
            self.request.require(Right.READ)

    async def is_own(self, session: Session) -> bool:
        return await _is_at_home(self.request.services, session, _PLATFORM, self.user)

    async def send(
        self,
        source: Source,
        text: str,
        files: Sequence[Attachment],
        tools: Sequence[ClientTool] | None = None,
        form: AnswerForm = ANY_FORM,
        *,
        request: ProgramRequest | None = None,
        instructions: str = "",
        continues: int | None = None,
    ) -> Received:
        """Store the message; return it as stored. Raises AlreadyContinued if another one continues the same entry.

        A client that brings tools passes on what anybody can have written: its text is never a command.
        """
        engine, talk_only = self.request.services.engine, self.request.caller.talk_only
        inbound = Inbound(
            source=source,
            text=text,
            at=self.request.now,
            files=tuple(files),
            client_tools=tuple(tools or ()),
            form=form,
            instructions=instructions,
            plain=tools is not None or talk_only,
            request_key=request and self._key_in_profile(request),
            request_digest=request and request.digest,
            continues=continues,
        )
        await require_own_conversation(self.request, source)
        try:
            await engine.receive(inbound, Trust(talk_only=talk_only))
        except StoreUnavailable:
            if self.request.store.is_away or source.message_id is None:
                raise
            # It may be stored, of which we did not hear. Then it is known by its id, and not stored again.
            await engine.receive(inbound, Trust(talk_only=talk_only))
        received = await (self.find_request(request) if request else self._find_sent(source))
        if received is None and request and (earlier := await self._find_sent(source)):
            # A message from before requests were stored with a digest has the key as its id.
            received = earlier if earlier.inbound.request_digest is None else None
        if received is None and continues is not None:
            raise AlreadyContinued
        if received is None:
            raise HTTPException(409, "This Idempotency-Key was used for a message that was deleted. Use a new one.")
        return received

    def _key_in_profile(self, request: ProgramRequest) -> str:
        """Return the key under which a request is stored: two profiles are two gateways to a program."""
        return f"{encode_id(self.request.caller.key.profile or '')}/{request.key}"

    async def _find_sent(self, source: Source) -> Received | None:
        find = self.request.store.message_status.find_received
        return _check_refused(await self.request.read(lambda principal: find([source], principal)))

    async def find_request(self, request: ProgramRequest | None) -> Received | None:
        """Return the message that was sent, or whose turn got results, under this key. Raises 409 if that differs."""
        if request is None:
            return None
        return _check_refused(await self.request.read(lambda principal: self.same_request(request, principal)))

    @transaction
    def same_request(self, request: ProgramRequest, principal: Principal) -> Statements[Received | None]:
        """Return the message of the request that has this key. Raises 409 if it was another request."""
        store, source, key = self.request.store, self.source(""), self._key_in_profile(request)
        received = yield from store.message_status.find_request(source, key, principal)
        digest = received and received.inbound.request_digest
        if received is None:
            given = yield from store.message_status.find_result_request(source, key, principal)
            received, digest = given or (None, None)
        if received and digest != request.digest:
            raise HTTPException(409, "This Idempotency-Key was used for another request. Use a new one.")
        return received

    @transaction
    def record_results(self, request: ProgramRequest, message: int) -> Statements[None]:
        """Store the key of a request that gave results to the turn of a message."""
        source, key = self.source(""), self._key_in_profile(request)
        yield from self.request.store.message_status.record_result_request(source, key, request.digest, message)

    async def reply(self, number: int, seconds: float = 0.0, receive: Receive | None = None) -> Reply:
        """Return what has come of a message; wait for it until the client disconnects or its key is revoked."""
        if seconds and receive:
            await self._read_reply(number)  # raises if the message is not theirs, before any wait
            with self.request.services.waiting.waiting(number) as waiter:
                await waiter.until_settled(seconds, self._receive_while_valid(receive))
            await self.check_revoked()
        return await self._read_reply(number)

    async def _read_reply(self, number: int) -> Reply:
        load = self.request.store.message_status.load_reply
        reply = await self.request.read(lambda principal: load(number, principal))
        if not self.request.caller.has(Right.READ) and not self.is_sender(reply.received.inbound.source):
            raise NotFound("message", self.request.store.epochs.message(number))
        return reply

    def is_sender(self, source: Source) -> bool:
        return (source.platform, source.user_id) == (_PLATFORM, self.user)

    def limit_to_own(self, trace: Trace) -> Trace:
        """Without the scope READ, show what the caller sent and what answered it, and nothing of others."""
        if self.request.caller.has(Right.READ):
            return trace
        messages = [each for each in trace.messages if each.inbound and self.is_sender(each.inbound.source)]
        chats = {each.inbound.source.chat_id for each in messages if each.inbound}
        sends = [
            each
            for each in trace.deliveries
            if (each.delivery.outbound.platform, each.delivery.outbound.chat_id)
            in {(_PLATFORM, chat) for chat in chats}
        ]
        return replace(trace, messages=tuple(messages), deliveries=tuple(sends))

    async def check_revoked(self) -> None:
        """Raise 401 if the key was revoked in the meantime."""
        with suppress(StoreUnavailable):  # checked again next time
            if not await self.request.services.auth.is_valid(self.request.caller):
                raise HTTPException(401, "This token was revoked.")

    def _receive_while_valid(self, receive: Receive) -> Receive:
        """Treat a client whose key was revoked as disconnected."""

        async def receive_or_disconnect() -> Message:
            receiving = asyncio.ensure_future(receive())
            try:
                with self.request.store.listen(PEOPLE) as changed:
                    while not receiving.done():
                        waking = asyncio.ensure_future(changed.wait())
                        await asyncio.wait({receiving, waking}, timeout=HEARTBEAT_SECONDS, return_when=FIRST_COMPLETED)
                        waking.cancel()
                        changed.clear()
                        if not receiving.done():
                            await self.check_revoked()
                return receiving.result()
            except HTTPException:
                return {"type": "http.disconnect"}
            finally:
                receiving.cancel()

        return receive_or_disconnect

    async def store_files(self, files: Sequence[NewFile]) -> list[Attachment]:
        """Store the files of a message. Raises TooLarge if they are too many."""
        most = self.request.services.engine.settings.limits.files_per_message
        if len(files) > most:
            raise TooLarge(f"A message can have at most {most} files, not {len(files)}.")
        return [await self.store_file(file.name, file.media_type, file.content) for file in files]

    async def store_file(self, name: str, media_type: str, content: bytes) -> Attachment:
        services = self.request.services
        limit = services.engine.settings.limits.file_size
        return await services.webchat.keep(name, media_type, _one_chunk(content), limit)


def check_not_empty(text: str, files: Sized) -> None:
    if not text.strip() and not files:
        fix = "Send text or files."
        raise BadArgument("The message is empty.", found=text, allowed="text or files", fix=fix, example="hello")


def _check_refused(received: Received | None) -> Received | None:
    if received and received.state is InboxState.REFUSED:
        raise HTTPException(403, f"The message was refused: {received.reason}. Fix that and send it with a new id.")
    return received


async def require_own_conversation(request: WebRequest, source: Source) -> None:
    """Without the scope READ, refuse a source that leads to a session attached or resumed from elsewhere."""
    if request.caller.has(Right.READ):
        return
    key = await request.services.engine.key_of(source)
    current = await request.store.read(request.store.sessions.open_by_key(key))
    if current and not await _is_at_home(request.services, current, source.platform, source.user_id):
        request.require(Right.READ)


async def _is_at_home(services: Services, session: Session, platform: str, user: str | None) -> bool:
    home = session.origin
    return (home.platform, home.user_id) == (platform, user) and await services.engine.place_of(home) == session.key


async def _one_chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content
