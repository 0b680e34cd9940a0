"""Turns: claimed by one worker, written under a fence, settled in one transaction."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from palaver.db.transaction import (
    INBOX,
    TURNS,
    Lock,
    Notify,
    Row,
    Statements,
    Transaction,
    TryLock,
    Value,
    keyed,
    transaction,
)
from palaver.model.addressing import ConversationRules, choose_batch
from palaver.model.errors import StaleFence
from palaver.model.key import SessionKey, chat_key
from palaver.model.session import EndReason, Session
from palaver.model.source import Source, identity_of
from palaver.model.split import ReplyRoutes
from palaver.model.transcript import Entry, Role, Sender
from palaver.model.turn import (
    NO_USAGE,
    Cause,
    Inbound,
    Outbound,
    Received,
    Turn,
    TurnState,
    Usage,
    advance,
    last_spoken,
)
from palaver.store.conversations.sessions import claim_for_job, end, join, open_by_key, open_locked, touch
from palaver.store.conversations.transcript import append
from palaver.store.conversations.visibility import get
from palaver.store.people.people import meet_sender
from palaver.store.people.usage import add as add_usage
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.inbox import (
    MAX_WAITING,
    RUNNING,
    assign_to_turn,
    read_waiting,
    read_waiting_if_idle,
    remove_ready_if_empty,
)
from palaver.store.queue.welcome import welcome
from palaver.store.records import (
    INBOX_COLUMNS,
    OPEN_TURN,
    REPLIES,
    SEQS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    Prepared,
    counted,
    entries_of,
    entry_span,
    micros,
    outbound_of,
    placeholders,
    prepare,
    readable,
    received_of,
    turn_of,
)
from palaver.store.results import Begun, Departure, Held, Opening

_NOTIFY_INBOX = Notify(INBOX)
_FIRST_READ = 2
"""A turn mostly takes the first waiting message; only otherwise does it need to read more of them."""
_IN_HAND = timedelta(milliseconds=50)
"""When to look again at a conversation that another gateway has locked."""
TITLE_USAGE = ("model", *USAGE_COLUMNS)
_ADD_USAGE = ", ".join(f"{column} = {column} + ?" for column in USAGE_COLUMNS)
_COUNT = (
    f"model = coalesce(?, model), {_ADD_USAGE}, prompt_tokens = coalesce(nullif(CAST(? AS BIGINT), 0), prompt_tokens)"
)
# Asked with a statement that runs anyway: most people and chats have none.
_HAS_NOTES = (
    "EXISTS (SELECT 1 FROM memory_notes n WHERE n.place = ?) OR EXISTS (SELECT 1 FROM identities m"
    " JOIN identities o ON o.person = m.person JOIN memory_notes n ON n.identity = o.identity AND n.place IS NULL"
    " WHERE m.identity = ?)"
)
# Statements of every message are made once: the driver finds one that it has prepared by the hash of its text.
_BEGIN = (
    "INSERT INTO turns (key, session_no, state, worker, lease_until, started, identity)"
    f" VALUES (?, ?, 'running', ?, ?, ?, ?) RETURNING no, {_HAS_NOTES}"
)
HELD = "no = ? AND fence = ? AND worker = ? AND started = ?"
"""A turn that nobody has taken over, with the values of `fence_of`.

