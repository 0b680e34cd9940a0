"""Turns: inbound messages, the turn that answers them, the messages it owes, and the steps of their life cycles."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import Enum, StrEnum
from typing import NamedTuple, TypeVar

from palaver.model.access import AccessRole, Basis
from palaver.model.attachment import Attachment
from palaver.model.errors import IllegalTransition
from palaver.model.firing import FiredJob
from palaver.model.key import SessionKey
from palaver.model.source import NO_LABELS, Addressee, AddresseeKind, Labels, Source, check_ids, shorten_id
from palaver.model.text import whole_characters
from palaver.model.transcript import Quote
from palaver.model.usage import SPENT_FIELDS, Spent
from palaver.model.value import value


class InboxState(Enum):
    WAITING = "waiting"
    IN_TURN = "in-turn"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    RELAY = "relay"
    """It waits for the gateway that a connector hands it to."""

    @property
    def is_open(self) -> bool:
        return self in {InboxState.WAITING, InboxState.IN_TURN, InboxState.RELAY}


class TurnState(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARKED = "parked"


class OutboxState(Enum):
    DUE = "due"
    CLAIMED = "claimed"
    """A worker is about to send it. Nothing has left yet."""
    SENDING = "sending"
    """A request may have left, and its outcome is not known yet."""
    DELIVERED = "delivered"
    DEAD = "dead"
    UNCLEAR = "unclear"

    @property
    def is_open(self) -> bool:
        return self in {OutboxState.DUE, OutboxState.CLAIMED, OutboxState.SENDING}


State = TypeVar("State", TurnState, OutboxState)

_NOTHING: frozenset[Enum] = frozenset()
_NEXT: Mapping[Enum, frozenset[Enum]] = {
    TurnState.RUNNING: frozenset({TurnState.DONE, TurnState.FAILED, TurnState.INTERRUPTED, TurnState.PARKED}),
    TurnState.INTERRUPTED: frozenset({TurnState.RUNNING, TurnState.FAILED}),
    TurnState.PARKED: frozenset({TurnState.RUNNING, TurnState.FAILED}),
    OutboxState.DUE: frozenset({OutboxState.CLAIMED, OutboxState.DEAD}),
    OutboxState.CLAIMED: frozenset({OutboxState.SENDING, OutboxState.DUE, OutboxState.DEAD, OutboxState.UNCLEAR}),
    OutboxState.SENDING: frozenset({OutboxState.DELIVERED, OutboxState.DUE, OutboxState.DEAD, OutboxState.UNCLEAR}),
    OutboxState.UNCLEAR: frozenset({OutboxState.DELIVERED, OutboxState.DUE}),
    OutboxState.DEAD: frozenset({OutboxState.DUE}),
}


def advance(state: State, wanted: State) -> State:
    """Return `wanted`, or raise IllegalTransition if `state` cannot become it."""
    legal = _NEXT.get(state, _NOTHING)
    if wanted not in legal:
        raise IllegalTransition(state, wanted, legal)
    return wanted


class Cause(StrEnum):
    """What caused an inbound message."""

    HUMAN = "human"
    SCHEDULE = "schedule"
    PROCESS = "process"
    CALL = "call"
    """A call by an outside program. Its text is as untrusted as a person's."""


class BusyMode(StrEnum):
    """What happens to a message that arrives while a turn runs."""

    QUEUE = "queue"
    """Answer each message in its own turn, in order."""
    COLLECT = "collect"
    """Answer all waiting messages in one turn."""
    INTERRUPT = "interrupt"
    """Stop the running turn and answer all waiting messages in the next."""
    STEER = "steer"
    """Show the message to the agent after its next tool call; else like `collect`."""


class QuestionMode(StrEnum):
    """What a message does in a conversation whose turn waits for an approval."""

    WITHDRAW = "withdraw"
    """Withdraw the question and answer the message."""
    WAIT = "wait"
    """Wait until the question is answered."""


@value
class Revision:
    """An edit or deletion of an earlier message. An edit changes the text, never the files."""

    version: str
    """Identifies the edit, so that a redelivery is recognised: its time, or its own id."""
    deleted: bool = False


@value
class Reaction:
    """A person's reaction to the message that `reply_to` names."""

    emoji: str
    """The character, or the platform's name for it: `👍`, `+1`. Empty if it does not say which one was taken back."""
    removed: bool = False
    """The person took it back."""


