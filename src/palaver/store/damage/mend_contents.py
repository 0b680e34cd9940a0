"""Mend entries, received messages and sends that cannot be read or were changed."""

from datetime import datetime

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.key import Scope, SessionKey, derive_key
from palaver.model.source import AddresseeKind, Source, decode_id, identity_of, message_address
from palaver.model.turn import Inbound, Outbound
from palaver.store.conversations.transcript import write_journal
from palaver.store.damage.mend_structure import moments
from palaver.store.damage.restore import find_hiding, restore_entry, restore_reply
from palaver.store.damage.rows import BadRow, Known, Problem, is_plausible, load_known
from palaver.store.damage.set_aside import keep_copies, set_aside
from palaver.store.queue.inbox import ADDRESS_COLUMNS, SAME_MESSAGE, lock_and_add_ready
from palaver.store.queue.outbox import CURRENT_CHAT, IN_DOUBT, OPEN_SEND, place_values, rewrite
from palaver.store.records import (
    INBOX_COLUMNS,
    SEQS,
    SET_BODY,
    Prepared,
    body_values,
    entry_checksum,
    entry_of,
    inbound_of,
    key_in,
    micros,
    outbound_in,
    prepare,
    readable,
)

LOST_TEXT = "(This text was lost: its row in the database was damaged.)"

# Entries