A database that was promoted without the newest commits gives their numbers again: worker and start tell turns apart.
"""
_ADVANCE = (
    f"UPDATE sessions SET next_seq = next_seq + ?, turns = turns + ?, {_ADD_USAGE}"
    f" WHERE no = (SELECT session_no FROM turns WHERE {HELD} AND state = 'running' /*pg FOR UPDATE*/)"
    " RETURNING next_seq"
)
_END = f"UPDATE turns SET state = ?, ended = ?, error = ?, answered = ?, {_COUNT} WHERE no = ?"


@transaction
def begin(
    key: SessionKey,
    worker: str,
    now: datetime,
    lease: timedelta,
    rules: ConversationRules,
    routes: ReplyRoutes | None = None,
) -> Statements[Begun | Held | None]:
    """Start a turn with waiting messages of a key; None if nothing waits or a turn is open.

    Without routes, a conversation that opens says nothing to the agent or the chat.
    """
    # Several gateways see the same ready conversations: who is first begins the turn, the others need not wait for it.
    if (yield TryLock(key.text)) == [(False,)]:
        return Held(head=None, until=now + _IN_HAND)
    most = _FIRST_READ
    line = yield from read_waiting_if_idle(key, most)
    if not line:
        yield from remove_ready_if_empty(key)
        return None
    choice = choose_batch(line, rules, routes or ReplyRoutes(), now)
    if len(line) == most and not 0 < choice.take < most:
        most = MAX_WAITING
        line = yield from read_waiting_if_idle(key, most)
        choice = choose_batch(line, rules, routes or ReplyRoutes(), now)
    if not choice.take:
        return Held(head=line[0], until=choice.until)
    # Whether more wait is unknown if all that was read is taken, and more could be read.
    more_wait = None if choice.take == len(line) == most else choice.take < len(line)
    return (yield from _begin(key, line[: choice.take], worker, now, lease, rules, routes, more_wait=more_wait))


def _begin(
    key: SessionKey,
    messages: Sequence[Received],
    worker: str,
    now: datetime,
    lease: timedelta,
    rules: ConversationRules,
    routes: ReplyRoutes | None,
    *,
    more_wait: bool | None,
) -> Statements[Begun]:
    source = messages[-1].inbound.source
    spoken = last_spoken(messages)
    is_sequel = all(each.inbound.cause is Cause.PROCESS for each in messages)
    opened = yield from open_locked(
        key,
        source,
        now,
        rules.reset_rule(source),
        sent=messages[0].received,
        human=spoken is not None,
        is_sequel=is_sequel,
    )
    if opened.is_first_contact:
        yield from meet_sender(messages[-1])
    if (job := messages[-1].inbound.job) and not job.attached and opened.opening is not Opening.REUSED:
        title = yield from claim_for_job(opened.session, job)
        opened = replace(opened, session=replace(opened.session, title=title))
    identity = identity_of(source)
    rows = yield (
        _BEGIN,
        (key.text, opened.session.number, worker, micros(now + lease), micros(now), identity, key.text, identity),
    )
    turn = Turn(
        number=rows[0][0],
        key=key,
        session=opened.session.id,
        session_number=opened.session.number,
        state=TurnState.RUNNING,
        attempt=1,
        fence=1,
        worker=worker,
        lease_until=now + lease,
        started=now,
    )
    yield from assign_to_turn(turn.number, messages, more_wait=more_wait)
    notes, notices = [], []
    if routes and (opened.opening is Opening.RESET or opened.is_first_contact):
        notes, notices = welcome(opened, messages[-1], rules, routes)
    yield from _add_participants(messages, turn.session_number)
    entries = [*(Entry(seq=0, role=Role.NOTE, at=now, text=note) for note in notes), *_entries(messages)]
    first_seq = yield from touch(opened.session.number, now, spoken=spoken, entries=len(entries))
    prepared = [prepare(entry, turn.number) for entry in entries]
    yield from append(turn.session_number, first_seq, prepared, turn.number)
    yield from outbox.enqueue_parts(notices, SendCause(CauseKind.WELCOME, opened.session.id), now)
    has_notes = bool(rows[0][1])
    return Begun(turn=turn, opened=opened, messages=tuple(messages), has_notes=has_notes, more_wait=bool(more_wait))


@transaction
def reserve(
    key: SessionKey, now: datetime, received: Received | None = None, *, gives_way: bool = True
) -> Statements[int | None]:
    """Open an interrupted turn for work that is no answer, such as a compaction, so that no other turn starts.

    Return None without an open session, with an open turn, or, if it `gives_way` and is not for a command, if messages
    wait.
    """
    yield Lock(key.text)
    session = yield from open_by_key(key)
    busy = yield (
        f"SELECT 1 FROM turns WHERE key = ? AND state IN {OPEN_TURN}"
        " UNION ALL SELECT 1 FROM ready_queue WHERE key = ? AND ? = 1",
        (key.text, key.text, int(gives_way and received is None)),
    )
    if session is None or busy:
        return None
    rows = yield (
        "INSERT INTO turns (key, session_no, state, attempt, fence, worker, lease_until, started, halted, identity)"
        " VALUES (?, ?, 'interrupted', 0, 0, 'nobody', ?, ?, ?, ?) RETURNING no",
        (key.text, session.number, *(micros(now),) * 3, received and identity_of(received.inbound.source)),
    )
    if received:
        yield from assign_to_turn(rows[0][0], [received])
    yield Notify(TURNS)
    return rows[0][0]


@transaction
def write_messages(turn: Turn, messages: Sequence[Received]) -> Statements[int]:
    """Write messages as entries of the turn."""
    yield from _add_participants(messages, turn.session_number)
    return (yield from _write(turn, [prepare(entry, turn.number) for entry in _entries(messages)]))


def _add_participants(messages: Sequence[Received], session_number: int) -> Statements[None]:
    """Let everyone who speaks in a session read it. The last speaker was added when it was opened."""
    if len(messages) > 1:
        for each in {identity_of(each.inbound.source): each for each in messages[:-1]}.values():
            if (yield from join(session_number, each.inbound.source)):
                yield from meet_sender(each)


def _entries(messages: Sequence[Received]) -> list[Entry]:
    """Return the entries of messages; before the prompt of a job, a note that says what it is."""
    entries: list[Entry] = []
    for received in messages:
        if job := received.inbound.job:
            entries.append(
                Entry(
                    seq=0, role=Role.NOTE, at=received.inbound.at, text=job.note + _destinations_note(received.inbound)
                )
            )
        entries.append(entry_of_message(received))
    return entries


def _destinations_note(inbound: Inbound) -> str:
    """Say where an answer goes that does not go back, without ids, which can be hidden from the agent."""
    places = [each.place for each in inbound.destinations]
    if all(place.address == inbound.origin.address for place in places):
        return ""
    names = ("this chat" if place.address == inbound.origin.address else place.platform for place in places)
    return f" Your answer goes to: {', '.join(dict.fromkeys(names))}."


def entry_of_message(received: Received) -> Entry:
    inbound = received.inbound
    return Entry(
        seq=0,
        role=Role.NOTE if inbound.cause is Cause.PROCESS else Role.USER,
        at=inbound.at,
        text=inbound.text,
        sender=Sender(id=inbound.source.participant, name=inbound.labels.user),
        message_id=inbound.source.message_id,
        observed=inbound.observed,
        files=inbound.files,
        quote=inbound.quote,
    )


_KEPT_OVERHEARD = 100


@transaction
def load_overheard(key: SessionKey, source: Source) -> Statements[list[Entry]]:
    """Return what was overheard in the chat of a participant's conversation, oldest first, for a question from there.

    At least the last hundred messages; where it begins changes only after each hundred, so that prompts stay the same.
    """
    chat = chat_key(key)
    if chat is None or (source.chat_kind, source.chat) != (chat.kind, chat.chat or chat.alt_chat):
        return []
    waiting = yield from read_waiting(chat, held=False)  # before the entries that they become
    session, entries = (yield from open_by_key(chat)), list[Entry]()
    if session:
        first, end = entry_span(session.number)
        rows = yield (
            "SELECT id, body FROM entries"
            " WHERE id >= ((SELECT max(id) FROM entries WHERE id >= ? AND id < ?) / ? - 1) * ?"
            " AND id >= ? AND id < ? AND observed = 1 AND hidden_by IS NULL ORDER BY id",
            (first, end, _KEPT_OVERHEARD, _KEPT_OVERHEARD, first, end),
        )
        entries = entries_of(rows)
    known = {entry.message_id for entry in entries} - {None}
    new = (entry_of_message(each) for each in waiting if each.inbound.observed)
    return [*entries, *(entry for entry in new if entry.message_id not in known)]


def _write(
    turn: Turn, entries: Sequence[Prepared], spent: Usage = NO_USAGE, *, settles: bool = False, answered: bool = False
) -> Statements[int]:
    """Write entries and counters; return the seq of the first entry. Raise StaleFence under an older fence."""
    rows = yield _ADVANCE, (len(entries), int(answered), *counted(spent), *fence_of(turn))
    _refuse_stale(turn, rows)
    first_seq: int = rows[0][0] - len(entries)
    yield from append(turn.session_number, first_seq, entries, turn.number, settles=settles)
    return first_seq


def append_to_turn(turn: Turn, entries: Sequence[Entry]) -> Transaction[int]:
    """Write entries as they happen; return the seq of the first. Repeating it writes nothing twice."""
    return keyed(turn.key.text, _append(turn, [prepare(entry, turn.number) for entry in entries]))


@transaction
def _append(turn: Turn, entries: Sequence[Prepared]) -> Statements[int]:
    last = yield (
        "SELECT id, body FROM entries WHERE id >= ? AND id < ? AND turn_no = ? ORDER BY id DESC LIMIT 1",
        (*entry_span(turn.session_number), turn.number),
    )
    # Nobody else writes for a running turn, and no two entries have the same time and text.
    if entries and last and bytes(last[0][1]) == entries[-1].placed(last[0][0] % SEQS):
        return last[0][0] % SEQS - len(entries) + 1
    return (yield from _write(turn, entries))


def fence_of(turn: Turn) -> tuple[Value, ...]:
    return turn.number, turn.fence, turn.worker, micros(turn.started)


def _refuse_stale(turn: Turn, written: Sequence[Row]) -> None:
    if not written:
        raise StaleFence("turn", turn.number, turn.fence)


@transaction
def extend_leases(held: Sequence[Turn], now: datetime, lease: timedelta) -> Statements[frozenset[int]]:
    """Extend the leases of turns; return the numbers of those that the worker still holds."""
    mine = " OR ".join([f"({HELD})"] * len(held))
    rows = yield (
        f"UPDATE turns SET lease_until = ? WHERE state = 'running' AND ({mine}) RETURNING no",
        (micros(now + lease), *(value for turn in held for value in fence_of(turn))),
    )
    return frozenset(row[0] for row in rows)


def settle(
    turn: Turn,
    entries: Sequence[Entry],
    replies: Sequence[Outbound],
    now: datetime,
    *,
    usage: Usage | None = None,
    error: str | None = None,
    quota: str | None = None,
    failure: str | None = None,
    retry_at: datetime | None = None,
    stopped_by: str | None = None,
    ends: EndReason | None = None,
    replies_due: datetime | None = None,
) -> Transaction[int]:
    """End a turn: write its last entries and usage, and enqueue its replies. It counts as a turn if it was answered.

    With `ends` its session ends too, and the next message starts fresh. `quota` names the one that the turn was over,
    `failure` the kind of its agent's failure, `retry_at` when the provider takes requests again. Replies that wait for
    the request of a draft are due later, at `replies_due`, unless `end_draft` says sooner that it has ended.
    """
    state, spent = advance(turn.state, TurnState.FAILED if error else TurnState.DONE), usage or NO_USAGE
    answered = not error and any(entry.role is Role.ASSISTANT and not entry.calls for entry in entries)
    used = spent.model, *counted(spent), spent.prompt_tokens
    # Encoded here, before the transaction has the only writer to itself.
    work = _settle(
        turn,
        [prepare(entry, turn.number) for entry in entries],
        spent,
        answered,
        (state.value, micros(now), error, int(answered), *used, turn.number),
        (quota, failure, retry_at and micros(retry_at), stopped_by),
        end(turn.session_number, ends, now) if ends else None,
        _enqueue(turn.number, replies, now, replies_due),
    )
    return keyed(turn.key.text, work)


def _enqueue(turn: int, replies: Sequence[Outbound], now: datetime, due: datetime | None) -> Transaction[None]:
    enqueue = outbox.enqueue_replies(turn, replies, now, due)
    return _enqueue_over_draft(turn, enqueue) if replies and replies[0].repeats_draft else enqueue


@transaction
def _enqueue_over_draft(turn: int, enqueue: Transaction[None]) -> Statements[None]:
    yield from enqueue
    yield from replace_draft(turn)


@transaction
def replace_draft(turn: int) -> Statements[None]:
    """Let the answer of a turn replace its draft, once both the answer and the receipt of the draft are stored."""
    rows = yield (
        "SELECT o.id, o.body, t.draft FROM turns t JOIN outbox o ON o.id = t.no * ?"
        " WHERE t.no = ? AND t.draft_unclear = 0 AND o.state = 'due'",
        (REPLIES, turn),
    )
    for number, body, receipt in rows:
        if (answer := outbound_of(body)).repeats_draft:
            yield from outbox.rewrite(number, replace(answer, edits=receipt, repeats_draft=False))


@transaction
def _settle(
    turn: Turn,
    entries: Sequence[Prepared],
    spent: Usage,
    answered: bool,
    outcome: tuple[Value, ...],
    why: tuple[Value, ...],
    end_session: Transaction[object] | None,
    enqueue: Transaction[None],
) -> Statements[int]:
    first_seq = yield from _write(turn, entries, spent, settles=True, answered=answered)
    yield _END, outcome
    if any(why):
        yield (
            "UPDATE turns SET quota = ?, failure = ?, retry_at = ?, stopped_by = coalesce(?, stopped_by) WHERE no = ?",
            (*why, turn.number),
        )
    if end_session:
        yield from end_session
    yield from enqueue
    yield _NOTIFY_INBOX
    return first_seq


@transaction
def charge_title(turn: Turn, spent: Usage, now: datetime) -> Statements[None]:
    """Count what the title used that was generated after a turn had ended. The turn's own figures stay."""
    if spent == NO_USAGE:
        return
    rows = yield "SELECT identity FROM turns WHERE no = ?", (turn.number,)
    yield from add_usage(rows[0][0] if rows else None, spent, now)
    if rows:
        yield from insert_title_usage(turn.number, spent, now)
    yield f"UPDATE sessions SET {_ADD_USAGE} WHERE no = ?", (*counted(spent), turn.session_number)


