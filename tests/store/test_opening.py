"""Opening a store: addresses, schemas and their migration, ownership, durability, closing."""

import asyncio
import hashlib
import re
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from palaver.db.file_lock import refuse_network_disk
from palaver.db.schema import Migration, known_migrations
from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model.errors import InvalidInput, NewerSchema, PalaverError, StoreError, StoreInUse, StoreUnavailable
from palaver.model.turn import Inbound
from palaver.store import opening
from palaver.store.opening import open_store
from palaver.store.queue import inbox
from palaver.store.status.invariants import violations
from tests.needs import without_rights
from tests.store.conftest import fresh_database, fresh_store
from tests.store.crash_child import Order, Victims
from tests.store.encrypted import connect
from tests.store.world import NOON, World, dm, key_of

DRIVER: Any = asyncpg  # it has no types of its own
PATIENCE = 180
"""Not a measure of speed: something that should come at all and does not, ends the test."""


def accept(text: str) -> Transaction[int | None]:
    return inbox.accept(Inbound(source=dm(message_id=text), text=text, at=NOON), key_of(dm()), NOON)


@transaction
def query(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def names(url: str) -> list[str]:
    """The ids of all messages, as a reader sees them."""
    async with await open_store(url) as store:
        rows = await store.read(query("SELECT message_id FROM inbox ORDER BY no"))
    return [row[0] for row in rows]


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Addresses

NAMES = [
    "palaver.db",
    "with space.db",
    "a#b.db",
    "a?b=c.db",
    "100%.db",
    "a%20b.db",
    "größe 日本.db",
    "'quoted';.db",
    "…",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["bare", "absolute", "url", "absolute url"])
async def test_an_address_names_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "some folder" / "made" / name
    url = {
        "bare": f"some folder/made/{name}",
        "absolute": str(path),
        "url": f"sqlite:///some%20folder/made/{quote(name)}",
        "absolute url": f"sqlite:///{quote(str(path))}",
    }[form]
    async with await open_store(url) as store:
        await store.transact(accept("kept"))
    assert path.is_file()
    assert files_in(tmp_path) == ["some folder"]
    assert await names(str(path)) == ["kept"]


async def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    await (await open_store("~/palaver.db")).close()
    assert (tmp_path / "palaver.db").is_file()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_a_postgres_address(postgres_server: str, scheme: str) -> None:
    url = await fresh_database(postgres_server)
    async with await open_store(url.replace("postgresql:", f"{scheme}:", 1)) as store:
        await store.transact(accept("kept"))
    assert await names(url) == ["kept"]


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:hunter2@db.example.org/palaver",
        "mysql://root:hun@hunter2@db.example.org/palaver",
        "mysql://root:hun/hunter2@db.example.org/palaver",
        "mysql://db.example.org/palaver?user=root&password=hunter2",
        "redis://:hunter2@localhost",
        "mysql://[hunter2",
        "sqlite://palaver.db",
        "sqlite:///",
        "",
        "  ",
    ],
)
async def test_an_unknown_address_is_one_clear_sentence(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as refused:
        await open_store(url)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert "sqlite:///" in sentence
    assert "postgresql://" in sentence
    assert "hunter2" not in sentence
    assert files_in(tmp_path) == []


async def test_a_server_that_is_not_there_is_unavailable_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="PostgreSQL does not answer") as refused:
        await open_store(f"postgresql://root:hunter2@/palaver?host={tmp_path}")
    assert "hunter2" not in str(refused.value)


async def test_a_database_that_is_not_there_is_said(postgres_server: str) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await open_store(postgres_server.replace("/postgres?", "/nowhere?"))


# Files that are no store


def palaver_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("palaver")}


