"""The checks of `palaver doctor` on a store: what each found, and how to fix it."""

import os
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

from palaver.db.file_lock import is_mounted_read_only, is_writable, nearest_existing
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError
from palaver.model.text import counted
from palaver.store import accounts
from palaver.store.clock import CLOCK_TOLERANCE, describe_skew, store_time
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.checks import find_damage
from palaver.store.damage.health_check import MAX_LISTED, HealthCheck, listed, or_problem
from palaver.store.damage.invariants import check_rule
from palaver.store.queue import inbox, outbox
from palaver.store.records import instant, micros
from palaver.store.status.invariants import DEADLINES
from palaver.store.store import Store

_MIN_FREE_BYTES = 200 * 1024 * 1024


_TIME_COLUMNS = (("sessions", "last_active"), ("inbox", "received"), ("turns", "started"), ("outbox", "created"))
_FUTURE_TIMES = " UNION ALL ".join(
    f"SELECT {column} AS at FROM {table} WHERE {column} > ?" for table, column in _TIME_COLUMNS
)


async def check_all(store: Store, own: datetime, blobs: BlobStore | None = None) -> AsyncIterator[HealthCheck]:
    """Check a store by its own time, and this machine's time as well."""
    now = await store_time(store.database, own)
    async for check in check_store(store, now.astimezone(own.tzinfo), blobs, skew=describe_skew(own - now)):
        yield check


async def check_store(
    store: Store, now: datetime, blobs: BlobStore | None = None, *, skew: str = ""
) -> AsyncIterator[HealthCheck]:
    """Yield one check at a time, so that a person sees progress. Files are read if `blobs` has them."""
    async for check in find_damage(store, blobs):
        yield check
    for each in DEADLINES:
        yield await or_problem(each.name, check_rule(store.database, each, micros(now)))
    yield await or_problem("gateways", _gateways(store, now))
    yield await or_problem("accounts", _accounts(store, now))
    yield await or_problem("gone chats", _gone_chats(store))
    yield await or_problem("refused sends", _refused_sends(store, now))
    yield await or_problem("clock", _clock(store, now, skew))
    if settings := await store.read(read_server_settings()):
        yield check_server(settings)
    yield await or_problem("search index", _search(store))


@transaction
def _rows(sql: str, *values: int) -> Statements[list[str]]:
    rows = yield sql, values
    return [str(row[0]) for row in rows]


def check_data_directory(path: Path) -> list[HealthCheck]:
    """Check that a SQLite file can be opened and written at this path, before trying it."""
    folder = unreadable_folder(path)
    return [_disk(path), _writable(path)] if folder is None else [_bad_directory(f"this user cannot enter {folder}")]


def unreadable_folder(path: Path) -> Path | None:
    """Return the first existing folder above the path that this user cannot enter."""
    existing = takewhile(lambda folder: os.access(folder, os.F_OK, effective_ids=True), reversed(path.parents))
    return next((each for each in existing if each.is_dir() and not os.access(each, os.X_OK, effective_ids=True)), None)