@transaction
def insert_title_usage(turn: int, spent: Usage, at: datetime) -> Statements[None]:
    values = (turn, micros(at), spent.model, *counted(spent))
    yield (
        f"INSERT INTO title_usage (turn_no, at, {', '.join(TITLE_USAGE)}) VALUES ({placeholders(values)})"
        " ON CONFLICT DO NOTHING",
        values,
    )


@transaction
def halt(
    turn: Turn,
    state: TurnState,
    now: datetime,
    *,
    error: str | None = None,
    asked: str | None = None,
    asks_anew: bool = False,
    notices: Sequence[Outbound] = (),
    usage: Usage | None = None,
) -> Statements[TurnState]:
    """Park a turn or mark it interrupted; return which. Its messages stay with it until it is resumed.

    `asked` is the call that a parked turn needs approval for; without one it waits for its client. With `asks_anew`
    earlier approvals no longer count. A turn that somebody stopped meanwhile asks nothing: who resumes it ends it.
    """
    spent = usage or NO_USAGE
    yield from _write(turn, [], spent)
    rows = yield (
        "UPDATE turns SET state = CASE WHEN stopped_by IS NULL THEN CAST(? AS TEXT) ELSE 'interrupted' END,"
        f" halted = ?, error = ?, pending_call = ?, {_COUNT}"
        f" WHERE {HELD} AND state = 'running' RETURNING state",
        (
            *(advance(turn.state, state).value, micros(now), error, asked),
            *(spent.model, *counted(spent), spent.prompt_tokens),
            *fence_of(turn),
        ),
    )
    _refuse_stale(turn, rows)
    if asks_anew:
        yield "UPDATE turns SET approvals = NULL WHERE no = ?", (turn.number,)
    if rows == [(state.value,)]:
        yield from outbox.enqueue_parts(notices, SendCause(CauseKind.HALT, turn.number, str(turn.fence)), now)
    yield Notify(TURNS)
    return TurnState(rows[0][0])