class ClientTool(NamedTuple):
    """A tool that the sender of a message runs on the agent's behalf."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """The JSON schema of its arguments, as text."""


@value
class AnswerForm:
    """What a client demands of the answer."""

    schema: str | None = None
    """The JSON schema that it follows, as text."""
    schema_name: str | None = None
    strict: bool | None = None
    stop: tuple[str, ...] = ()
    """It ends before the first of these."""
    must_call: tuple[str, ...] = ()
    """The agent first calls one of these tools."""

    def cut(self, text: str, *, is_growing: bool = False) -> str:
        """Return the text up to the first complete stop. While it grows, leave out an end that can become one."""
        found = [(start + len(stop), start) for stop in self.stop if (start := text.find(stop)) >= 0]
        if found:
            return text[: min(found)[1]]
        if not is_growing:
            return text
        begun = (n for stop in self.stop for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n]))
        return text[: len(text) - max(begun, default=0)]


ANY_FORM = AnswerForm()


@value
class Destination:
    """A chat that an answer goes to."""

    place: Source
    mirror: str | None = None
    """The key of a conversation whose agent gets a note of what was sent."""


@value
class Heard:
    """What the recordings of a message say: text for the transcript, and what it cost to know, in millionths."""

    text: str = ""
    cost_micros: int = 0


NOTHING_HEARD = Heard()


@value
class Inbound:
    """A message as the adapter parsed it. Its id identifies a redelivery."""

    source: Source
    text: str
    at: datetime
    labels: Labels = NO_LABELS
    cause: Cause = Cause.HUMAN
    observed: bool = False
    mentions_us: bool = False
    """It mentions our account or replies to one of our messages. Used on arrival; stored only to be relayed."""
    reply_to: str | None = None
    """The id of the message in the same chat that it replies to."""
    quote: Quote | None = None
    """What it replies to, if the platform shows that."""
    burst: str | None = None
    """The platform's id for several messages sent as one, such as an album."""
    busy: BusyMode | None = None
    """The sender's choice for this message; None uses the chat's mode. A message with a choice is never a command."""
    plain: bool = False
    """Never treat the text as a command."""
    files: tuple[Attachment, ...] = ()
    """Files that came with it, for the adapter to fetch."""
    client_tools: tuple[ClientTool, ...] = ()
    """Tools that the sender runs for the agent in the turn that answers it."""
    form: AnswerForm = ANY_FORM
    instructions: str = ""
    """What its client asks of the agent for the turn that answers it, beyond what the conversation began with."""
    revision: Revision | None = None
    """Set if it edits or deletes the message of this id; `at` is then the time of the edit."""
    reaction: Reaction | None = None
    """Set if it is no message but a reaction to one. It has no text and no message id; `at` is its time."""
    earlier: tuple[str, ...] = ()
    """Its texts before it was edited, oldest first."""
    job: FiredJob | None = None
    """The job whose firing it is."""
    destinations: tuple[Destination, ...] = ()
    """Where its answer goes; empty for back to where it came from."""
    request_key: str | None = None
    """A program's name for its request: the same name of the same sender is a redelivery, in any chat."""
    request_digest: str | None = None
    """Tells a repeated request from another one under the same name."""
    transcription_micros: int = 0
    """What it cost to transcribe its recordings."""
    heard: str = ""
    """The end of the text, if recordings say it: an edit changes only what is before."""
    is_unheard: bool = False
    """It has recordings that are stored but not transcribed yet."""
    continues: int | None = None
    """The id of the entry that it follows, if no other message can follow it there."""

    @property
    def origin(self) -> Source:
        """Return where to tell its sender something about it. Only what a person wrote can be replied to."""
        is_written = self.cause is Cause.HUMAN and self.job is None
        return self.source if is_written else replace(self.source, message_id=None)

    def check_ids(self) -> None:
        """Raise MalformedSource if the ids are too long to identify its conversation or itself."""
        source, version = self.source, self.revision.version if self.revision else None
        check_ids("conversation", source.chat, source.scope_id, source.thread_id, source.participant)
        check_ids("message", source.scope_id, source.addressee.id, source.message_id, version)

    def with_heard(self, heard: str) -> "Inbound":
        """Return it with what its recordings say behind the text."""
        return replace(self, text="\n".join(filter(None, (self.text, heard))), heard=heard) if heard else self

    def without_content(self) -> "Inbound":
        """Return only who sent it, where, when and why, to record that it was refused."""
        return Inbound(
            source=self.source,
            text="",
            at=self.at,
            labels=self.labels,
            cause=self.cause,
            observed=self.observed,
            revision=self.revision,
        )

    def shortened(self) -> "Inbound":
        """Return it without content and names, under ids that `check_ids` accepts."""
        revision = self.revision and replace(self.revision, version=shorten_id(self.revision.version))
        return replace(self.without_content(), source=self.source.shortened(), labels=NO_LABELS, revision=revision)

    @property
    def has_all_files(self) -> bool:
        """Whether each file is stored or known to be unavailable, and recordings are transcribed."""
        return not self.is_unheard and all(file.is_settled for file in self.files)

    @property
    def counts_as_activity(self) -> bool:
        """Whether it postpones an idle reset: only people who talk to the agent do."""
        return self.cause is Cause.HUMAN and not self.observed

    @property
    def has_process_output(self) -> bool:
        """Whether it is a notice about a process, with what that wrote below its first line."""
        return self.cause is Cause.PROCESS and "\n" in self.text


