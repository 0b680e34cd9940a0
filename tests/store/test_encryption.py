"""Encryption at rest: nothing that was said can be read from a file, and a kill during a change loses nothing."""

import asyncio
import hashlib
import io
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.db.cipher import is_plain, open_file
from palaver.model.attachment import Attachment
from palaver.model.errors import StoreError
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.store.backup.backups import Backups
from palaver.store.backup.restore import restore, verify
from palaver.store.conversations import attachments, deletion
from palaver.store.conversations.blob_store import BlobStore, Condition
from palaver.store.encryption.contents import PLAIN
from palaver.store.encryption.conversion import convert_store
from palaver.store.encryption.stream import CHUNK, DamagedContent, SealedWriter, seal, unseal, unsealed
from palaver.store.encryption.vault import BadKey, Vault, create_vault, new_key, open_vault, parse_key
from palaver.store.opening import open_store
from palaver.store.queue import inbox, turns
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.encrypted import read_plain
from tests.store.kills import killed_at
from tests.store.world import OPERATOR, World, answer, dm, key_of

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
WORD = "plantedword"
CONTENT = f"a file with the {WORD}".encode() * 5000
KEY = parse_key(new_key())


def leaks(*folders: Path) -> list[str]:
    """Return the files whose name or content has the planted word, or the hash of the planted file."""
    signs = (WORD.encode(), hashlib.sha256(CONTENT).hexdigest().encode())
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(sign in path.name.encode() + path.read_bytes() for sign in signs)]


def blobs_of(folder: Path, vault: Vault | None) -> BlobStore:
    return BlobStore(folder / "files", vault.current.contents if vault else PLAIN)


async def fill(folder: Path, vault: Vault | None) -> None:
    key = vault.current.database if vault else None
    async with await open_store(str(folder / "palaver.db"), key=key) as store:
        await say(store, blobs_of(folder, vault))


def damage_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


async def say(store: Store, blobs: BlobStore) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield CONTENT[:100_000]
        yield CONTENT[100_000:]

    world, kept = World(store), await blobs.keep(chunks(), 10**6)
    await world.say(WORD, source=dm("7"))
    (waiting,) = await store.read(inbox.list_waiting(key_of(dm("7"))))
    file = Attachment(Label(f"{WORD}.txt"), "text/plain", len(CONTENT), kept.sha256)
    await store.transact(attachments.set_files(waiting, [file]))
    begun = await world.begin(source=dm("7"))
    assert begun
    await store.transact(turns.settle(begun.turn, [answer(f"{WORD} it is")], [], world.now))


async def holds(folder: Path, vault: Vault | None) -> None:
    """Everything is there and found."""
    key = vault.current.database if vault else None
    async with await open_store(str(folder / "palaver.db"), key=key) as store:
        assert await store.read(violations()) == []
        assert len(await store.search.find(WORD, Principal.operator())) >= 2
        found = await store.read(attachments.find(hashlib.sha256(CONTENT).hexdigest(), OPERATOR))
        blobs = blobs_of(folder, vault)
        async with blobs.reading(found.sha256 or "") as path:
            assert path
            assert path.read_bytes() == CONTENT
        assert await blobs.examine(found.sha256 or "") is Condition.INTACT
        assert [file.name for file in await blobs.list_files()] == [found.sha256]
        assert await blobs.tidy({found.sha256 or ""}, timedelta(0)) == 0


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return create_vault(tmp_path / "data/palaver.keys", KEY)


# Contents


def test_sealed_content_opens_as_it_was_and_no_other_way() -> None:
    key = os.urandom(32)
    for size in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK):
        content = os.urandom(size)
        sealed = seal(content, key)
        assert unseal(sealed, key) == content
        cut = sealed[: -(CHUNK + 16)] if size > CHUNK else sealed[:-1]
        for wrong in (cut, sealed[:-1], sealed[:-1] + bytes([sealed[-1] ^ 1]), sealed + b"x", b"no" + sealed):
            with pytest.raises(DamagedContent):
                unseal(wrong, key)
        with pytest.raises(DamagedContent):
            unseal(sealed, os.urandom(32))
    lines = unsealed(io.BytesIO(seal(b"a\n" + b"b" * CHUNK + b"\nc\n", key)), key)
    assert [len(line) for line in lines] == [2, CHUNK + 1, 2]


async def test_damaged_content_is_noticed(vault: Vault) -> None:
    folder = vault.path.parent
    await fill(folder, vault)
    (path,) = (folder / "files").glob("??/*")
    damage_last_byte(path)
    blobs, sha256 = blobs_of(folder, vault), hashlib.sha256(CONTENT).hexdigest()
    assert await blobs.examine(sha256) is Condition.DAMAGED


