"""The OpenAI-compatible endpoint: /v1/chat/completions, /v1/responses and /v1/models."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from palaver.db.transaction import PEOPLE, Statements, transaction
from palaver.engine.reply_waiter import PendingReply, disconnect
from palaver.engine.retry import wait_any
from palaver.model.attachment import Attachment
from palaver.model.epochs import Epochs
from palaver.model.errors import BadArgument, NotFound, PalaverError
from palaver.model.session import Principal, Session
from palaver.model.turn import Received
from palaver.model.value import value
from palaver.store.conversations.deletion import HoldsMore
from palaver.store.people.api_tokens import Right
from palaver.store.status.message_status import Reply
from palaver.web.api.messages import IDEMPOTENCY_HEADER, check_idempotency_key
from palaver.web.errors import error_code, error_text, openai_problem, status_of
from palaver.web.event_hub import HEARTBEAT_SECONDS
from palaver.web.message_service import AlreadyContinued, MessageService, ProgramRequest, check_not_empty
from palaver.web.openai.completions import CompletionWriter
from palaver.web.openai.conversations import ConversationFinder, Destination
from palaver.web.openai.items import name_in_ids, parse_response_request, split_id
from palaver.web.openai.outcome import StreamedText, outcome_of
from palaver.web.openai.responses import ResponseWriter, input_items
from palaver.web.openai.schema import MODEL, CompletionRequest, parse_request, read_chat
from palaver.web.routes import WebRequest, action, page, removal
from palaver.web.services import Services
from palaver.web.sse import EventStream

SESSION_HEADER = "X-Palaver-Session"
_MAX_WAIT_SECONDS = 3600.0
"""Turns have a limit of their own, and clients disconnect when they like."""
_MODEL_CARD = {"id": MODEL, "object": "model", "created": 0, "owned_by": "palaver"}


@action("/v1/chat/completions", needs=Right.CHAT)
async def complete(request: WebRequest) -> Response:
    MessageService(request).count_message()
    async with request.read_body(with_files=True) as content:
        body = parse_request(content)
        answer = await _send(request, body, partial(CompletionWriter, wants_usage=body.wants_usage))
    return await answer.give(request.http.receive)


@action("/v1/responses", needs=Right.CHAT)
async def respond(request: WebRequest) -> Response:
    MessageService(request).count_message()
    async with request.read_body(with_files=True) as content:
        body = parse_response_request(content)
        answer = await _send(request, body.completion, partial(ResponseWriter, request=body), body.previous)
    return await answer.give(request.http.receive)


@page("/v1/responses/{id}", needs=Right.CHAT)
async def get_response(request: WebRequest) -> Response:
    number, suffix = split_id(request.path["id"], request.store.epochs)
    reply = await _readable_reply(request)
    turn = reply.turn
    writer = ResponseWriter(
        name=name_in_ids(number, request.store.epochs), created=int(reply.received.received.timestamp()), suffix=suffix
    )
    if reply.received.state.is_open and not reply.is_parked:
        return JSONResponse(
            writer.unfinished("in_progress" if turn else "queued"), headers=_headers(reply, request.store.epochs)
        )
    try:
        body = writer.whole(outcome_of(reply, request.services), reply)
    except HTTPException as error:
        body = writer.unfinished("failed", {"code": error_code(error) or "server_error", "message": error_text(error)})
    return JSONResponse(body, headers=_headers(reply, request.store.epochs))


@removal("/v1/responses/{id}")
async def delete_response(request: WebRequest) -> Response:
    """Delete a response for good. It is part of a conversation, so it has to be the only one there."""
    reply = await MessageService(request).reply(split_id(request.path["id"], request.store.epochs)[0])
    if reply.turn is None:
        raise NotFound("response", request.path["id"])
    name = reply.turn.session
    try:
        await request.delete_session(name, only_turn=reply.turn.number)
    except HoldsMore as error:
        text = f"The response is part of a conversation. Delete that instead, with DELETE /api/v1/sessions/{name}."
        raise HTTPException(409, text) from error
    return JSONResponse({"id": request.path["id"], "object": "response", "deleted": True})


@page("/v1/responses/{id}/input_items", needs=Right.CHAT)
async def list_input_items(request: WebRequest) -> Response:
    reply = await _readable_reply(request)
    number, suffix = split_id(request.path["id"], request.store.epochs)
    items = input_items(reply, name_in_ids(number, request.store.epochs), suffix)
    if request.http.query_params.get("order", "desc") == "desc":
        items.reverse()
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return JSONResponse({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": False})


async def _readable_reply(request: WebRequest) -> Reply:
    service = MessageService(request)
    reply = await service.reply(split_id(request.path["id"], request.store.epochs)[0])
    turn = reply.turn
    if turn is not None:
        session = await request.read(lambda who: request.store.sessions.get_visible(turn.session, who))
        await service.require_readable(session)
    return reply


@page("/v1/models", needs=Right.CHAT)
async def list_models(_: WebRequest) -> Response:
    return JSONResponse({"object": "list", "data": [_MODEL_CARD]})


@page("/v1/models/{id:path}", needs=Right.CHAT)
async def get_model(request: WebRequest) -> Response:
    _check_model(request.path["id"])
    return JSONResponse(_MODEL_CARD)


def _check_model(name: str) -> None:
    if name != MODEL:
        text = f"Unknown model {name[:100]!r}. Use {MODEL}; the gateway's configuration says which model answers."
        raise HTTPException(404, text)


_Writer = CompletionWriter | ResponseWriter
"""Writes one answer in the form of one API."""


async def _send(
    request: WebRequest, body: CompletionRequest, writer_for: Callable[..., _Writer], follows: str | None = None
) -> "_Answer":
    _check_model(body.model)
    previous = split_id(follows, request.store.epochs)[0] if follows is not None else None
    chat, service, headers = read_chat(body), MessageService(request), request.http.headers
    session = headers.get(SESSION_HEADER) or (body.metadata or {}).get("session")
    key = check_idempotency_key(headers.get(IDEMPOTENCY_HEADER))
    told = (chat.system, chat.history, chat.text, chat.results, chat.client_tools, chat.form)
    asked = ProgramRequest.of(key, chat.files, "chat", session, body.user, previous, *told)
    finder = ConversationFinder(
        service=service, chat=chat, asked=asked, session=session, user=body.user, previous=previous
    )
    is_message = bool(chat.text.strip() or chat.files or not chat.results)
    received = await (_send_message(finder) if is_message else _submit_results(finder))
    name = name_in_ids(received.number, request.store.epochs)
    writer = writer_for(name=name, created=int(received.received.timestamp()))
    return _Answer(service=service, received=received, streams=bool(body.stream), writer=writer)


async def _send_message(finder: ConversationFinder) -> Received:
    """Send the new message; return the earlier one if it was sent before under the same key."""
    service, chat = finder.service, finder.chat
    check_not_empty(chat.text, chat.files)
    if found := await service.find_request(finder.asked):
        return found
    if chat.results and await finder.turn_of_results() is None:
        finder = finder.with_results_as_text()
    files = await service.store_files(chat.files)
    try:
        return await _send_to(finder, files, await finder.destination())
    except AlreadyContinued:
        return await _send_to(finder, files, await finder.destination(branches=True))


async def _send_to(finder: ConversationFinder, files: Sequence[Attachment], to: Destination) -> Received:
    service, chat = finder.service, finder.chat
    # Once more: the same request can have made this conversation busy, so that it seemed to need another one.
    if found := await service.find_request(finder.asked):
        return found
    await finder.end_calls(to.source)
    text = await finder.text(to)
    return await service.send(
        to.source,
        text,
        files,
        chat.client_tools,
        chat.form,
        request=finder.asked,
        instructions=await finder.instructions(to),
        continues=to.continues,
    )


async def _submit_results(finder: ConversationFinder) -> Received:
    """Continue the turn that made the tool calls. The same results again change nothing."""
    if found := await finder.service.find_request(finder.asked):
        return found
    given: Received | None = None
    for session in await finder.sessions():
        received, is_taken = await finder.request.write(partial(_give_results, finder, session))
        given = given or received
        if received and is_taken:
            return received
    if given is not None:
        return await finder.request.write(partial(_name_request, finder, given))
    if not finder.is_named and (received := await finder.request.write(partial(_give_by_call, finder))):
        return received
    if finder.session is None and finder.previous is None:
        return await _send_message(finder.with_results_as_text())
    call = next(iter(finder.chat.results))
    raise BadArgument(
        "Nothing is waiting for a result of the call", found=call, allowed="the last calls", fix="", example=""
    )


@transaction
def _give_results(
    finder: ConversationFinder, session: Session, principal: Principal
) -> Statements[tuple[Received | None, bool]]:
    """Return the message whose turn made the calls, and whether that turn was waiting for their results."""
    turn = yield from finder.calling_turn(session, principal)
    return (None, False) if turn is None else (yield from _give_to_turn(finder, turn, principal))


@transaction
def _give_by_call(finder: ConversationFinder, principal: Principal) -> Statements[Received | None]:
    """Give the results to the turn that waits for them, though the history names another conversation, or none."""
    turn = yield from finder.waiting_turn(principal)
    received, is_taken = (None, False) if turn is None else (yield from _give_to_turn(finder, turn, principal))
    return received if is_taken else None


def _give_to_turn(
    finder: ConversationFinder, turn: int, principal: Principal
) -> Statements[tuple[Received | None, bool]]:
    store, now, results = finder.request.store, finder.request.now, finder.chat.results
    is_taken = yield from store.message_status.submit_tool_results(turn, results, now, principal)
    received = yield from store.message_status.last_message_of_turn(turn, principal)
    if received and is_taken:
        received = yield from _name_request(finder, received, principal)
    return received, is_taken


@transaction
def _name_request(finder: ConversationFinder, received: Received, principal: Principal) -> Statements[Received]:
    """Store under its key that a request gave results to the turn of a message; return the message.

    Raises 409, so that nothing is given, if another request took the key at the same time.
    """
    if finder.asked is None:
        return received
    yield from finder.service.record_results(finder.asked, received.number)
    return (yield from finder.service.same_request(finder.asked, principal)) or received


@value
class _Answer:
    """One answer. If the client disconnects, the turn still runs to its end."""

    service: MessageService
    received: Received
    streams: bool
    writer: _Writer

    @property
    def services(self) -> Services:
        return self.service.request.services

    def _headers(self, reply: Reply) -> dict[str, str]:
        return _headers(reply, self.services.store.epochs)

    async def give(self, receive: Receive) -> Response:
        if self.streams:
            return await self._stream(receive)
        reply = await self.service.reply(self.received.number, _MAX_WAIT_SECONDS, receive)
        return JSONResponse(self.writer.whole(outcome_of(reply, self.services), reply), headers=self._headers(reply))

    async def _stream(self, receive: Receive) -> Response:
        """Start the response with the first chunk, so that an earlier error gets its own status."""
        chunks = self._chunks()
        first = await _next_unless_disconnected(chunks, receive)
        if first is None:
            return Response()
        reply = await self.service.reply(self.received.number)

        async def all_chunks() -> AsyncGenerator[bytes]:
            async with aclosing(chunks):
                yield first
                async for chunk in chunks:
                    yield chunk

        return EventStream(all_chunks(), self._headers(reply))

    async def _chunks(self) -> AsyncGenerator[bytes]:
        text = StreamedText(is_json=self.received.inbound.form.schema is not None)
        writer, has_started = self.writer, False
        try:
            with self.services.waiting.waiting(self.received.number) as waiter:
                async with aclosing(self._growth(waiter, text)) as growth:
                    async for more in growth:
                        yield writer.text(more, is_first=not has_started)
                        has_started = True
            await self.service.check_revoked()
            reply = await self.service.reply(self.received.number)
            outcome = outcome_of(reply, self.services)
            rest = text.rest(outcome.content)
        except (PalaverError, HTTPException) as error:
            if not has_started:
                raise
            yield writer.failure(openai_problem(status_of(error), error_text(error), error_code(error)))
            return
        if rest or not has_started:
            yield writer.text(rest, is_first=not has_started)
        for chunk in writer.ending(outcome, reply):
            yield chunk

    async def _growth(self, waiter: PendingReply, text: StreamedText) -> AsyncGenerator[str]:
        now = asyncio.get_running_loop().time
        checked = now()
        with self.services.store.listen(PEOPLE) as access_changed:
            while not waiter.is_settled:
                await wait_any(waiter.changed, access_changed, timeout=HEARTBEAT_SECONDS)
                waiter.changed.clear()
                if access_changed.is_set() or now() - checked >= HEARTBEAT_SECONDS:
                    access_changed.clear()
                    await self.service.check_revoked()
                    checked = now()
                if more := text.more(self.services.waiting.partial_texts(waiter)):
                    yield more


async def _next_unless_disconnected(chunks: AsyncGenerator[bytes], receive: Receive) -> bytes | None:
    """Return the next chunk; close the stream and return None if the client disconnects first."""
    chunk, leaving = asyncio.ensure_future(anext(chunks)), asyncio.ensure_future(disconnect(receive))
    try:
        await asyncio.wait({chunk, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_done = chunk.done()
        chunk.cancel()
        leaving.cancel()
        await asyncio.wait({chunk, leaving})
    if is_done:
        return chunk.result()
    return None


def _headers(reply: Reply, epochs: Epochs) -> dict[str, str]:
    session = {SESSION_HEADER: reply.turn.session} if reply.turn else {}
    return {"X-Palaver-Message": epochs.message(reply.received.number), **session}


ROUTES = (complete, respond, get_response, delete_response, list_input_items, list_models, get_model)
