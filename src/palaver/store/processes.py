"""Background processes: started within limits, looked after by one gateway, reported once to their conversation."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from palaver.db.transaction import PROCESSES, Lock, Notify, Row, Statements, transaction
from palaver.model.errors import BadArgument, NotFound
from palaver.model.process import NewProcess, Process, parse_process_name, process_name
from palaver.model.session import Principal
from palaver.model.source import identity_of
from palaver.model.turn import BusyMode, Cause, Inbound, Received, Turn
from palaver.model.value import value
from palaver.store.conversations.visibility import Filter, visible_to
from palaver.store.meta import load_secret, read_meta
from palaver.store.queue.turns import append_to_turn
from palaver.store.records import inbound_body, instant, instant_or_none, micros, placeholders, read_one, readable

_NOTIFY = Notify(PROCESSES)
_STORE_ID = "store id"
_KEPT_PER_SESSION = 50
"""How many finished processes of a session are kept at most."""
PROCESS_COLUMNS = (
    "p.no, p.id, s.id, p.session_no, p.command, p.backend, p.folder, p.host, p.worker, p.started, p.terminal,"
    " p.turn_no, p.pid, p.pid_started, p.exit_code, p.exited, p.ended, p.problem, p.output_bytes, p.stop_asked,"
    " p.exit_notice, p.watch, p.watched_to, p.watch_notices, p.watch_notified, p.check_every, p.check_at"
)
WITH_SESSION = "processes p JOIN sessions s ON s.no = p.session_no"
_SELECT = f"SELECT {PROCESS_COLUMNS} FROM {WITH_SESSION}"


@value
class Keeper:
    """The gateway that looks after processes, and the directory it finds them in."""

    home: str
    """Identifies the directory with the output: who has it can look after its processes."""
    host: str
    worker: str
    alone: bool
    """No other gateway uses this store."""
    lease: timedelta = timedelta(seconds=30)


@value
class ProcessLimits:
    per_session: int = 20
    total: int = 200
    """Of one gateway."""


@value
class Findings:
    """What is known about a running process, or one that has ended."""

    pid: int | None = None
    pid_started: str | None = None
    exited: datetime | None = None
    exit_code: int | None = None
    ended: datetime | None = None
    problem: str | None = None
    """Why nobody knows how it ended."""
    output_bytes: int = 0


def process_of(row: Row) -> Process:
    return Process(
        number=row[0],
        id=row[1],
        session=row[2],
        session_number=row[3],
        command=row[4],
        backend=row[5],
        folder=row[6],
        host=row[7],
        worker=row[8],
        started=instant(row[9]),
        has_terminal=bool(row[10]),
        turn=row[11],
        pid=row[12],
        pid_started=row[13],
        exit_code=row[14],
        exited=instant_or_none(row[15]),
        ended=instant_or_none(row[16]),
        problem=row[17],
        output_bytes=row[18],
        stop_asked=instant_or_none(row[19]),
        reports_exit=row[20] == "due",
        watch=row[21],
        watched_to=row[22],
        watch_notices=row[23],
        watch_notified=instant_or_none(row[24]),
        check_every=None if row[25] is None else timedelta(microseconds=row[25]),
        check_at=instant_or_none(row[26]),
    )


@transaction
def load_store_id() -> Statements[str]:
    """Return the id of this store, made at first use: each store has its own directory of processes."""
    return (yield from load_secret(_STORE_ID, 8))


@transaction
def find_store_id() -> Statements[str | None]:
    """Return the same without making it."""
    return (yield from read_meta(_STORE_ID))


# Start


@transaction
def add(
    new: NewProcess, turn: Turn, last: Received, keeper: Keeper, limits: ProcessLimits, now: datetime
) -> Statements[Process]:
    """Record a process before it starts. Raises StaleFence if another worker has the turn, BadArgument at a limit."""
    yield from append_to_turn(turn, [])
    yield Lock(PROCESSES)
    yield from _check_limits(turn, keeper, limits)
    yield from _drop_oldest(turn.session_number)
    origin = _origin(last, now)
    rows = yield (
        "INSERT INTO processes (id, session_no, turn_no, identity, place, origin, backend, command, folder, terminal,"
        " home, host, worker, lease_until, started, exit_notice, watch, check_every, check_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no",
        (
            *(new.id, turn.session_number, turn.number, identity_of(last.inbound.source)),
            *((last.place or last.key).text, inbound_body(origin, last.role, last.basis)),
            *(new.backend, new.command, new.folder, int(new.has_terminal)),
            *(keeper.home, keeper.host, keeper.worker, micros(now + keeper.lease), micros(now)),
            *("due" if new.reports_exit else "off", new.watch),
            *((_micros(every), micros(now + every)) if (every := new.check_every) else (None, None)),
        ),
    )
    yield _NOTIFY
    return (yield from get(rows[0][0]))


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _origin(last: Received, now: datetime) -> Inbound:
    """Return a message from where the process was started, without a text: notices are like it."""
    source = replace(last.inbound.source, message_id=None)
    return Inbound(
        source=source, text="", at=now, labels=last.inbound.labels, cause=Cause.PROCESS, busy=BusyMode.COLLECT
    )


def _check_limits(turn: Turn, keeper: Keeper, limits: ProcessLimits) -> Statements[None]:
    rows = yield (
        "SELECT coalesce(sum(CASE WHEN session_no = ? THEN 1 ELSE 0 END), 0),"
        " coalesce(sum(CASE WHEN home = ? THEN 1 ELSE 0 END), 0) FROM processes WHERE ended IS NULL",
        (turn.session_number, keeper.home),
    )
    here, total = map(int, rows[0])
    if here >= limits.per_session or total >= limits.total:
        whose, count = ("This conversation", here) if here >= limits.per_session else ("This gateway", total)
        raise BadArgument(
            f"{whose} already runs {count} processes. Kill one that you no longer need.",
            found=str(count),
            allowed="",
            example="",
            fix="",
        )


def _drop_oldest(session: int) -> Statements[None]:
    yield (
        "DELETE FROM processes WHERE session_no = ? AND ended IS NOT NULL AND exit_notice <> 'due' AND no <= (SELECT no"
        " FROM processes WHERE session_no = ? AND ended IS NOT NULL ORDER BY no DESC LIMIT 1 OFFSET ?)",
        (session, session, _KEPT_PER_SESSION - 1),
    )


# Read


@transaction
def get(number: int) -> Statements[Process]:
    rows = yield f"{_SELECT} WHERE p.no = ?", (number,)
    found = read_one(process_of, rows, "process")
    if found is None:
        raise NotFound("process", process_name(number))
    return found


@transaction
def find(name: str, principal: Principal, *, session: int | None = None) -> Statements[Process]:
    """Find a process by its name. Raises NotFound if it does not exist or the principal cannot see it."""
    number = parse_process_name(name)
    found = [] if number is None else (yield from list_visible(principal, session=session, number=number))
    if not found:
        raise NotFound("process", name)
    return found[0]


@transaction
def list_visible(
    principal: Principal,
    *,
    session: int | None = None,
    number: int | None = None,
    live_only: bool = False,
    limit: int = 500,
) -> Statements[list[Process]]:
    """Return processes of sessions that the principal can see, those that still run first, then the newest."""
    given = Filter.given({"p.session_no = ?": session, "p.no = ?": number})
    live = [Filter("p.ended IS NULL")] if live_only else []
    where = Filter.all([visible_to(principal), *given, *live])
    rows = yield (
        f"{_SELECT} WHERE {where.sql} ORDER BY CASE WHEN p.ended IS NULL THEN 0 ELSE 1 END, p.no DESC LIMIT ?",
        (*where.values, limit),
    )
    return list(readable(process_of, rows))


@transaction
def list_where(where: Filter) -> Statements[list[Process]]:
    rows = yield f"{_SELECT} WHERE {where.sql} ORDER BY p.no", where.values
    return list(readable(process_of, rows))


@transaction
def known_ids(ids: Sequence[str]) -> Statements[frozenset[str]]:
    """Return those ids that a process has."""
    rows = yield f"SELECT id FROM processes WHERE id IN ({placeholders(ids)})", tuple(ids)
    return frozenset(row[0] for row in rows)


# Look after


@transaction
def hold(keeper: Keeper, now: datetime) -> Statements[list[Process]]:
    """Extend the leases of a gateway, take over what no living gateway looks after, and return all of it.

    That is what still runs, and what ended without a notice yet.
    """
    rows = yield (
        "UPDATE processes SET worker = ?, lease_until = ? WHERE (ended IS NULL OR exit_notice = 'due')"
        " AND (home = ? OR ? = 1) AND (worker = ? OR lease_until < ? OR ? = 1) RETURNING no",
        (
            *(keeper.worker, micros(now + keeper.lease), keeper.home, int(keeper.alone)),
            *(keeper.worker, micros(now), int(keeper.alone)),
        ),
    )
    numbers = tuple(row[0] for row in rows)
    found = yield f"{_SELECT} WHERE p.no IN ({placeholders(numbers)}) ORDER BY p.no", numbers
    return list(readable(process_of, found))


@transaction
def list_abandoned(before: datetime) -> Statements[list[Process]]:
    """Return processes that no gateway has looked after since."""
    rows = yield f"{_SELECT} WHERE p.ended IS NULL AND p.lease_until < ?", (micros(before),)
    return list(readable(process_of, rows))


@transaction
def record(number: int, found: Findings) -> Statements[Process]:
    """Record what a supervisor or a gateway has found out; what is known already stays. Return the process."""
    exited, ended = found.exited and micros(found.exited), found.ended and micros(found.ended)
    yield (
        "UPDATE processes SET pid = coalesce(pid, ?), pid_started = coalesce(pid_started, ?),"
        " exited = coalesce(exited, ?), exit_code = coalesce(exit_code, ?), ended = ?, problem = ?, output_bytes = ?,"
        " check_at = CASE WHEN CAST(? AS BIGINT) IS NULL AND CAST(? AS BIGINT) IS NULL THEN check_at END"
        " WHERE no = ? AND ended IS NULL",
        (
            *(found.pid, found.pid_started, exited, found.exit_code, ended, found.problem, found.output_bytes),
            *(exited, ended, number),
        ),
    )
    yield _NOTIFY
    return (yield from get(number))


@transaction
def ask_stop(numbers: Collection[int], now: datetime, *, by: str) -> Statements[int]:
    """Ask the gateways that look after these processes to kill them. Return how many still run."""
    rows = yield (
        "UPDATE processes SET stop_asked = coalesce(stop_asked, ?), stopped_by = coalesce(stopped_by, ?)"
        f" WHERE ended IS NULL AND no IN ({placeholders(numbers)}) RETURNING no",
        (micros(now), by, *numbers),
    )
    yield _NOTIFY
    return len(rows)


@transaction
def delete_finished(keeper: Keeper, before: datetime) -> Statements[int]:
    rows = yield (
        "DELETE FROM processes WHERE ended < ? AND exit_notice <> 'due' AND (home = ? OR ? = 1) RETURNING no",
        (micros(before), keeper.home, int(keeper.alone)),
    )
    return len(rows)


@transaction
def delete(number: int) -> Statements[None]:
    """Forget a process that has ended and of which there is nothing more to tell."""
    yield "DELETE FROM processes WHERE no = ? AND ended IS NOT NULL", (number,)
    yield _NOTIFY