async def test_what_another_key_sealed_is_not_deleted_as_unused(vault: Vault, tmp_path: Path) -> None:
    folder = vault.path.parent
    await fill(folder, vault)
    others = [blobs_of(folder, None), blobs_of(folder, create_vault(tmp_path / "other.keys", KEY))]
    for blobs in others:  # no key is configured any more, or the keys were lost and made anew
        assert await blobs.tidy(set(), timedelta(seconds=-1)) == 0
        assert await blobs.list_files() == []
    await holds(folder, vault)


# Stores


async def test_nothing_that_was_said_is_readable_at_work_after_a_crash_and_in_backups(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, temporary = vault.path.parent, tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    await fill(folder, vault)
    await holds(folder, vault)
    backups = Backups(database=folder / "palaver.db", files=folder / "files", folder=tmp_path / "backups", vault=vault)
    key = vault.current.database
    async with await open_store(str(folder / "palaver.db"), key=key, exclusive=True) as store:
        await World(store).say(WORD, source=dm("8"))
        await store.search.find(WORD, Principal.operator())
        assert (folder / "palaver.db-wal").stat().st_size
        made, manifest = backups.make({"configuration.yaml": WORD.encode()}, NOW)
        shutil.copytree(folder, tmp_path / "crashed")  # as a killed process leaves it
        assert not leaks(tmp_path)
    assert not manifest.missing
    single = tmp_path / "single.tar"
    backups.make_single(single, {"configuration.yaml": WORD.encode()}, NOW)
    assert not leaks(tmp_path)
    assert (await verify(single, KEY)).problems == ()
    await holds(tmp_path / "crashed", vault)
    for archive in (made.path, single):
        place = tmp_path / f"from-{archive.stem}"
        restore(archive, place, KEY)
        await holds(place, open_vault(place / "palaver.keys", KEY))
        assert (place / "configuration.yaml").read_text() == WORD
        with pytest.raises(BadKey, match="does not open"):
            restore(archive, tmp_path / f"wrong-{archive.stem}", parse_key(new_key()))
        with pytest.raises(StoreError, match=r"is encrypted: set encryption\.key_file"):
            restore(archive, tmp_path / f"without-{archive.stem}")
    assert not list(temporary.iterdir())


async def test_a_store_that_is_not_as_configured_is_refused(vault: Vault, tmp_path: Path) -> None:
    folder = vault.path.parent
    await fill(folder, vault)
    with pytest.raises(StoreError, match="is encrypted, but no key is configured"):
        await open_store(str(folder / "palaver.db"))
    with pytest.raises(StoreError, match="damaged"):
        await open_store(str(folder / "palaver.db"), key=os.urandom(32))
    await fill(tmp_path / "plain", None)
    with pytest.raises(StoreError, match="run palaver encryption on"):
        await open_store(str(tmp_path / "plain/palaver.db"), key=vault.current.database)
    with pytest.raises(BadKey):
        open_vault(vault.path, parse_key(new_key()))
    for malformed in ("", "short", "x" * 44):
        with pytest.raises(BadKey, match="44 characters"):
            parse_key(malformed)


async def test_errors_of_an_encrypted_database_are_those_of_sqlite(vault: Vault) -> None:
    with closing(open_file(vault.path.with_name("other.db"), KEY)) as db:
        db.execute("CREATE TABLE t (a UNIQUE)")
        db.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError) as found:
            db.execute("INSERT INTO t VALUES (1)")
        assert found.value.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CONSTRAINT
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            db.execute("SELECT * FROM missing")


async def test_what_was_deleted_is_in_no_page_once_decrypted(vault: Vault) -> None:
    folder, key = vault.path.parent, vault.current.database

    def found() -> list[str]:
        return [file.name for file in folder.glob("palaver.db*") if WORD.encode() in read_plain(file, key)]

    async with await open_store(str(folder / "palaver.db"), key=key) as store:
        world = World(store)
        begun = await world.exchange(WORD, reply=f"{WORD} it is", source=dm("9"))
        await store.search.catch_up()
        assert found()
        await store.transact(deletion.delete(begun.turn.session, OPERATOR, world.now))
        await store.search.catch_up()
        await store.scrub()
        assert found() == []


# Changes


