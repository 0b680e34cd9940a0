"""`palaver encryption` from the outside: switch it on, change keys, lose the disk, open exports, switch it off."""

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.db.private_files import make_private_folder
from palaver.gateway import vault
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.encryption.vault import changing, create_vault, new_key, parse_key
from palaver.store.opening import open_store
from tests.cli.processes import run_on_full_disk
from tests.cli.test_backup import ARCHIVE, Palaver, palaver, sessions
from tests.store.conftest import fresh_database
from tests.store.test_blob_store import pieces

__all__ = ["palaver"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "own.yaml"))
    (tmp_path / "own.yaml").write_text("timezone: UTC\n")
    return tmp_path / "own.yaml"


def test_encrypt_rotate_back_up_restore_export_and_decrypt(
    palaver: Palaver, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    palaver("sessions", "import", str(ARCHIVE))
    before = sessions(palaver)
    assert "no key is configured" in palaver("encryption", "on", code=1)
    key = tmp_path / "palaver.key"
    assert "Keep a copy" in palaver("encryption", "key", "-o", str(key))
    assert key.stat().st_mode & 0o077 == 0
    first = key.read_text().strip()
    config.write_text(f"timezone: UTC\nencryption: {{key_file: {key.name}}}\n")
    assert "database         not encrypted" in palaver("encryption", "status")
    assert "Everything is encrypted" in palaver("encryption", "on")
    assert sessions(palaver) == before
    with changing(tmp_path / "place/palaver.keys"):
        for change in (["rotate"], ["rotate", "--finish"], ["renew"], ["on"], ["off", "--yes"]):
            assert "another command changes the keys" in palaver("encryption", *change, code=75)
    assert key.read_text().strip() == first
    assert b"oak shelf" not in (tmp_path / "place/palaver.db").read_bytes()
    assert "oak shelf" in palaver("sessions", "search", "oak", "shelf")
    made = json.loads(palaver("backup", "--json"))["file"]
    old = tmp_path / "old.key"
    old.write_text(first)
    assert "The new key is in" in palaver("encryption", "rotate")
    assert key.read_text().strip() != first
    assert sessions(palaver) == before
    assert "does not open" in palaver("backup", "verify", made, code=1)
    assert "complete and restores" in palaver("backup", "verify", made, "--key-file", str(old))
    export, plain = tmp_path / "all.jsonl", tmp_path / "plain.jsonl"
    palaver("sessions", "export", "--all", "-o", str(export))
    assert b"oak shelf" not in export.read_bytes()
    assert "oak shelf" in palaver("encryption", "open", str(export))
    palaver("sessions", "export", "--all", "--plain", "-o", str(plain))
    assert b"oak shelf" in plain.read_bytes()
    assert "new data key" in palaver("encryption", "renew")
    assert sessions(palaver) == before
    printed = palaver("config", "show") + palaver("encryption", "status") + palaver("encryption", "status", "--json")
    assert not any(secret in printed for secret in (first, key.read_text().strip()))
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "new"))
    palaver("sessions", "import", str(export))
    assert len(sessions(palaver)) == len(before)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "restored"))
    assert "as of" in palaver("restore", made, "--key-file", str(old))
    assert "does not open" in palaver("sessions", "list", code=1)
    config.write_text(f"timezone: UTC\nencryption: {{key_file: {old.name}}}\n")
    assert "Both keys open" in palaver("encryption", "rotate", "--new-key-file", str(key))
    config.write_text(f"timezone: UTC\nencryption: {{key: {key.read_text().strip()}}}\n")
    assert "Only the configured key" in palaver("encryption", "rotate", "--finish")
    assert sessions(palaver) == before
    assert "you replace it yourself" in palaver("encryption", "rotate", code=2)
    assert "Everything is decrypted" in palaver("encryption", "off", "--yes")
    assert "Nothing is encrypted" in palaver("encryption", "off", "--yes")  # it was killed when all was done
    config.write_text("timezone: UTC\n")
    assert sessions(palaver) == before


def test_a_rotation_is_not_finished_with_the_old_key(palaver: Palaver, config: Path, tmp_path: Path) -> None:
    for name in ("old", "new"):
        palaver("encryption", "key", "-o", str(tmp_path / f"{name}.key"))

    def configure(name: str) -> None:
        config.write_text(f"encryption: {{key_file: {name}.key}}\n")

    configure("old")
    palaver("sessions", "import", str(ARCHIVE))
    before = sessions(palaver)
    palaver("encryption", "rotate", "--new-key-file", str(tmp_path / "new.key"))
    said = palaver("encryption", "rotate", "--finish", code=1)
    assert "2 keys open the store, and the configured one is not the newest: configure the new key" in said
    assert "2 keys open the store: first run" in palaver("encryption", "renew", code=1)
    for name in ("new", "old"):
        configure(name)
        assert sessions(palaver) == before, "both keys still open it"
    palaver("encryption", "rotate", "--new-key-file", str(tmp_path / "old.key"))  # as the sentence says
    palaver("encryption", "rotate", "--finish")
    assert sessions(palaver) == before
    configure("new")
    assert "does not open" in palaver("sessions", "list", code=1)


