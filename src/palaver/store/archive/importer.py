"""Import sessions from an archive: each in its own transaction, exactly as archived or not at all."""

import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from palaver.db.transaction import Database, Lock, Statements, Value, storable, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import PalaverError
from palaver.model.feedback import Rating
from palaver.model.key import ARCHIVE, SessionKey
from palaver.model.session import EndReason, Principal
from palaver.model.text import counted
from palaver.model.transcript import Entry, is_answer
from palaver.model.turn import TurnState, Usage
from palaver.model.value import value
from palaver.store.archive.claims import IMPORTER, Accepted, check_claims
from palaver.store.archive.collector import COLUMNS, FIELDS, JSON_FIELDS, TIMES, TURN_USAGE, collect
from palaver.store.archive.format import (
    ArchivedOperation,
    ArchivedSession,
    ArchivedTitle,
    ArchivedTurn,
    FileContent,
    SessionRecord,
    session_lines,
)
from palaver.store.archive.reader import Problem, read_archive
from palaver.store.conversations.attachment_refs import add_refs
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.conversations.feedback import store_rating
from palaver.store.conversations.sessions import id_text
from palaver.store.conversations.titles import rename
from palaver.store.conversations.transcript import advance_shown_from, write_journal, write_journal_of
from palaver.store.people.people import person_of
from palaver.store.people.usage import add as add_usage
from palaver.store.queue.turns import insert_title_usage
from palaver.store.records import (
    SEQS,
    USAGE_COLUMNS,
    entries_of,
    file_digests,
    json_text,
    micros,
    placeholders,
    prepare,
)

_OTHER_CONTENT = "a session with this id but different content exists here; use --as-copy to import it as a copy"


class ImportOutcome(StrEnum):
    IMPORTED = "imported"
    UNCHANGED = "unchanged"
    COPIED = "copied"
    REFUSED = "refused"


@value
class Imported:
    """The result for one session of an archive."""

    outcome: ImportOutcome
    line: int
    session: str | None = None
    """Its id in the archive."""
    id: str | None = None
    """Its id here."""
    entries: int = 0
    notes: tuple[str, ...] = ()
    """What differs from the archive, or why it was refused."""


async def import_sessions(
    database: Database, archive: Iterable[bytes], *, as_copy: bool = False, blobs: BlobStore | None = None
) -> AsyncIterator[Imported]:
    """Import as operator. A session whose id has other content here is refused, or gets a new id with `as_copy`.

    Contents of files go to `blobs`.
    """
    renamed: dict[str, str] = {}
    carried: set[str] = set()
    for found in read_archive(archive):
        if isinstance(found, Problem):
            yield _refused(found.session, found.line, found.reason)
            continue
        if isinstance(found, FileContent):
            carried.add(found.sha256)
            if blobs:
                await blobs.keep(_chunks(found.content), len(found.content))
            continue
        try:
            imported = await database.transact(_import(found, renamed, carried, as_copy=as_copy))
        except PalaverError as error:
            imported = _refused(found.session.id, found.line, str(error))
        if imported.outcome is ImportOutcome.COPIED and imported.session and imported.id:
            renamed[imported.session] = imported.id
        yield imported


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _refused(session: str | None, line: int, reason: str) -> Imported:
    sentence = f"line {line}: {f'session {session} was not imported' if session else 'malformed'}: {reason}"
    return Imported(outcome=ImportOutcome.REFUSED, line=line, session=session, notes=(sentence,))


def _copy_id(record: SessionRecord) -> str:
    """Derive the id from the content, so that a copy is made once; it sorts beside the original."""
    digest = hashlib.sha256(b"".join(session_lines(record))).digest()
    return f"{record.session.id[:10]}{id_text(int.from_bytes(digest[:10]), 16)}"


@transaction
def _import(
    record: SessionRecord, renamed: Mapping[str, str], carried: Collection[str], *, as_copy: bool
) -> Statements[Imported]:
    """`renamed` has the new ids of copied sessions, `carried` the hashes of the files that the archive contains."""
    archived, line = record.session.id, record.line
    id_, outcome = archived, ImportOutcome.IMPORTED
    same = yield from _is_same_as_stored(id_, record)
    if same is False and as_copy:
        id_, outcome = _copy_id(record), ImportOutcome.COPIED
        same = yield from _is_same_as_stored(id_, record)
    if same is False:
        return _refused(archived, line, _OTHER_CONTENT)
    if same:
        return Imported(outcome=ImportOutcome.UNCHANGED, line=line, session=archived, id=id_)
    record, missing = _without_foreign_files(record, carried)
    accepted, notes = yield from _write(id_, record, renamed)
    if missing:
        notes.append(f"{counted(missing, 'file')} that the archive names without the content cannot be opened")
    if outcome is ImportOutcome.IMPORTED:
        yield from _add_usage(record, accepted)
    count = len(record.entries)
    return Imported(outcome=outcome, line=line, session=archived, id=id_, entries=count, notes=tuple(notes))


