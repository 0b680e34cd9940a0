"""Turn control: stop a turn, answer its question, and give it more messages while it runs."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from palaver.db.transaction import OUTBOX, TURNS, Lock, Notify, Statements, key_topic, transaction
from palaver.model.errors import NotAllowed, StoreError
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.split import ReplyPlace
from palaver.model.tools import NOT_ANSWERED, Question, clean_result, parse_question
from palaver.model.transcript import Entry, Role, Sender
from palaver.model.turn import Inbound, Outbound, Received, Turn, TurnState, last_spoken, outbound_to, question_id
from palaver.model.view import NOT_RUN, open_calls_of_turn
from palaver.store.conversations.sessions import join, touch
from palaver.store.conversations.transcript import find_call, load_shown
from palaver.store.conversations.visibility import select_one, visible_to
from palaver.store.people.people import meet_sender, principal_for
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.inbox import ASKED_IN_CHAT, RUNNING, assign_to_turn, read_waiting, requeue_or_remove
from palaver.store.queue.turns import (
    HELD,
    append_to_turn,
    fence_of,
    halt,
    list_messages,
    replace_draft,
    resume,
    settle,
    write_messages,
)
from palaver.store.records import OPEN_TURN, chat_columns, details_of, instant, json_text, micros, reply_span
from palaver.store.results import Decision, Signals, Status, Words

MAX_ANSWER_LENGTH = 8_000
"""How much of an answer in words the agent sees."""
_QUESTION = re.compile(r"(\d{1,15})-(\d{1,9})", re.ASCII)
_PARKED = f"state IN {OPEN_TURN} AND state = 'parked'"
_ASKING = f"{_PARKED} AND pending_call IS NOT NULL"


@transaction
def request_stop(key: SessionKey, now: datetime, *, by: str) -> Statements[bool]:
    """Ask the turn of this conversation to stop, on any worker. Return False if there is none."""
    rows = yield (
        f"UPDATE turns SET stopped_by = ?, stopped_at = ? WHERE key = ? AND state IN {OPEN_TURN} AND state <> 'parked'"
        " RETURNING no",
        (by, micros(now), key.text),
    )
    yield Notify(key_topic(key))
    return bool(rows)


@transaction
def is_parked(key: SessionKey) -> Statements[bool]:
    return bool((yield f"SELECT 1 FROM turns WHERE key = ? AND {_PARKED}", (key.text,)))


@transaction
def answer_question(
    key: SessionKey,
    now: datetime,
    principal: Principal,
    *,
    answer: bool | Words,
    question: str | None = None,
    said: datetime | None = None,
    place: Source | None = None,
    command: int | None = None,
) -> Statements[Decision]:
    """Approve, deny or answer what a parked turn asks; then it can be resumed.

    `question` can name one of another conversation that was shown in this `place`. Without it, a question asked after
    the answer was `said` is not meant. `command` is the message that answers it.
    """
    asks = (yield from _key_of_question(place, question)) or key.text
    yield Lock(asks)
    rows = yield (
        f"SELECT no, session_no, pending_call, identity, fence, halted FROM turns WHERE key = ? AND {_ASKING}",
        (asks,),
    )
    if not rows:
        return Decision.WITHDRAWN if (yield from _was_withdrawn(asks, question)) else Decision.NOTHING
    number, session, asked, identity, fence, halted = rows[0]
    is_late = question is None and said is not None and halted is not None and micros(said) < halted
    if is_late or question not in {None, question_id(number, fence)}:
        return Decision.OTHER
    _refuse_others(principal, identity, answer, is_here=asks == key.text)
    wanted = parse_question((yield from find_call(session, number, asked)))
    if answer is True and wanted:
        return Decision.NEEDS_WORDS
    if isinstance(answer, Words) and wanted is None:
        return Decision.NEEDS_APPROVAL
    turn = yield from _resume_parked(number, now)
    yield from touch(turn.session_number, now, spoken=said or now)
    results = [_result(wanted, asked, answer, now)] if wanted else []
    yield from record_answers(turn, results, {asked: answer is not False}, now)
    if command is not None and asks == key.text:
        yield "UPDATE inbox SET answers = ? WHERE no = ?", (fence, command)
    return Decision.DONE


@transaction
def record_answers(
    turn: Turn, results: Sequence[Entry], answers: Mapping[str, bool], now: datetime
) -> Statements[None]:
    """Record what a person or a client answered to calls of a turn, which can then be resumed; others stay open."""
    if results:
        yield from append_to_turn(turn, results)
    yield from halt(turn, TurnState.INTERRUPTED, now)
    known = yield from read_approvals(turn)
    # Waiting for an answer is no failed attempt, and what follows is a new message, not an edit of the question.
    yield (
        "UPDATE turns SET approvals = ?, pending_call = NULL, attempt = 0, draft = NULL, draft_unclear = 0"
        " WHERE no = ?",
        (json_text({**known, **answers}), turn.number),
    )
    yield Notify(TURNS)


def _refuse_others(principal: Principal, identity: str | None, answer: bool | Words, *, is_here: bool) -> None:
    """Only the person that the turn answers, or a principal that sees everything, can approve or answer.

    In its conversation anyone can deny.
    """
    is_theirs = principal.sees_all or identity in principal.identities or (identity is None and is_here)
    if not is_theirs and (answer or not is_here):
        deed = "Answering" if isinstance(answer, Words) else "Approving" if answer else "Denying"
        raise NotAllowed(f"{deed} somebody else's request", "admin")


def _result(wanted: Question, call: str, answer: bool | Words, now: datetime) -> Entry:
    """Return the answer as the result of the call that asked for it."""
    words = answer if isinstance(answer, Words) else Words(NOT_ANSWERED)
    text = clean_result(wanted.resolve(words.text), MAX_ANSWER_LENGTH)
    return Entry(seq=0, role=Role.TOOL, at=now, text=text, answers=call, sender=words.sender)


@transaction
def answer_by_message(key: SessionKey, message: int, now: datetime, *, inbound: Inbound) -> Statements[bool]:
    """Take a message as the answer of the person whom a parked turn asks; return whether it is one."""
    principal = yield from principal_for(inbound.source)
    rows = yield f"SELECT no, fence, identity FROM turns WHERE key = ? AND {_ASKING}", (key.text,)
    if not rows or (rows[0][2] is not None and rows[0][2] not in principal.identities):
        return False
    number, fence, _ = rows[0]
    words = Words(inbound.text, Sender(id=inbound.source.participant, name=inbound.labels.user))
    decided = yield from answer_question(key, now, principal, answer=words)
    if decided is not Decision.DONE:
        return False
    yield "UPDATE inbox SET state = 'in-turn', turn_no = ?, answers = ? WHERE no = ?", (number, fence, message)
    yield from requeue_or_remove(key)
    return True


def _key_of_question(place: Source | None, question: str | None) -> Statements[str | None]:
    """Return the key of the conversation whose turn asked this, if it was shown in this place."""
    named = _QUESTION.fullmatch(question or "")
    if place is None or named is None:
        return None
    turn, fence = map(int, named.groups())
    rows = yield (
        "SELECT t.key FROM turns t JOIN outbox o ON o.cause_kind = ? AND o.cause_id = ? AND o.cause_detail = ?"
        " WHERE t.no = ? AND o.account = ? AND o.server = ? AND o.chat = ? LIMIT 1",
        (CauseKind.HALT.value, str(turn), str(fence), turn, *chat_columns(outbound_to(place, ""))),
    )
    return rows[0][0] if rows else None


@transaction
def questions_shown(place: Source) -> Statements[list[str]]:
    """Return the names of the open questions that were shown in a place."""
    rows = yield (
        f"SELECT DISTINCT +t.no, t.fence FROM {ASKED_IN_CHAT} AND t.pending_call IS NOT NULL ORDER BY 1",
        chat_columns(outbound_to(place, "")),
    )
    return [question_id(*row) for row in rows]


def _was_withdrawn(key: str, question: str | None) -> Statements[bool]:
    """Tell whether a message withdrew this question, or the last one that was asked in the open session."""
    named = _QUESTION.fullmatch(question or "")
    rows = yield (
        "SELECT withdrawn_by FROM turns WHERE session_no = (SELECT no FROM sessions WHERE key = ? AND ended IS NULL)"
        " AND (no = ? OR (? = 0 AND (pending_call IS NOT NULL OR approvals IS NOT NULL))) ORDER BY no DESC LIMIT 1",
        (key, *(int(named[1]) if named else 0,) * 2),
    )
    return bool(rows) and rows[0][0] is not None


def _resume_parked(number: int, now: datetime) -> Statements[Turn]:
    turn = yield from resume(number, "nobody", now, timedelta())
    if turn is None:
        raise StoreError("a parked turn was resumed while its conversation was locked")
    return turn


@transaction
def abandon_parked(key: SessionKey, now: datetime, *, note: str, error: str, by: str | None = None) -> Statements[bool]:
    """End a parked turn without an approval. Return False if there is none."""
    return (yield from _abandon(key, now, note, error, by)) is not None


@transaction
def end_with_results(key: SessionKey, results: Mapping[str, str], now: datetime) -> Statements[bool]:
    """Add results to the open calls of a parked turn and end it: a message follows. Return False if it has none."""
    yield Lock(key.text)
    rows = yield f"SELECT no FROM turns WHERE key = ? AND {_PARKED} AND pending_call IS NULL", (key.text,)
    if not rows:
        return False
    turn = yield from _resume_parked(rows[0][0], now)
    calls = open_calls_of_turn((yield from load_shown(turn.session_number, turn=turn.number)), str(turn.number))
    given = {call.id: results.get(call.id, NOT_RUN) for call in calls}
    entries = [Entry(seq=0, role=Role.TOOL, at=now, text=text, answers=call) for call, text in given.items()]
    yield from settle(turn, entries, [], now)
    return True


@transaction
def withdraw_question(
    key: SessionKey, message: int, now: datetime, *, note: str, notice: str, place: ReplyPlace | None = None
) -> Statements[None]:
    """End a turn that waits for an approval, because a message came instead of one; say so in the message's place."""
    number = yield from _abandon(key, now, note, f"in:{message} arrived instead of an answer", None, _ASKING)
    if number is not None:
        yield "UPDATE turns SET withdrawn_by = ? WHERE no = ?", (message, number)
        notices = place.notices(notice) if place else []
        yield from outbox.enqueue_parts(notices, SendCause(CauseKind.WITHDRAWN, number), now)


