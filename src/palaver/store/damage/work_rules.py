"""Nothing accepted is lost and nothing is done twice: the rules of messages, turns and sends, and how to mend them."""

from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.session import next_in_lineage
from palaver.model.turn import InboxState, OutboxState, TurnState
from palaver.store.conversations.sessions import new_id
from palaver.store.conversations.transcript import write_journal
from palaver.store.damage.mend_contents import LOST_TEXT
from palaver.store.damage.restore_session import restore_turn
from palaver.store.damage.rules import by_statements, keeping, one_by_one
from palaver.store.damage.set_aside import set_aside
from palaver.store.queue.cause import CAUSE_COLUMNS
from palaver.store.queue.inbox import ADDRESS_COLUMNS
from palaver.store.records import (
    OPEN_TURN,
    REPLIES,
    SELECT_RECEIVED,
    SEQS,
    USAGE_COLUMNS,
    body_values,
    entries_of,
    entry_span,
    instant,
    micros,
    outbound_body,
    outbound_in,
    placeholders,
    readable,
    received_of,
)

_ANOTHER_IS_OPEN = (
    f"EXISTS (SELECT 1 FROM turns o WHERE o.key = turns.key AND o.no <> turns.no AND o.state IN {OPEN_TURN})"
)


# Messages


def _point_to_turn(number: int, now: datetime) -> Statements[None]:
    """Find the turn that answers a message: its own if the row was lost, else one that has an entry of it."""
    rows = yield f"{SELECT_RECEIVED} WHERE i.no = ?", (number,)
    key, turn = rows[0][1], rows[0][4]
    exists = yield "SELECT key FROM turns WHERE no = ?", (turn,)
    if not exists and (yield from restore_turn(turn, now)):
        return
    lonely = yield (
        "SELECT no, session_no FROM turns t WHERE key = ? AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.turn_no = t.no)"
        " ORDER BY no DESC",
        (key,),
    )
    for other, session in lonely:
        if (yield from _is_said_in(other, session, rows[0])):
            yield "UPDATE inbox SET turn_no = ? WHERE no = ?", (other, number)
            return
    if exists:
        yield "UPDATE inbox SET key = ? WHERE no = ?", (exists[0][0], number)
    else:
        yield (
            "UPDATE inbox SET state = 'failed', turn_no = NULL, reason = 'its turn is missing' WHERE no = ?",
            (number,),
        )


def _is_said_in(turn: int, session: int, row: Row) -> Statements[bool]:
    """Return whether a turn has an entry of a message."""
    message = next(readable(received_of, [row] if row[6] else []), None)
    entries = yield (
        "SELECT id, body FROM entries WHERE id >= ? AND id < ? AND turn_no = ? AND role = 'user'",
        (*entry_span(session), turn),
    )
    said = {(entry.message_id, entry.text) for entry in entries_of(entries)}
    return message is not None and (message.inbound.source.message_id, message.inbound.text) in said


def _leave_or_join_turn(number: int, _: datetime) -> Statements[None]:
    rows = yield f"{SELECT_RECEIVED} WHERE i.no = ?", (number,)
    turn = rows[0][4]
    session = yield "SELECT session_no FROM turns WHERE no = ?", (turn,)
    if session and (yield from _is_said_in(turn, session[0][0], rows[0])):
        yield "UPDATE inbox SET state = 'in-turn' WHERE no = ?", (number,)
    else:
        yield "UPDATE inbox SET turn_no = NULL WHERE no = ?", (number,)


def _forget_duplicate(number: int, _: datetime) -> Statements[None]:
    """Keep the row that has a turn, or the first. The others keep their content, but count as no message."""
    same = " AND ".join(f"a.{name} = b.{name}" for name in (*ADDRESS_COLUMNS.split(", "), "version", "retried_in"))
    rows = yield (
        f"SELECT a.no FROM inbox a JOIN inbox b ON {same} WHERE b.no = ? ORDER BY a.turn_no IS NULL, a.no",
        (number,),
    )
    for (other,) in rows[1:]:
        yield "UPDATE inbox SET message_id = NULL WHERE no = ?", (other,)
        yield (
            "UPDATE inbox SET state = 'done', reason = ? WHERE no = ? AND state = 'waiting'",
            (f"it is in:{rows[0][0]} once more", other),
        )


