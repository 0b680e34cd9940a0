"""Shapes: what the API tells of sessions, entries and messages."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from palaver.model.attachment import Attachment
from palaver.model.lifecycle import EndReason, InboxState, SessionState
from palaver.model.session import Session
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Usage
from palaver.store.status.message_status import Reply
from palaver.web.api.endpoints import Schema

__all__ = [
    "CallSchema",
    "EntrySchema",
    "FileSchema",
    "Limit",
    "MessageSchema",
    "Moment",
    "SessionSchema",
    "UsageSchema",
    "entry_schema",
    "message_schema",
    "session_schema",
    "usage_schema",
]

Moment = Annotated[datetime, Meta(tz=True)]
Limit = Annotated[int, Meta(ge=1, le=500)]


class UsageSchema(Schema, frozen=True, kw_only=True):
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the currency of the price table."""


class SessionSchema(Schema, frozen=True, kw_only=True):
    id: str
    key: str
    """Which conversation it is."""
    platform: str
    profile: str
    state: SessionState
    title: str | None
    started: Moment
    last_active: Moment
    ended: Moment | None
    end_reason: EndReason | None
    parent: str | None
    """The session it is a branch of."""
    entries: int
    used: UsageSchema
    last_said: str | None = None
    """What a person said last, in lists."""


class FileSchema(Schema, frozen=True, kw_only=True):
    id: str | None
    """Under which it can be fetched; null where it is not here."""
    name: str
    media_type: str
    size: int | None


class CallSchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class EntrySchema(Schema, frozen=True, kw_only=True):
    seq: int
    role: Role
    at: Moment
    text: str
    turn: str | None
    sender: str | None
    sender_name: str | None
    calls: list[CallSchema]
    answers: str | None
    """The call whose result this is."""
    files: list[FileSchema]
    observed: bool
    hidden: bool


class MessageSchema(Schema, frozen=True, kw_only=True):
    """A message that was sent, and what came of it so far."""

    id: str
    """As `palaver trace` takes it."""
    state: InboxState
    received: Moment
    session: str | None
    turn: str | None
    answer: str | None
    """What the agent said at last; null while it has not."""
    notices: list[str]
    """What the gateway said: the answer to a command, a question, what went wrong."""
    waits_for: str | None
    """`approval` where a person has to allow something, `tools` where you have to use a tool; else null."""
    calls: list[CallSchema]
    """The tools to use."""
    files: list[FileSchema]
    """What came with the answer."""
    used: UsageSchema


def usage_schema(usage: Usage, turns: int = 0) -> UsageSchema:
    return UsageSchema(
        turns=turns,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_micros=usage.cost_micros,
    )


def session_schema(session: Session, last_said: str | None = None) -> SessionSchema:
    counters = session.counters
    return SessionSchema(
        id=session.id,
        key=session.key.text,
        platform=session.origin.platform,
        profile=session.key.profile,
        state=session.state,
        title=session.title,
        started=session.started,
        last_active=session.last_active,
        ended=session.ended,
        end_reason=session.end_reason,
        parent=session.parent,
        entries=counters.entries,
        used=UsageSchema(
            turns=counters.turns,
            input_tokens=counters.input_tokens,
            output_tokens=counters.output_tokens,
            cost_micros=counters.cost_micros,
        ),
        last_said=last_said,
    )


def _file(file: Attachment) -> FileSchema:
    return FileSchema(id=file.id, name=file.name.plain(), media_type=file.media_type, size=file.size)


def entry_schema(entry: Entry) -> EntrySchema:
    sender = entry.sender
    return EntrySchema(
        seq=entry.seq,
        role=entry.role,
        at=entry.at,
        text=entry.text,
        turn=entry.turn and f"turn:{entry.turn}",
        sender=sender and sender.id,
        sender_name=sender and sender.name and sender.name.plain(),
        calls=[CallSchema(id=call.id, name=call.name, arguments=call.arguments) for call in entry.calls],
        answers=entry.answers,
        files=[_file(file) for file in entry.files],
        observed=entry.observed,
        hidden=entry.hidden_by is not None,
    )


def message_schema(reply: Reply) -> MessageSchema:
    received, turn = reply.received, reply.turn
    said = [entry for entry in reply.entries if entry.role is Role.ASSISTANT and not entry.calls]
    last = said[-1] if said and reply.ended else None
    calls = reply.pending_tool_calls
    return MessageSchema(
        id=f"in:{received.number}",
        state=received.state,
        received=received.received,
        session=turn and turn.session,
        turn=turn and f"turn:{turn.number}",
        answer=last and last.text,
        notices=list(reply.notices),
        waits_for=("tools" if calls else "approval") if reply.is_parked else None,
        calls=[CallSchema(id=call.id, name=call.name, arguments=call.arguments) for call in calls],
        files=[_file(file) for file in (last.files if last else ())],
        used=usage_schema(reply.usage, int(reply.ended is not None)),
    )