def _abandon(
    key: SessionKey, now: datetime, note: str, error: str, by: str | None, which: str = _PARKED
) -> Statements[int | None]:
    yield Lock(key.text)
    rows = yield f"SELECT no, pending_call FROM turns WHERE key = ? AND {which}", (key.text,)
    if not rows:
        return None
    number, asked = rows[0]
    turn = yield from _resume_parked(number, now)
    # A client may have run the calls that it was asked to run.
    closed = (yield from _close_calls(turn, now)) if asked else []
    entries = [*closed, Entry(seq=0, role=Role.NOTE, at=now, text=note)]
    yield from settle(turn, entries, [], now, error=error, stopped_by=by)
    return number


def _close_calls(turn: Turn, now: datetime) -> Statements[list[Entry]]:
    """Return results which say that the calls of the last step did not run: a turn asks before it runs them."""
    entries = yield from load_shown(turn.session_number, turn=turn.number)
    # After a note that the turn was cut off, open calls are those of before, and may have run.
    if not entries or entries[-1].role not in {Role.ASSISTANT, Role.TOOL}:
        return []
    calls = open_calls_of_turn(entries, str(turn.number))
    return [Entry(seq=0, role=Role.TOOL, at=now, text=NOT_RUN, answers=call.id) for call in calls]


