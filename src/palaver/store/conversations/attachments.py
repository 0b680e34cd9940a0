"""Files in the store: which messages still wait for theirs, who may have which, and what nobody has any more."""

from collections.abc import Sequence
from dataclasses import replace

from palaver.db.database import INBOX
from palaver.db.transaction import Lock, Notify, Row, Statements, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.turn import Received, Turn
from palaver.store.conversations.attachment_refs import note_files
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import visible_to
from palaver.store.queue.inbox import waiting
from palaver.store.records import INBOX_COLUMNS, entries_of, inbound_body, kept_of, received_of

__all__ = [
    "find",
    "find_in",
    "held",
    "let_go",
    "settle_files",
    "unsettled",
]


_SHORTEST = 4


@transaction
def unsettled(key: SessionKey) -> Statements[list[Received]]:
    """What waits in a conversation for files that are not here yet."""
    line = yield from waiting(key, held=False)
    return [each for each in line if not each.inbound.has_all_files]


@transaction
def settle_files(received: Received, files: Sequence[Attachment]) -> Statements[None]:
    """The files of a message that still waits are here now, or never will be. What it says may have changed since."""
    yield Lock(received.key.text)
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE i.no = ? AND i.state = 'waiting'",
        (received.number,),
    )
    for current in map(received_of, rows):
        body = inbound_body(replace(current.inbound, files=tuple(files)), current.role)
        yield "UPDATE inbox SET body = ? WHERE no = ?", (body, current.number)
        yield from note_files("in", {current.number: kept_of(files)})
    yield Notify(INBOX)


@transaction
def find(name: str, principal: Principal) -> Statements[Attachment]:
    """A file by its id, for who may read a conversation that shows it; also hidden ones for who sees everything."""
    seen, shown = visible_to(principal), "" if principal.sees_all else " AND e.hidden_by IS NULL"
    rows = yield (
        "SELECT e.body, a.sha256 FROM attachments a JOIN entries e ON e.id = a.holder"
        f" JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE a.kind = 'entry' AND a.sha256 >= ? AND a.sha256 < ? AND {seen.sql}{shown} ORDER BY e.id LIMIT 2",
        (*_range(name), *seen.values),
    )
    return _only(name, rows)


@transaction
def find_in(turn: Turn, name: str) -> Statements[Attachment]:
    """A file by its id, for the turn that holds the conversation: only what is shown in it."""
    first = turn.session_number * SEQS
    rows = yield (
        "SELECT e.body, a.sha256 FROM attachments a JOIN entries e ON e.id = a.holder"
        " WHERE a.kind = 'entry' AND a.holder >= ? AND a.holder < ? AND a.sha256 >= ? AND a.sha256 < ?"
        "  AND e.hidden_by IS NULL ORDER BY e.id LIMIT 2",
        (first, first + SEQS, *_range(name)),
    )
    return _only(name, rows)


def _range(name: str) -> tuple[str, str]:
    name = name.strip().lower()
    if len(name) < _SHORTEST:
        raise NotFound("file", name)
    return name, name + "\x7f"


def _only(name: str, rows: Sequence[Row]) -> Attachment:
    """The same file may be in several places; two different ones of that name are none."""
    kept = {row[1] for row in rows}
    if len(kept) != 1:
        raise NotFound("file", name)
    entry = entries_of([rows[0][0]])[0]
    return next(file for file in entry.files if file.sha256 in kept)


@transaction
def let_go() -> Statements[None]:
    """What was sent needs its files no longer. Whatever is taken away lets them go itself."""
    # Asked one by one: a planner that joins would read all that was ever sent.
    yield (
        "DELETE FROM attachments WHERE kind = 'out'"
        " AND coalesce((SELECT o.state FROM outbox o WHERE o.id = holder), '') NOT IN ('due', 'claimed', 'unclear')",
        (),
    )


@transaction
def held(after: str, limit: int) -> Statements[list[str]]:
    """Under what the files are kept that somebody has, in order, a page at a time."""
    rows = yield (
        "SELECT DISTINCT sha256 FROM attachments WHERE sha256 > ? ORDER BY sha256 LIMIT ?",
        (after, limit),
    )
    return [row[0] for row in rows]
