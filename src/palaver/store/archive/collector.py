"""Read complete sessions for an archive, with database numbers replaced by numbers within the session."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.errors import NotFound, Unreadable
from palaver.model.session import Principal
from palaver.model.transcript import Entry
from palaver.model.turn import TurnState
from palaver.store.archive.format import (
    ArchivedFeedback,
    ArchivedOperation,
    ArchivedRoute,
    ArchivedSession,
    ArchivedTitle,
    ArchivedTurn,
    SessionRecord,
)
from palaver.store.conversations.feedback import list_feedback
from palaver.store.conversations.visibility import visible_to
from palaver.store.queue.turns import TITLE_USAGE
from palaver.store.records import (
    UNREADABLE,
    USAGE_COLUMNS,
    details_of,
    entries_of,
    entry_span,
    from_json,
    instant,
    instant_or_none,
    placeholders,
    readable,
)
from palaver.store.status.session_list import NO_FILTER, ListFilter, list_session_ids

_RELATED = ("participants", "routes", "turns", "operations")
"""Fields of an archived session that are rows of other tables. All others are columns of `sessions`."""
FIELDS = tuple(name for name in ArchivedSession.__struct_fields__ if name not in _RELATED)
COLUMNS = ", ".join("turns" if name == "turn_count" else name for name in FIELDS)
TURN_USAGE = ("identity", "model", *USAGE_COLUMNS, "prompt_tokens")
TIMES = frozenset({"started", "ended", "last_human", "last_active"})
JSON_FIELDS = frozenset({"origin", "override"})
_NOT_ENDED = "the session was archived before this turn ended"
_ENDED_STATES = frozenset({TurnState.DONE.value, TurnState.FAILED.value})


@transaction
def collect(session: str, principal: Principal) -> Statements[SessionRecord]:
    """Return everything of one session, including hidden entries."""
    seen = visible_to(principal)
    rows = yield f"SELECT s.no, {COLUMNS} FROM sessions s WHERE s.id = ? AND {seen.sql}", (session, *seen.values)
    if not rows:
        raise NotFound("session", session)
    number, *columns = rows[0]
    operations = yield (
        "SELECT no, key, kind, at, actor, details, undone_at, from_session, from_key, to_key FROM operations" + _OF,
        (number,),
    )
    stored = yield (
        "SELECT id, body, turn_no, hidden_by FROM entries WHERE id >= ? AND id < ? ORDER BY id",
        entry_span(number),
    )
    entries = entries_of(stored)
    turns = _ordinals(row[2] for row in stored)
    hiding = {row[0]: ordinal for ordinal, row in enumerate(operations, 1)}
    archived = _session(session, columns)
    archived.turns = yield from _turns(number, turns, entries, stored, has_usage=principal.sees_all)
    archived.operations = yield from _operations(operations, principal)
    archived.participants = yield from _participants(number)
    archived.routes = yield from _routes(number)
    renumbered = (_renumbered(entry, row, turns, hiding) for entry, row in zip(entries, stored, strict=True))
    return SessionRecord(session=archived, entries=list(renumbered))


# Where it was attached or handed off is not part of the conversation.
_OF = " WHERE session_no = ? AND kind NOT IN ('attach', 'handoff') ORDER BY no"


def _session(id_: str, columns: Sequence[Any]) -> ArchivedSession:
    values: dict[str, Any] = dict(zip(FIELDS, columns, strict=True))
    try:
        values |= {name: instant_or_none(values[name]) for name in TIMES}
        values |= {name: values[name] and from_json(values[name]) for name in JSON_FIELDS}
    except UNREADABLE as error:
        raise Unreadable("session", id_) from error
    return ArchivedSession(**values)


def _ordinals(numbers: Iterable[int | None]) -> dict[int, int]:
    """Number distinct values from 1 in order of appearance."""
    found: dict[int, int] = {}
    for number in numbers:
        if number is not None:
            found.setdefault(number, len(found) + 1)
    return found


def _renumbered(entry: Entry, row: Row, turns: Mapping[int, int], hiding: Mapping[int, int]) -> Entry:
    _, _, turn, hidden_by = row
    return entry._replace(
        turn=None if turn is None else str(turns[turn]),
        hidden_by=None if hidden_by is None else str(hiding.get(hidden_by, 0)),
    )


def _turns(
    number: int, ordinals: Mapping[int, int], entries: Sequence[Entry], stored: Sequence[Row], *, has_usage: bool
) -> Statements[list[ArchivedTurn]]:
    """Include turns of the parent that a branch copied; a turn without a row is derived from its entries.

    Turns without entries, such as those of summaries, come last.
    """
    rows = yield (
        f"SELECT no, state, started, ended, attempt, error, session_no, {', '.join(TURN_USAGE)} FROM turns"
        " WHERE session_no = ? OR no IN (SELECT turn_no FROM entries WHERE id >= ? AND id < ?) ORDER BY no",
        (number, *entry_span(number)),
    )
    known = {row[0]: row for row in rows}
    titles = (yield from _titles(number)) if has_usage else {}
    feedback = yield from _feedback([turn for turn, row in known.items() if row[6] == number], named=has_usage)
    first: dict[int, Entry] = {}
    for entry, row in zip(entries, stored, strict=True):
        first.setdefault(row[2], entry)
    others = (turn for turn in known if turn not in ordinals)
    return [
        _turn(known[turn], number if has_usage else None, titles.get(turn), feedback.get(turn, []))
        if turn in known
        else _turn_from_entry(first[turn])
        for turn in (*ordinals, *others)
    ]


def _titles(session: int) -> Statements[dict[int, ArchivedTitle]]:
    rows = yield (
        f"SELECT turn_no, at, {', '.join(TITLE_USAGE)} FROM title_usage"
        " WHERE turn_no IN (SELECT no FROM turns WHERE session_no = ?)",
        (session,),
    )
    return {
        turn: ArchivedTitle(at=instant(at), **dict(zip(TITLE_USAGE, used, strict=True))) for turn, at, *used in rows
    }


def _feedback(turns: Sequence[int], *, named: bool) -> Statements[dict[int, list[ArchivedFeedback]]]:
    found: dict[int, list[ArchivedFeedback]] = {}
    for each in (yield from list_feedback(turns)):
        archived = ArchivedFeedback(at=each.at, rating=int(each.rating), identity=each.identity if named else None)
        found.setdefault(each.turn, []).append(archived)
    return found


def _turn_from_entry(entry: Entry) -> ArchivedTurn:
    moment = entry.at.astimezone(UTC)
    return ArchivedTurn(state=TurnState.DONE.value, started=moment, ended=moment)


def _turn(row: Row, session: int | None, title: ArchivedTitle | None, feedback: list[ArchivedFeedback]) -> ArchivedTurn:
    """Archive an open turn as failed, so that an import does not run it again. Only its own session has its usage."""
    _, state, started, ended, attempt, error, session_no, *used = row
    usage = dict(zip(TURN_USAGE, used, strict=True)) if session_no == session else {}
    if state not in _ENDED_STATES:
        state, error = TurnState.FAILED.value, _NOT_ENDED
    return ArchivedTurn(
        state=state,
        started=instant(started),
        ended=instant(started if ended is None else ended),
        attempt=attempt,
        error=error,
        title=title,
        feedback=feedback,
        **usage,
    )


def _operations(rows: Sequence[Row], principal: Principal) -> Statements[list[ArchivedOperation]]:
    """Leave out which session was left if the principal may not see that."""
    seen, left = visible_to(principal), [row[7] for row in rows]
    where = f"s.id IN ({placeholders(left)}) AND NOT ({seen.sql})"
    unseen = yield f"SELECT s.id FROM sessions s WHERE {where}", (*left, *seen.values)
    hidden = {row[0] for row in unseen}
    return [
        ArchivedOperation(
            key=key,
            kind=kind,
            at=instant(at),
            by=by,
            details=_details(details_of(details), course) | ({"before": None} if course[0] in hidden else {}),
            undone_at=instant_or_none(undone_at),
        )
        for _, key, kind, at, by, details, undone_at, *course in rows
    ]


def _details(details: dict[str, Any], course: Sequence[str | None]) -> dict[str, Any]:
    """Add what the columns hold."""
    moved = {name: text for name, text in zip(("before", "key", "to"), course, strict=True) if text is not None}
    return {name: value for name, value in details.items() if name not in {"handoff", "tell"}} | moved


def _participants(number: int) -> Statements[list[str]]:
    rows = yield "SELECT identity FROM participants WHERE session_no = ? AND left_at IS NULL", (number,)
    return sorted(row[0] for row in rows)


def _routes(number: int) -> Statements[list[ArchivedRoute]]:
    rows = yield "SELECT key, address, settings FROM routes WHERE session_no = ?", (number,)
    return list(readable(_route, sorted(tuple(row) for row in rows)))


def _route(row: Row) -> ArchivedRoute:
    key, address, settings = row
    return ArchivedRoute(key=key, address=from_json(address), settings=details_of(settings))


async def collect_some(
    database: Database, sessions: Iterable[str], principal: Principal
) -> AsyncIterator[SessionRecord]:
    """Yield these sessions, each read when it is needed."""
    for session in sessions:
        yield await database.read(collect(session, principal))


async def collect_all(
    database: Database,
    principal: Principal,
    wanted: ListFilter = NO_FILTER,
    *,
    report: Callable[[Unreadable], None] = lambda _: None,
) -> AsyncIterator[SessionRecord]:
    """Yield all matching sessions in order of their ids, without those deleted meanwhile.

    `report` learns of a session that cannot be read.
    """
    after = ""
    while ids := await database.read(list_session_ids(principal, wanted=wanted, after=after)):
        after = ids[-1]
        for session in ids:
            try:
                record = await database.read(collect(session, principal))
            except NotFound:
                continue
            except Unreadable as error:
                report(error)
                continue
            yield record
