"""Inbox and turns in the store: accepted once, claimed by one, written under a fence, settled whole."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from palaver.domain.errors import StaleFence
from palaver.domain.ids import encode_id
from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import InboxState, TurnState, advance
from palaver.domain.reset import extends_idle_time
from palaver.domain.session import Principal, identity_of
from palaver.domain.source import Source
from palaver.domain.transcript import Entry, Role, Sender
from palaver.domain.turn import Inbound, Outbound, Received, Turn, Usage
from palaver.ports.store import Begun, ResetRules
from palaver.ports.work import Lock, Notify, Row, Steps, Value, Work, work
from palaver.stores import outbox
from palaver.stores.records import (
    INBOX_COLUMNS,
    TURN_COLUMNS,
    Prepared,
    inbound_body,
    micros,
    prepare,
    received_of,
    turn_of,
)
from palaver.stores.sessions import open_session
from palaver.stores.transcript import append

__all__ = [
    "INBOX",
    "accept",
    "append_to_turn",
    "begin",
    "claimable",
    "extend",
    "halt",
    "inbox_row",
    "reclaim",
    "refuse",
    "resume",
    "settle",
]

INBOX = "inbox"
_OPEN = "('running', 'parked', 'interrupted')"


def _dedup(source: Source) -> str | None:
    """What makes a redelivery the same message; a message without an id cannot be known again."""
    if source.message_id is None:
        return None
    parts = (source.platform, source.account or "", source.chat_id or source.participant or "", source.message_id)
    return ":".join(map(encode_id, parts))


@work
def accept(inbound: Inbound, key: SessionKey, now: datetime, *, refused: str | None = None) -> Steps[int | None]:
    """Put a message into the inbox; None if it is there already. Only after this is a platform acknowledged."""
    state = InboxState.REFUSED if refused else InboxState.WAITING
    rows = yield (
        "INSERT INTO inbox (dedup, key, state, received, reason, body) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (dedup) DO NOTHING RETURNING no",
        (_dedup(inbound.source), key.text, state.value, micros(now), refused, inbound_body(inbound)),
    )
    if not rows:
        return None
    if not refused:
        yield Notify(INBOX)
    return rows[0][0]


@work
def inbox_row(number: int, principal: Principal) -> Steps[Received | None]:
    """A message and what became of it, for whoever sent it or holds the database."""
    rows = yield f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no = ?", (number,)
    received = received_of(rows[0]) if rows and rows[0][_BODY] else None
    if received and (principal.sees_all or identity_of(received.inbound.source) in principal.identities):
        return received
    return None


_BODY = 6  # of INBOX_COLUMNS; what was erased has none


@work
def refuse(number: int, reason: str) -> Steps[bool]:
    """End a message that still waits."""
    rows = yield (
        "UPDATE inbox SET state = 'refused', reason = ? WHERE no = ? AND state = 'waiting' RETURNING no",
        (reason, number),
    )
    return bool(rows)


@work
def claimable(limit: int) -> Steps[list[SessionKey]]:
    """Keys with waiting messages and no open turn, the longest waiting first."""
    rows = yield (
        "SELECT i.key, min(i.no) AS first FROM inbox i WHERE i.state = 'waiting'"
        f" AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = i.key AND t.state IN {_OPEN})"
        " GROUP BY i.key ORDER BY first LIMIT ?",
        (limit,),
    )
    return [SessionKey.parse(row[0]) for row in rows]


@work
def begin(
    key: SessionKey, worker: str, now: datetime, lease: timedelta, rules: ResetRules, *, limit: int = 1
) -> Steps[Begun | None]:
    """Claim waiting messages of one key into a turn; None if nothing waits or a turn is open."""
    yield Lock(key.text)
    messages = yield from _claim(key, limit)
    if not messages:
        return None
    last = messages[-1].inbound
    human = any(extends_idle_time(each.inbound.cause) and not each.inbound.observed for each in messages)
    opened = yield from open_session(key, last.source, now, rules(last.source), human=human)
    number = opened.session.number
    rows = yield (
        "INSERT INTO turns (key, session_no, state, worker, lease_until, started, identity)"
        " VALUES (?, ?, 'running', ?, ?, ?, ?) RETURNING no",
        (key.text, number, worker, micros(now + lease), micros(now), identity_of(last.source)),
    )
    turn = rows[0][0]
    taken: list[tuple[Value, ...]] = [(turn, each.number) for each in messages]
    yield "UPDATE inbox SET state = 'in-turn', turn_no = ? WHERE no = ?", taken
    yield from _write(number, turn, [prepare(_entry(each), turn) for each in messages])
    return Begun(turn=(yield from _get(turn)), opened=opened, messages=tuple(messages))


def _claim(key: SessionKey, limit: int) -> Steps[list[Received]]:
    busy = yield f"SELECT 1 FROM turns WHERE key = ? AND state IN {_OPEN}", (key.text,)
    if busy:
        return []
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE i.key = ? AND i.state = 'waiting' ORDER BY i.no LIMIT ? /*pg FOR UPDATE OF i*/",
        (key.text, limit),
    )
    return [received_of(row) for row in rows]


def _entry(received: Received) -> Entry:
    inbound = received.inbound
    return Entry(
        seq=0,
        role=Role.USER if extends_idle_time(inbound.cause) else Role.NOTE,
        at=inbound.at,
        text=inbound.text,
        sender=Sender(id=inbound.source.participant, name=inbound.labels.user),
        message_id=inbound.source.message_id,
        observed=inbound.observed,
    )


def _get(number: int) -> Steps[Turn]:
    rows = yield f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.no = ?", (number,)
    return turn_of(rows[0])


def _write(
    session: int, turn: int, entries: Sequence[Prepared], usage: Usage | None = None, *, turns: int = 0
) -> Steps[int]:
    """Entries and counters in one go; gives the seq of the first entry."""
    usage = usage or Usage()
    rows = yield (
        "UPDATE sessions SET next_seq = next_seq + ?, turns = turns + ?,"
        " input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_micros = cost_micros + ?"
        " WHERE no = ? RETURNING next_seq",
        (len(entries), turns, usage.input_tokens, usage.output_tokens, usage.cost_micros, session),
    )
    first_seq: int = rows[0][0] - len(entries)
    yield from append(session, first_seq, entries, turn)
    return first_seq


def append_to_turn(turn: Turn, entries: Sequence[Entry]) -> Work[int]:
    """Write entries as they happen; gives the seq of the first."""
    return _append_to_turn(turn, [prepare(entry, turn.number) for entry in entries])


@work
def _append_to_turn(turn: Turn, entries: Sequence[Prepared]) -> Steps[int]:
    """The fence is looked at where the entries get their place: whoever holds an older one writes nothing."""
    rows = yield (
        "UPDATE sessions SET next_seq = next_seq + ? WHERE no ="
        " (SELECT session_no FROM turns WHERE no = ? AND fence = ? AND state = 'running' /*pg FOR UPDATE*/)"
        " RETURNING next_seq",
        (len(entries), turn.number, turn.fence),
    )
    _refuse_stale(turn, rows)
    first_seq: int = rows[0][0] - len(entries)
    yield from append(turn.session_number, first_seq, entries, turn.number)
    return first_seq


def _refuse_stale(turn: Turn, written: Sequence[Row]) -> None:
    if not written:
        raise StaleFence("turn", turn.number, turn.fence)


@work
def extend(turn: Turn, now: datetime, lease: timedelta) -> Steps[None]:
    """The heartbeat of a living worker."""
    rows = yield (
        "UPDATE turns SET lease_until = ? WHERE no = ? AND fence = ? AND state = 'running' RETURNING no",
        (micros(now + lease), turn.number, turn.fence),
    )
    _refuse_stale(turn, rows)


def settle(
    turn: Turn,
    entries: Sequence[Entry],
    replies: Sequence[Outbound],
    now: datetime,
    *,
    usage: Usage | None = None,
    error: str | None = None,
) -> Work[int]:
    """End a turn: last entries, usage, its messages done, its replies owed. All or nothing."""
    return _settle(turn, [prepare(entry, turn.number) for entry in entries], replies, now, usage, error)


@work
def _settle(
    turn: Turn,
    entries: Sequence[Prepared],
    replies: Sequence[Outbound],
    now: datetime,
    usage: Usage | None,
    error: str | None,
) -> Steps[int]:
    state = advance(turn.state, TurnState.FAILED if error else TurnState.DONE)
    spent = usage or Usage()
    rows = yield (
        "UPDATE turns SET state = ?, ended = ?, error = ?,"
        " model = ?, input_tokens = ?, output_tokens = ?, cost_micros = ?"
        " WHERE no = ? AND fence = ? AND state = 'running' RETURNING no",
        (
            state.value,
            micros(now),
            error,
            spent.model,
            spent.input_tokens,
            spent.output_tokens,
            spent.cost_micros,
            turn.number,
            turn.fence,
        ),
    )
    _refuse_stale(turn, rows)
    first_seq = yield from _write(turn.session_number, turn.number, entries, spent, turns=1)
    yield from outbox.owe_replies(turn.number, replies, now)
    yield Notify(INBOX)
    return first_seq


@work
def halt(turn: Turn, state: TurnState, now: datetime, *, error: str | None = None) -> Steps[None]:
    """Park a turn or mark it interrupted; its messages stay with it until it is resumed."""
    rows = yield (
        "UPDATE turns SET state = ?, lease_until = ?, error = ? WHERE no = ? AND fence = ? AND state = 'running'"
        " RETURNING no",
        (advance(turn.state, state).value, micros(now), error, turn.number, turn.fence),
    )
    _refuse_stale(turn, rows)


@work
def resume(number: int, worker: str, now: datetime, lease: timedelta) -> Steps[Turn | None]:
    """Take a parked or interrupted turn up again, under a new fence."""
    rows = yield (
        "UPDATE turns SET state = 'running', attempt = attempt + 1, fence = fence + 1, worker = ?, lease_until = ?"
        " WHERE no = ? AND state IN ('parked', 'interrupted') RETURNING no",
        (worker, micros(now + lease), number),
    )
    return (yield from _get(number)) if rows else None


@work
def reclaim(
    worker: str, now: datetime, lease: timedelta, *, alone: bool = False, limit: int = 100
) -> Steps[list[Turn]]:
    """Take over running turns whose owner is gone: the lease ran out or, for the only gateway, any other owner's."""
    gone = "lease_until < ? OR (? = 1 AND worker <> ?)"
    rows: list[Row] = yield (
        "UPDATE turns SET attempt = attempt + 1, fence = fence + 1, worker = ?, lease_until = ? WHERE no IN ("
        f" SELECT no FROM turns WHERE state IN {_OPEN} AND state = 'running' AND ({gone}) ORDER BY no LIMIT ?"
        " /*pg FOR UPDATE SKIP LOCKED*/) RETURNING no",
        (worker, micros(now + lease), micros(now), int(alone), worker, limit),
    )
    numbers = sorted(row[0] for row in rows)
    turns = yield (
        f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.worker = ? AND t.no >= ?"
        " AND t.state = 'running' ORDER BY t.no",
        (worker, numbers[0] if numbers else 0),
    )
    return [turn_of(row) for row in turns if row[0] in numbers]
