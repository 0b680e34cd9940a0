"""Check what people and agents said: entries, received messages and sends."""

from palaver.db.transaction import Row
from palaver.model.source import identity_of, message_address
from palaver.model.turn import OutboxState
from palaver.store.damage.mend_contents import mend_entry, mend_message, mend_send
from palaver.store.damage.rows import Known, Problem, TableCheck, is_plausible
from palaver.store.queue.inbox import ADDRESS_COLUMNS
from palaver.store.queue.outbox import NOBODY
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    SEQS,
    addressee_column,
    body_values,
    chat_columns,
    delivery_of,
    entry_checksum,
    entry_of,
    outbound_of,
    received_of,
)

# Entries


def _entry_problem(row: Row, _: Known) -> Problem | None:
    id_, body, role, turn, observed, checksum = row[:6]
    entry = entry_of(row)
    if checksum is not None and checksum != entry_checksum(id_, body):
        return Problem.CHANGED
    columns = (id_ % SEQS, role, None if turn is None else str(turn), bool(observed))
    is_new = checksum is not None
    written = (entry.seq, entry.role.value, entry.turn, entry.observed)
    return Problem.CONTRADICTS if (written != columns if is_new else written[0] != columns[0]) else None


def _entry_name(row: Row) -> str:
    return f"entry {row[0] % SEQS} of session {row[6] or row[0] // SEQS}"


ENTRIES = TableCheck(
    table="entries",
    select="SELECT e.id, e.body, e.role, e.turn_no, e.observed, e.checksum, s.id FROM entries e"
    f" LEFT JOIN sessions s ON s.no = e.id / {SEQS}",
    order="e.id",
    name=_entry_name,
    problem=_entry_problem,
    mend=mend_entry,
    deed="writes an entry again from the message or the reply that it was, and else sets it aside",
)

# Received messages

_RECEIVED_WIDTH = INBOX_COLUMNS.count(",") + 1
_BODY = INBOX_COLUMNS.split(", ").index("i.body")


def _message_problem(row: Row, known: Known) -> Problem | None:
    columns, (checksum, identity, *address) = row[:_RECEIVED_WIDTH], row[_RECEIVED_WIDTH:]
    if not row[_BODY]:
        return Problem.UNREADABLE if checksum is not None else None
    received = received_of(columns)
    if checksum is not None and checksum != body_values(row[_BODY])[1]:
        return Problem.CHANGED
    source = received.inbound.source
    is_waiting = columns[2] == "waiting"
    if is_waiting and not is_plausible(received.place or received.key, source, known):
        return Problem.CONTRADICTS
    # Ids of people who have several forms were brought to one form.
    if source.platform in known.aliases or checksum is None:
        return None
    written = message_address(source)
    is_same = identity == identity_of(source) and (address[0] is None or tuple(address) == written)
    return None if is_same else Problem.CONTRADICTS


INBOX = TableCheck(
    table="inbox",
    select=f"SELECT {INBOX_COLUMNS}, i.checksum, i.identity,"
    f" {', '.join(f'i.{name}' for name in ADDRESS_COLUMNS.split(', '))}"
    " FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no",
    order="i.no",
    name=lambda row: f"in:{row[0]}",
    problem=_message_problem,
    mend=mend_message,
    deed="keeps what can be read, fails what cannot, and keeps a copy of the row as it was",
)

# Sends

_DELIVERY_WIDTH = DELIVERY_COLUMNS.count(",") + 1


def _send_problem(row: Row, known: Known) -> Problem | None:
    columns, (account, server, checksum, *_) = row[:_DELIVERY_WIDTH], row[_DELIVERY_WIDTH:]
    is_sent = delivery_of(columns).state is OutboxState.DELIVERED
    body, chat = columns[1], columns[-1]
    if checksum is not None and checksum != body_values(body)[1]:
        return Problem.CHANGED
    if checksum is None or account == NOBODY:
        return None
    outbound = outbound_of(body)
    written = chat_columns(outbound)
    now_at = known.moves.get((account, outbound.scope_id), {}).get(outbound.chat_id)
    chats = {written[2], *([] if now_at is None else [addressee_column(outbound.addressee, now_at)])}
    # Where a message was delivered to can have moved on since.
    is_there = is_sent or chat in chats
    return None if (account, server) == written[:2] and is_there else Problem.CONTRADICTS


OUTBOX = TableCheck(
    table="outbox",
    select=f"SELECT {DELIVERY_COLUMNS}, account, server, checksum FROM outbox",
    order="id",
    name=lambda row: f"out:{row[0]}",
    problem=_send_problem,
    mend=mend_send,
    deed="sends it where it was written to, takes a lost text from the transcript, and sends nothing that is in doubt",
)