@transaction
def list_messages(turn: Turn) -> Statements[list[Received]]:
    """Return the messages that a turn answers, without those that answered its questions."""
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i JOIN turns t ON t.no = i.turn_no WHERE t.no = ? AND t.fence = ?"
        " AND i.answers IS NULL ORDER BY i.no",
        (turn.number, turn.fence),
    )
    return list(readable(received_of, rows))


@transaction
def state_of(turn: Turn) -> Statements[TurnState | None]:
    """Return the state of a turn; None if another worker has taken it over."""
    rows = yield f"SELECT state FROM turns WHERE {HELD}", fence_of(turn)
    return TurnState(rows[0][0]) if rows else None


@transaction
def session_of(turn: Turn) -> Statements[Session]:
    return (yield from get(turn.session_number))


_CLAIM = "UPDATE turns SET state = 'running', attempt = attempt + 1, fence = fence + 1, worker = ?, lease_until = ?"


@transaction
def resume(number: int, worker: str, now: datetime, lease: timedelta) -> Statements[Turn | None]:
    """Resume a parked or interrupted turn under a new fence."""
    rows = yield (
        f"{_CLAIM} WHERE no = ? AND state IN ('parked', 'interrupted') RETURNING no",
        (worker, micros(now + lease), number),
    )
    return next(iter((yield from _get_all([number]))), None) if rows else None


