"""Commands: run one and store its answer in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from palaver.db.transaction import INBOX, Lock, Notify, Statements, Transaction, transaction
from palaver.model.command import with_bang
from palaver.model.errors import NotFound
from palaver.model.session import Session
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Received
from palaver.store.conversations.history import run_and_abandon_waiting
from palaver.store.conversations.sessions import check_not_busy, open_by_key
from palaver.store.conversations.visibility import get
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.inbox import requeue_or_remove
from palaver.store.queue.mentions import MENTION_OPEN, record_mentions
from palaver.store.records import OPEN_TURN
from palaver.store.results import CommandResult

T = TypeVar("T")

_OPEN = f"SELECT state FROM turns WHERE key = ? AND state IN {OPEN_TURN}"
_COMES_BEFORE = (
    f"SELECT 1 FROM ({_OPEN}) t WHERE t.state <> 'parked' UNION ALL SELECT 1 FROM inbox i"
    f" WHERE NOT EXISTS ({_OPEN}) AND i.key = ? AND i.state = 'waiting' AND i.no < ?"
)


class Outdated(Exception):
    """What a command was prepared for has changed since: prepare it again."""


@transaction
def run_command(
    received: Received,
    work: Transaction[str],
    routes: ReplyRoutes,
    now: datetime,
    *,
    urgent: bool = False,
    failed: str | None = None,
) -> Statements[CommandResult | None]:
    """Run a command and store its answer. Return None if the message no longer waits.

    A command that is not urgent waits for the running turn and for earlier messages, but not for a parked turn.
    `failed` says why the command failed, without quoting anyone; then only the answer is stored.
    """
    yield Lock(received.key.text)
    if not urgent and (yield _COMES_BEFORE, (*(received.key.text,) * 3, received.number)):
        return None
    mine = yield (
        "UPDATE inbox SET state = ?, reason = ? WHERE no = ? AND key = ? AND state = 'waiting' RETURNING no",
        ("failed" if failed else "done", failed, received.number, received.key.text),
    )
    if not mine:
        return None
    yield from requeue_or_remove(received.key)
    yield MENTION_OPEN, (received.number, received.key.text)
    result = yield from _run_and_watch(received, work, routes, now)
    yield MENTION_OPEN, (received.number, received.key.text)
    answer = routes.notices(received.inbound.source, result.answer)
    yield from outbox.enqueue_parts(answer, SendCause(CauseKind.COMMAND, received.number), now)
    yield Notify(INBOX)
    return result


@transaction
def run_from_outside(
    command: Received, session: Session, work: Transaction[str], routes: ReplyRoutes, now: datetime
) -> Statements[CommandResult]:
    """Run a command that did not come from the chat, only while this session is open in it.

    Raise SessionBusy if the command would leave the session during a turn.
    """
    yield Lock(session.key.text)
    current = yield from open_by_key(session.key)
    if current is None or current.id != session.id:
        raise NotFound("open conversation", session.title or session.id)
    result = yield from _run_and_watch(command, work, routes, now)
    result = replace(result, answer=with_bang(result.answer, ()))
    if result.entered is None or result.entered.id != session.id:
        yield from check_not_busy(session)
    return result


def _run_and_watch(
    command: Received, work: Transaction[str], routes: ReplyRoutes, now: datetime
) -> Statements[CommandResult]:
    """Do the work of a command. Return its answer, and which session was open before and which is open now."""
    left = yield from open_by_key(command.key)
    answer = yield from _report_abandoned(command, work, routes, now)
    entered = yield from open_by_key(command.key)
    return CommandResult(answer=answer, left=left and (yield from get(left.number)), entered=entered)


def unanswered(count: int) -> str:
    if count == 1:
        return "One message was still waiting and will not be answered."
    return f"{count} messages were still waiting and will not be answered."


def _report_abandoned(command: Received, work: Transaction[str], routes: ReplyRoutes, now: datetime) -> Statements[str]:
    """If a command leaves a conversation, say how many messages stay unanswered there."""
    answer, left = yield from run_and_abandon_waiting(command, work)
    abandoned = [received for received in left if not received.inbound.observed]
    if not abandoned:
        return answer
    here = command.inbound.source.address if command.number else None
    elsewhere = (received for received in abandoned if received.inbound.source.address != here)
    yield from _notify_chats(elsewhere, routes, now)
    return f"{answer} {unanswered(len(abandoned))}"


def _notify_chats(abandoned: Iterable[Received], routes: ReplyRoutes, now: datetime) -> Statements[None]:
    """Notify each chat that waits for an answer, as a reply to its last message."""
    by_chat: dict[object, list[Received]] = {}
    for received in abandoned:
        by_chat.setdefault(received.inbound.source.address, []).append(received)
    for messages in by_chat.values():
        last = messages[-1]
        notices = routes.notices(last.inbound.source, unanswered(len(messages)))
        yield from outbox.enqueue_parts(notices, SendCause(CauseKind.COMMAND, last.number), now)


@transaction
def answer_only(text: str) -> Statements[str]:
    """Do nothing but answer."""
    yield from ()
    return text


@transaction
def mention(received: Received, sessions: Sequence[Session], work: Transaction[str]) -> Statements[str]:
    """Record which sessions the answer quotes. The work itself can add some, so record them after it."""
    text = yield from work
    yield from record_mentions(received.number, sessions)
    return text


@transaction
def run_if_unchanged(check: Transaction[T], expected: T, work: Transaction[str]) -> Statements[str]:
    """Do the work if a check still finds what it did when the work was prepared. Raise Outdated otherwise."""
    if (yield from check) != expected:
        raise Outdated
    return (yield from work)