@transaction
def read_approvals(turn: Turn) -> Statements[Mapping[str, bool]]:
    """Return the answers to the calls of a turn that needed approval."""
    rows = yield "SELECT approvals FROM turns WHERE no = ?", (turn.number,)
    return details_of(rows[0][0])


@transaction
def read_signals(turn: Turn) -> Statements[Signals]:
    rows = yield "SELECT stopped_by, key FROM turns WHERE no = ?", (turn.number,)
    if not rows:  # deleted
        return Signals(key=turn.key, stop=True, waiting=())
    key = SessionKey.parse(rows[0][1])
    line = yield from read_waiting(key, held=False)
    return Signals(key=key, stop=rows[0][0] is not None, waiting=tuple(line))


@transaction
def acknowledge_wait(turn: Turn, message: int, notice: Outbound, now: datetime) -> Statements[None]:
    """Send the notice if the turn still runs and the message still waits for it: once for each wait.

    A notice since the message says it already: of an earlier turn, that this one waits for an approval, or that its
    sender is approved.
    """
    yield from _lock_key(turn)
    waits = yield (
        "SELECT 1 FROM turns t JOIN inbox i ON i.no = ? AND i.state = 'waiting'"
        " WHERE t.no = ? AND t.fence = ? AND t.state = 'running' AND NOT EXISTS (SELECT 1 FROM outbox o"
        "  WHERE o.cause_kind = 'parked' AND o.cause_id = CAST(t.no AS TEXT)) AND NOT EXISTS (SELECT 1 FROM turns b"
        "  JOIN outbox o ON o.cause_kind = 'busy' AND o.cause_id = CAST(b.no AS TEXT)"
        "  WHERE b.session_no = t.session_no AND b.ended >= i.received AND o.created >= i.received)"
        " AND NOT EXISTS (SELECT 1 FROM outbox o JOIN inbox f ON f.no = CAST(o.cause_id AS BIGINT)"
        "  WHERE o.cause_kind = 'paired' AND f.identity = i.identity AND o.created >= i.received)"
        " /*pg FOR UPDATE OF t*/",
        (message, turn.number, turn.fence),
    )
    if waits:
        yield from outbox.enqueue(notice, SendCause(CauseKind.BUSY, turn.number), now)


