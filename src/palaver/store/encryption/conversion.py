"""Encrypt a plain store, decrypt an encrypted one, or encrypt it with another data key. No gateway can run meanwhile.

Each file is converted into a new one that replaces it when it is complete and checked, so that a conversion that is
killed goes on where it was.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from palaver.db.cipher import open_file, sqlcipher
from palaver.db.file_lock import FileLock
from palaver.db.private_files import appearing, flush_folder, make_private_folder, open_private
from palaver.model.errors import StoreError, StoreInUse, StoreUnavailable
from palaver.store.backup.archive import HashedReader
from palaver.store.conversations.blob_store import SET_ASIDE
from palaver.store.damage.leftovers import is_copy, remove_unfinished_copies
from palaver.store.encryption.contents import PLAIN, PlainContents
from palaver.store.encryption.stream import DamagedContent
from palaver.store.encryption.vault import DataKey

Progress = Callable[[int], None]
_LOGS = ("-wal", "-shm", "-journal")
_NEW = ".encryption.part"


def convert_store(
    database: Path | None,
    files: Path,
    sources: Sequence[DataKey | None],
    target: DataKey | None,
    *,
    progress: Progress = lambda _: None,
) -> int:
    """Convert what is encrypted with one of the sources, or plain; return how many files were converted.

    Encrypted contents are read beside plain ones, but not the other way round: the database is first, or last.
    """
    lock = FileLock(database) if database else None
    if lock:
        lock.take()
    try:
        if database and target:
            _convert_databases(database, sources, target)
        count = _convert_files(files, sources, target, progress)
        if database and not target:
            _convert_databases(database, sources, target)
    finally:
        if lock:
            lock.release()
    return count


# Databases


def _convert_databases(database: Path, sources: Sequence[DataKey | None], target: DataKey | None) -> None:
    if not database.exists():
        return
    remove_unfinished_copies(database)
    for part in database.parent.glob(f"*{_NEW}*"):
        _overwrite(part)
    for copy in [each for each in database.parent.iterdir() if is_copy(each, database)]:
        convert_database(copy, sources, target)
    convert_database(database, sources, target)
    for ending in ("", *_LOGS):  # the index is built again
        _overwrite(database.with_name(f"{database.name}.search{ending}"))


def convert_database(path: Path, sources: Sequence[DataKey | None], target: DataKey | None) -> None:
    """Replace a database by one that is encrypted with the target, unless it is one."""
    new = path.with_name(path.name + _NEW)
    wanted = target.database if target else None
    if _opens(path, wanted):
        return
    key = next((each for each in _keys(sources) if _opens(path, each)), _NO_KEY)
    if key is _NO_KEY:
        raise StoreError(f"{path} is damaged, or encrypted with another key: it was not changed")
    os.close(open_private(new, os.O_WRONLY | os.O_TRUNC))
    with path.open("r+b") as old:
        with closing(_open_alone(path, key)) as db:  # type: ignore[arg-type]
            try:
                _export(db, new, wanted)
                _compare(db, path)
                db.execute("DETACH new")
            except sqlite3.OperationalError as error:  # above all a full disk
                raise StoreUnavailable(f"{path} cannot be converted, and was not changed: {error}") from error
        _flush(new)
        new.replace(path)
        flush_folder(path.parent)
        _fill_with_zeros(old.fileno())  # the old content has no name any more


_NO_KEY = b""


def _keys(sources: Sequence[DataKey | None]) -> Iterator[bytes | None]:
    return (each.database if each else None for each in sources)


def _opens(path: Path, key: bytes | None) -> bool:
    with suppress(sqlite3.DatabaseError), closing(open_file(path, key)) as db:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return True
    return False


def _open_alone(path: Path, key: bytes | None) -> sqlite3.Connection:
    """Open a database that nobody else uses, and put its log into it."""
    db = open_file(path, key) if key is not None else _open_plain(path)
    try:
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA journal_mode = DELETE").fetchall()
        db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        db.close()
        raise StoreInUse(f"another process uses the database {path} ({error}): stop it first") from error
    return db


def _open_plain(path: Path) -> sqlite3.Connection:
    """Open a plain file with SQLCipher, which can write an encrypted one."""
    db: sqlite3.Connection = sqlcipher().connect(str(path), isolation_level=None)
    db.execute("PRAGMA cipher_log_level = NONE")
    return db


def _export(db: sqlite3.Connection, new: Path, key: bytes | None) -> None:
    secret = f"x'{key.hex()}'" if key else ""
    db.execute("ATTACH ? AS new KEY ?", (str(new), secret))
    if key is None:
        db.execute("PRAGMA new.page_size = 2048")
    db.execute("PRAGMA new.journal_mode = OFF").fetchall()
    db.execute("SELECT sqlcipher_export('new')").fetchall()
    version = db.execute("PRAGMA main.user_version").fetchone()[0]
    db.execute(f"PRAGMA new.user_version = {version}")


def _compare(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError unless the new database has the schema and every row of the old one."""
    schema = "SELECT type, name, tbl_name, sql FROM {}.sqlite_master ORDER BY 1, 2"
    is_same = db.execute(schema.format("main")).fetchall() == db.execute(schema.format("new")).fetchall()
    tables = [row[0] for row in db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall()]
    for table in tables:
        counts = f'SELECT (SELECT count(*) FROM main."{table}"), (SELECT count(*) FROM new."{table}")'
        found = db.execute(counts).fetchone()
        is_same = is_same and found[0] == found[1]
    problems = [row[0] for row in db.execute("PRAGMA new.integrity_check(1)").fetchall()]
    if not is_same or problems != ["ok"]:
        raise StoreError(f"the converted {path} differs from the old one, which was not changed: run palaver doctor")


