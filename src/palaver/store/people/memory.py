"""Memory: the notes of a person or a chat, written by agents, and listed, edited and deleted by people."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, transaction
from palaver.model.errors import BadArgument, NotFound
from palaver.model.key import SessionKey
from palaver.model.memory import (
    REPLACED_LIMIT,
    MemoryLimits,
    MemoryScope,
    Note,
    check_room,
    clean_note,
    find_scope,
)
from palaver.model.session import Principal, Session
from palaver.model.turn import Received, Turn
from palaver.store.conversations import attach
from palaver.store.conversations.visibility import Filter
from palaver.store.queue.turns import append_to_turn
from palaver.store.records import SEQS, instant, instant_or_none, micros, placeholders, readable

_LARGEST_NUMBER = 2**63 - 1
_UNDONE = (
    f"EXISTS (SELECT 1 FROM entries e JOIN operations o ON o.no = e.hidden_by AND o.kind <> 'compaction'"
    f" WHERE e.id = n.{{0}}session_no * {SEQS} + n.{{0}}seq)"
)
_SHOWN = (
    f"(NOT {_UNDONE.format('')} AND (n.forgotten_seq IS NULL AND n.replaced_by IS NULL"
    f" OR {_UNDONE.format('forgotten_')}))"
)
"""A note goes and returns with the entry that it came from, and returns with the one in which it was forgotten."""
_REPLACED = f"(n.replaced_by IS NOT NULL AND NOT {_UNDONE.format('')} AND NOT {_UNDONE.format('forgotten_')})"
"""The agent sees it no longer. People see it as long as they see the note that replaced it."""
_COLUMNS = (
    "n.no, n.profile, n.identity, n.place, n.text, n.created, n.edited, n.session_no, s.id, n.seq,"
    f" CASE WHEN {_REPLACED} THEN n.replaced_by END"
)
_LISTED = f"({_SHOWN} OR {_REPLACED})"
_HIDDEN = f"NOT {_SHOWN} AND NOT {_REPLACED}"


def _note_of(row: Row) -> Note:
    number, profile, identity, place, text, created, edited, session_number, session, seq, replaced_by = row
    return Note(
        number=number,
        profile=profile,
        identity=identity,
        place=SessionKey.parse(place) if place else None,
        text=text,
        created=instant(created),
        edited=instant_or_none(edited),
        session_number=session_number,
        session=session,
        seq=seq,
        replaced_by=replaced_by,
    )


def _replaced_of(row: Row) -> tuple[int, Note]:
    return row[-1], _note_of(row[:-1])


def _select(where: Filter, state: str = _SHOWN) -> Statements[list[Note]]:
    rows = yield (
        f"SELECT {_COLUMNS} FROM memory_notes n LEFT JOIN sessions s ON s.no = n.session_no"
        f" WHERE {where.sql} AND {state} ORDER BY n.no",
        where.values,
    )
    return list(readable(_note_of, rows))


def _add_replaced(notes: Sequence[Note], where: Filter) -> Statements[list[Note]]:
    """Return the notes with those that they replaced, as far as they meet the condition, too."""
    numbers = [note.number for note in notes]
    if not numbers:
        return []
    rows = yield (
        "WITH RECURSIVE older (no, top) AS (SELECT n.no, n.replaced_by FROM memory_notes n"
        f" WHERE n.replaced_by IN ({placeholders(numbers)}) AND {where.sql} AND {_REPLACED}"
        " UNION SELECT n.no, r.top FROM older r JOIN memory_notes n ON n.replaced_by = r.no"
        f" WHERE {where.sql} AND {_REPLACED})"
        f" SELECT {_COLUMNS}, r.top FROM older r JOIN memory_notes n ON n.no = r.no"
        " LEFT JOIN sessions s ON s.no = n.session_no ORDER BY n.no DESC",
        (*numbers, *where.values, *where.values),
    )
    older = list(readable(_replaced_of, rows))
    return [replace(note, replaced=tuple(each for top, each in older if top == note.number)) for note in notes]


def _within(scope: MemoryScope) -> Filter:
    """Return the condition on notes of a scope: those of a person under any of their accounts."""
    if scope.place:
        return Filter("n.place = ?", (scope.place.text,))
    return Filter(
        "n.place IS NULL AND n.profile = ? AND n.identity IN (SELECT o.identity FROM identities m"
        " JOIN identities o ON o.person = m.person WHERE m.identity = ?)",
        (scope.profile, scope.identity),
    )


def _visible_to(principal: Principal) -> Filter:
    """Return the one rule of who can read notes outside the chat: people those about them, the operator all."""
    if principal.sees_all:
        return Filter("1 = 1")
    theirs = Filter.among("n.identity", principal.identities)
    return Filter.all([Filter("n.place IS NULL"), theirs, *Filter.given({"n.profile = ?": principal.profile})])


@transaction
def scope_of(key: SessionKey, session: Session, last: Received, *, shared: bool) -> Statements[MemoryScope | None]:
    """Return whose notes the agent has in a turn that answers this message."""
    places = yield from attach.attached_places(key)
    is_shared = shared or key.shared or (last.place or key).shared or (yield from attach.is_shared(session))
    return find_scope(key, last.inbound, places, shared=is_shared)


@transaction
def list_notes(scope: MemoryScope) -> Statements[list[Note]]:
    """List what the agent sees."""
    return (yield from _select(_within(scope)))


@transaction
def list_with_replaced(scope: MemoryScope) -> Statements[list[Note]]:
    """List what people see: also what the notes replaced."""
    return (yield from _add_replaced((yield from list_notes(scope)), _within(scope)))


@transaction
def list_visible(principal: Principal, *, after: int = 0, limit: int = 100) -> Statements[list[Note]]:
    """List the notes that a principal sees, oldest first, starting after the number `after`."""
    where = Filter.all([_visible_to(principal), Filter("n.no > ?", (after,))])
    rows = yield (
        f"SELECT n.no FROM memory_notes n WHERE {where.sql} AND {_SHOWN} ORDER BY n.no LIMIT ?",
        (*where.values, limit),
    )
    numbers = [row[0] for row in rows]
    if not numbers:
        return []
    notes = yield from _select(Filter(f"n.no IN ({placeholders(numbers)})", tuple(numbers)))
    return (yield from _add_replaced(notes, _visible_to(principal)))


@transaction
def remember(
    turn: Turn, scope: MemoryScope, text: str, limits: MemoryLimits, now: datetime, *, replaces: int | None = None
) -> Statements[Note]:
    """Store a note under the turn's fence. The same text is kept once.

    If `replaces` names a note, that one stays for its person, but not for the agent.

    Raises BadArgument if it is too long or the memory is full, and NotFound if there is no note to replace.
    """
    seq = yield from _last_entry(turn)
    text, notes = clean_note(text), (yield from list_notes(scope))
    others = [note for note in notes if note.number != replaces]
    if replaces is not None and len(others) == len(notes):
        raise NotFound("note", str(replaces))
    same = [note for note in others if note.text == text]
    if same:
        number = same[0].number
    else:
        check_room(notes, text, limits, replaces=replaces)
        rows = yield (
            "INSERT INTO memory_notes (profile, identity, place, text, created, session_no, seq)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING no",
            (
                *(scope.profile, scope.identity, scope.place and scope.place.text),
                *(text, micros(now), turn.session_number, seq),
            ),
        )
        number = rows[0][0]
    if replaces is not None:
        yield from _hide(replaces, turn, seq, replaced_by=number)
    yield from _drop_oldest_hidden(scope, limits)
    return (yield from _get(number, _within(scope)))


@transaction
def forget(turn: Turn, scope: MemoryScope, number: int, limits: MemoryLimits) -> Statements[Note]:
    """Hide a note because the agent forgot it: an undo of the turn brings it back."""
    seq = yield from _last_entry(turn)
    note = yield from _get(number, _within(scope))
    yield from _hide(number, turn, seq)
    yield from _drop_oldest_hidden(scope, limits)
    return note


def _last_entry(turn: Turn) -> Statements[int]:
    """Return the last entry of a turn that its worker still holds."""
    # Several conversations of a person can write at once, and together they must not exceed the limits.
    yield Lock("memory")
    yield from append_to_turn(turn, [])
    rows = yield "SELECT max(id) FROM entries WHERE turn_no = ?", (turn.number,)
    return rows[0][0] % SEQS


def _hide(number: int, turn: Turn, seq: int, *, replaced_by: int | None = None) -> Statements[None]:
    yield (
        "UPDATE memory_notes SET forgotten_session_no = ?, forgotten_seq = ?, replaced_by = ? WHERE no = ?",
        (turn.session_number, seq, replaced_by, number),
    )


def _drop_oldest_hidden(scope: MemoryScope, limits: MemoryLimits) -> Statements[None]:
    """Keep as many hidden notes as shown ones: enough for an undo, and never more. Those that were replaced stay."""
    where = _within(scope)
    for state, kept in ((_HIDDEN, limits.notes), (_REPLACED, REPLACED_LIMIT)):
        dropped = yield (
            f"DELETE FROM memory_notes WHERE no IN (SELECT n.no FROM memory_notes n WHERE {where.sql} AND {state}"
            " ORDER BY n.no DESC LIMIT 10000 OFFSET ?) RETURNING 1",
            (*where.values, kept),
        )
        if dropped:
            yield from drop_orphans()


@transaction
def drop_orphans() -> Statements[None]:
    """Delete what notes had replaced that were deleted: it goes with them, unless an undo brought it back."""
    lost = "n.replaced_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM memory_notes r WHERE r.no = n.replaced_by)"
    back = _UNDONE.format("forgotten_")
    yield (
        "UPDATE memory_notes SET replaced_by = NULL WHERE no IN"
        f" (SELECT n.no FROM memory_notes n WHERE {lost} AND {back})",
        (),
    )
    yield (
        "DELETE FROM memory_notes WHERE no IN ("
        f"WITH RECURSIVE older (no) AS (SELECT n.no FROM memory_notes n WHERE {lost}"
        f" UNION SELECT n.no FROM older r JOIN memory_notes n ON n.replaced_by = r.no WHERE NOT {back})"
        " SELECT no FROM older)",
        (),
    )


def _get(number: int, where: Filter, state: str = _SHOWN) -> Statements[Note]:
    asked = Filter("n.no = ?", (min(max(number, 0), _LARGEST_NUMBER),))
    found = yield from _select(Filter.all([where, asked]), state)
    if not found:
        raise NotFound("note", str(number))
    return found[0]


# By people


@transaction
def get(number: int, reader: MemoryScope | Principal) -> Statements[Note]:
    """Return a note that a chat or a principal can see. Raises NotFound."""
    return (yield from _get(number, _readable(reader)))


@transaction
def edit(
    number: int, text: str, reader: MemoryScope | Principal, limits: MemoryLimits, now: datetime
) -> Statements[Note]:
    """Change a note. It is then the person's own: no undo hides it."""
    yield Lock("memory")
    note, text = (yield from _get(number, _readable(reader), _LISTED)), clean_note(text)
    if note.replaced_by is not None:
        raise BadArgument(
            f"Note {number} was replaced by another, so the agent no longer sees it.",
            found=str(number),
            allowed="",
            example="",
            fix=f"Edit note {note.replaced_by}.",
        )
    scope = MemoryScope(profile=note.profile, identity=note.identity, place=note.place)
    check_room((yield from list_notes(scope)), text, limits, replaces=number)
    yield (
        "UPDATE memory_notes SET text = ?, edited = ?, session_no = NULL, seq = NULL, forgotten_session_no = NULL,"
        " forgotten_seq = NULL, replaced_by = NULL WHERE no = ?",
        (text, micros(now), number),
    )
    return (yield from get(number, reader))


