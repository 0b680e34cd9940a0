"""A gateway whose database is damaged: it says so at its start or when it reads it, and writes no more."""

import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreDamaged
from palaver.store.opening import open_store
from palaver.web.errors import STORE_DAMAGED, error_text, status_of
from tests.cli.processes import PATIENCE, Place, read_until, until
from tests.ports import free_port

ARCHIVE = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    done = made.run("sessions", "import", str(ARCHIVE))
    assert done.returncode == 0, done.stderr
    try:
        yield made
    finally:
        made.close()


def file_of(place: Place) -> Path:
    return place.home / "palaver.db"


def overwrite_page(file: Path, name: str) -> None:
    """Overwrite the first page of a table or an index."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\x00" * size)


def test_four_bytes_of_the_schema_that_are_no_text_are_named(place: Place) -> None:
    content = file_of(place).read_bytes()
    at = content.index(b"CREATE TABLE") + len("CREATE T")
    file_of(place).write_bytes(content[:at] + b"\xff\xfe\xfd\x80" + content[at + 4 :])
    for words in (("up",), ("doctor", "--no-test"), ("sessions", "list")):
        done = place.run(*words)
        said = done.stdout + done.stderr
        assert (done.returncode, "Traceback" in said, "is damaged: malformed" in " ".join(said.split())) == (
            1 if words != ("up",) else done.returncode,
            False,
            True,
        ), said
        assert done.returncode


@pytest.mark.parametrize("name", ["turns", "inbox", "sqlite_autoindex_sessions_1"])
def test_a_damaged_page_is_said_at_the_start(place: Place, name: str) -> None:
    overwrite_page(file_of(place), name)
    before = file_of(place).read_bytes()
    done = place.run("up")
    assert f"the database {file_of(place)} is damaged: database disk image is malformed" in done.stderr
    assert (done.returncode != 0, file_of(place).read_bytes() == before) == (True, True)


def test_damage_that_is_read_later_is_answered_with_503_and_nothing_is_written(place: Place) -> None:
    port = free_port()
    place.configure(f"web: {{port: {port}}}\n")
    gateway = place.up()
    for name in ("inbox", "turns", "sessions", "outbox"):
        overwrite_page(file_of(place), name)
    place.start("chat", "-m", "hello")
    read_until(gateway, "action=store.damaged")

    def answer() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=PATIENCE) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    until(lambda: answer() == (503, f"{STORE_DAMAGED}\n"))


async def test_nothing_is_written_after_damage_was_read(place: Place) -> None:
    @transaction
    def note(text: str) -> Statements[None]:
        yield "INSERT INTO meta (name, value) VALUES (?, 'x')", (text,)

    @transaction
    def look() -> Statements[None]:
        yield "SELECT * FROM turns", ()

    async with await open_store(str(file_of(place)), exclusive=True) as store:
        await store.transact(note("before"))
        assert store.damage == ""
        overwrite_page(file_of(place), "turns")
        await store.transact(note("still"))
        for attempt in (store.read, store.transact):
            with pytest.raises(StoreDamaged) as caught:
                await attempt(look())
        with pytest.raises(StoreDamaged):
            await store.transact(note("after"))
        assert "is damaged" in store.damage
        assert (status_of(caught.value), error_text(caught.value)) == (503, STORE_DAMAGED)
    with closing(sqlite3.connect(file_of(place))) as db, suppress(sqlite3.DatabaseError):
        kept = {row[0] for row in db.execute("SELECT name FROM meta")}
        assert ({"before", "still"} <= kept, "after" in kept) == (True, False)
