"""Health: everything that can be checked about a store, each with what was found and how to mend it."""

import os
import shutil
import socket
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from glob import escape
from itertools import takewhile
from pathlib import Path

from palaver.db.file_lock import may_write, nearest
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError
from palaver.store import accounts
from palaver.store.queue import inbox, outbox
from palaver.store.records import instant, micros
from palaver.store.status.invariants import DEADLINES, INVARIANTS, PROMISES, overdue_work, violations
from palaver.store.store import Store

__all__ = [
    "HealthCheck",
    "check_data_directory",
    "check_store",
    "is_corrupt",
    "recovery_steps",
    "unreadable_folder",
]


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    name: str
    ok: bool
    found: str
    mend: str = ""


_LEAST_FREE = 200 * 1024 * 1024
_CLOCK_SLACK = timedelta(minutes=5)


_DATED = (("sessions", "last_active"), ("inbox", "received"), ("turns", "started"), ("outbox", "created"))
_NEWEST = " UNION ALL ".join(f"SELECT {column} AS at FROM {table} WHERE {column} > ?" for table, column in _DATED)
_SHOWN = 5


async def check_store(store: Store, now: datetime) -> AsyncIterator[HealthCheck]:
    """One check after the other, so that a person sees progress."""
    yield await _schema(store)
    if isinstance(store.database, SqliteDatabase):
        yield await _integrity(store, store.database.path)
    for check in await _promises(store, now):
        yield check
    yield await _gateways(store, now)
    yield await _accounts(store, now)
    yield await _gone(store)
    yield await _clock(store, now)
    yield await _search(store)


@transaction
def _rows(sql: str, *values: int) -> Statements[list[str]]:
    rows = yield sql, values
    return [str(row[0]) for row in rows]


async def _schema(store: Store) -> HealthCheck:
    version = await store.read(_rows("SELECT value FROM meta WHERE name = 'schema'"))
    engine = f"SQLite {sqlite3.sqlite_version}" if isinstance(store.database, SqliteDatabase) else "PostgreSQL"
    return HealthCheck(name="schema", ok=True, found=f"schema {version[0]} on {engine}")


async def _integrity(store: Store, path: Path) -> HealthCheck:
    """SQLite reads every page and index of the file."""
    found = await store.read(_rows("PRAGMA integrity_check(20)"))
    return HealthCheck(
        name="integrity",
        ok=found == ["ok"],
        found="every page is sound" if found == ["ok"] else "; ".join(found[:3]),
        mend=recovery_steps(path),
    )


def is_corrupt(path: Path, error: StoreError) -> bool:
    """SQLite cannot make sense of the file, though it was a database of ours: it has a search index beside it."""
    code: int = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    damage = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    return code in damage and path.with_name(f"{path.name}.search").exists()


def recovery_steps(path: Path) -> str:
    """What can be done about a damaged file, with the newest of the backups that upgrades made."""
    copies = sorted(path.parent.glob(f"{escape(path.name)}.schema-*"), key=lambda copy: copy.stat().st_mtime)
    made = [f"{copy.name} of {datetime.fromtimestamp(copy.stat().st_mtime, UTC):%Y-%m-%d}" for copy in copies[-1:]]
    backup = f"a backup in its place ({made[0]} was made before an upgrade)" if made else "a backup in its place"
    name = path.name
    return (
        f"stop the gateway and move {name}, {name}-wal and {name}-shm away; then put {backup}, save what can be read "
        f"with: sqlite3 {name} .recover, or begin anew and bring an export back with: palaver sessions import"
    )


def check_data_directory(path: Path) -> list[HealthCheck]:
    """Where a SQLite file lies, or would: what keeps it from being opened or written is found before that is tried."""
    folder = unreadable_folder(path)
    return [_disk(path), _writable(path)] if folder is None else [_place(f"{folder} cannot be entered by this user")]


def unreadable_folder(path: Path) -> Path | None:
    """What is in it, if anything, nobody can say."""
    there = takewhile(lambda folder: os.access(folder, os.F_OK, effective_ids=True), reversed(path.parents))
    return next((each for each in there if each.is_dir() and not os.access(each, os.X_OK, effective_ids=True)), None)


