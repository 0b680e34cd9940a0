"""Notices of background processes: each is put once into the conversation that started the process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.key import SessionKey
from palaver.model.process import Process
from palaver.model.source import Source
from palaver.model.turn import Inbound, Received, outbound_to
from palaver.model.value import value
from palaver.store.queue import inbox, outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.records import inbound_of, micros, readable, source_of


@value
class Notice:
    """What a conversation learns about one of its processes."""

    name: str
    """Unique for the process, so that the notice is accepted once."""
    text: str
    """For the agent."""
    summary: str
    """For the chat, if the conversation is over."""
    bare: str
    """Without anything that the process has written, for those who cannot use the terminal now."""


SeesOutput = Callable[[Source, AccessRole | None, Basis | None], Transaction[bool]]
"""Tells whether the sender of the message that started a process can have its output now."""


@transaction
def everybody_sees(source: Source, role: AccessRole | None, basis: Basis | None) -> Statements[bool]:
    """Return True: for a store without rules of access."""
    yield from ()
    return bool(source or role or basis)


OUTPUT_HEAD = " Its last output:"
"""Stands before the output of a process."""
_HIDDEN = "Its output is not shown: the person who started it cannot use the terminal now."


@transaction
def hide_outputs(messages: Sequence[Received]) -> Statements[None]:
    """Take what processes have written out of waiting notices: it begins on a line of its own."""
    for received in messages:
        line = received.inbound.text.partition("\n")[0].removesuffix(OUTPUT_HEAD).rstrip(":. ")
        yield from inbox.rewrite(received, replace(received.inbound, text=f"{line}. {_HIDDEN}"))


@transaction
def report_exit(number: int, notice: Notice, now: datetime, sees_output: SeesOutput) -> Statements[bool]:
    """Tell the conversation that a process has ended, unless it knows or its agent has seen it."""
    rows = yield (
        "UPDATE processes SET exit_notice = 'done' WHERE no = ? AND exit_notice = 'due' RETURNING no",
        (number,),
    )
    if not rows:
        return False
    message = yield from _send(number, notice, now, sees_output)
    yield "UPDATE processes SET exit_message = ? WHERE no = ?", (message, number)
    return True


@transaction
def mark_seen(number: int) -> Statements[None]:
    """Record that the agent has seen the end of a process: it needs no notice, and none that still waits."""
    yield (
        "UPDATE processes SET exit_notice = 'done' WHERE no = ? AND exit_notice = 'due' AND exited IS NOT NULL",
        (number,),
    )
    yield from _withdraw(number, "the agent has seen the end of the process")


@transaction
def silence(number: int) -> Statements[None]:
    """Report nothing more of a process: who is killing it needs no notice of that."""
    yield (
        "UPDATE processes SET exit_notice = 'done', watch = NULL, check_at = NULL WHERE no = ? AND exit_notice = 'due'",
        (number,),
    )
    yield from _withdraw(number, "the process was killed on purpose")


def _withdraw(number: int, why: str) -> Statements[None]:
    rows = yield (
        "SELECT i.no FROM processes p JOIN inbox i ON i.no = p.exit_message WHERE p.no = ? AND i.state = 'waiting'",
        (number,),
    )
    for (message,) in rows:
        yield from inbox.withdraw(message, why)


@transaction
def report_match(
    process: Process, notice: Notice, watched_to: int, now: datetime, sees_output: SeesOutput
) -> Statements[bool]:
    """Tell the conversation what its agent watches for, once for each place in the output."""
    rows = yield (
        "UPDATE processes SET watched_to = ?, watch_notices = watch_notices + 1, watch_notified = ?"
        " WHERE no = ? AND watched_to = ? AND watch IS NOT NULL RETURNING no",
        (watched_to, micros(now), process.number, process.watched_to),
    )
    if rows:
        yield from _send(process.number, notice, now, sees_output)
    return bool(rows)


@transaction
def record_watched(number: int, watched_to: int) -> Statements[None]:
    """Record how far the output was searched without a match."""
    yield "UPDATE processes SET watched_to = ? WHERE no = ? AND watched_to < ?", (watched_to, number, watched_to)


@transaction
def report_check(process: Process, notice: Notice, now: datetime, sees_output: SeesOutput) -> Statements[bool]:
    """Tell the conversation that a process still runs. After a pause of the gateway, once."""
    due, every = process.check_at, process.check_every
    if due is None or every is None:
        return False
    following = due + ((now - due) // every + 1) * every
    rows = yield (
        "UPDATE processes SET check_at = ? WHERE no = ? AND check_at = ? AND exited IS NULL RETURNING no",
        (micros(following), process.number, micros(due)),
    )
    if rows:
        yield from _send(process.number, notice, now, sees_output)
    return bool(rows)


def _origin_in(row: Row) -> tuple[Inbound, AccessRole | None, Basis | None]:
    """Read the message that started a process, from the second column."""
    return inbound_of(row[1])


def _send(number: int, notice: Notice, now: datetime, sees_output: SeesOutput) -> Statements[int | None]:
    """Put a notice into the conversation, or into the chat if the conversation is over. Return its inbox number."""
    rows = yield (
        "SELECT p.id, p.origin, p.turn_no, p.place, s.key, s.ended, r.address, a.key FROM processes p"
        " JOIN sessions s ON s.no = p.session_no LEFT JOIN routes r ON r.key = s.key"
        " LEFT JOIN attached_chats a ON a.place = p.place WHERE p.no = ?",
        (number,),
    )
    id_, _, turn, place, key, ended, address, attached_to = rows[0]
    origin = next(readable(_origin_in, rows), None)
    if origin is None:
        return None
    inbound, role, basis = origin
    source = inbound.source
    if not (yield from sees_output(source, role, basis)):
        notice = replace(notice, text=f"{notice.bare} {_HIDDEN}", summary=notice.bare)
    if ended is not None:
        cause = SendCause(CauseKind.PROCESS, turn, f"{id_}:{notice.name}")
        yield from outbox.enqueue(outbound_to(source, notice.summary), cause, now)
        return None
    if (attached_to or place) != key and address:
        # The conversation has moved, or the chat has left it: it goes on where its route leads.
        place, source, basis = key, source_of(address), Basis.IDENTITY
    named = replace(source, message_id=f"process:{id_}:{notice.name}")
    message = replace(inbound, source=named, text=notice.text, at=now)
    return (yield from inbox.accept(message, SessionKey.parse(place), now, role=role, basis=basis))