@value
class Received:
    """An inbox row: an inbound message and its state."""

    number: int
    key: SessionKey
    inbound: Inbound
    state: InboxState
    received: datetime
    turn: int | None = None
    reason: str | None = None
    role: AccessRole | None = None
    """The sender's role when it was accepted."""
    basis: Basis | None = Basis.IDENTITY
    """The basis of the grant that admitted the sender; None if it was accepted before this was recorded."""
    place: SessionKey | None = None
    """The key of the chat it came from, if that chat is attached to this conversation."""


def last_spoken(messages: Iterable[Received]) -> datetime | None:
    """Return when the last message of people to the agent was received, however long it waited since."""
    return max((each.received for each in messages if each.inbound.counts_as_activity), default=None)


@value
class Turn:
    """One claim on a conversation. Every write names the fence; a write with an older fence is refused."""

    number: int
    key: SessionKey
    session: str
    session_number: int
    state: TurnState
    attempt: int
    fence: int
    worker: str
    lease_until: datetime
    started: datetime
    error: str | None = None
    halted: datetime | None = None
    """When it was last interrupted."""
    draft: str | None = None
    """The receipt of the draft message that shows the growing answer."""
    quota: str | None = None
    """The quota that a failed turn exceeded."""
    failure: str | None = None
    """The kind of failure that its agent reported."""
    retry_at: datetime | None = None
    """When the provider that failed it takes requests again, if it said so."""
    draft_unclear: bool = False
    """A request for the draft message may have left, and its receipt is unknown."""

    @property
    def question_id(self) -> str:
        return question_id(self.number, self.fence)

    @property
    def draft_key(self) -> str:
        """The idempotency key of the draft message, stable across a crash.

        It changes once an approval question was answered, because the earlier draft became the question.
        """
        return f"draft:{self.number}-{self.fence - self.attempt}:{_stamp(self.started)}"


def question_id(turn: int, fence: int) -> str:
    """Return the id of a turn's approval question: a turn asks at most once each time it runs."""
    return f"{turn}-{fence}"


@value
class Usage(Spent):
    model: str | None = None
    prompt_tokens: int = 0
    """The size of the last prompt with its answer, instructions and tools included; 0 if unknown."""

    def plus(self, more: "Usage") -> "Usage":
        if self is NO_USAGE:
            return more
        return Usage(
            model=more.model or self.model,
            prompt_tokens=more.prompt_tokens or self.prompt_tokens,
            **{name: getattr(self, name) + getattr(more, name) for name in SPENT_FIELDS},
        )


NO_USAGE = Usage()


class Choice(NamedTuple):
    """One of the replies that a message offers, shown as a button where the platform has them."""

    label: str
    says: str
    """The text that choosing it sends, such as `/approve 7`. At most 64 bytes."""


class QuoteMode(StrEnum):
    """Where an answer is a reply to the message that it answers."""

    NEVER = "never"
    GROUPS = "groups"
    ALWAYS = "always"


