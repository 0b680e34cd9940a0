"""Open a store: from a URL to a database with an up-to-date schema, and its search index."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from palaver.db.cipher import KEYS, is_encrypted, is_plain
from palaver.db.file_lock import (
    FileLock,
    is_disk_full,
    is_transient,
    is_writable,
    refuse_hard_links,
    refuse_network_disk,
)
from palaver.db.high_water import Witness, measure
from palaver.db.private_files import make_private_folder
from palaver.db.schema import (
    POSTGRES,
    SQLITE,
    Migration,
    known_migrations,
    migrate_step,
    pending_migrations,
    refuse_running_gateways,
)
from palaver.db.sqlite import SqliteDatabase, connect, is_damage, undecodable_schema
from palaver.db.transaction import Database, Statements, Transaction, transaction
from palaver.model.epochs import Epochs, HighWater
from palaver.model.errors import BadArgument, NewerSchema, StoreError, StoreInUse, StoreUnavailable
from palaver.store.damage.corruption import is_corrupt, touch_tables
from palaver.store.damage.leftovers import copy_database, refuse_leftovers
from palaver.store.damage.lost_log import describe_lost, known_mark
from palaver.store.damage.version import lacks_meta
from palaver.store.epochs import load_epochs, reckon
from palaver.store.transfer_marks import copied_from

if TYPE_CHECKING:
    from palaver.store.store import Store

_SQLITE_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
_POSTGRES_TABLE = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'meta'"


async def open_store(url: str, *, key: bytes | None = None, exclusive: bool = False, copies: bool = False) -> "Store":
    """Open a database as `open_database` does, and its search index."""
    from palaver.store.store import Store, open_search  # noqa: PLC0415 - slow to import, and often not needed

    database = await open_database(url, key=key, exclusive=exclusive, copies=copies)
    try:
        return Store(database, await open_search(database))
    except BaseException:
        await database.close()
        raise


async def open_database(
    url: str, *, key: bytes | None = None, exclusive: bool = False, copies: bool = False
) -> Database:
    """Open `sqlite:///path`, a bare path, or `postgresql://…`. Create it if it does not exist, migrate it if it is old.

    A gateway opens it exclusively: a SQLite file belongs to one gateway, and of PostgreSQL nobody changes the schema
    under it. Commands read and write beside it. What copies a store to another one opens one that is not complete. A
    `key` opens an encrypted SQLite file.
    """
    check_url(url)
    path = sqlite_path(url)
    if path is None:
        database = await _open_postgres(url, serves=exclusive, copies=copies)
    else:
        database = await _open_sqlite(path.resolve(), key, exclusive=exclusive)
        if not copies:
            await _load_epochs(database)
    if not copies:
        await _refuse_incomplete(database)
    return database


async def _load_epochs(database: SqliteDatabase) -> None:
    """Begin the first epoch of a store that has none."""
    with suppress(StoreError):  # it is damaged or read-only: its ids have no check until that is mended
        database.epochs = await database.read(load_epochs())
        if not database.epochs.known:
            database.epochs = await database.transact(_begin_first(datetime.now(UTC)))


@transaction
def _begin_first(now: datetime) -> Statements[Epochs]:
    return (yield from reckon(Witness(), "", now)).epochs


async def _refuse_incomplete(database: Database) -> None:
    try:
        source = await database.read(copied_from())
    except StoreError:
        return  # the table is missing: palaver doctor says so
    if source:
        await database.close()
        raise StoreError(
            f"this store is an incomplete copy of {source}: run the same palaver migrate or palaver doctor --salvage"
            " again"
        )


def check_url(url: str) -> None:
    """Raise BadArgument for a URL that names no store."""
    scheme = url.partition("://")[0].lower()
    if sqlite_path(url) is None and scheme not in {"postgresql", "postgres"}:
        raise BadArgument(
            "Unknown store",
            found=f"{scheme}://…" if "://" in url else url,
            allowed="sqlite:///path, a path, or postgresql://user@host/database",
            example="sqlite:///palaver.db",
        )


def sqlite_path(url: str) -> Path | None:
    """Return the path after `sqlite:///`, absolute after a fourth slash; None if the URL has no path."""
    text = unquote(url[len("sqlite:///") :]) if url.lower().startswith("sqlite:///") else url
    try:
        return Path(text).expanduser() if text.strip() and "://" not in text else None
    except RuntimeError:
        return None  # an unknown user's home directory


async def _open_sqlite(path: Path, key: bytes | None, *, exclusive: bool) -> SqliteDatabase:
    ownership = FileLock(path)
    try:
        _make_folder(path)
        refuse_network_disk(path.parent)
        if exclusive:
            _refuse_read_only(path)
        refuse_hard_links(path)
        refuse_leftovers(path)
        refuse_other_encryption(path, key)
        _refuse_foreign_file(path, key)
        if exclusive:
            ownership.take()
        database = SqliteDatabase(path, ownership, key)
        await _ready(database, _SQLITE_TABLE, SQLITE, ownership, run_step=database.transact)
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        ownership.release()
        found = undecodable_schema() if isinstance(error, UnicodeDecodeError) else error
        raise _not_opened(path, found) from found
    if exclusive:
        await _refuse_damage(database)
    # Read before the database is measured: a command can write meanwhile.
    mark = known_mark(path, key) if exclusive else HighWater()
    try:
        reached = await database.read(measure())
    except StoreError:
        return database  # a table is missing: palaver doctor says so
    if lost := describe_lost(reached, mark):
        await database.close()
        raise _lost_rows(path, lost)
    database.keep_mark(reached)
    return database


async def _refuse_damage(database: SqliteDatabase) -> None:
    """Refuse what SQLite sees to be damaged at a first look, and write nothing more once it sees some later."""
    try:
        await database.read(touch_tables())
    except StoreError as error:
        if is_damage(error.__cause__):
            await database.close()
            raise StoreError(
                f"the database {database.path} is damaged: {error.__cause__}. palaver doctor says what to do."
            ) from error
    database.stop_on_damage()


def _make_folder(path: Path) -> None:
    try:
        make_private_folder(path.parent)
    except OSError as error:
        if is_disk_full(path) or is_transient(error):
            raise
        raise StoreError(
            f"the folder {path.parent} cannot be made: {error.strerror}. Set PALAVER_HOME to a folder where you can"
            " write"
        ) from error


def _lost_rows(path: Path, lost: str) -> StoreError:
    """A gateway does not serve such a database: it would give numbers again that were given before."""
    return StoreError(
        f"the database {path} lacks what was stored last ({lost}). If its log {path.name}-wal was removed or"
        " an older copy was put in its place, put the log or the newer file back; to go on without it, run palaver"
        " doctor --salvage NEW_STORE"
    )


def _not_opened(path: Path, error: OSError | sqlite3.Error) -> StoreError:
    if is_disk_full(path):
        return StoreUnavailable(f"the database {path} cannot be opened: its disk is full ({error}). Make room there")
    problem = f"the database {path} cannot be opened: {error}"
    if is_transient(error):
        return StoreUnavailable(problem)
    if is_corrupt(path, error):
        return StoreError(f"the database {path} is damaged: {error}. palaver doctor says what to do.")
    return StoreError(
        f"{problem}. Use a Palaver database, or a new file where you can write, for example sqlite:///palaver.db"
    )


def refuse_other_encryption(path: Path, key: bytes | None) -> None:
    """Refuse a plain file where an encrypted one is wanted, and the other way round."""
    if key is not None and is_plain(path):
        raise StoreError(
            f"encryption is configured, but the database {path} is not encrypted: stop the gateway and run palaver"
            " encryption on, or remove encryption from the configuration"
        )
    if key is None and is_encrypted(path) and path.with_name(KEYS).exists():
        raise StoreError(
            f"the database {path} is encrypted, but no key is configured: set encryption.key_file in the configuration"
        )


def _refuse_foreign_file(path: Path, key: bytes | None) -> None:
    """Refuse a database of another program before anything is written."""
    if not path.is_file() or not path.stat().st_size:
        return
    with closing(connect(path, key, read_only=True)) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if lacks_meta(db):
            raise StoreError(
                f"the database {path} lacks its table meta: restore a backup, or copy everything readable into a new"
                " store: palaver doctor --salvage NEW_STORE"
            )
    if tables and "meta" not in tables:
        raise StoreError(f"{path} is another program's database: choose another file")


def _refuse_read_only(path: Path) -> None:
    """Refuse files that a gateway cannot write."""
    files = (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")))
    for each in (path.parent, *filter(Path.exists, files)):
        if not is_writable(each):
            kind = "folder" if each.is_dir() else "file"
            raise StoreError(
                f"the {kind} {each} is read-only, but a gateway writes its database there: make it writable, "
                "or use another data directory"
            )


async def _open_postgres(url: str, *, serves: bool, copies: bool) -> Database:
    try:
        from palaver.db.postgres import PostgresDatabase  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        from palaver.protocols.installation import MissingPackages  # noqa: PLC0415 - slow to import, and rarely needed

        raise MissingPackages("A PostgreSQL store needs", "postgres") from error
    database = PostgresDatabase(url)
    await database.open()
    await _ready(database, _POSTGRES_TABLE, POSTGRES, run_step=database.migrate, serves=serves)
    try:
        if not copies:
            await database.reckon(lambda witness, server: reckon(witness, server, datetime.now(UTC)))
        if serves:
            await database.serve(known_migrations()[-1].number)
    except BaseException:
        await database.close()
        raise
    return database


async def _ready(
    database: Database,
    version_table: str,
    words: Mapping[str, str],
    ownership: FileLock | None = None,
    *,
    run_step: Callable[[Transaction[None]], Awaitable[None]],
    serves: bool = False,
) -> None:
    try:
        await _migrate(database, version_table, words, ownership, run_step, serves=serves)
    except BaseException:
        await database.close()
        raise


async def _migrate(
    database: Database,
    version_table: str,
    words: Mapping[str, str],
    ownership: FileLock | None,
    run_step: Callable[[Transaction[None]], Awaitable[None]],
    *,
    serves: bool,
) -> None:
    """Migrate the schema, unless a running gateway uses the older one."""
    waiting = pending_migrations(known_migrations(), version_table, serves=serves)

    def run(step: Sequence[Migration]) -> Awaitable[None]:
        alone = None if ownership else refuse_running_gateways()
        return run_step(migrate_step(step, words, waiting, alone))

    end = time.monotonic() + _GATEWAY_START_SECONDS
    while missing := await database.transact(waiting):
        try:
            with ownership.keep_free() if ownership else nullcontext():
                before = [each.number for each in known_migrations() if each.number < missing[0].number]
                if isinstance(database, SqliteDatabase) and before:
                    back_up(database.path, before[-1], database.key)
                await _run(missing, run)
        except StoreInUse as used:
            # A gateway that is just starting migrates it itself.
            if time.monotonic() > end:
                raise StoreInUse(f"the schema of the database is older than this Palaver's, and {used}") from used
            await asyncio.sleep(_GATEWAY_START_SECONDS / 20)


_GATEWAY_START_SECONDS = 5.0


async def _run(missing: Sequence[Migration], run_step: Callable[[Sequence[Migration]], Awaitable[None]]) -> None:
    """Run the missing migrations. A new store is created in one transaction."""
    for step in [missing] if missing[0].number == 1 else [[migration] for migration in missing]:
        try:
            await run_step(step)
        except (NewerSchema, StoreInUse, StoreUnavailable):
            raise
        except StoreError as error:
            raise StoreError(
                f"migration {step[0].name} failed, nothing was changed: {error}. Run palaver doctor"
            ) from error


def back_up(path: Path, version: int, key: bytes | None = None) -> None:
    """Copy the whole database to a file beside it: `palaver.db.schema-3`."""
    copy_database(path, path.with_name(f"{path.name}.schema-{version}"), version, key=key)