@transaction
def delete(number: int, reader: MemoryScope | Principal) -> Statements[Note]:
    """Delete a note and what it replaced for good, or what was replaced alone."""
    yield Lock("memory")
    where = _readable(reader)
    note = yield from _get(number, where, _LISTED)
    (note,) = yield from _add_replaced([note], where)
    yield "DELETE FROM memory_notes WHERE no = ?", (number,)
    yield from drop_orphans()
    return note


@transaction
def delete_all(scope: MemoryScope) -> Statements[int]:
    """Delete every note of a person or a chat for good, also those that an undo could bring back."""
    yield Lock("memory")
    count, where = len((yield from list_notes(scope))), _within(scope)
    yield f"DELETE FROM memory_notes WHERE no IN (SELECT n.no FROM memory_notes n WHERE {where.sql})", where.values
    yield from drop_orphans()
    return count


@transaction
def return_separated(people: Sequence[str]) -> Statements[None]:
    """Return notes that were replaced by those of accounts which are now other people."""
    theirs = Filter.among("i.person", people)
    yield (
        "UPDATE memory_notes SET replaced_by = NULL, forgotten_session_no = NULL, forgotten_seq = NULL WHERE no IN"
        " (SELECT n.no FROM identities i JOIN memory_notes n ON n.identity = i.identity AND n.place IS NULL"
        " JOIN memory_notes r ON r.no = n.replaced_by JOIN identities o ON o.identity = r.identity"
        f" WHERE {theirs.sql} AND o.person <> i.person)",
        theirs.values,
    )