def _is_same_as_stored(id_: str, record: SessionRecord) -> Statements[bool | None]:
    """Return whether the stored session with this id is the same; None if there is none."""
    yield Lock(f"session {id_}")
    if not (yield "SELECT 1 FROM sessions WHERE id = ?", (id_,)):
        return None
    here = yield from collect(id_, Principal.operator())
    # Compare with the entries as they would read from the database.
    written = entries_of([(entry.seq, prepare(entry).placed(entry.seq)) for entry in record.entries])
    mine = [new._replace(hidden_by=old.hidden_by) for new, old in zip(written, record.entries, strict=True)]
    is_apart = SessionKey.parse(here.session.key).kind == ARCHIVE  # Then its owner was not believed.
    same_owner = is_apart or here.session.owner == record.session.owner
    same = same_owner and here.session.started == record.session.started
    pairs = zip(mine, here.entries, strict=False)
    return (
        same
        and len(mine) == len(here.entries)
        and all(_comparable(*pair) == _comparable(pair[1], pair[1]) for pair in pairs)
    )


def _comparable(entry: Entry, stored: Entry) -> Entry:
    """Return the entry without what an import changes: the operation that hides it, and files that did not come."""
    files = tuple(
        file._replace(sha256=None, problem=_NOT_THERE) if there.problem == _NOT_THERE else file
        for file, there in zip(entry.files, stored.files, strict=False)
    )
    same_files = files if len(stored.files) == len(entry.files) else entry.files
    return entry._replace(hidden_by=entry.hidden_by and "hidden", files=same_files)


_NOT_THERE = "the archive does not contain it"


def _without_foreign_files(record: SessionRecord, carried: Collection[str]) -> tuple[SessionRecord, int]:
    """Drop the hashes of files whose content the archive does not have: else it opens the files of others here."""
    missing = {
        file.sha256 for entry in record.entries for file in entry.files if file.sha256 and file.sha256 not in carried
    }
    if not missing:
        return record, 0

    def dropped(file: Attachment) -> Attachment:
        return file._replace(sha256=None, problem=_NOT_THERE) if file.sha256 in missing else file

    entries = [entry._replace(files=tuple(map(dropped, entry.files))) for entry in record.entries]
    return replace(record, entries=entries), len(missing)


_TAKEN = "SELECT 1 FROM sessions WHERE key = ? AND ended IS NULL UNION ALL SELECT 1 FROM routes WHERE key = ?"


def _write(id_: str, record: SessionRecord, renamed: Mapping[str, str]) -> Statements[tuple[Accepted, list[str]]]:
    session = record.session
    yield Lock(session.key)
    accepted = yield from check_claims(record)
    notes, key = [*accepted.notes], accepted.key.text
    if accepted.ended is None and (yield _TAKEN, (key, key)):
        accepted = replace(accepted, ended=session.last_active, end_reason=EndReason.SWITCHED.value)
        notes.append("it was imported as ended, since its conversation has another open session here")
    number = yield from _insert(id_, session, accepted, renamed)
    if session.title is not None:
        named = yield from rename(id_, session.title, Principal.operator())
        notes += [] if named.title == session.title else [f"its title is taken, so it was renamed to {named.title}"]
    yield from _link(number, session, accepted)
    turns = yield from _insert_turns(number, session, accepted)
    operations = yield from _insert_operations(number, accepted, renamed)
    yield from _insert_entries(number, record, turns, operations)
    return accepted, notes


def _insert(id_: str, session: ArchivedSession, accepted: Accepted, renamed: Mapping[str, str]) -> Statements[int]:
    values = {name: getattr(session, name) for name in FIELDS}
    values |= {"id": id_, "title": None, "ended": accepted.ended, "end_reason": accepted.end_reason}
    values |= {"key": accepted.key.text, "owner": accepted.owner}
    # Both follow from others, so an archive cannot claim anything else.
    values |= {"profile": accepted.key.profile, "platform": session.origin["platform"]}
    values["parent"] = session.parent and renamed.get(session.parent, session.parent)
    values |= {name: _micros(values[name]) for name in TIMES}
    values |= {name: json_text(values[name]) if values[name] else None for name in JSON_FIELDS}
    rows = yield (
        f"INSERT INTO sessions ({COLUMNS}) VALUES ({placeholders(values)}) RETURNING no",
        tuple(values.values()),
    )
    return rows[0][0]


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _link(number: int, session: ArchivedSession, accepted: Accepted) -> Statements[None]:
    """Insert participants and routes; existing routes stay."""
    people: list[tuple[Value, ...]] = [(identity, number) for identity in accepted.participants]
    if people:
        yield "INSERT INTO participants (identity, session_no) VALUES (?, ?)", people
    for identity, _ in people:
        yield from person_of(str(identity), session.started)
    routes: dict[str, tuple[Value, ...]] = {
        route.key: (route.key, number, json_text(route.address), json_text(route.settings)) for route in accepted.routes
    }
    if accepted.ended is None:
        routes.setdefault(session.key, (session.key, number, json_text(session.origin), "{}"))
    if routes:
        yield (
            "INSERT INTO routes (key, session_no, address, settings) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
            [routes[key] for key in sorted(routes)],
        )