# Files


def _convert_files(folder: Path, sources: Sequence[DataKey | None], target: DataKey | None, progress: Progress) -> int:
    ways = [each.contents if each else PLAIN for each in sources]
    wanted = target.contents if target else PLAIN
    for part in folder.glob("*.part"):
        _overwrite(part)
    count = 0
    for path in [*folder.glob("??/*"), *(folder / SET_ASIDE).glob("*")]:
        if path.name.startswith("."):
            _overwrite(path)  # what a killed conversion left
        elif _convert_file(folder, path, ways, wanted):
            count += 1
            progress(count)
    for shard in folder.glob("??"):
        with suppress(OSError):  # the name of an empty one is the beginning of a name that is gone
            shard.rmdir()
    return count


def _convert_file(folder: Path, path: Path, ways: Sequence[PlainContents], wanted: PlainContents) -> bool:
    """Convert a file; return False if that needs no change or it is not ours."""
    for way in ways:
        sha256 = way.hash_of(path.name)
        if sha256 is None or way.name_of(sha256) != path.name:
            continue
        name = wanted.name_of(sha256)
        new = (path.parent if path.parent.name == SET_ASIDE else folder / name[:2]) / name
        make_private_folder(new.parent)
        try:
            if not new.is_file():  # else it is complete, and a conversion was killed before it removed the old one
                _write_as(path, way, new, wanted)
        except DamagedContent:
            _set_aside(path, folder / SET_ASIDE / name)
        else:
            _overwrite(path)
        return True
    return False


def _set_aside(path: Path, aside: Path) -> None:
    """Keep content that cannot be opened as it is, where the doctor finds it: it does not stop the others."""
    make_private_folder(aside.parent)
    path.replace(aside)
    flush_folder(aside.parent)


def _write_as(path: Path, way: PlainContents, new: Path, wanted: PlainContents) -> None:
    at = path.stat().st_mtime
    with path.open("rb") as source, appearing(new) as file:
        content, writer = HashedReader(way.reader(source, path.name)), wanted.writer(file)
        shutil.copyfileobj(content, writer, 1 << 20)
        writer.finish()
        file.seek(0)
        written = hashlib.file_digest(wanted.reader(file, new.name), "sha256")  # pyright: ignore[reportArgumentType]
        if written.digest() != content.digest.digest():
            raise StoreError(f"the converted {path} differs from the old one, which was not changed")
        os.utime(file.fileno(), (at, at))


# Remove


def _overwrite(path: Path) -> None:
    """Remove a file, and fill what it was with zeros."""
    if path.is_file():
        with path.open("r+b") as file:
            path.unlink()
            flush_folder(path.parent)  # so that nobody takes the zeros for its content
            _fill_with_zeros(file.fileno())


def _fill_with_zeros(handle: int) -> None:
    left = os.fstat(handle).st_size
    os.lseek(handle, 0, os.SEEK_SET)
    while left > 0:
        left -= os.write(handle, bytes(min(left, 1 << 20)))
    os.fsync(handle)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