@value
class Outbound:
    """A message to send: where to, the text or file, and what follows once it is delivered."""

    platform: str
    chat_id: str
    text: str
    addressee: AddresseeKind = AddresseeKind.CHAT
    """What `chat_id` is. Only for a source without a chat id it is another of its ids."""
    account: str | None = None
    scope_id: str | None = None
    """The server or workspace of the chat, on platforms where a chat id is only unique inside one."""
    thread_id: str | None = None
    reply_to: str | None = None
    """The message that it answers."""
    quotes: QuoteMode = QuoteMode.GROUPS
    file: Attachment | None = None
    """The file to send, with the text as its caption."""
    edits: str | None = None
    """The receipt of the draft that this text replaces."""
    mirror: str | None = None
    """The key of a conversation whose agent gets a note once this is delivered."""
    choices: tuple[Choice, ...] = ()
    """Replies to choose from. The text lists them too, for platforms without buttons."""
    opens: str | None = None
    """The name of a thread to start with it, if the platform has threads."""
    handoff: int | None = None
    """The operation that moves a conversation to where this is delivered."""
    is_news: bool = False
    """It reports an event; its own delivery is not reported as one."""
    is_passing: bool = False
    """It matters only now: if nobody knows whether it arrived, it is not sent again."""
    repeats_draft: bool = False
    """Nobody knows whether a draft of it was shown, which it cannot replace."""
    avoids: tuple[tuple[str, ...], ...] | None = None
    """Of a notice to the owner: the accounts that are down, and the chats (account, server, chat) that refused it."""

    def __post_init__(self) -> None:
        # Half a surrogate has no UTF-8, so no platform could take it.
        if not self.text.isascii():
            object.__setattr__(self, "text", whole_characters(self.text))

    def quoted(self, *, in_group: bool) -> str | None:
        """Return the message to reply to, so that people see which one is answered; None if they need not."""
        is_wanted = self.quotes is QuoteMode.ALWAYS or (self.quotes is QuoteMode.GROUPS and in_group)
        return self.reply_to if is_wanted else None

    def without_content(self) -> "Outbound":
        """Return only where it went, to record that it was sent."""
        return replace(self, text="", file=None, choices=(), opens=None)

    @property
    def chat(self) -> tuple[str | Addressee | None, ...]:
        """Return where it goes, without the thread, as in `Source.address`."""
        return self.platform, self.account, self.scope_id, Addressee(self.addressee, self.chat_id)


def outbound_to(source: Source, text: str, *, reply_to: str | None = None, edits: str | None = None) -> Outbound:
    """Return a message to where an answer to the source goes."""
    addressee = source.addressee
    return Outbound(
        platform=source.platform,
        account=source.account,
        scope_id=source.scope_id,
        chat_id=addressee.id,
        addressee=addressee.kind,
        thread_id=source.thread_id,
        text=text,
        reply_to=reply_to,
        edits=edits,
    )


@value
class Delivery:
    """An outbox row: an outbound message and its state."""

    number: int
    outbound: Outbound
    state: OutboxState
    attempts: int
    due: datetime
    created: datetime
    turn: int | None = None
    ordinal: int = 0
    receipt: str | None = None
    error: str | None = None
    times_unclear: int = 0
    """How often a request for it may have left, without anybody knowing whether it arrived."""
    is_gone: bool = False
    """An earlier attempt found the chat gone."""

    @property
    def may_be_duplicate(self) -> bool:
        """Whether it is marked as a possible duplicate."""
        return self.times_unclear > 0 or self.outbound.repeats_draft

    @property
    def idempotency_key(self) -> str:
        """Identifies it to the platform. The time keeps it unique when numbers repeat after a restored backup."""
        return f"palaver:{self.number}:{_stamp(self.created)}"


def _stamp(moment: datetime) -> int:
    """Return microseconds, which distinguish rows with the same number in two databases."""
    return int(moment.timestamp() * 1_000_000)


REPEATS_AFTER_CRASH = 3
"""How often a send is repeated that a crash made unclear."""
REPEATS_AFTER_OUTAGE = 1
"""How often a send is repeated to which the platform gave no answer."""


def resolve_unclear(delivery: Delivery, *, safe: bool, crashed: bool = False) -> tuple[OutboxState, int]:
    """Return the next state of a send that may have arrived, and how often it was unclear by then.

    If the platform drops duplicates (`safe`), send again. Otherwise send again, marked, but not for ever: in the end a
    person decides. Never open a thread twice. What matters only for a moment counts as delivered.
    """
    if safe:
        return OutboxState.DUE, delivery.times_unclear
    if delivery.outbound.is_passing:
        return OutboxState.DELIVERED, delivery.times_unclear
    times = delivery.times_unclear + 1
    is_last = times > (REPEATS_AFTER_CRASH if crashed else REPEATS_AFTER_OUTAGE)
    return (OutboxState.UNCLEAR if is_last or delivery.outbound.opens is not None else OutboxState.DUE), times