# Turns


def _keep_newest_turn(key: str, now: datetime) -> Statements[None]:
    rows = yield f"SELECT no, session_no FROM turns WHERE key = ? AND state IN {OPEN_TURN} ORDER BY no", (key,)
    for number, session in rows[:-1]:
        yield from _fail_turn(number, session, "a newer turn of the conversation was open too", now)


def _fail_turn(number: int, session: int, error: str, now: datetime) -> Statements[None]:
    yield (
        "UPDATE turns SET state = 'failed', fence = fence + 1, ended = ?, error = ? WHERE no = ?",
        (micros(now), error, number),
    )
    yield from write_journal("settle", session, 1, 0, number)


@transaction
def move_turn_to_its_entries(number: int, _: datetime) -> Statements[None]:
    rows = yield (
        f"SELECT DISTINCT s.no FROM entries e JOIN sessions s ON s.no = e.id / {SEQS} WHERE e.turn_no = ?"
        f" AND e.id % {SEQS} > coalesce(s.parent_seq, 0)",
        (number,),
    )
    if len(rows) == 1:
        yield "UPDATE turns SET session_no = ? WHERE no = ?", (rows[0][0], number)


def _bring_turn_home(number: int, now: datetime) -> Statements[None]:
    """Make key and session of an open turn agree: its entries are in its session, or it has to end."""
    rows = yield "SELECT s.no, s.key FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.no = ?", (number,)
    session, key = rows[0]
    mine = yield "SELECT 1 FROM entries WHERE id >= ? AND id < ? AND turn_no = ?", (*entry_span(session), number)
    busy = yield f"SELECT 1 FROM turns WHERE key = ? AND no <> ? AND state IN {OPEN_TURN}", (key, number)
    if mine and not busy:
        yield "UPDATE turns SET key = ? WHERE no = ?", (key, number)
        yield "UPDATE inbox SET key = ? WHERE turn_no = ?", (key, number)
        return
    yield from _fail_turn(number, session, "it was open in another conversation than its session", now)


# Sends


def _settle_turn_of_reply(number: int, now: datetime) -> Statements[None]:
    """A turn and its replies are committed together, so a turn with replies is done."""
    turn = number // REPLIES
    if (yield "SELECT 1 FROM turns WHERE no = ?", (turn,)):
        yield "UPDATE turns SET state = 'done', ended = coalesce(ended, started) WHERE no = ?", (turn,)
    elif not (yield from restore_turn(turn, now)):
        yield from set_aside("outbox", "id = ?", (number,), "it replies to a turn that is missing", now)


