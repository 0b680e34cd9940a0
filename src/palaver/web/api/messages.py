"""The API: messages are sent, waited for, and their trace is told."""

import re
import secrets
from functools import partial
from typing import Annotated

from msgspec import Meta
from starlette.types import Receive

from palaver.model.attachment import UNKNOWN_TYPE
from palaver.model.errors import BadArgument, NotFound
from palaver.model.lifecycle import InboxState, OutboxState, TurnState
from palaver.model.source import Source
from palaver.store.people.api_tokens import Right
from palaver.store.status.trace import Trace
from palaver.web.api.endpoints import Ask, Endpoint, Later, Schema, body_of
from palaver.web.api.schemas import MessageSchema, Moment, UsageSchema, message_schema, usage_schema
from palaver.web.message_service import LONGEST_TEXT, Said, Speaking, conversation_for

__all__ = [
    "ENDPOINTS",
    "KEY_HEADER",
    "ArrivalSchema",
    "NewFileSchema",
    "SendSchema",
    "SendingSchema",
    "TraceSchema",
    "TracesSchema",
    "key_of",
]

KEY_HEADER = "Idempotency-Key"
_KEY = re.compile(r"[!-~]{1,100}")
_NUMBER = re.compile(r"in:([0-9]{1,18})", re.ASCII)
_Wait = Annotated[float, Meta(ge=0, le=600)]


def key_of(ask_headers: str | None) -> str | None:
    """Under which a message is the same when it is sent again."""
    if ask_headers is not None and not _KEY.fullmatch(ask_headers):
        allowed = "1 to 100 visible ASCII characters"
        raise BadArgument(f"{KEY_HEADER} cannot be", found=ask_headers, allowed=allowed, example="order-4711")
    return ask_headers


class NewFileSchema(Schema, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    content: bytes
    """In base64."""
    media_type: str = UNKNOWN_TYPE


class SendSchema(Schema, frozen=True, kw_only=True):
    text: Annotated[str, Meta(max_length=LONGEST_TEXT)] = ""
    session: str | None = None
    """The id of a session to say it in; else it is said in a conversation of your own."""
    conversation: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """The name of a conversation of your own; without it a new one begins."""
    files: tuple[NewFileSchema, ...] = ()
    wait: _Wait = 0.0
    """For how many seconds to wait for the answer."""


async def _send(ask: Ask) -> object:
    body, key = ask.body, key_of(ask.request.headers.get(KEY_HEADER))
    if not body.text.strip() and not body.files:
        raise BadArgument("There is nothing to say in", found=body.text, allowed="a text or files", example="hello")
    speaking = Speaking(ask.services, ask.caller)
    source = await _source(ask, speaking, key)
    files = [await speaking.keep(file.name, file.media_type, file.content) for file in body.files]
    received = await speaking.say(source, Said(text=body.text, files=tuple(files)))
    return Later(partial(_come, speaking, received.number, body.wait, ask.request.receive))


async def _come(speaking: Speaking, number: int, wait: float, receive: Receive) -> object:
    told = message_schema(await speaking.reply(number, wait, receive))
    is_open = told.state in {InboxState.WAITING, InboxState.IN_TURN} and told.waits_for is None
    return body_of(told, 202 if is_open else 200)


async def _source(ask: Ask, speaking: Speaking, key: str | None) -> Source:
    body, message = ask.body, key or secrets.token_hex(12)
    if body.session is None:
        return speaking.at(body.conversation or conversation_for(key), message)
    if body.conversation is not None:
        raise BadArgument(
            "A message is said in one place, not in", found="two", allowed="session or conversation", example="session"
        )
    session = await ask.services.read(
        ask.caller, lambda who: ask.services.store.sessions.get_visible(body.session, who)
    )
    return await speaking.in_session(session, message)


class _MessageQuery(Schema, frozen=True, kw_only=True):
    wait: _Wait = 0.0


async def _message(ask: Ask) -> MessageSchema:
    found = _NUMBER.fullmatch(ask.path["id"])
    if found is None:
        raise NotFound("message", ask.path["id"])
    speaking, number = Speaking(ask.services, ask.caller), int(found[1])
    return message_schema(await speaking.reply(number, ask.query.wait, ask.request.receive))


class ArrivalSchema(Schema, frozen=True, kw_only=True):
    id: str
    state: InboxState
    received: Moment
    reason: str | None
    text: str | None


class SendingSchema(Schema, frozen=True, kw_only=True):
    id: str
    why: str
    state: OutboxState
    to: str
    text: str
    attempts: int
    receipt: str | None
    error: str | None


class TraceSchema(Schema, frozen=True, kw_only=True):
    """A turn with all it answers and owes; or what never came to a turn."""

    turn: str | None
    turn_state: TurnState | None
    session: str | None
    arrivals: list[ArrivalSchema]
    sendings: list[SendingSchema]
    used: UsageSchema


class TracesSchema(Schema, frozen=True, kw_only=True):
    traces: list[TraceSchema]


class _TraceQuery(Schema, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=500)]
    """in:42, turn:7, out:7168, a message id of a platform, or a session."""


async def _traces(ask: Ask) -> TracesSchema:
    store, name = ask.services.store, ask.query.name
    found = await ask.services.read(ask.caller, lambda principal: store.trace.find_traces(name, principal))
    return TracesSchema(traces=[_trace_schema(trace) for trace in found])


def _trace_schema(trace: Trace) -> TraceSchema:
    run = trace.turn
    return TraceSchema(
        turn=run and f"turn:{run.turn.number}",
        turn_state=run and run.turn.state,
        session=run and run.turn.session,
        arrivals=[
            ArrivalSchema(
                id=f"in:{each.number}",
                state=each.state,
                received=each.received,
                reason=each.reason,
                text=each.inbound and each.inbound.text,
            )
            for each in trace.messages
        ],
        sendings=[
            SendingSchema(
                id=f"out:{each.delivery.number}",
                why=each.why,
                state=each.delivery.state,
                to=f"{each.delivery.outbound.platform}:{each.delivery.outbound.chat_id}",
                text=each.delivery.outbound.text,
                attempts=each.delivery.attempts,
                receipt=each.delivery.receipt,
                error=each.delivery.error,
            )
            for each in trace.deliveries
        ],
        used=usage_schema(run.usage) if run else UsageSchema(),
    )


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/messages",
        does=_send,
        takes=SendSchema,
        example={"text": "hello", "conversation": "plans", "wait": 30},
        gives=MessageSchema,
        with_files=True,
        needs=Right.CHAT,
        headers={KEY_HEADER: "Sent again with the same key it is the same message, and is answered once."},
        summary="Say something: 200 with what came of it, or 202 where that is still to come",
    ),
    Endpoint(
        method="GET",
        path="/messages/{id}",
        does=_message,
        asks=_MessageQuery,
        gives=MessageSchema,
        summary="What came of a message of yours so far",
    ),
    Endpoint(
        method="GET",
        path="/traces",
        does=_traces,
        asks=_TraceQuery,
        gives=TracesSchema,
        summary="What became of any message, in or out",
    ),
)