@transaction
def mend_entry(bad: BadRow, now: datetime) -> Statements[None]:
    id_, _, role, turn, _, checksum, *_ = bad.row
    restored = yield from restore_entry(id_, turn, role=role, checksum=checksum)
    if restored and (restored.is_exact or bad.problem is Problem.UNREADABLE):
        yield from _rewrite(id_, restored.prepared, turn, bad, now)
    elif bad.problem is Problem.UNREADABLE:
        yield from set_aside("entries", "id = ?", (id_,), bad.problem.value, now)
        yield from write_journal("delete", id_ // SEQS, id_ % SEQS, id_ % SEQS)
    elif (home := (yield from _home_of(bad.row))) is not None:
        yield from _move_home(id_, home, bad, now)
    else:
        yield from _accept_entry(bad, now)


def _rewrite(id_: int, prepared: Prepared, turn: int | None, bad: BadRow, now: datetime) -> Statements[None]:
    yield from keep_copies("entries", "id = ?", (id_,), bad.problem.value, now)
    yield (
        f"UPDATE entries SET role = ?, turn_no = ?, observed = ?, {SET_BODY} WHERE id = ?",
        (prepared.role, turn, prepared.observed, *prepared.values(id_ // SEQS, id_ % SEQS), id_),
    )
    yield from write_journal("append", id_ // SEQS, id_ % SEQS, id_ % SEQS)


def _home_of(row: Row) -> Statements[int | None]:
    """Return the id that an entry was written under, if its own content and checksum tell another, free one."""
    id_, body, checksum = row[0], row[1], row[5]
    entry = entry_of(row)
    sessions = yield (
        "SELECT session_no FROM turns WHERE CAST(no AS TEXT) = ? UNION SELECT CAST(? AS BIGINT)",
        (entry.turn, id_ // SEQS),
    )
    places = [number * SEQS + entry.seq for (number,) in sessions]
    homes = [place for place in places if entry_checksum(place, body) == checksum and place != id_]
    for home in homes:
        if not (yield "SELECT 1 FROM entries WHERE id = ?", (home,)):
            return home
    return None


def _move_home(id_: int, home: int, bad: BadRow, now: datetime) -> Statements[None]:
    entry = entry_of(bad.row)
    turn = int(entry.turn) if entry.turn else None
    yield from keep_copies("entries", "id = ?", (id_,), bad.problem.value, now)
    hiding = yield from find_hiding(home, turn)
    yield (
        "UPDATE entries SET id = ?, role = ?, turn_no = ?, observed = ?, hidden_by = ? WHERE id = ?",
        (home, entry.role.value, turn, int(entry.observed), hiding, id_),
    )
    yield "UPDATE attachments SET holder = ? WHERE kind = 'entry' AND holder = ?", (home, id_)
    for place, kind in ((id_, "delete"), (home, "append")):
        yield from write_journal(kind, place // SEQS, place % SEQS, place % SEQS)


def _accept_entry(bad: BadRow, now: datetime) -> Statements[None]:
    """Keep what can be read in its place. With a right checksum the columns are wrong, else nobody knows."""
    id_, body, _, turn, _, checksum, *_ = bad.row
    entry = entry_of(bad.row)._replace(seq=id_ % SEQS)
    if checksum == entry_checksum(id_, body):
        turn = int(entry.turn) if entry.turn else None
    yield from _rewrite(id_, prepare(entry, turn), turn, bad, now)


# Received messages

_STATE, _PLACE, _BODY = (INBOX_COLUMNS.split(", ").index(name) for name in ("i.state", "i.place", "i.body"))
_WIDTH = INBOX_COLUMNS.count(",") + 1
_LOST = "its content cannot be read"
_LOST_KEY = "its conversation is unknown"


@transaction
def mend_message(bad: BadRow, now: datetime) -> Statements[None]:
    number, body = bad.row[0], bad.row[_BODY]
    yield from keep_copies("inbox", "no = ?", (number,), bad.problem.value, now)
    inbound = next(readable(_inbound_in, [(number, body)]), None)
    if inbound is None:
        yield f"UPDATE inbox SET {SET_BODY} WHERE no = ?", (b"", None, number)
        yield "UPDATE inbox SET state = 'failed', reason = ? WHERE no = ? AND state = 'waiting'", (_LOST, number)
        return
    yield f"UPDATE inbox SET {SET_BODY} WHERE no = ?", (*body_values(body), number)
    if bad.problem is not Problem.CHANGED:
        yield from _mend_columns(bad.row, inbound)


def _inbound_in(row: Row) -> Inbound:
    return inbound_of(row[1])[0]


def _mend_columns(row: Row, inbound: Inbound) -> Statements[None]:
    """Write the columns of a message again from its content."""
    number, source, address = row[0], inbound.source, message_address(inbound.source)
    known = yield from load_known()
    places = readable(key_in, [(row[_PLACE],)] if row[_PLACE] else [])
    place = next((each for each in places if is_plausible(each, source, known)), None)
    found = yield from _key_of(row, source, place, known)
    # Which conversation a new chat has depends on the configuration, so this one is a guess.
    key = found or derive_key(source, Scope()).text
    yield (
        "UPDATE inbox SET key = ?, place = ?, identity = ?, received = ? WHERE no = ?",
        (key, place and place.text, identity_of(source), micros(inbound.at), number),
    )
    if row[_STATE] == "waiting" and found:
        yield from lock_and_add_ready(SessionKey.parse(key))
    elif row[_STATE] == "waiting":  # better not answered than answered in another conversation
        yield "UPDATE inbox SET state = 'failed', reason = ? WHERE no = ?", (_LOST_KEY, number)
    # A message without an id has no address, and another row can have this one by now.
    taken = yield f"SELECT 1 FROM inbox WHERE {SAME_MESSAGE} AND no <> ?", (*address, number)
    if row[_WIDTH + 2] is not None and not taken:
        columns = ", ".join(f"{name} = ?" for name in ADDRESS_COLUMNS.split(", "))
        yield f"UPDATE inbox SET {columns} WHERE no = ?", (*address, number)


def _key_of(row: Row, source: Source, place: SessionKey | None, known: Known) -> Statements[str | None]:
    """Return the conversation of a message: its own if that can be, that of its turn, or that of others like it.

    None if nothing tells.
    """
    own = next(readable(key_in, [(row[1],)]), None)
    if own and place:
        return own.text
    turns = yield "SELECT key FROM turns WHERE no = ?", (row[4],)
    others = yield (
        "SELECT key FROM inbox WHERE platform = ? AND account = ? AND chat = ? AND chat_user = ? AND no <> ?"
        " AND coalesce(identity, '') = ? AND place IS NULL ORDER BY no DESC LIMIT 5",
        (*_chat(source), row[0], identity_of(source) or ""),
    )
    for key in readable(key_in, [(row[1],), *turns, *others]):
        if is_plausible(key, source, known):
            return key.text
    return None


def _chat(source: Source) -> tuple[str, str, str, str]:
    address = message_address(source)
    return address.platform, address.account, address.chat, address.chat_user


# Sends


@transaction
def mend_send(bad: BadRow, now: datetime) -> Statements[None]:
    number, body, checksum = bad.row[0], bad.row[1], bad.row[-1]
    yield from keep_copies("outbox", "id = ?", (number,), bad.problem.value, now)
    outbound = next(readable(outbound_in, [(number, body)]), None)
    is_exact = outbound is not None and checksum == body_values(body)[1]
    restored = None if is_exact else (yield from restore_reply(number, checksum))
    if restored and (restored[1] or outbound is None):
        outbound, is_exact = restored
    if outbound is None:
        outbound = _addressed(bad.row, LOST_TEXT)
    yield from rewrite(number, outbound)
    yield (
        f"UPDATE outbox SET account = ?, server = ?, chat = {CURRENT_CHAT} WHERE id = ?",
        (*place_values(outbound), number),
    )
    times = moments("due, created", bad.row[4:6], now)
    yield "UPDATE outbox SET due = ?, created = ? WHERE id = ?", (*times.values(), number)
    if is_exact:
        # A worker that came across the damage did not send it.
        yield (
            "UPDATE outbox SET state = 'due', error = NULL WHERE id = ? AND error = ? AND state IN ('dead', 'unclear')",
            (number, IN_DOUBT),
        )
    else:
        # A person decides what becomes of it: palaver trace shows it.
        yield (
            "UPDATE outbox SET state = 'unclear', worker = NULL, claim_until = NULL, error = ?"
            f" WHERE id = ? AND state IN {OPEN_SEND}",
            (f"its row {bad.problem.value}", number),
        )


def _addressed(row: Row, text: str) -> Outbound:
    """Return a message to the chat that the columns of a send name."""
    platform, _, account = row[-3].partition(":")
    kind, colon, id_ = row[-4].partition(":")
    is_chat = not colon or kind not in set(AddresseeKind)
    return Outbound(
        platform=platform or "unknown",
        account=decode_id(account) or None,
        scope_id=decode_id(row[-2]) or None,
        chat_id=decode_id(row[-4] if is_chat else id_),
        addressee=AddresseeKind.CHAT if is_chat else AddresseeKind(kind),
        text=text,
    )
