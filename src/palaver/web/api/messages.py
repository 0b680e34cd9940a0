"""API endpoints to send a message, wait for its answer, and trace it."""

import re
import secrets
from functools import partial
from typing import Annotated

from msgspec import Meta
from starlette.types import Receive

from palaver.model.attachment import UNKNOWN_TYPE, NewFile
from palaver.model.epochs import Epochs
from palaver.model.errors import BadArgument, NotFound
from palaver.model.source import Source
from palaver.model.turn import InboxState, OutboxState, TurnState
from palaver.operations.operation import Schema, Timestamp, fill
from palaver.store.people.api_tokens import Right
from palaver.store.status.trace import Trace
from palaver.web.api.endpoints import Deferred, endpoint, json_response
from palaver.web.api.schemas import MessageSchema, UsageSchema, message_schema
from palaver.web.message_service import (
    MAX_TEXT_LENGTH,
    MessageService,
    ProgramRequest,
    check_not_empty,
    conversation_for,
)
from palaver.web.routes import WebRequest

IDEMPOTENCY_HEADER = "Idempotency-Key"
_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,100}")
_WaitSeconds = Annotated[float, Meta(ge=0, le=600)]


def check_idempotency_key(key: str | None) -> str | None:
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        allowed = "1 to 100 visible ASCII characters"
        raise BadArgument(f"{IDEMPOTENCY_HEADER} cannot be", found=key, allowed=allowed, example="order-4711")
    return key


class NewFileSchema(Schema, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    content: bytes
    """In base64."""
    media_type: str = UNKNOWN_TYPE


class SendSchema(Schema, frozen=True, kw_only=True):
    text: Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)] = ""
    session: str | None = None
    """Send to the session with this id, instead of a conversation of your own."""
    conversation: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """Send to your conversation of this name; without it, start a new one."""
    files: tuple[NewFileSchema, ...] = ()
    wait: _WaitSeconds = 0.0
    """Wait this many seconds for the answer."""


@endpoint(
    "POST",
    "/messages",
    summary="Send a message: 200 with its answer, or 202 if that is still to come",
    needs=Right.CHAT,
    response=MessageSchema,
    example={"text": "hello", "conversation": "plans", "wait": 30},
    with_files=True,
    headers={IDEMPOTENCY_HEADER: "A repeated request with the same key is the same message, answered once."},
)
async def send_message(request: WebRequest, body: SendSchema) -> Deferred:
    service = MessageService(request)
    service.count_message()
    key = check_idempotency_key(request.http.headers.get(IDEMPOTENCY_HEADER))
    check_not_empty(body.text, body.files)
    files = [NewFile(file.name, file.content, file.media_type) for file in body.files]
    asked = ProgramRequest.of(key, files, "messages", body.session, body.conversation, body.text)
    received = await service.find_request(asked)
    if received is None:
        source = await _source(request, body, service, key)
        received = await service.send(source, body.text, await service.store_files(files), request=asked)
    return Deferred(partial(_wait_for_answer, service, received.number, body.wait, request.http.receive))


async def _wait_for_answer(service: MessageService, number: int, seconds: float, receive: Receive) -> object:
    message = message_schema(await service.reply(number, seconds, receive), service.request.store.epochs)
    is_open = message.state.is_open and message.waits_for is None
    return json_response(message, 202 if is_open else 200)


async def _source(request: WebRequest, body: SendSchema, service: MessageService, key: str | None) -> Source:
    name, message = body.session, key or secrets.token_hex(12)
    if name is None:
        return service.source(body.conversation or conversation_for(key), message)
    if body.conversation is not None:
        problem, allowed = "Name a session or a conversation, not both.", "session or conversation"
        raise BadArgument(problem, found="both", allowed=allowed, fix="", example="session")
    session = await request.read(lambda principal: request.store.sessions.get_visible(name, principal))
    return await service.source_in(session, message)


class _MessageQuery(Schema, frozen=True, kw_only=True):
    wait: _WaitSeconds = 0.0


@endpoint("GET", "/messages/{id}", summary="Get a message you sent, with its answer so far", for_senders=True)
async def get_message(request: WebRequest, query: _MessageQuery) -> MessageSchema:
    service, number = MessageService(request), _message_number(request, request.path["id"])
    return message_schema(await service.reply(number, query.wait, request.http.receive), request.store.epochs)


def _message_number(request: WebRequest, id_: str) -> int:
    number = request.store.epochs.find_message(id_)
    if number is None:
        raise NotFound("message", id_)
    return number


class InboundSchema(Schema, frozen=True, kw_only=True):
    id: str
    state: InboxState
    received: Timestamp
    reason: str | None
    text: str | None


class DeliverySchema(Schema, frozen=True, kw_only=True):
    id: str
    why: str
    state: OutboxState
    to: str
    text: str
    attempts: int
    receipt: str | None
    error: str | None


class TraceSchema(Schema, frozen=True, kw_only=True):
    """A turn with the messages it answers and what it sends; or messages without a turn."""

    turn: str | None
    turn_state: TurnState | None
    session: str | None
    messages: list[InboundSchema]
    deliveries: list[DeliverySchema]
    used: UsageSchema


class TracesSchema(Schema, frozen=True, kw_only=True):
    traces: list[TraceSchema]


class _TraceQuery(Schema, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=500)]
    """The id of a message or delivery, turn:7, a platform's message id, or a session."""


@endpoint("GET", "/traces", summary="Trace a message, in or out; with chat alone, one you sent", for_senders=True)
async def get_traces(request: WebRequest, query: _TraceQuery) -> TracesSchema:
    find, service = request.store.trace.find_traces, MessageService(request)
    if not request.caller.has(Right.READ):
        # Raises unless they sent it.
        await service.reply(_message_number(request, query.name))
    found = await request.read(lambda principal: find(query.name, principal, bare=False))
    epochs = request.store.epochs
    return TracesSchema(traces=[_trace_schema(service.limit_to_own(trace), epochs) for trace in found])


def _trace_schema(trace: Trace, epochs: Epochs) -> TraceSchema:
    run = trace.turn
    return TraceSchema(
        turn=run and f"turn:{run.turn.number}",
        turn_state=run and run.turn.state,
        session=run and run.turn.session,
        messages=[
            fill(
                InboundSchema, message, id=epochs.message(message.number), text=message.inbound and message.inbound.text
            )
            for message in trace.messages
        ],
        deliveries=[
            fill(
                DeliverySchema,
                item.delivery,
                id=epochs.send(item.delivery.number),
                why=item.why,
                to=f"{item.delivery.outbound.platform}:{item.delivery.outbound.chat_id}",
                text=item.delivery.outbound.text,
            )
            for item in trace.deliveries
        ],
        used=fill(UsageSchema, run.usage) if run else UsageSchema(),
    )


ENDPOINTS = (send_message, get_message, get_traces)