async def test_a_store_becomes_encrypted_gets_another_data_key_and_becomes_plain(vault: Vault) -> None:
    folder = vault.path.parent
    database, files = folder / "palaver.db", folder / "files"
    await fill(folder, None)
    shutil.copy(database, folder / "palaver.db.schema-3")
    await holds(folder, None)
    assert leaks(folder)
    async with await open_store(str(database), exclusive=True):
        with pytest.raises(StoreError, match="running gateway"):
            convert_store(database, files, [None], vault.current)
    assert convert_store(database, files, [None], vault.current) == 1
    assert not leaks(folder)
    await holds(folder, vault)
    assert convert_store(database, files, [None], vault.current) == 0
    renewed = vault.add_data_key()
    with pytest.raises(StoreError, match="not finished"):
        open_vault(vault.path, KEY).refuse_unfinished()
    assert convert_store(database, files, renewed.data[1:], renewed.current) == 1
    renewed = renewed.keep_only_current()
    assert open_vault(vault.path, KEY).current.secret == renewed.current.secret != vault.current.secret
    await holds(folder, renewed)
    assert not leaks(folder)
    assert convert_store(database, files, renewed.data, None) == 1
    assert is_plain(database)
    assert is_plain(folder / "palaver.db.schema-3")
    await holds(folder, None)


async def test_a_damaged_file_is_set_aside_and_stops_no_conversion(vault: Vault) -> None:
    folder, sha256 = vault.path.parent, hashlib.sha256(CONTENT).hexdigest()
    database, files = folder / "palaver.db", folder / "files"
    await fill(folder, vault)
    (path,) = files.glob("??/*")
    damage_last_byte(path)
    damaged = path.read_bytes()
    renewed = vault.add_data_key()
    for sources, target in ((renewed.data[1:], renewed.current), (renewed.data[:1], None)):
        convert_store(database, files, sources, target)
        blobs = BlobStore(files, target.contents if target else PLAIN)
        assert await blobs.examine(sha256) is Condition.SET_ASIDE
        assert [path.read_bytes() for path in files.rglob("*") if path.is_file()] == [damaged]
    assert is_plain(database)


async def test_a_converted_file_is_compared_before_the_old_one_goes(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vault.path.parent
    await fill(folder, None)

    def loses(_: SealedWriter, content: bytes) -> int:
        return len(content)

    monkeypatch.setattr(SealedWriter, "write", loses)
    with pytest.raises(StoreError, match="differs"):
        convert_store(None, folder / "files", [None], vault.current)
    monkeypatch.undo()
    await holds(folder, None)


def test_a_conversion_that_is_killed_at_any_step_goes_on(vault: Vault) -> None:
    folder = vault.path.parent
    database, files = folder / "palaver.db", folder / "files"
    asyncio.run(fill(folder, None))
    for target, sources in ((vault.current, [None]), (None, vault.data)):
        step = 0
        while killed_at(step := step + 1, lambda: convert_store(database, files, sources, target)):  # noqa: B023
            assert is_plain(database) or (database.stat().st_size and vault.current)
        assert step > 5
        asyncio.run(holds(folder, vault if target else None))
        assert bool(leaks(folder)) is (target is None)
        assert not list(folder.rglob("*.part"))


def test_a_rotation_that_is_killed_at_any_step_leaves_a_key_that_opens(vault: Vault) -> None:
    new = parse_key(new_key())

    def rotate() -> None:
        open_vault(vault.path, KEY).add_key(new).keep_only_key()

    def opens(key: bytes) -> bool:
        try:
            return open_vault(vault.path, key).current.secret == vault.current.secret
        except BadKey:
            return False

    assert repr(vault).count("key=") == 0
    step = 0
    while killed_at(step := step + 1, rotate):
        assert any(opens(key) for key in (KEY, new))
    assert step > 3
    assert open_vault(vault.path, new).current.secret == vault.current.secret
    with pytest.raises(BadKey):
        open_vault(vault.path, KEY)


def test_two_processes_that_begin_at_once_have_one_data_key(vault: Vault) -> None:
    again = create_vault(vault.path, KEY)  # it did not see the file when it looked
    assert again.current.secret == vault.current.secret == open_vault(vault.path, KEY).current.secret
    assert [path.name for path in vault.path.parent.iterdir()] == [vault.path.name]


async def test_a_running_gateway_does_not_notice_a_rotation(vault: Vault) -> None:
    folder, new = vault.path.parent, parse_key(new_key())
    key = vault.current.database
    async with await open_store(str(folder / "palaver.db"), key=key, exclusive=True) as store:
        open_vault(vault.path, KEY).add_key(new).keep_only_key()
        await say(store, blobs_of(folder, vault))
    await holds(folder, open_vault(vault.path, new))
