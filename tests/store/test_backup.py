"""Backups: complete while the gateway writes, cheap the second time, whole or not there, and restored as they were."""

import asyncio
import errno
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.db.schema import known_migrations
from palaver.model.attachment import Attachment
from palaver.model.errors import StoreError, StoreInUse
from palaver.model.label import Label
from palaver.store.backup.archive import ArchiveWriter, BadBackup, Manifest, read_manifest
from palaver.store.backup.backups import Backups
from palaver.store.backup.restore import restore, verify
from palaver.store.conversations import attachments
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import open_store
from palaver.store.queue import inbox, turns
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.kills import killed_at
from tests.store.world import OPERATOR, World, answer, dm, key_of

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
CONTENT = b"the content of a report"
EXTRA = {"configuration.yaml": b"timezone: UTC\n"}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    data = tmp_path / "data"
    return Backups(database=data / "palaver.db", files=data / "files", folder=tmp_path / "backups")


async def fill(backups: Backups, *contents: bytes, text: str = "hello") -> None:
    """A conversation with a file for each content."""
    async with await open_store(str(backups.database)) as store:
        for content in contents:
            await _say(store, BlobStore(backups.files), content, text)


async def _say(store: Store, blobs: BlobStore, content: bytes, text: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    world, kept = World(store), await blobs.keep(chunks(), 10**6)
    await world.say(text, source=dm(kept.sha256[:6]))
    (waiting,) = await store.read(inbox.list_waiting(key_of(dm(kept.sha256[:6]))))
    file = Attachment(Label("report.txt"), "text/plain", len(content), kept.sha256)
    await store.transact(attachments.set_files(waiting, [file]))
    begun = await world.begin(source=dm(kept.sha256[:6]))
    assert begun
    await store.transact(turns.settle(begun.turn, [answer("thanks")], [], world.now))


async def holds(place: Path, *contents: bytes) -> None:
    """The restored store has these files with their conversations, and nothing is wrong with it."""
    async with await open_store(str(place / "palaver.db")) as store:
        assert await store.read(violations()) == []
        blobs = BlobStore(place / "files")
        for content in contents:
            found = await store.read(attachments.find(digest(content), OPERATOR))
            kept = blobs.place(found.sha256 or "")
            assert kept
            assert kept.read_bytes() == content


async def test_what_is_restored_is_what_was_there(backups: Backups, tmp_path: Path) -> None:
    await fill(backups, CONTENT, b"more")
    at = NOW - timedelta(days=3)
    old = backups.files / digest(CONTENT)[:2] / digest(CONTENT)
    os.utime(old, (at.timestamp(), at.timestamp()))
    made, manifest = backups.make(EXTRA, NOW)
    single = tmp_path / "single.tar"
    assert backups.make_single(single, EXTRA, NOW).files == manifest.files
    assert made.path.name == "palaver-20261101T120000Z.tar"
    for archive in (made.path, single):
        place = tmp_path / archive.stem / "place"
        restore(archive, place)
        await holds(place, CONTENT, b"more")
        assert (place / "files" / digest(CONTENT)[:2] / digest(CONTENT)).stat().st_mtime == at.timestamp()
        assert (place / "configuration.yaml").read_bytes() == EXTRA["configuration.yaml"]
        names = {"palaver.db", "palaver.db.mark", "palaver.db.search", "files", "configuration.yaml"}
        assert {path.name for path in place.iterdir()} <= names | {
            "palaver.db.lock",
            "palaver.db-wal",
            "palaver.db-shm",
        }
        assert (place / "palaver.db").stat().st_mode & 0o077 == archive.stat().st_mode & 0o077 == 0
        found = await verify(archive)
        assert (found.conversations, found.entries, found.problems) == (2, 4, ())
    with pytest.raises(StoreError, match="not empty"):
        restore(single, backups.database.parent)


async def test_a_backup_while_a_gateway_writes_is_consistent(backups: Backups, tmp_path: Path) -> None:
    await fill(backups, CONTENT)
    async with await open_store(str(backups.database), exclusive=True) as store:
        writing = asyncio.create_task(_write(store))
        made, _ = await asyncio.to_thread(backups.make, {}, NOW)
        writing.cancel()
        await asyncio.wait([writing])
        restore(made.path, tmp_path / "place")
    await holds(tmp_path / "place", CONTENT)


async def _write(store: Store) -> None:
    world = World(store)
    for number in range(10_000):
        await world.exchange("again", source=dm(f"{number % 7}"))


async def test_the_second_backup_copies_only_what_is_new(backups: Backups) -> None:
    await fill(backups, CONTENT)
    backups.make({}, NOW)
    kept = backups.folder / "files" / digest(CONTENT)[:2] / digest(CONTENT)
    before = kept.stat().st_ino
    await fill(backups, b"new")
    _, manifest = backups.make({}, NOW + timedelta(hours=1))
    assert kept.stat().st_ino == before
    assert set(manifest.files) == {digest(CONTENT), digest(b"new")}


async def test_only_the_newest_are_kept_with_their_files(backups: Backups, tmp_path: Path) -> None:
    await fill(backups, CONTENT)
    backups.make({}, NOW)
    backups.database.unlink()
    for left in backups.database.parent.glob("palaver.db*"):
        left.unlink()
    await fill(backups, b"other")
    for hour in (1, 2):
        backups.make({}, NOW + timedelta(hours=hour), keep=2)
    assert [backup.at for backup in backups.list_all()] == [NOW + timedelta(hours=hour) for hour in (2, 1)]
    assert [path.name for path in (backups.folder / "files").glob("??/*")] == [digest(b"other")]
    restore(backups.list_all()[0].path, tmp_path / "place")
    await holds(tmp_path / "place", b"other")


async def test_two_backups_within_a_second_are_two(backups: Backups) -> None:
    await fill(backups, CONTENT)
    made = [backups.make({}, NOW + timedelta(milliseconds=100 * count))[0] for count in range(3)]
    names = [f"palaver-20261101T120000Z{number}.tar" for number in ("", "-2", "-3")]
    assert [backup.path.name for backup in made] == names
    assert backups.list_all() == made[::-1], "the newest first"
    for _ in range(8):
        last, _ = backups.make({}, NOW, keep=1)
        assert backups.list_all() == [last], "the new one stays"


async def test_a_missing_or_damaged_file_is_named_and_the_rest_is_there(backups: Backups) -> None:
    await fill(backups, CONTENT, b"missing", b"damaged")
    (backups.files / digest(b"missing")[:2] / digest(b"missing")).unlink()
    (backups.files / digest(b"damaged")[:2] / digest(b"damaged")).write_bytes(b"DAMAGED")
    made, manifest = backups.make({}, NOW)
    assert set(manifest.missing) == {digest(b"missing"), digest(b"damaged")}
    assert (await verify(made.path)).problems == ()


async def test_a_cut_file_beside_the_archives_is_copied_again(backups: Backups) -> None:
    await fill(backups, CONTENT)
    backups.make({}, NOW)
    (kept,) = (backups.folder / "files").glob("??/*")
    kept.write_bytes(CONTENT[:5])
    made, manifest = backups.make({}, NOW + timedelta(days=1))
    assert manifest.files == {digest(CONTENT): len(CONTENT)}
    assert (await verify(made.path)).problems == ()


def test_no_damaged_file_gets_beside_the_archives_even_if_killed(backups: Backups) -> None:
    asyncio.run(fill(backups, b"damaged"))
    (backups.files / digest(b"damaged")[:2] / digest(b"damaged")).write_bytes(b"DAMAGED")
    step = 0
    while killed_at(step := step + 1, lambda: backups.make({}, NOW)):
        assert not list((backups.folder / "files").glob("??/[!.]*"))
    assert step > 5


async def test_any_change_of_a_backup_is_found(backups: Backups, tmp_path: Path) -> None:
    await fill(backups, CONTENT)
    archive = tmp_path / "b.tar"
    backups.make_single(archive, EXTRA, NOW)
    good = archive.read_bytes()
    at = good.index(CONTENT)
    for changed in (
        good[: at - 600],
        good[: len(good) // 2],
        good.replace(CONTENT, CONTENT.upper()),
        good.replace(b"timezone: UTC", b"timezone: XYZ"),
        good.replace(b'"schema": %d' % known_migrations()[-1].number, b'"schema": 14'),
        good.replace(b'"format": "palaver backup"', b'"format": "another format"'),
        good[:5000] + b"\xff" + good[5001:],
        b"",
        b"not a backup",
    ):
        archive.write_bytes(changed)
        place = tmp_path / "place"
        with pytest.raises(BadBackup):
            restore(archive, place)
        assert list(place.iterdir()) == [], "nothing stays behind"
    archive.write_bytes(good)
    restore(archive, tmp_path / "place")


async def test_a_restore_that_fails_at_its_end_leaves_nothing(
    backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(backups, CONTENT)
    made, _ = backups.make(EXTRA, NOW)
    place, rename = tmp_path / "place", Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "palaver.db":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="Input/output error"):
            restore(made.path, place)
    assert list(place.iterdir()) == []
    restore(made.path, place)
    await holds(place, CONTENT)


async def test_a_hostile_archive_writes_nowhere_else(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    for name in ("../evil", "/tmp/evil", "files/../../evil", "sub/palaver.db"):  # noqa: S108 - nothing is written there
        with archive.open("wb") as stream:
            writer = ArchiveWriter(stream)
            writer.add_member(name, io.BytesIO(b"evil"), 4, NOW)
            writer.finish(Manifest(made=NOW, palaver="1", schema=1, members=writer.members, files={}))
        with pytest.raises(BadBackup, match="not of a backup"):
            restore(archive, tmp_path / "place")
    assert not (tmp_path / "evil").exists()


async def test_nothing_is_written_that_the_manifest_does_not_announce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tar file can unpack to any size: by sparse parts, or by parts that nobody asked for."""
    written: list[tuple[object, ...]] = []

    def copy_hashed(*args: object) -> None:
        written.append(args)

    monkeypatch.setattr("palaver.store.backup.restore.copy_hashed", copy_hashed)
    archive, empty = tmp_path / "evil.tar", Manifest(made=NOW, palaver="1", schema=1, members={}, files={})
    with archive.open("wb") as stream:
        writer = ArchiveWriter(stream)
        writer.add_member("more", io.BytesIO(b"evil"), 4, NOW)
        writer.finish(empty)
    with pytest.raises(BadBackup, match="'more' in it has not the size"):
        restore(archive, tmp_path / "place")
    sparse = tarfile.TarInfo("palaver.db")
    sparse.size, sparse.pax_headers = 4, {"GNU.sparse.major": "0", "GNU.sparse.size": "9" * 12, "GNU.sparse.map": "0,4"}
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(sparse, io.BytesIO(b"evil"))
        info = tarfile.TarInfo("manifest.json")
        content = empty.encode()
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    with pytest.raises(BadBackup, match="a sparse part"):
        restore(archive, tmp_path / "place")
    assert written == []


async def test_a_hostile_manifest_writes_nowhere_else(tmp_path: Path) -> None:
    sent = tmp_path / "sent/a/b"
    sent.mkdir(parents=True)
    (sent / "files").mkdir()
    (sent.parent.parent / "evil").write_text("evil")  # what comes with the archive
    manifest = Manifest(made=NOW, palaver="1", schema=1, members={}, files={"../../evil": 4})
    with (sent / "b.tar").open("wb") as stream:
        ArchiveWriter(stream).finish(manifest)
    with pytest.raises(BadBackup, match="not of a backup"):
        restore(sent / "b.tar", tmp_path / "place")
    assert not (tmp_path / "evil").exists()


async def test_one_backup_at_a_time(backups: Backups) -> None:
    await fill(backups, CONTENT)
    blocked: list[Exception] = []

    def meanwhile(_: int) -> None:
        try:
            backups.make({}, NOW + timedelta(hours=1))
        except StoreInUse as error:
            blocked.append(error)

    backups.make({}, NOW, progress=meanwhile)
    assert len(blocked) == 1
    assert len(backups.list_all()) == 1


async def test_two_backups_to_one_file_at_once_do_not_mix(backups: Backups, tmp_path: Path) -> None:
    await fill(backups, CONTENT)
    target, blocked = tmp_path / "same.tar", list[Exception]()

    def meanwhile(_: int) -> None:
        try:
            backups.make_single(target, {}, NOW)
        except StoreInUse as error:
            blocked.append(error)

    backups.make_single(target, {}, NOW, progress=meanwhile)
    assert "another command writes" in str(blocked)
    restore(target, tmp_path / "place")
    await holds(tmp_path / "place", CONTENT)


async def test_one_restore_at_a_time(backups: Backups, tmp_path: Path) -> None:
    await fill(backups, CONTENT)
    made, _ = backups.make({}, NOW)
    blocked: list[Exception] = []

    def meanwhile(_: int) -> None:
        try:
            restore(made.path, tmp_path / "place")
        except StoreInUse as error:
            blocked.append(error)

    restore(made.path, tmp_path / "place", progress=meanwhile)
    assert blocked
    await holds(tmp_path / "place", CONTENT)


def test_a_killed_backup_leaves_no_half_archive_and_the_next_one_is_complete(backups: Backups, tmp_path: Path) -> None:
    asyncio.run(fill(backups, CONTENT, b"more"))
    step, was_killed = 0, True
    while was_killed:
        step += 1
        now = NOW + timedelta(hours=step)
        was_killed = killed_at(step, lambda now=now: backups.make(EXTRA, now, keep=2))
        for backup in backups.list_all():
            assert read_manifest(backup.path).files
    assert step > 5
    assert 1 <= len(backups.list_all()) <= 2
    backups.make(EXTRA, NOW + timedelta(days=9))
    left = {path.name for path in backups.folder.rglob("*") if path.is_file()}
    assert not [name for name in left if name.endswith(".part")]
    restore(backups.list_all()[0].path, tmp_path / "place")
    asyncio.run(holds(tmp_path / "place", CONTENT, b"more"))


def test_a_killed_restore_leaves_no_database_and_can_be_run_again(backups: Backups, tmp_path: Path) -> None:
    asyncio.run(fill(backups, CONTENT))
    made, _ = backups.make(EXTRA, NOW)
    place, step, complete = tmp_path / "place", 0, 0
    while killed_at(step := step + 1, lambda: restore(made.path, place)):
        if (place / "palaver.db").exists():
            complete += 1
            shutil.copytree(place, copy := tmp_path / f"place-{step}")
            restore(made.path, copy)  # what is killed at its very end can be run again, too
            asyncio.run(holds(copy, CONTENT))
    assert step > 5
    assert complete
    asyncio.run(holds(place, CONTENT))
    assert json.dumps(sorted(read_manifest(made.path).files)) == json.dumps([digest(CONTENT)])