@transaction
def reclaim(
    worker: str,
    now: datetime,
    lease: timedelta,
    *,
    alone: bool = False,
    limit: int = 100,
    besides: Collection[SessionKey] = (),
    paused: Collection[int] = (),
    known: Collection[int] | None = None,
    kept_back: Collection[Departure] = (),
) -> Statements[list[Turn]]:
    """Take over interrupted turns, and running ones whose worker is gone; not those of the keys in `besides`.

    A draft that was `kept_back` was not shown, although that was recorded as about to happen.

    With `known`, the turns that the worker knows to be its own, also take its others: their begin was not answered.

    Paused turns are only taken over once a message waits behind them or somebody stops them.

    A worker is gone if its lease ran out or, for the only gateway, if it is any other. Such a turn counts as cut off
    at the end of its lease at the latest.
    """
    drafts = yield from _kept_back_drafts(kept_back)
    lost = "" if known is None else f" OR (worker = ? AND no NOT IN ({placeholders((0, *known))}))"
    rows: list[Row] = yield (
        f"{_CLAIM}, halted = CASE WHEN state = 'running' THEN CASE WHEN lease_until < ? THEN lease_until ELSE ? END"
        " ELSE halted END WHERE no IN ("
        f" SELECT no FROM turns WHERE state IN {OPEN_TURN} AND (state = 'interrupted' OR (state = 'running'"
        f"  AND (lease_until < ? OR (? = 1 AND worker <> ?){lost}) AND key NOT IN ({placeholders(('', *besides))})))"
        f"{_IS_AWAITED.format(placeholders(paused)) if paused else ''}"
        "  ORDER BY +no LIMIT ? /*pg FOR UPDATE SKIP LOCKED*/) RETURNING no",
        (
            *(worker, micros(now + lease)),
            *(micros(now),) * 3,
            *(int(alone), worker),
            *(() if known is None else (worker, 0, *known)),
            *("", *(key.text for key in besides)),
            *paused,
            limit,
        ),
    )
    turns = yield from _get_all(sorted(row[0] for row in rows))
    unseen = {turn.number for turn in turns if (turn.number, turn.fence - 1) in drafts}
    yield "UPDATE turns SET draft_unclear = 0 WHERE no = ?", [(number,) for number in unseen]
    return [replace(turn, draft_unclear=False) if turn.number in unseen else turn for turn in turns]


