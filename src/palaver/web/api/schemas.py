"""JSON schemas of sessions, entries and messages, and how they are made from our values."""

from palaver.model.epochs import Epochs
from palaver.model.session import EndReason, Session, SessionState
from palaver.model.transcript import Entry, Role, ToolCall, is_answer
from palaver.model.turn import InboxState
from palaver.operations.operation import Schema, Timestamp, fill
from palaver.store.status.message_status import Reply


class UsageSchema(Schema, frozen=True, kw_only=True):
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cost_micros: int = 0
    """Millionths of the price table's currency."""
    unpriced_tokens: int = 0
    """Tokens whose price is unknown: the cost does not include them."""


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
    tokens: int
    """Output tokens of the model's answer."""
    cost_micros: int | None
    """What the model's answer cost with its prompt, in millionths of the currency; null if unknown."""
    observed: bool
    cut: bool
    """The answer reached the model's limit of tokens and ends in the middle."""
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
    cut: bool
    """The answer reached the model's limit of tokens and ends in the middle."""
    notices: list[str]
    """What the gateway answered: to a command, with a question, or with an error."""
    waits_for: str | None
    """`approval` if a person has to approve something, `answer` if the agent asks something, `tools` if you have to run
    a tool, else null."""
    calls: list[CallSchema]
    """The tool calls to run."""
    files: list[FileSchema]
    """Files of the answer."""
    used: UsageSchema


def call_schema(call: ToolCall) -> CallSchema:
    return CallSchema(**call._asdict())


def session_schema(session: Session, last_said: str | None = None) -> SessionSchema:
    return fill(
        SessionSchema,
        session,
        key=session.key.text,
        platform=session.origin.platform,
        profile=session.key.profile,
        entries=session.counters.entries,
        used=fill(UsageSchema, session.counters),
        last_said=last_said,
    )


def entry_schema(entry: Entry) -> EntrySchema:
    sender = entry.sender
    return fill(
        EntrySchema,
        entry,
        turn=entry.turn and f"turn:{entry.turn}",
        sender=sender and sender.id,
        sender_name=sender and sender.name and sender.name.plain(),
        calls=[call_schema(call) for call in entry.calls],
        files=[fill(FileSchema, file) for file in entry.files],
        hidden=entry.hidden_by is not None,
    )


def message_schema(reply: Reply, epochs: Epochs) -> MessageSchema:
    received, turn = reply.received, reply.turn
    answers = list(filter(is_answer, reply.entries))
    last = answers[-1] if answers and reply.ended else None
    calls = reply.pending_tool_calls
    return fill(
        MessageSchema,
        received,
        id=epochs.message(received.number),
        session=turn and turn.session,
        turn=turn and f"turn:{turn.number}",
        answer=last and last.text,
        cut=last is not None and last.cut,
        notices=list(reply.notices),
        waits_for=reply.waits_for,
        calls=[call_schema(call) for call in calls],
        files=[fill(FileSchema, file) for file in (last.files if last else ())],
        used=fill(UsageSchema, reply.usage, turns=int(reply.ended is not None)),
    )
