"""Turns: what came in, the turn that answers it, and what is owed in return."""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from palaver.model.access import AccessRole
from palaver.model.attachment import Attachment
from palaver.model.ids import check_ids, encode_id
from palaver.model.key import SessionKey
from palaver.model.lifecycle import InboxState, OutboxState, TurnState
from palaver.model.reset import Cause, counts_as_activity
from palaver.model.source import NO_LABELS, Labels, Source
from palaver.model.value import value

__all__ = [
    "BusyMode",
    "Choice",
    "ClientTool",
    "Delivery",
    "Inbound",
    "Outbound",
    "Received",
    "Revision",
    "Turn",
    "Usage",
    "account_text",
    "outbound_to",
    "question_id",
    "resolve_unclear",
]


class BusyMode(StrEnum):
    """What becomes of a message that arrives while a turn runs."""

    QUEUE = "queue"
    """One turn each, in order."""
    COLLECT = "collect"
    """What waited becomes one turn."""
    INTERRUPT = "interrupt"
    """The running turn stops; what waited becomes the next."""
    STEER = "steer"
    """Offered to the agent after its next tool call; else like `collect`."""


@value
class Revision:
    """A change of a message that was sent before. Words change; files that came with the message stay."""

    version: str
    """Which change it is, so that a redelivery is the same: the time of the edit, or its own id."""
    deleted: bool = False


class ClientTool(NamedTuple):
    """A tool that the sender of a message has, and uses for the agent when it is called."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """The JSON schema of its arguments, as text."""


@value
class Inbound:
    """A message as the adapter parsed it. Its id is what makes a redelivery the same message."""

    source: Source
    text: str
    at: datetime
    labels: Labels = NO_LABELS
    cause: Cause = Cause.HUMAN
    observed: bool = False
    mentions_us: bool = False
    """Our account was mentioned, or something of ours is answered. It counts on arrival and is not kept."""
    reply_to: str | None = None
    """The id of the message that it was said in reply to, in the same chat, whoever said that."""
    burst: str | None = None
    """What the platform calls several messages that were sent as one: an album."""
    busy: BusyMode | None = None
    """As its sender wants it while a turn runs; None for as the chat does. Such a message is no command."""
    plain: bool = False
    """It is words and nothing else: however it looks, it is no command."""
    files: tuple[Attachment, ...] = ()
    """What came with it, to be fetched by the adapter."""
    client_tools: tuple[ClientTool, ...] = ()
    """What its sender does for the agent in the turn that answers it."""
    revision: Revision | None = None
    """It is no new message but changes the one of this id; then `at` is when it was changed."""
    earlier: tuple[str, ...] = ()
    """What it said before it was changed, oldest first."""

    def check_ids(self) -> None:
        """Raises MalformedSource where its conversation, or it in its chat, cannot be known again by ids so long."""
        source, version = self.source, self.revision.version if self.revision else None
        check_ids("conversation", source.chat, source.scope_id, source.thread_id, source.participant)
        check_ids("message", source.chat_id or source.participant, source.message_id, version)

    @property
    def has_all_files(self) -> bool:
        """Its files are here, or never will be."""
        return all(file.is_settled for file in self.files)

    @property
    def counts_as_activity(self) -> bool:
        """Only people who speak to the agent keep a conversation from ending by itself."""
        return counts_as_activity(self.cause) and not self.observed


@value
class Received:
    """An inbox row: an inbound message and what became of it."""

    number: int
    key: SessionKey
    inbound: Inbound
    state: InboxState
    received: datetime
    turn: int | None = None
    reason: str | None = None
    role: AccessRole | None = None
    """As what the sender was let in."""
    place: SessionKey | None = None
    """The key of the place it was said in, where that place is attached to this conversation."""


@value
class Turn:
    """One claim on a conversation. Every write of it names the fence; an older fence can write nothing."""

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
    """When it was last cut off."""
    draft: str | None = None
    """The receipt of the message in which the answer grows."""
    quota: str | None = None
    """The quota that a failed turn was over."""

    @property
    def question_id(self) -> str:
        return question_id(self.number, self.fence)

    @property
    def draft_key(self) -> str:
        """By which a platform knows the message again in which the answer grows, also after a crash.

        It is another once a question was answered, from where attempts are counted anew: the first became the question.
        """
        return f"draft:{self.number}-{self.fence - self.attempt}:{_stamp(self.started)}"


def question_id(turn: int, fence: int) -> str:
    """What a turn asks permission for: it asks once each time it is at work."""
    return f"{turn}-{fence}"


@value
class Usage:
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0

    def plus(self, more: "Usage") -> "Usage":
        return Usage(
            model=more.model or self.model,
            input_tokens=self.input_tokens + more.input_tokens,
            output_tokens=self.output_tokens + more.output_tokens,
            cost_micros=self.cost_micros + more.cost_micros,
        )


class Choice(NamedTuple):
    """One of the answers that a message asks for; where a platform has buttons, it is one."""

    label: str
    says: str
    """What whoever takes it is taken to have said: `/approve 7`. At most 64 bytes."""


@value
class Outbound:
    """Something owed to a place: the text, where to, and which part of which reply it is."""

    platform: str
    chat_id: str
    text: str
    account: str | None = None
    thread_id: str | None = None
    reply_to: str | None = None
    file: Attachment | None = None
    """To be sent in this message; the text, if there is one, goes with it."""
    edits: str | None = None
    """The receipt of a draft that this text takes the place of."""
    mirror: str | None = None
    """The key of a conversation whose agent is to know, once it has arrived, that it was said there."""
    choices: tuple[Choice, ...] = ()
    """Answers to choose from; the text says them, too, for platforms without buttons."""
    opens: str | None = None
    """The name of a thread to begin with it, where the platform has threads."""
    handoff: int | None = None
    """The operation that brings a conversation to where this arrives."""
    is_news: bool = False
    """It tells what happened; that it was delivered is no news itself."""


def outbound_to(source: Source, text: str, *, reply_to: str | None = None, edits: str | None = None) -> Outbound:
    """One message to where an answer to the source goes."""
    return Outbound(
        platform=source.platform,
        account=source.account,
        chat_id=source.chat or source.participant or "",
        thread_id=source.thread_id,
        text=text,
        reply_to=reply_to,
        edits=edits,
    )


@value
class Delivery:
    """An outbox row: an outbound message and what became of it."""

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
    may_be_duplicate: bool = False
    is_gone: bool = False
    """An earlier send found the chat gone."""

    @property
    def idempotency_key(self) -> str:
        """By which a platform knows it again. Numbers begin anew in a fresh database, and after a backup comes back."""
        return f"palaver:{self.number}:{_stamp(self.created)}"


def _stamp(moment: datetime) -> int:
    """Microseconds: what tells apart what has the same number in two databases."""
    return int(moment.timestamp() * 1_000_000)


@lru_cache(1024)
def account_text(platform: str, account: str | None) -> str:
    """One account of ours on a platform: `telegram:helper_bot`."""
    return f"{platform}:{encode_id(account or '')}"


def resolve_unclear(delivery: Delivery, *, safe: bool) -> tuple[OutboxState, bool]:
    """What becomes of a send that may have arrived, and whether it carries the mark that says so.

    Where sending twice shows once it is simply sent again; else once more, marked; then it is left to a person.
    A thread is not opened a second time.
    """
    if safe:
        return OutboxState.DUE, delivery.may_be_duplicate
    if delivery.outbound.opens is not None:
        return OutboxState.UNCLEAR, True
    return (OutboxState.UNCLEAR if delivery.may_be_duplicate else OutboxState.DUE), True