@transaction
def take_waiting(turn: Turn, numbers: Collection[int], now: datetime) -> Statements[list[Received]]:
    """Add those messages that still wait to the running turn; return all that it answers now.

    So it can be repeated.
    """
    line = yield from read_waiting((yield from _lock_key(turn)))
    taken = [received for received in line if received.number in numbers]
    if taken:
        if (yield from join(turn.session_number, taken[-1].inbound.source)):
            yield from meet_sender(taken[-1])
        yield from touch(turn.session_number, now, spoken=last_spoken(taken))
        yield from write_messages(turn, taken)
        yield from assign_to_turn(turn.number, taken)
    return (yield from list_messages(turn))


def _lock_key(turn: Turn) -> Statements[SessionKey]:
    """Lock the conversation of a turn. It can get another key while we wait for the lock."""
    held, key = "", turn.key.text
    while key != held:
        held = key
        yield Lock(held)
        ((key,),) = yield "SELECT key FROM turns WHERE no = ?", (turn.number,)
    return SessionKey.parse(held)


@transaction
def begin_draft(turn: Turn, draft: Outbound) -> Statements[bool]:
    """Record that the first request for the draft of an answer leaves now.

    Return False if another message is owed to the chat first, or another worker has taken over the turn.
    """
    rows = yield (
        f"UPDATE turns SET draft_unclear = 1 WHERE {HELD} AND state = 'running' AND NOT EXISTS ("
        f" SELECT 1 FROM outbox WHERE account = ? AND server = ? AND chat = ? AND state IN {outbox.OPEN_SEND})"
        " RETURNING no",
        (*fence_of(turn), *chat_columns(draft)),
    )
    return bool(rows)


@transaction
def save_draft(turn: Turn, receipt: str | None) -> Statements[None]:
    """Remember the message in which the answer grows, to continue it after a crash; None if there is none.

    If the answer is stored by now, it replaces the draft.
    """
    yield f"UPDATE turns SET draft = ?, draft_unclear = 0 WHERE {HELD}", (receipt, *fence_of(turn))
    yield from replace_draft(turn.number)


@transaction
def end_draft(turn: Turn, now: datetime) -> Statements[None]:
    """Make the answer of a turn due that waited for the request of its draft."""
    span = reply_span(turn.number)
    rows = yield (
        f"UPDATE outbox SET due = ? WHERE id >= ? AND id < ? AND state IN {outbox.OPEN_SEND} AND state = 'due'"
        " AND attempts = 0 AND due > ? RETURNING id",
        (micros(now), *span, micros(now)),
    )
    if rows:
        yield Notify(OUTBOX)


@transaction
def get_status(key: SessionKey, principal: Principal) -> Statements[Status]:
    """Return what is going on in a conversation."""
    seen = visible_to(principal)
    session = yield from select_one(f"s.key = ? AND s.ended IS NULL AND {seen.sql}", key.text, *seen.values)
    running = yield f"SELECT started FROM turns WHERE key = ? AND {RUNNING}", (key.text,)
    parked = yield f"SELECT no, fence, pending_call, session_no FROM turns WHERE key = ? AND {_PARKED}", (key.text,)
    waits = yield "SELECT count(*) FROM inbox WHERE key = ? AND state = 'waiting'", (key.text,)
    since = instant(running[0][0]) if running else None
    question, wanted = None, None
    for number, fence, asked, session_number in parked:
        if asked:
            question = question_id(number, fence)
            wanted = parse_question((yield from find_call(session_number, number, asked)))
    return Status(
        session=session,
        running_since=since,
        question=question,
        wants_words=wanted is not None,
        waits_for_client=bool(parked) and question is None,
        waiting=waits[0][0],
    )