def _disk(path: Path) -> HealthCheck:
    free = shutil.disk_usage(nearest_existing(path)).free
    size = path.stat().st_size if path.exists() else 0
    found = f"{free // 1_000_000} MB free, the database takes {size // 1_000_000} MB"
    return HealthCheck(
        name="disk",
        ok=free > max(_MIN_FREE_BYTES, size // 4),
        found=found,
        public=found,
        fix="free some space, or delete old sessions with: palaver sessions prune --older-than 90d --dry-run",
    )


def _writable(path: Path) -> HealthCheck:
    folder = nearest_existing(path.parent)
    read_only = [each for each in (folder, path) if each.exists() and not is_writable(each)]
    if read_only and is_mounted_read_only(read_only[0]):
        return _bad_directory(f"{read_only[0]} is on a read-only file system", "mount it for writing")
    problem = f"{read_only[0]} is read-only" if read_only else "" if folder.is_dir() else f"{folder} is not a folder"
    return (
        _bad_directory(problem)
        if problem
        else HealthCheck(name="data directory", ok=True, found=f"{path.parent} is writable", public="writable")
    )


def _bad_directory(problem: str, fix: str = "give this user write access with chown or chmod") -> HealthCheck:
    fix = f"{fix}, or set PALAVER_HOME to another data directory"
    return HealthCheck(name="data directory", ok=False, found=problem, fix=fix)


async def _gateways(store: Store, now: datetime) -> HealthCheck:
    """Report which worker serves which account, and how much work waits."""
    served = sorted(f"{account} by {worker}" for worker, account in await _leases(store, now))
    waiting, due = await store.read(inbox.count_waiting()), await store.read(outbox.count_due())
    who = f"serving {', '.join(served)}" if served else "no gateway is running"
    work = f"messages waiting: {waiting}, sends due: {due}"
    return HealthCheck(
        name="gateways", ok=True, found=f"{who}; {work}", public=f"accounts served: {len(served)}; {work}"
    )


async def _leases(store: Store, now: datetime) -> list[tuple[str, str]]:
    """Return each live gateway with what it serves; one that serves no account does maintenance."""
    rows = await store.read(
        _rows("SELECT worker || ' ' || platform || ':' || account FROM accounts WHERE lease_until > ?", micros(now))
    )
    found = [row.partition(" ") for row in rows]
    return [(worker, account) for worker, _, account in found if accounts.may_be_alive(worker)]


async def _accounts(store: Store, now: datetime) -> HealthCheck:
    """Report accounts whose platform refuses the gateway."""
    found = await store.read(accounts.list_health(now))
    refused = [each for each in found if each.worker and each.connected_since is None and each.last_error]
    errors = [f"{each.name} says: {each.last_error}" for each in refused]
    connected = sum(each.connected_since is not None for each in found)
    return HealthCheck(
        name="accounts",
        ok=not refused,
        found="; ".join(errors) or f"{connected} connected, none refused",
        public=f"{connected} connected, {len(refused)} refused",
        fix=f"fix what the error describes, then run: palaver platforms check {refused[0].name if refused else ''}",
    )


async def check_served(store: Store, own: datetime, configured: Collection[str]) -> HealthCheck:
    """Report configured accounts that no gateway serves: an error while one runs, and else a warning."""
    now = await store_time(store.database, own)
    served = {each.name for each in await store.read(accounts.list_health(now)) if each.worker}
    missing = sorted(set(configured) - served)
    runs = bool(await _leases(store, now))
    found = f"no gateway serves {listed(missing)}" if runs else f"no gateway runs, so nobody serves {listed(missing)}"
    return HealthCheck(
        name="configured accounts",
        ok=not (missing and runs),
        is_warning=bool(missing) and not runs,
        found=found if missing else "each is served",
        public=f"not served: {len(missing)}",
        fix="start the gateway again, which reads its accounts when it starts: systemctl restart palaver, or stop it"
        f" and run palaver up; palaver platforms check {missing[0] if missing else ''} tests the account"
        if runs
        else "start one: palaver up, or palaver service install",
    )


async def _gone_chats(store: Store) -> HealthCheck:
    gone = await store.read(_rows("SELECT account || ':' || chat FROM gone_chats ORDER BY 1"))
    chats = counted(len(gone), "chat no longer accepts", "chats no longer accept")
    shown = f"{chats} messages: {', '.join(gone[:MAX_LISTED])}" if gone else "none known"
    return HealthCheck(name="gone chats", ok=True, found=shown, public=f"known: {len(gone)}")


_REFUSALS_LISTED = timedelta(days=7)


async def _refused_sends(store: Store, now: datetime) -> HealthCheck:
    """List what platforms did not take, for a week. A send to a chat that is gone is listed with that chat."""
    refused = await store.read(
        _rows(
            "SELECT 'out:' || o.id FROM outbox o WHERE o.state = 'dead' AND o.created > ? AND NOT EXISTS ("
            " SELECT 1 FROM gone_chats g WHERE g.account = o.account AND g.server = o.server AND g.chat = o.chat)"
            " ORDER BY o.created DESC, o.id DESC",
            micros(now - _REFUSALS_LISTED),
        )
    )
    count = counted(len(refused), "message was", "messages were")
    return HealthCheck(
        name="refused sends",
        ok=True,
        is_warning=bool(refused),
        found=f"{count} not delivered in the last week: {listed(refused)}" if refused else "none in the last week",
        public=f"in the last week: {len(refused)}",
        fix=f"palaver trace {refused[0] if refused else ''} says why; send what still matters again",
    )


_LAST_MICROS = micros(datetime(9999, 1, 1, tzinfo=UTC))


_SET_CLOCK = "set the clock of each machine: timedatectl set-ntp true"


async def _clock(store: Store, now: datetime, skew: str) -> HealthCheck:
    if skew:
        fix = f"a gateway here serves nothing until the clock is right; {_SET_CLOCK}"
        return HealthCheck(name="clock", ok=False, found=skew, public=skew, fix=fix)
    limit = micros(now + CLOCK_TOLERANCE)
    ahead = await store.read(_rows(f"SELECT max(at) FROM ({_FUTURE_TIMES}) AS ahead", *(limit,) * len(_TIME_COLUMNS)))
    newest = None if ahead in ([], ["None"]) else instant(min(int(ahead[0]), _LAST_MICROS))
    found = newest and f"a time is in the future: {newest.astimezone(now.tzinfo):%Y-%m-%d %H:%M %Z}"
    found = found or "no time is in the future"
    return HealthCheck(
        name="clock",
        ok=newest is None,
        found=found,
        public=found,
        fix=f"future times delay resets, sends and takeovers until then; {_SET_CLOCK}",
    )


@transaction
def read_server_settings() -> Statements[dict[str, str]]:
    """Return settings of the database server that durability depends on; none for SQLite."""
    rows = yield (
        "SELECT '', '' WHERE 1 = 0 /*pg UNION ALL SELECT name, setting FROM pg_settings"
        " WHERE name IN ('fsync', 'full_page_writes', 'synchronous_standby_names')*/",
        (),
    )
    return dict(rows)


def check_server(settings: Mapping[str, str]) -> HealthCheck:
    """Warn of a server that can lose what it has committed, and say whether a standby has it, too."""
    unsafe = [name for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    standby = "commits wait for a synchronous standby"
    if not settings["synchronous_standby_names"]:
        standby = "commits wait for no synchronous standby"
    found = f"{' and '.join(unsafe)} off: a crash of its machine can lose or damage what was accepted"
    return HealthCheck(
        name="database server",
        ok=True,
        is_warning=bool(unsafe),
        found=found if unsafe else standby,
        public=found if unsafe else standby,
        fix=f"set {' and '.join(f'{name} = on' for name in unsafe)} in postgresql.conf and reload it",
    )


async def _search(store: Store) -> HealthCheck:
    try:
        added = await store.search.catch_up()
    except StoreError as error:
        fix = "build the index again from the transcripts: palaver doctor --rebuild-search"
        return HealthCheck(name="search index", ok=False, found=f"it cannot be filled: {error}", fix=fix)
    found = "up to date" if not added else f"added {counted(added, 'entry')}"
    return HealthCheck(name="search index", ok=True, found=found, public=found)