@transaction
def _kept_back_drafts(kept_back: Collection[Departure]) -> Statements[set[tuple[int, int]]]:
    """Return the turns, with their fences, that are still held by who kept their draft back."""
    numbers = sorted({each.number for each in kept_back if each.kind == "draft"})
    if not numbers:
        return set()
    rows = yield f"SELECT no, fence, worker FROM turns WHERE no IN ({placeholders(numbers)})", tuple(numbers)
    return {(no, fence) for no, fence, worker in rows if Departure("draft", no, fence, worker) in kept_back}


_IS_AWAITED = " AND (no NOT IN ({}) OR stopped_by IS NOT NULL OR key IN (SELECT key FROM ready_queue))"


@transaction
def interrupt_all(worker: str, now: datetime) -> Statements[list[int]]:
    """Mark the running turns of all other workers as interrupted; return all turns that are interrupted then."""
    yield (
        "UPDATE turns SET state = 'interrupted', fence = fence + 1,"
        f" halted = CASE WHEN lease_until < ? THEN lease_until ELSE ? END WHERE {RUNNING} AND worker <> ?",
        (micros(now), micros(now), worker),
    )
    rows = yield f"SELECT no FROM turns WHERE state IN {OPEN_TURN} AND state = 'interrupted'", ()
    return [row[0] for row in rows]


def _get_all(numbers: Sequence[int]) -> Statements[list[Turn]]:
    if not numbers:
        return []
    turns = yield (
        f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no"
        f" WHERE t.no IN ({', '.join('?' * len(numbers))}) ORDER BY t.no",
        tuple(numbers),
    )
    return list(readable(turn_of, turns))