def _disk(path: Path) -> HealthCheck:
    free = shutil.disk_usage(nearest(path)).free
    size = path.stat().st_size if path.exists() else 0
    return HealthCheck(
        name="disk",
        ok=free > max(_LEAST_FREE, size // 4),
        found=f"{free // 1_000_000} MB free, the database has {size // 1_000_000} MB",
        mend="make room, or remove old sessions with: palaver sessions prune",
    )


def _writable(path: Path) -> HealthCheck:
    folder = nearest(path.parent)
    closed = [each for each in (folder, path) if each.exists() and not may_write(each)]
    wrong = f"{closed[0]} may only be read" if closed else "" if folder.is_dir() else f"{folder} is no folder"
    return (
        _place(wrong) if wrong else HealthCheck(name="data directory", ok=True, found=f"{path.parent} may be written")
    )


def _place(wrong: str) -> HealthCheck:
    return HealthCheck(
        name="data directory",
        ok=False,
        found=wrong,
        mend="let whoever runs Palaver write there, or use another data directory: PALAVER_HOME",
    )


async def _promises(store: Store, now: datetime) -> list[HealthCheck]:
    """Every promise as a query over the live database."""
    found = [*await store.read(violations()), *await store.read(overdue_work(now))]
    broken = {violation.invariant: violation for violation in found}
    return [
        HealthCheck(
            name=f"{invariant.promise}, {PROMISES[invariant.promise]}: {invariant.sentence}",
            ok=invariant not in broken,
            found="holds"
            if invariant not in broken
            else f"{broken[invariant].times} rows break it, such as {', '.join(broken[invariant].examples)}",
            mend=invariant.mend,
        )
        for invariant in (*INVARIANTS, *DEADLINES)
    ]


async def _gateways(store: Store, now: datetime) -> HealthCheck:
    """Who serves what; without a gateway, what waits for one."""
    rows = await store.read(
        _rows("SELECT worker || ' ' || platform || ':' || account FROM accounts WHERE lease_until > ?", micros(now))
    )
    found = [row.partition(" ") for row in rows]
    served = sorted(f"{account} by {worker}" for worker, _, account in found if _may_run(worker))
    waiting, due = await store.read(inbox.depth()), await store.read(outbox.depth())
    who = f"served are {', '.join(served)}" if served else "no gateway is at work"
    return HealthCheck(name="gateways", ok=True, found=f"{who}; {waiting} messages wait, {due} sends are due")


def _may_run(worker: str) -> bool:
    """A gateway that was killed holds its accounts for a while. Only of processes of this machine it can be known."""
    host, _, process = worker.partition(":")
    pid = process.partition(":")[0]
    if host != socket.gethostname() or not (pid.isascii() and pid.isdecimal()):
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # as somebody else
    return True


async def _accounts(store: Store, now: datetime) -> HealthCheck:
    """Those that a gateway serves and that do not let it in, each with what they say."""
    found = await store.read(accounts.health(now))
    refused = [each for each in found if each.worker and each.connected_since is None and each.last_error]
    said = [f"{each.name} says: {each.last_error}" for each in refused]
    connected = sum(each.connected_since is not None for each in found)
    return HealthCheck(
        name="accounts",
        ok=not refused,
        found="; ".join(said) or f"{connected} connected, none that is refused",
        mend=f"do what it says, and look again: palaver platforms check {refused[0].name if refused else ''}",
    )


async def _gone(store: Store) -> HealthCheck:
    """Where nothing arrives any more."""
    gone = await store.read(_rows("SELECT account || ':' || chat FROM gone_chats ORDER BY 1"))
    shown = f"{len(gone)} that we cannot write to: {', '.join(gone[:_SHOWN])}" if gone else "none that we know of"
    return HealthCheck(name="gone chats", ok=True, found=shown)


async def _clock(store: Store, now: datetime) -> HealthCheck:
    limit = micros(now + _CLOCK_SLACK)
    ahead = await store.read(_rows(f"SELECT max(at) FROM ({_NEWEST}) AS ahead", *(limit,) * len(_DATED)))
    newest = None if ahead in ([], ["None"]) else instant(int(ahead[0]))
    return HealthCheck(
        name="clock",
        ok=newest is None,
        found="nothing is dated in the future" if newest is None else f"something is dated {newest:%Y-%m-%d %H:%M} UTC",
        mend="set the clocks of all machines, or wait: times in the future hold up resets, sends and takeovers",
    )


async def _search(store: Store) -> HealthCheck:
    added = await store.search.catch_up()
    found = "in step with the transcripts" if not added else f"caught up with {added} entries"
    return HealthCheck(name="search index", ok=True, found=found)