@contextmanager
def no_thread_left() -> Generator[None]:
    before = palaver_threads()
    yield
    assert palaver_threads() <= before


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter."""
    made = Path(tempfile.mkdtemp(prefix="palaver-open-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_garbage(path: Path) -> None:
    path.write_bytes(b"no database at all\n" * 1000)


def make_half(path: Path) -> None:
    """The first pages of a database, and then noise."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE meta (name TEXT, value TEXT)")
        db.executemany("INSERT INTO meta VALUES (?, ?)", [("x" * 500, "y" * 500)] * 100)
        db.commit()
    content = path.read_bytes()
    path.write_bytes(content[:200] + b"\xff" * (len(content) - 200))


def make_somebody_elses(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE sessions (mine TEXT)")
        db.execute("INSERT INTO sessions VALUES ('precious')")
        db.commit()


def make_unreadable(path: Path) -> None:
    path.touch()
    path.chmod(0)


def content_of(path: Path) -> bytes:
    """What is in a file, though nobody can read it."""
    if not path.is_file():
        return b""
    mode = path.stat().st_mode
    path.chmod(0o600)
    try:
        return path.read_bytes()
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("make", [make_folder, make_garbage, make_half, make_somebody_elses, make_unreadable])
async def test_what_is_no_store_is_refused_with_a_sentence_and_left_alone(
    folder: Path, make: Callable[[Path], None]
) -> None:
    path = folder / "palaver.db"
    make(path)
    before = content_of(path)
    nobody = without_rights() if make is make_unreadable else nullcontext()
    with no_thread_left(), nobody, pytest.raises(StoreError, match=re.escape(str(path))) as refused:
        await open_store(str(path))
    assert "\n" not in str(refused.value)
    assert content_of(path) == before


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_folder_that_cannot_be_made_is_said(folder: Path, exclusive: bool) -> None:
    (folder / "file").touch()
    with pytest.raises(StoreError, match="file"):
        await open_store(str(folder / "file" / "palaver.db"), exclusive=exclusive)
    (folder / "closed").mkdir(mode=0o555)
    with without_rights(), pytest.raises(StoreError, match="closed"):
        await open_store(str(folder / "closed" / "palaver.db"), exclusive=exclusive)


# Schemas

NEWEST = known_migrations()[-1].number
NEWER = f"UPDATE meta SET value = '{NEWEST + 99}' WHERE name = 'schema'"  # noqa: S608
CURRENT = f"UPDATE meta SET value = '{NEWEST}' WHERE name = 'schema'"  # noqa: S608


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def change(url: str, *statements: str) -> None:
    """Behind the store's back."""
    if url.startswith("postgresql:"):
        connection = await DRIVER.connect(url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()
    else:
        with closing(connect(url.removeprefix("sqlite:///"))) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()


async def test_a_newer_schema_is_refused_and_untouched(store_url: str) -> None:
    async with await open_store(store_url) as store:
        await store.transact(accept("kept"))
    await change(store_url, NEWER)
    path = None if store_url.startswith("postgresql:") else Path(store_url.removeprefix("sqlite:///"))
    before = path and digest(path)
    for exclusive in (False, True):
        said = f"Install a newer Palaver.*schema {NEWEST + 99}.* up to {NEWEST}"
        with no_thread_left(), pytest.raises(NewerSchema, match=said):
            await open_store(store_url, exclusive=exclusive)
    assert (path and digest(path)) == before
    await change(store_url, CURRENT)
    assert await names(store_url) == ["kept"]


OLDER = known_migrations()
NEXT = NEWEST + 1
GOOD = Migration(
    NEXT, "next_good", "ALTER TABLE inbox ADD COLUMN mood TEXT;\nCREATE TABLE moods (no @counter) @strict;"
)
BAD = Migration(NEXT, "next_bad", "ALTER TABLE inbox ADD COLUMN mood TEXT;\nINSERT INTO nowhere VALUES (1);")


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make Palaver know these migrations."""

    def known(*migrations: Migration) -> None:
        monkeypatch.setattr(opening, "known_migrations", lambda: [*OLDER, *migrations])

    return known


async def schema_of(url: str) -> str:
    async with await open_store(url) as store:
        return (await store.read(query("SELECT value FROM meta WHERE name = 'schema'")))[0][0]


def copies(url: str) -> list[Path]:
    path = Path(url.removeprefix("sqlite:///"))
    return [] if url.startswith("postgresql:") else sorted(path.parent.glob(f"{path.name}.schema-*"))


def look_into(copy: Path) -> tuple[str, list[str]]:
    with closing(connect(copy)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        columns = [row[1] for row in db.execute("PRAGMA table_info(inbox)")]
        assert "mood" not in columns
        ids = [row[0] for row in db.execute("SELECT message_id FROM inbox ORDER BY no")]
        return db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0], ids


async def test_a_new_store_needs_no_backup(store_url: str, know: Callable[..., None]) -> None:
    know(GOOD)
    assert await schema_of(store_url) == str(NEXT)
    assert copies(store_url) == []


async def test_an_older_schema_is_backed_up_and_migrated(store_url: str, know: Callable[..., None]) -> None:
    know()
    async with await open_store(store_url) as store:
        await store.transact(accept("kept"))
    know(GOOD)
    assert await schema_of(store_url) == str(NEXT)
    assert await names(store_url) == ["kept"]
    async with await open_store(store_url) as store:
        assert await store.read(query("SELECT mood FROM inbox")) == [(None,)]
    if not store_url.startswith("postgresql:"):
        (copy,) = copies(store_url)
        assert copy.name == f"palaver.db.schema-{NEWEST}"
        assert look_into(copy) == (str(NEWEST), ["kept"])
        async with await open_store(str(copy)) as old:
            assert await old.read(violations()) == []


async def test_a_failing_migration_leaves_everything_and_can_be_tried_again(
    store_url: str, know: Callable[..., None]
) -> None:
    know()
    async with await open_store(store_url) as store:
        await store.transact(accept("kept"))
    for _ in range(2):
        know(BAD)
        with no_thread_left(), pytest.raises(StoreError, match=r"next_bad.*nowhere"):
            await open_store(store_url)
        know()
        assert await schema_of(store_url) == str(NEWEST)
        assert await names(store_url) == ["kept"]
    know(GOOD)
    assert await schema_of(store_url) == str(NEXT)
    assert await names(store_url) == ["kept"]
    for copy in copies(store_url):
        assert look_into(copy) == (str(NEWEST), ["kept"])


async def open_and_close(url: str) -> None:
    await (await open_store(url)).close()


async def test_many_openers_at_once_make_one_store(store_url: str) -> None:
    await asyncio.gather(*(open_and_close(store_url) for _ in range(8)))
    async with await open_store(store_url) as store:
        assert await store.read(violations()) == []


async def test_many_openers_at_once_migrate_once(store_url: str, know: Callable[..., None]) -> None:
    know()
    async with await open_store(store_url) as store:
        await store.transact(accept("kept"))
    know(GOOD)
    await asyncio.gather(*(open_and_close(store_url) for _ in range(8)))
    assert await schema_of(store_url) == str(NEXT)
    assert await names(store_url) == ["kept"]


async def test_openers_in_several_threads_make_one_file(tmp_path: Path) -> None:
    for number in range(5):
        url = str(tmp_path / f"{number}.db")
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, open_and_close(url)) for _ in range(6)))
        assert await names(url) == []


async def test_a_slower_opener_does_not_overwrite_the_backup(
    tmp_path: Path, know: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two openers find an old schema; the second makes its backup when the first has migrated already."""
    url = str(tmp_path / "palaver.db")
    know()
    async with await open_store(url) as store:
        await store.transact(accept("kept"))
    know(GOOD)
    back_up, calls = opening.back_up, iter(range(10))

    def back_up_late(path: Path, version: int, key: bytes | None) -> None:
        with closing(sqlite3.connect(path)) as db:
            late = next(calls) > 0
            while late and db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() == (str(NEWEST),):
                pass
        back_up(path, version, key)

    monkeypatch.setattr(opening, "back_up", back_up_late)
    # Each in a loop of its own: one that is late holds its loop up.
    await asyncio.gather(*(asyncio.to_thread(lambda: asyncio.run(open_and_close(url))) for _ in range(2)))
    assert look_into(tmp_path / f"palaver.db.schema-{NEWEST}") == (str(NEWEST), ["kept"])


# Ownership


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with closing(Victims()) as started:
        yield started


async def test_one_gateway_per_file_commands_beside_it(tmp_path: Path, victims: Victims) -> None:
    url = str(tmp_path / "palaver.db")
    pid = victims.start(Order(url=url, worker="other", exclusive=True, round=0))
    victims.wait_until_open()
    with pytest.raises(StoreInUse, match=rf"palaver\.db belongs to a running gateway \(pid {pid} on "):
        await open_store(url, exclusive=True)
    async with await open_store(url) as beside:
        assert await beside.transact(accept("beside")) is not None
        assert await beside.read(query("SELECT count(*) FROM inbox")) != [(0,)]
    victims.kill(pid, 0, once_open=True)
    async with await open_store(url, exclusive=True) as store:
        await store.transact(accept("after"))
    assert {"beside", "after"} <= set(await names(url))


async def test_a_gateway_that_closed_or_failed_frees_the_file(tmp_path: Path) -> None:
    url = str(tmp_path / "palaver.db")
    await (await open_store(url, exclusive=True)).close()
    await change(url, NEWER)
    with pytest.raises(NewerSchema):
        await open_store(url, exclusive=True)
    await change(url, CURRENT)
    await (await open_store(url, exclusive=True)).close()


async def test_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    url, link = str(tmp_path / "palaver.db"), tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(url)
    async with await open_store(url, exclusive=True):
        with pytest.raises(StoreInUse):
            await open_store(str(link), exclusive=True)


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /tmp rw - tmpfs tmpfs rw
31 22 0:27 / /var/lib/docker rw - overlay overlay rw
40 22 0:40 / /net/nfs rw - nfs4 server:/export rw
41 40 8:2 / /net/nfs/local\\040disk rw - ext4 /dev/sdb1 rw
42 22 0:42 / /mnt/windows\\040share rw master:1 propagate_from:2 - cifs //server/share rw
43 22 0:43 / /users/me/remote rw - fuse.sshfs me@host: rw
44 22 0:44 / /users/me/archive rw - fuse.archivemount x rw
45 22 8:3 / /over rw - ext4 /dev/sdc1 rw
46 22 0:46 / /over rw - nfs4 server:/export rw
"""


@pytest.mark.parametrize(
    ("folder_name", "kind"),
    [
        ("/net/nfs", "nfs4"),
        ("/net/nfs/deep/down", "nfs4"),
        ("/mnt/windows share/palaver", "cifs"),
        ("/users/me/remote/x", "fuse.sshfs"),
        ("/over/and/under", "nfs4"),
    ],
)
def test_a_network_disk_is_refused(folder_name: str, kind: str) -> None:
    with pytest.raises(StoreError, match=rf"network file system \({kind}\).*postgresql://"):
        refuse_network_disk(Path(folder_name), MOUNTS)


@pytest.mark.parametrize(
    "folder_name",
    ["/", "/users/me", "/tmp/x", "/var/lib/docker/x", "/net/nfs/local disk/x", "/net/nfs2", "/users/me/archive"],  # noqa: S108
)
def test_a_local_disk_is_not(folder_name: str) -> None:
    refuse_network_disk(Path(folder_name), MOUNTS)


def test_where_nothing_is_known_about_mounts_nothing_is_refused() -> None:
    for mounts in ("", "nonsense\n1 2 3\n", "22 1 8:1 / /\n"):
        refuse_network_disk(Path("/anywhere"), mounts)


# Durability and the two kinds of access


@transaction
def pragmas() -> Statements[tuple[int, str]]:
    synchronous = yield "PRAGMA synchronous", ()
    journal = yield "PRAGMA journal_mode", ()
    return synchronous[0][0], journal[0][0]


async def test_commits_are_durable(store_url: str) -> None:
    async with await open_store(store_url) as store:
        if store_url.startswith("postgresql:"):
            assert await store.transact(query("SHOW synchronous_commit")) == [("on",)]
        else:
            full = 2
            assert await store.transact(pragmas()) == (full, "wal")


class Pause:
    """Transaction that stops in the middle of its transaction until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    @property
    def work(self) -> Transaction[None]:
        return Transaction(self._steps)

    def _steps(self) -> Statements[None]:
        yield from accept("paused")
        self.reached.set()
        assert self.let_go.wait(PATIENCE)

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE)


async def test_readers_do_not_wait_for_a_long_write(tmp_path: Path) -> None:
    url, pause = str(tmp_path / "palaver.db"), Pause()
    async with await open_store(url) as store, await open_store(url) as beside:
        await store.transact(accept("before"))
        writing = asyncio.create_task(store.transact(pause.work))
        await pause.until_reached()
        for each in (store, beside):
            assert await each.read(query("SELECT count(*) FROM inbox")) == [(1,)]
        assert not writing.done()
        pause.let_go.set()
        await writing
        for each in (store, beside):
            assert await each.read(query("SELECT count(*) FROM inbox")) == [(2,)]


async def test_readers_do_not_wait_for_a_long_write_on_a_server(postgres_server: str) -> None:
    url = await fresh_database(postgres_server)
    async with await open_store(url) as store:
        await store.transact(accept("before"))
        connection = await DRIVER.connect(url)
        await connection.execute("BEGIN")
        await connection.execute("UPDATE inbox SET reason = 'long'")
        async with asyncio.timeout(PATIENCE):
            assert await store.read(query("SELECT reason FROM inbox")) == [(None,)]
        await connection.execute("COMMIT")
        await connection.close()
        assert await store.read(query("SELECT reason FROM inbox")) == [("long",)]


async def test_what_only_reads_cannot_write(store_url: str) -> None:
    async with await open_store(store_url) as store:
        with pytest.raises(Exception, match=r"(?i)read-?only"):
            await store.read(accept("never"))
        assert await store.read(query("SELECT count(*) FROM inbox")) == [(0,)]


async def test_a_reader_sees_one_state(store_url: str) -> None:
    """Between two looks of one read somebody writes; both looks show the same."""
    looked, written = threading.Event(), threading.Event()

    @transaction
    def look_twice() -> Statements[tuple[list[Row], list[Row]]]:
        first = yield "SELECT count(*) FROM inbox", ()
        looked.set()
        if not store_url.startswith("postgresql:"):
            assert written.wait(PATIENCE)
        else:
            yield "SELECT pg_sleep(0.3)", ()
        return first, (yield "SELECT count(*) FROM inbox", ())

    async with await open_store(store_url) as store:
        reading = asyncio.create_task(store.read(look_twice()))
        assert await asyncio.to_thread(looked.wait, PATIENCE)
        await store.transact(accept("meanwhile"))
        written.set()
        assert await reading == ([(0,)], [(0,)])
        assert await store.read(query("SELECT count(*) FROM inbox")) == [(1,)]


# Cancellation


async def test_a_cancelled_work_that_waits_or_runs_leaves_nothing(tmp_path: Path) -> None:
    url, pause = str(tmp_path / "palaver.db"), Pause()
    async with await open_store(url) as store:
        running = asyncio.create_task(store.transact(pause.work))
        await pause.until_reached()
        waiting = [asyncio.create_task(store.transact(accept(f"m{n}"))) for n in range(10)]
        await asyncio.sleep(0)
        for task in (running, *waiting[::2]):
            task.cancel()
        await asyncio.wait([running, *waiting[::2]])
        assert all(task.cancelled() for task in (running, *waiting[::2]))
        pause.let_go.set()
        await asyncio.gather(*waiting[1::2])
        rows = await store.read(query("SELECT message_id FROM inbox ORDER BY no"))
        assert [row[0] for row in rows] == ["m1", "m3", "m5", "m7", "m9"]


async def test_a_work_that_is_cancelled_while_it_waits_is_never_begun(tmp_path: Path) -> None:
    begun: list[str] = []

    @transaction
    def note(text: str) -> Statements[None]:
        begun.append(text)
        yield from accept(text)

    pause = Pause()
    async with await open_store(str(tmp_path / "palaver.db")) as store:
        running = asyncio.create_task(store.transact(pause.work))
        await pause.until_reached()
        waiting = [asyncio.create_task(store.transact(note(text))) for text in "abc"]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
        pause.let_go.set()
        await asyncio.gather(running, waiting[0], waiting[2])
        assert begun == ["a", "c"]


async def test_a_full_disk_leaves_nobody_waiting_and_nothing_halfway(tmp_path: Path) -> None:
    """SQLite rolls back the whole transaction: everybody in it learns of it, and the next one gets through."""

    @transaction
    def fill() -> Statements[None]:
        pages = yield "PRAGMA page_count", ()
        yield f"PRAGMA max_page_count = {pages[0][0] + 5}", ()
        yield "INSERT INTO meta (name, value) VALUES ('large', ?)", ("x" * 100_000,)

    pause, url = Pause(), str(tmp_path / "palaver.db")
    async with await open_store(url) as store:
        running = asyncio.create_task(store.transact(pause.work))
        await pause.until_reached()
        steps: list[Transaction[Any]] = [accept("a"), fill(), accept("b")]
        together = asyncio.gather(*map(store.transact, steps), return_exceptions=True)
        await asyncio.sleep(0)
        pause.let_go.set()
        await running
        assert all(isinstance(each, StoreUnavailable) and "disk is full" in str(each) for each in await together)
        await store.transact(accept("after"))
    assert await names(url) == ["paused", "after"]


async def test_a_file_that_others_hold_is_unavailable(tmp_path: Path) -> None:
    async with await open_store(str(tmp_path / "palaver.db")) as store:
        with closing(sqlite3.connect(tmp_path / "palaver.db", isolation_level=None)) as other:
            await store.transact(_impatient())
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.transact(accept("held up"))
            other.execute("ROLLBACK")
        await store.transact(accept("after"))
        with pytest.raises(StoreError) as wrong:
            await store.transact(_wrong())
        assert not isinstance(wrong.value, StoreUnavailable)


@transaction
def _impatient() -> Statements[None]:
    yield "PRAGMA busy_timeout = 1", ()


@transaction
def _wrong() -> Statements[None]:
    yield "SELECT nothing FROM nowhere", ()


@pytest.mark.parametrize(("code", "passes"), [("25P04", True), ("53100", True), ("57014", True), ("22012", False)])
async def test_what_a_server_cannot_do_now_it_may_do_later(postgres_server: str, code: str, passes: bool) -> None:
    @transaction
    def fails() -> Statements[None]:
        yield f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$", ()

    async with await open_store(await fresh_store(postgres_server)) as store:
        with pytest.raises(StoreError) as refused:
            await store.transact(fails())
        assert isinstance(refused.value, StoreUnavailable) == passes


async def test_the_failure_of_one_work_takes_back_nothing_of_the_others(tmp_path: Path) -> None:
    """All of them wait together and are committed together."""

    @transaction
    def fail(text: str) -> Statements[None]:
        yield from accept(text)
        raise PalaverError(text)

    @transaction
    def fail_in_sql(text: str) -> Statements[None]:
        yield from accept(text)
        yield "INSERT INTO nowhere VALUES (1)", ()

    pause = Pause()
    async with await open_store(str(tmp_path / "palaver.db")) as store:
        running = asyncio.create_task(store.transact(pause.work))
        await pause.until_reached()
        steps: list[Transaction[Any]] = [accept("a"), fail("b"), accept("c"), fail_in_sql("d"), accept("e")]
        together = asyncio.gather(*map(store.transact, steps), return_exceptions=True)
        await asyncio.sleep(0)
        pause.let_go.set()
        results = await together
        await running
        assert [type(result) for result in results] == [int, PalaverError, int, StoreError, int]
        rows = await store.read(query("SELECT message_id FROM inbox ORDER BY no"))
        assert [row[0] for row in rows] == ["paused", "a", "c", "e"]


# Closing


async def test_closing_leaves_no_thread_and_no_log_behind(tmp_path: Path) -> None:
    url = str(tmp_path / "palaver.db")
    with no_thread_left():
        async with await open_store(url, exclusive=True) as store:
            await World(store).exchange("hello")
            assert (tmp_path / "palaver.db-wal").exists()
            assert palaver_threads()
    assert not [name for name in files_in(tmp_path) if name.endswith(("-wal", "-shm"))]


async def test_closing_leaves_nobody_waiting(store_url: str) -> None:
    """What was asked for before is done, or said not to be; SQLite does it all."""
    store = await open_store(store_url)
    asked = {f"m{n}": asyncio.create_task(store.transact(accept(f"m{n}"))) for n in range(30)}
    await asyncio.sleep(0)
    await store.close()
    await asyncio.wait_for(asyncio.gather(*asked.values(), return_exceptions=True), PATIENCE)
    failures = {name: task.exception() for name, task in asked.items()}
    assert all(failure is None or isinstance(failure, StoreError) for failure in failures.values())
    done = {name for name, failure in failures.items() if failure is None}
    perhaps = {name for name, failure in failures.items() if "it is not known whether" in str(failure)}
    assert done <= set(await names(store_url)) <= done | perhaps
    assert len(done) == 30 or store_url.startswith("postgresql:")


async def test_a_closed_store_says_so(store_url: str) -> None:
    store = await open_store(store_url)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(store.transact(accept("late")), PATIENCE)
    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(store.read(query("SELECT 1")), PATIENCE)


def test_a_loop_that_ends_with_an_open_store_leaves_the_file_sound(tmp_path: Path) -> None:
    """Nobody closed it, somebody was cancelled: the next one to come finds what was committed."""
    url = str(tmp_path / "palaver.db")

    async def leave() -> None:
        store = await open_store(url)
        await store.transact(accept("kept"))

    asyncio.run(leave())
    assert asyncio.run(names(url)) == ["kept"]
    with closing(sqlite3.connect(url)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_what_is_stored_is_nobody_elses_business(tmp_path: Path) -> None:
    path = tmp_path / "new" / "palaver.db"
    async with await open_store(str(path)) as store:
        await World(store).exchange("secret")
        await store.search.catch_up()
        assert (tmp_path / "new").stat().st_mode & 0o077 == 0
        assert [
            file.name for file in path.parent.iterdir() if file.suffix != ".lock" and file.stat().st_mode & 0o077
        ] == []


@pytest.mark.parametrize("put_back", [False, True])
async def test_nothing_is_accepted_into_a_file_that_was_removed_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put_back: bool
) -> None:
    monkeypatch.setattr("palaver.db.sqlite._FILE_CHECK_SECONDS", 0.0)
    path = tmp_path / "palaver.db"
    async with await open_store(str(path)) as store:
        world = World(store)
        await world.exchange("one")
        kept = path.with_suffix(".kept")
        path.rename(kept)
        if put_back:
            path.touch()
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await world.say("two")
        kept.replace(path)
        assert await world.say("three") is not None