def _fill_gap(number: int, _: datetime) -> Statements[None]:
    """Put a dead send where a reply of the turn is missing, so that the loss shows in its trace."""
    yield FORGET_CAUSE, (number,)
    beside = yield "SELECT account, server, chat, due, created, body FROM outbox WHERE id = ?", (number,)
    account, server, chat, due, created, body = beside[0]
    lost = next((replace(each, text=LOST_TEXT) for each in readable(outbound_in, [(number, body)])), None)
    columns = "id, account, server, chat, state, due, created, error, body, checksum"
    for missing in range(number // REPLIES * REPLIES, number):
        if lost and not (yield "SELECT 1 FROM outbox WHERE id = ?", (missing,)):
            state = ("dead", due, created, "its row was lost", *body_values(outbound_body(lost)))
            values = (missing, account, server, chat, *state)
            yield f"INSERT INTO outbox ({columns}) VALUES ({placeholders(values)})", values


def _drop_repeated_notice(number: int, now: datetime) -> Statements[None]:
    """Keep the one that was sent or may have been, else the earliest: notices are numbered downwards."""
    same = " AND ".join(f"a.{name} = b.{name}" for name in CAUSE_COLUMNS.split(", "))
    rows = yield (
        f"SELECT a.id FROM outbox a JOIN outbox b ON {same} WHERE b.id = ? ORDER BY CASE a.state"
        " WHEN 'delivered' THEN 0 WHEN 'sending' THEN 1 WHEN 'unclear' THEN 2 WHEN 'claimed' THEN 3 ELSE 4 END,"
        " a.id DESC",
        (number,),
    )
    for (other,) in rows[1:]:
        yield from set_aside("outbox", "id = ?", (other,), f"it is out:{rows[0][0]} once more", now)


# Sessions and jobs


def _number_title(number: int, _: datetime) -> Statements[None]:
    rows = yield "SELECT owner, title FROM sessions WHERE no = ?", (number,)
    owner, title = rows[0]
    taken = yield "SELECT title FROM sessions WHERE owner = ? AND title IS NOT NULL", (owner,)
    free = next_in_lineage(title, [row[0] for row in taken])
    yield "UPDATE sessions SET title = ? WHERE no = ?", (free, number)


def _give_new_id(number: int, _: datetime) -> Statements[None]:
    rows = yield "SELECT started FROM sessions WHERE no = ?", (number,)
    yield "UPDATE sessions SET id = ? WHERE no = ?", (new_id(instant(rows[0][0])), number)


def _keep_first(message: int, now: datetime) -> Statements[None]:
    first = yield "SELECT schedule_no, at FROM firings WHERE inbox_no = ? ORDER BY at, schedule_no LIMIT 1", (message,)
    where = "inbox_no = ? AND NOT (schedule_no = ? AND at = ?)"
    yield from set_aside("firings", where, (message, *first[0]), "its message belongs to another firing", now)


# Rules

FORGET_CAUSE = "UPDATE outbox SET cause_kind = NULL, cause_id = NULL, cause_detail = NULL, part = NULL WHERE id = ?"
_UNKNOWN_MESSAGE, _UNKNOWN_TURN, _UNKNOWN_SEND = (
    f"state NOT IN {tuple(each.value for each in states)}" for states in (InboxState, TurnState, OutboxState)
)
_HELD_SEND = "state IN ('claimed', 'sending')"
_WITHOUT_CONTENT = "state = 'waiting' AND length(body) = 0"
_UNEXPLAINED = "(inbox_no IS NULL) <> (reason IS NOT NULL)"
_ADDRESS = f"{ADDRESS_COLUMNS}, version, retried_in"
_TURN_SUMS = ", ".join(f"sum({name}) AS {name}" for name in USAGE_COLUMNS)
_SUM = "(SELECT sum(t.{0}) FROM turns t WHERE t.session_no = sessions.no)"
NOTHING_LOST = keeping(
    "P1",
    by_statements(
        "every received message has a known state",
        f"SELECT no FROM inbox WHERE {_UNKNOWN_MESSAGE}",
        "settles the message by its turn or answer, and else lets it wait again",
        f"UPDATE inbox SET state = 'in-turn' WHERE {_UNKNOWN_MESSAGE} AND turn_no IS NOT NULL",
        f"UPDATE inbox SET state = 'done' WHERE {_UNKNOWN_MESSAGE} AND EXISTS (SELECT 1 FROM outbox o"
        " WHERE o.cause_kind = 'command' AND o.cause_id = CAST(inbox.no AS TEXT))",
        f"UPDATE inbox SET state = 'failed' WHERE {_UNKNOWN_MESSAGE} AND (reason IS NOT NULL OR length(body) = 0)",
        f"UPDATE inbox SET state = 'waiting' WHERE {_UNKNOWN_MESSAGE}",
    ),
    one_by_one(
        "every message in a turn points to a turn of its conversation",
        "SELECT i.no FROM inbox i WHERE i.state = 'in-turn'"
        " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.no = i.turn_no AND t.key = i.key)",
        "finds the turn by what it says, or fails the message",
        _point_to_turn,
    ),
    one_by_one(
        "a message with a turn has the state in-turn",
        "SELECT no FROM inbox WHERE state <> 'in-turn' AND turn_no IS NOT NULL",
        "compares it with what the turn says",
        _leave_or_join_turn,
    ),
    by_statements(
        "a conversation is in the ready queue exactly while messages wait in it",
        "SELECT key FROM ready_queue q WHERE NOT EXISTS"
        " (SELECT 1 FROM inbox i WHERE i.key = q.key AND i.state = 'waiting')"
        " UNION ALL SELECT DISTINCT key FROM inbox i WHERE i.state = 'waiting'"
        " AND NOT EXISTS (SELECT 1 FROM ready_queue q WHERE q.key = i.key)",
        "fills the queue again",
        "DELETE FROM ready_queue WHERE NOT EXISTS"
        " (SELECT 1 FROM inbox i WHERE i.key = ready_queue.key AND i.state = 'waiting')",
        "INSERT INTO ready_queue (key, position) SELECT DISTINCT i.key, (SELECT coalesce(max(position), 0) + 1"
        " FROM ready_queue) FROM inbox i WHERE i.state = 'waiting'"
        " AND NOT EXISTS (SELECT 1 FROM ready_queue q WHERE q.key = i.key)",
    ),
    by_statements(
        "every waiting message has content",
        f"SELECT no FROM inbox WHERE {_WITHOUT_CONTENT}",
        "fails the message",
        f"UPDATE inbox SET state = 'failed', reason = 'its content was lost' WHERE {_WITHOUT_CONTENT}",
    ),
    by_statements(
        "every turn has a known state",
        f"SELECT no FROM turns WHERE {_UNKNOWN_TURN}",
        "settles a turn that has ended, and interrupts one that has not",
        "UPDATE turns SET state = CASE WHEN error IS NULL THEN 'done' ELSE 'failed' END"
        f" WHERE {_UNKNOWN_TURN} AND ended IS NOT NULL",
        "UPDATE turns SET state = 'failed', ended = ?, error = 'its state was lost'"
        f" WHERE {_UNKNOWN_TURN} AND {_ANOTHER_IS_OPEN}",
        f"UPDATE turns SET state = 'interrupted', halted = coalesce(halted, ?) WHERE {_UNKNOWN_TURN}",
    ),
    by_statements(
        "every send has a known state",
        f"SELECT id FROM outbox WHERE {_UNKNOWN_SEND}",
        "settles the send by its receipt; one that may have been sent waits for your decision",
        "UPDATE outbox SET state = CASE WHEN receipt IS NOT NULL THEN 'delivered' WHEN attempts = 0 THEN 'due'"
        f" ELSE 'unclear' END, worker = NULL, claim_until = NULL WHERE {_UNKNOWN_SEND}",
    ),
    by_statements(
        "a send that is claimed or under way has a worker and a deadline, and no other send has",
        f"SELECT id FROM outbox WHERE ({_HELD_SEND}) <> (worker IS NOT NULL AND claim_until IS NOT NULL)",
        "marks a send that may have been sent as unclear, and sends what was only claimed",
        "UPDATE outbox SET state = CASE state WHEN 'sending' THEN 'unclear' ELSE 'due' END, worker = NULL,"
        f" claim_until = NULL WHERE {_HELD_SEND} AND (worker IS NULL OR claim_until IS NULL)",
        f"UPDATE outbox SET worker = NULL, claim_until = NULL WHERE NOT ({_HELD_SEND})",
    ),
    by_statements(
        "every firing of a job has a message, or says why it did not run",
        f"SELECT schedule_no FROM firings WHERE {_UNEXPLAINED}",
        "says that its message was lost",
        f"UPDATE firings SET reason = CASE WHEN inbox_no IS NULL THEN 'its message was lost' END WHERE {_UNEXPLAINED}",
    ),
    by_statements(
        "the usage of every turn that ended is counted or waits to be",
        "SELECT name FROM (SELECT 'summed' AS name) w WHERE coalesce((SELECT CAST(value AS BIGINT) FROM meta"
        " WHERE name = 'summed'), -1) NOT BETWEEN 0 AND (SELECT coalesce(max(pos), 0) FROM journal)",
        "finds the place in the journal again",
        "DELETE FROM meta WHERE name = 'summed'",
        "INSERT INTO meta (name, value) SELECT 'summed', CAST(coalesce((SELECT min(pos) - 1 FROM journal"
        " WHERE turn_no IS NOT NULL), (SELECT max(pos) FROM journal), 0) AS TEXT)",
    ),
)
NOTHING_TWICE = keeping(
    "P2",
    by_statements(
        "a conversation has at most one open session",
        "SELECT key FROM sessions WHERE ended IS NULL GROUP BY key HAVING count(*) > 1",
        "ends all but the one that the conversation leads to",
        "UPDATE sessions SET ended = last_active, end_reason = 'switched' WHERE ended IS NULL AND no <> coalesce("
        "(SELECT o.no FROM sessions o JOIN routes r ON r.session_no = o.no AND r.key = o.key"
        " WHERE o.key = sessions.key AND o.ended IS NULL),"
        " (SELECT max(o.no) FROM sessions o WHERE o.key = sessions.key AND o.ended IS NULL))",
    ),
    one_by_one(
        "a conversation has at most one open turn",
        f"SELECT key FROM turns WHERE state IN {OPEN_TURN} GROUP BY key HAVING count(*) > 1",
        "fails all but the newest",
        _keep_newest_turn,
    ),
    one_by_one(
        "a message is received once",
        f"SELECT max(no) FROM inbox WHERE message_id IS NOT NULL GROUP BY {_ADDRESS} HAVING count(*) > 1",
        "keeps one of them; the others count as done",
        _forget_duplicate,
    ),
    one_by_one(
        "a notice is sent once",
        f"SELECT max(id) FROM outbox WHERE cause_kind IS NOT NULL GROUP BY {CAUSE_COLUMNS} HAVING count(*) > 1",
        "keeps the one that was sent, or the first, and sets the others aside",
        _drop_repeated_notice,
    ),
    one_by_one(
        "a title names one session of its owner",
        "SELECT max(no) FROM sessions WHERE title IS NOT NULL GROUP BY owner, title HAVING count(*) > 1",
        "numbers the later one",
        _number_title,
    ),
    one_by_one(
        "an id names one session",
        "SELECT max(no) FROM sessions GROUP BY id HAVING count(*) > 1",
        "gives the later one a new id",
        _give_new_id,
    ),
    one_by_one(
        "the entries of a turn are in its session",
        "SELECT DISTINCT t.no FROM entries e JOIN turns t ON t.no = e.turn_no"
        f" JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE s.no <> t.session_no AND e.id % {SEQS} > coalesce(s.parent_seq, 0)",
        "moves the turn to its entries",
        move_turn_to_its_entries,
    ),
    by_statements(
        "a session has counted what its turns used",
        f"SELECT s.no FROM sessions s JOIN (SELECT session_no, {_TURN_SUMS} FROM turns GROUP BY session_no) t"
        f" ON t.session_no = s.no WHERE {' OR '.join(f's.{name} < t.{name}' for name in USAGE_COLUMNS)}",
        "counts again",
        *(
            f"UPDATE sessions SET {name} = {_SUM.format(name)} WHERE {name} < {_SUM.format(name)}"
            for name in USAGE_COLUMNS
        ),
    ),
    one_by_one(
        "only finished turns have replies in the outbox",
        f"SELECT o.id FROM outbox o LEFT JOIN turns t ON t.no = o.id / {REPLIES}"
        f" WHERE o.id > 0 AND (t.no IS NULL OR t.state IN {OPEN_TURN})",
        "settles the turn, which was committed with its replies",
        _settle_turn_of_reply,
    ),
    one_by_one(
        "the replies of a turn are numbered without gaps",
        f"SELECT o.id FROM outbox o WHERE o.id > 0 AND (o.cause_kind IS NOT NULL OR (o.id % {REPLIES} > 0"
        " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.id = o.id - 1)))",
        "shows the missing one as dead in its trace",
        _fill_gap,
    ),
    one_by_one(
        "every message belongs to at most one firing of a job",
        "SELECT inbox_no FROM firings WHERE inbox_no IS NOT NULL GROUP BY inbox_no HAVING count(*) > 1",
        "keeps the first and sets the others aside",
        _keep_first,
    ),
    by_statements(
        "a turn has an end time exactly when it is done or failed",
        f"SELECT no FROM turns WHERE (state IN {OPEN_TURN}) <> (ended IS NULL)",
        "settles a turn that has an end time, and ends one that is settled",
        "UPDATE turns SET ended = started WHERE state IN ('done', 'failed') AND ended IS NULL",
        "UPDATE turns SET state = CASE WHEN error IS NULL THEN 'done' ELSE 'failed' END"
        f" WHERE state IN {OPEN_TURN} AND ended IS NOT NULL",
    ),
    one_by_one(
        "the session of an open turn belongs to the turn's conversation",
        "SELECT t.no FROM turns t JOIN sessions s ON s.no = t.session_no"
        f" WHERE t.state IN {OPEN_TURN} AND s.key <> t.key",
        "lets it go on where its entries are, or fails it",
        _bring_turn_home,
    ),
)