def _insert_turns(number: int, session: ArchivedSession, accepted: Accepted) -> Statements[list[int]]:
    def values(turn: ArchivedTurn) -> tuple[Value, ...]:
        started = micros(turn.started)
        state = (turn.state, turn.attempt, IMPORTER, started, started, micros(turn.ended), turn.error)
        return (accepted.key.text, number, *state, *(getattr(turn, name) for name in TURN_USAGE))

    columns = f"key, session_no, state, attempt, worker, lease_until, started, ended, error, {', '.join(TURN_USAGE)}"
    numbers = yield from _insert_numbered("turns", columns, number, [values(turn) for turn in session.turns])
    for turn, number_here in zip(session.turns, numbers, strict=True):
        if turn.title is not None:
            yield from insert_title_usage(number_here, _usage(turn.title), turn.title.at)
        given = {each.identity: each for each in turn.feedback if each.identity in accepted.participants}
        for identity, each in given.items():
            yield from store_rating(number_here, identity, Rating(each.rating), each.at)
    return numbers


def _add_usage(record: SessionRecord, accepted: Accepted) -> Statements[None]:
    """Count what was used for the people who used it. A copy was not used again, and what was deleted still counts."""
    if (yield "SELECT 1 FROM deleted_sessions WHERE id = ?", (record.session.id,)):
        return
    answered = {entry.turn for entry in record.entries if is_answer(entry)}
    for ordinal, turn in enumerate(record.session.turns, 1):
        if turn.identity in accepted.participants:
            counts = turn.state == TurnState.DONE.value and str(ordinal) in answered
            yield from add_usage(turn.identity, _usage(turn), turn.ended, turns=int(counts))
            if turn.title is not None:
                yield from add_usage(turn.identity, _usage(turn.title), turn.title.at)


def _usage(used: ArchivedTurn | ArchivedTitle) -> Usage:
    return Usage(model=used.model, **{name: getattr(used, name) for name in USAGE_COLUMNS})


def _insert_operations(number: int, accepted: Accepted, renamed: Mapping[str, str]) -> Statements[list[int | None]]:
    """Return the number of each operation of the archive, None for those left out."""
    is_apart = accepted.key.kind == ARCHIVE

    def values(operation: ArchivedOperation) -> tuple[Value, ...]:
        details = dict(operation.details)
        before, *keys = (_pop_storable(details, name) for name in ("before", "key", "to"))
        at, undone = micros(operation.at), _micros(operation.undone_at)
        course = before and renamed.get(before, before), *keys
        key = accepted.key.text if is_apart else operation.key
        return (key, number, operation.kind, at, operation.by, json_text(details), undone, *course)

    columns = "key, session_no, kind, at, actor, details, undone_at, from_session, from_key, to_key"
    rows = [values(each) for each in accepted.operations if each]
    numbers = iter((yield from _insert_numbered("operations", columns, number, rows)))
    return [next(numbers) if each else None for each in accepted.operations]


def _pop_storable(details: dict[str, Any], name: str) -> str | None:
    """Take a text that a column can hold. Anything else, null too, stays in the details and is exported from there."""
    text = details.get(name)
    if not isinstance(text, str) or not text or storable((text,)) != (text,):
        return None
    del details[name]
    return text


def _insert_numbered(table: str, columns: str, session: int, rows: list[tuple[Value, ...]]) -> Statements[list[int]]:
    """Insert rows and return their numbers, which are given in order."""
    if not rows:
        return []
    highest = yield f"SELECT coalesce(max(no), 0) FROM {table}", ()
    yield f"INSERT INTO {table} ({columns}) VALUES ({placeholders(rows[0])})", rows
    numbers = yield f"SELECT no FROM {table} WHERE no > ? AND session_no = ? ORDER BY no", (highest[0][0], session)
    return [row[0] for row in numbers]


def _insert_entries(
    number: int, record: SessionRecord, turns: Sequence[int], operations: Sequence[int | None]
) -> Statements[None]:
    def values(entry: Entry) -> tuple[Value, ...]:
        turn = None if entry.turn is None else turns[int(entry.turn) - 1]
        hiding = None if entry.hidden_by is None else (0, *operations)[int(entry.hidden_by)] or 0
        ready = prepare(entry, turn)
        body = ready.values(number, entry.seq)
        return (number * SEQS + entry.seq, ready.role, turn, hiding, ready.observed, *body)

    rows = [values(entry) for entry in record.entries]
    if not rows:
        return
    columns = "id, role, turn_no, hidden_by, observed, body, checksum"
    yield f"INSERT INTO entries ({columns}) VALUES ({placeholders(rows[0])})", rows
    yield from advance_shown_from(number, record.session.next_seq)
    with_files = (entry for entry in record.entries if entry.files)
    yield from add_refs("entry", {number * SEQS + entry.seq: file_digests(entry.files) for entry in with_files})
    # Entries that a branch copied are indexed with the parent.
    copied = record.session.parent_seq or 0
    own = [entry.seq for entry in record.entries if entry.seq > copied]
    if copied and own and own[0] > copied + 1:
        # The index takes the copies with a row that begins here.
        yield from write_journal("append", number, copied + 1, copied)
    yield from write_journal_of("append", number, own)
