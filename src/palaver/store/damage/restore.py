"""Write entries again from the messages and replies that they were, and replies from entries."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.model.transcript import Entry, Role, UnreadableEntry
from palaver.model.turn import Outbound, Received, outbound_to
from palaver.store.queue.turns import entry_of_message
from palaver.store.records import (
    DELIVERY_COLUMNS,
    REPLIES,
    SELECT_RECEIVED,
    SEQS,
    Prepared,
    body_values,
    delivery_of,
    entries_of,
    outbound_body,
    prepare,
    readable,
    received_of,
    reply_span,
)


class Restored(NamedTuple):
    prepared: Prepared
    is_exact: bool
    """It has the checksum of what was lost."""


@transaction
def restore_entry(
    id_: int, turn: int | None, *, role: str | None = None, checksum: int | None = None
) -> Statements[Restored | None]:
    """Return what an entry of a turn was: a message of the turn that has no entry, or the answer; None if unknown."""
    if turn is None:
        return None
    messages = yield from _messages(turn)
    said = [prepare(entry_of_message(each), turn) for each in messages]
    exact = [each for each in said if each.values(id_ // SEQS, id_ % SEQS)[1] == checksum]
    if exact:
        return Restored(exact[0], is_exact=True)
    others = yield from _entries(turn, id_)
    if role in {None, Role.USER}:
        heard = {entry.message_id for entry in others if entry.role is Role.USER}
        lost = [each for each in messages if each.inbound.source.message_id not in heard]
        if len(lost) == 1:
            return Restored(prepare(entry_of_message(lost[0]), turn), is_exact=False)
    if role in {None, Role.ASSISTANT} and not any(entry.role is Role.ASSISTANT for entry in others):
        return (yield from _answer(turn))
    return None


def _messages(turn: int) -> Statements[list[Received]]:
    rows = yield f"{SELECT_RECEIVED} WHERE i.turn_no = ? AND length(i.body) > 0 ORDER BY i.no", (turn,)
    return list(readable(received_of, rows))


def _entries(turn: int, besides: int) -> Statements[list[Entry]]:
    """Return the other entries of a turn in the session of an entry."""
    first = besides // SEQS * SEQS
    rows = yield (
        "SELECT id, body FROM entries WHERE id >= ? AND id < ? AND turn_no = ? AND id <> ? ORDER BY id",
        (first, first + SEQS, turn, besides),
    )
    return [entry for entry in entries_of(rows) if not isinstance(entry, UnreadableEntry)]


def _answer(turn: int) -> Statements[Restored | None]:
    """Take the answer of a turn from its replies. A failed turn has notices instead."""
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id >= ? AND id < ?"
        " AND EXISTS (SELECT 1 FROM turns WHERE no = ? AND state = 'done') ORDER BY id",
        (*reply_span(turn), turn),
    )
    replies = list(readable(delivery_of, rows))
    text = "\n\n".join(each.outbound.text for each in replies if each.outbound.text)
    if not text:
        return None
    entry = Entry(seq=0, role=Role.ASSISTANT, at=replies[0].created, text=text)
    return Restored(prepare(entry, turn), is_exact=False)


@transaction
def find_hiding(id_: int, turn: int | None) -> Statements[int | None]:
    """Return the operation that hides an entry: that of the rest of its turn, or else the one the journal knows of."""
    first, seq = id_ // SEQS * SEQS, id_ % SEQS
    beside = yield (
        "SELECT hidden_by FROM entries WHERE id >= ? AND id < ? AND turn_no = ? AND id <> ?"
        " ORDER BY abs(id - ?) LIMIT 1",
        (first, first + SEQS, turn, id_, id_),
    )
    if beside:
        return beside[0][0]
    changes = yield (
        "SELECT kind, first_seq, last_seq FROM journal WHERE session_no = ? AND kind IN ('hide', 'show')"
        " AND first_seq <= ? AND last_seq >= ? ORDER BY pos DESC LIMIT 1",
        (id_ // SEQS, seq, seq),
    )
    if not changes or changes[0][0] == "show":
        return None
    hidden = yield (
        "SELECT hidden_by FROM entries WHERE id >= ? AND id <= ? AND hidden_by IS NOT NULL"
        " ORDER BY abs(id - ?) LIMIT 1",
        (first + changes[0][1], first + changes[0][2], id_),
    )
    latest = yield (
        "SELECT max(no) FROM operations WHERE session_no = ? AND undone_at IS NULL"
        " AND kind IN ('undo', 'compaction', 'revision')",
        (id_ // SEQS,),
    )
    return (hidden or latest)[0][0]


@transaction
def restore_reply(number: int, checksum: int | None) -> Statements[tuple[Outbound, bool] | None]:
    """Return what the only reply of a turn was, and whether it has the checksum of what was lost."""
    turn = number // REPLIES
    rows = yield "SELECT count(*) FROM outbox WHERE id >= ? AND id < ?", reply_span(turn)
    places = yield "SELECT session_no FROM turns WHERE no = ?", (turn,)
    messages = yield from _messages(turn)
    if number <= 0 or rows[0][0] != 1 or not places or not messages:
        return None
    entries = yield from _entries(turn, places[0][0] * SEQS)
    answers = [entry.text for entry in entries if entry.role is Role.ASSISTANT and entry.text]
    found = list(_replies(messages, answers))
    exact = [each for each in found if body_values(outbound_body(each))[1] == checksum]
    return (exact[0], True) if exact else (found[0], False) if found else None


def _replies(messages: Sequence[Received], answers: Sequence[str]) -> Iterator[Outbound]:
    """Yield what the reply may have been: to the chat of the last message, as a reply to one of them or to none."""
    for text in reversed(answers):
        source = messages[-1].inbound.source
        for reply_to in (source.message_id, None):
            yield outbound_to(source, text, reply_to=reply_to)