def _readable(reader: MemoryScope | Principal) -> Filter:
    return _visible_to(reader) if isinstance(reader, Principal) else _within(reader)


# With sessions


@transaction
def release_session(number: int) -> Statements[None]:
    """Keep the notes of a session that is deleted, but none that were undone or forgotten in it."""
    dropped = yield (
        "DELETE FROM memory_notes WHERE no IN (SELECT n.no FROM memory_notes n"
        f" WHERE (n.session_no = ? OR n.forgotten_session_no = ?) AND {_HIDDEN}) RETURNING 1",
        (number, number),
    )
    # An undo brought these back, and there will be no redo.
    yield (
        "UPDATE memory_notes SET replaced_by = NULL WHERE no IN"
        f" (SELECT n.no FROM memory_notes n WHERE n.forgotten_session_no = ? AND {_SHOWN})",
        (number,),
    )
    yield "UPDATE memory_notes SET session_no = NULL, seq = NULL WHERE session_no = ?", (number,)
    yield (
        "UPDATE memory_notes SET forgotten_session_no = NULL, forgotten_seq = NULL WHERE forgotten_session_no = ?",
        (number,),
    )
    if dropped:
        yield from drop_orphans()


def sessions_of(notes: Sequence[Note]) -> list[int]:
    """Return the numbers of the sessions that notes, and those that they replaced, came from."""
    each_one = [each for note in notes for each in (note, *note.replaced)]
    return sorted({note.session_number for note in each_one if note.session_number is not None})