def test_lost_keys_are_named_and_no_folder_tells_of_a_plain_file(
    palaver: Palaver, config: Path, tmp_path: Path
) -> None:
    files, keys = tmp_path / "place/files", tmp_path / "place/palaver.keys"
    palaver("sessions", "import", str(ARCHIVE))
    blob = files / hashlib.sha256(b"x").hexdigest()[:2] / hashlib.sha256(b"x").hexdigest()
    make_private_folder(blob.parent)
    blob.write_bytes(b"x")
    palaver("encryption", "key", "-o", str(tmp_path / "a.key"))
    config.write_text("encryption: {key_file: a.key}\n")
    assert "nothing is encrypted yet" in palaver("encryption", "renew", code=1)
    assert "and 1 file." in palaver("encryption", "on")
    assert [list(shard.iterdir()) != [] for shard in files.glob("??")] == [True], "its first letters are gone, too"
    keys.rename(tmp_path / "kept")
    assert "encryption       its keys are missing" in palaver("encryption", "status")
    for change in (["rotate"], ["renew"], ["off", "--yes"]):
        assert "are missing: put them back" in palaver("encryption", *change, code=1)
    (tmp_path / "kept").rename(keys)
    config.write_text("timezone: UTC\n")
    assert "encryption       no key is configured" in palaver("encryption", "status")


def test_on_a_full_disk_nothing_changes(palaver: Palaver, config: Path, tmp_path: Path) -> None:
    palaver("sessions", "import", str(ARCHIVE))
    before = sessions(palaver)
    palaver("encryption", "key", "-o", str(tmp_path / "a.key"))
    config.write_text("encryption: {key_file: a.key}\n")
    said = run_on_full_disk(64, "encryption", "on", environment=os.environ)
    assert (said.returncode, "cannot be converted, and was not changed" in said.stderr) == (75, True), said.stderr
    palaver("encryption", "on")
    assert sessions(palaver) == before


def test_a_key_that_changes_between_two_looks_opens_the_store(
    palaver: Palaver, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = config.with_name("a.key")
    palaver("encryption", "key", "-o", str(key))
    config.write_text(f"encryption: {{key_file: {key.name}}}\n")
    palaver("sessions", "import", str(ARCHIVE))
    before, first = sessions(palaver), key.read_text()

    def rotate(database: Path, key: bytes | None) -> None:  # your key was read, the keys that it opens were not
        monkeypatch.undo()
        monkeypatch.setenv("PALAVER_CONFIG", str(config))
        monkeypatch.setenv("PALAVER_HOME", str(database.parent))
        palaver("encryption", "rotate")
        vault.refuse_other_encryption(database, key)

    monkeypatch.setattr(vault, "refuse_other_encryption", rotate)
    assert sessions(palaver) == before
    assert key.read_text() != first


def test_a_key_from_the_keyring(palaver: Palaver, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: dict[tuple[str, str], str] = {}

    def get_password(service: str, entry: str) -> str | None:
        return entries.get((service, entry))

    monkeypatch.setattr("keyring.get_password", get_password)
    config.write_text("encryption: {keyring: main}\n")
    assert "keyring set palaver main" in palaver("sessions", "import", str(ARCHIVE), code=1)
    entries["palaver", "main"] = palaver("encryption", "key").strip()
    palaver("sessions", "import", str(ARCHIVE))
    assert "database         encrypted" in palaver("encryption", "status")
    config.write_text("encryption: {keyring: main, key_file: other.key}\n")
    assert "cannot be in" in palaver("sessions", "list", code=2)


def test_keys_in_a_backup_are_no_configuration(palaver: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_ENCRYPTION__KEY", new_key())
    palaver("sessions", "import", str(ARCHIVE))
    assert json.loads(palaver("backup", "--json"))["configuration"] == "no"


async def test_files_beside_postgresql_are_not_converted_under_a_gateway(
    palaver: Palaver, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await fresh_database(postgres_server)
    monkeypatch.setenv("PALAVER_STORE", server)
    monkeypatch.setenv("PALAVER_ENCRYPTION__KEY", new_key())
    async with await open_store(server, exclusive=True):
        assert "gateway" in await asyncio.to_thread(palaver, "encryption", "on", code=75)
    said = await asyncio.to_thread(palaver, "encryption", "on")
    assert "The files on this machine are encrypted: 0. The database in PostgreSQL is as before" in said
    monkeypatch.delenv("PALAVER_ENCRYPTION__KEY")
    assert "no key is configured" in await asyncio.to_thread(palaver, "sessions", "list", code=1)


def test_lost_keys_of_files_beside_postgresql_are_not_made_anew(
    palaver: Palaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New keys would open none of the files, and what came after would not open with the old ones."""
    monkeypatch.setenv("PALAVER_STORE", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("PALAVER_ENCRYPTION__KEY", new_key())
    keys = tmp_path / "place/palaver.keys"
    made = create_vault(keys, parse_key(os.environ["PALAVER_ENCRYPTION__KEY"]))
    asyncio.run(BlobStore(tmp_path / "place/files", made.current.contents).keep(pieces(b"a picture"), 9))
    keys.unlink()
    for command, code in (("sessions list", 1), ("encryption on", 1), ("up", 2)):
        said = palaver(*command.split(), code=code)
        assert f"the keys {keys} are missing" in said
        assert "put back a copy of palaver.keys, or move that folder away" in said
    assert not keys.exists()


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.startswith(("cryptography", "palaver.store.encryption.vault"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["encryption", "key"]) == 2
    said = capsys.readouterr().err
    assert "Encryption needs cryptography" in said
    assert "'sqlcipher3" in said
