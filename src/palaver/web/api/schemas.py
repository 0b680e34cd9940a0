"""JSON schemas of sessions, entries and messages, and how they are made from our values."""

from datetime import datetime
from typing import Annotated, Protocol

from msgspec import Meta

from palaver.model.attachment import Attachment
from palaver.model.session import EndReason, Session, SessionState
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import InboxState
from palaver.store.status.message_status import Reply
from palaver.web.api.endpoints import Schema

Timestamp = Annotated[datetime, Meta(tz=True)]
Limit = Annotated[int, Meta(ge=1, le=500)]


class UsageSchema(Schema, frozen=True, kw_only=True):
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the price table's currency."""


class SessionSchema(Schema, frozen=True, kw_only=True):
    id: str
    key: str
    """The conversation it belongs to."""
    platform: str
    profile: str
    state: SessionState
    title: str | None
    started: Timestamp
    last_active: Timestamp
    ended: Timestamp | None
    end_reason: EndReason | None
    parent: str | None
    """The session it is a branch of."""
    entries: int
    used: UsageSchema
    last_said: str | None = None
    """The last message of a person; only in lists."""


class FileSchema(Schema, frozen=True, kw_only=True):
    id: str | None
    """Fetch it with this id; null if it is not stored."""
    name: str
    media_type: str
    size: int | None


class CallSchema(Schema, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: str
    """JSON, as written by the model."""


class EntrySchema(Schema, frozen=True, kw_only=True):
    seq: int
    role: Role
    at: Timestamp
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
    """A message that was sent, and what has come of it so far."""

    id: str
    """Also for `palaver trace`."""
    state: InboxState
    received: Timestamp
    session: str | None
    turn: str | None
    answer: str | None
    """The agent's final answer; null until there is one."""
    notices: list[str]
    """What the gateway answered: to a command, with a question, or with an error."""
    waits_for: str | None
    """`approval` if a person has to approve something, `tools` if you have to run a tool, else null."""
    calls: list[CallSchema]
    """The tool calls to run."""
    files: list[FileSchema]
    """Files of the answer."""
    used: UsageSchema


class _Spent(Protocol):
    """Usage of a turn, a session or a day."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cost_micros(self) -> int: ...


def usage_schema(spent: _Spent, turns: int = 0) -> UsageSchema:
    return UsageSchema(
        turns=turns,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost_micros=spent.cost_micros,
    )


def call_schema(call: ToolCall) -> CallSchema:
    return CallSchema(id=call.id, name=call.name, arguments=call.arguments)


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
        used=usage_schema(counters, counters.turns),
        last_said=last_said,
    )


def _file_schema(file: Attachment) -> FileSchema:
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
        calls=[call_schema(call) for call in entry.calls],
        answers=entry.answers,
        files=[_file_schema(file) for file in entry.files],
        observed=entry.observed,
        hidden=entry.hidden_by is not None,
    )


def message_schema(reply: Reply) -> MessageSchema:
    received, turn = reply.received, reply.turn
    answers = [entry for entry in reply.entries if entry.role is Role.ASSISTANT and not entry.calls]
    last = answers[-1] if answers and reply.ended else None
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
        calls=[call_schema(call) for call in calls],
        files=[_file_schema(file) for file in (last.files if last else ())],
        used=usage_schema(reply.usage, int(reply.ended is not None)),
    )
