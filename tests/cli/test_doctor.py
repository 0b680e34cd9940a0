"""`palaver doctor`: says that all is well, finds what is not, makes nothing."""

import asyncio
import errno
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.db.file_lock import FileLock
from palaver.db.schema import known_migrations
from palaver.store.damage import leftovers
from palaver.store.opening import open_store
from palaver.store.status.permissions import make_private
from tests.cli.test_surroundings import nobody
from tests.packages import bring

SERVER = Path(__file__).parents[1] / "tools/bad_server.py"
EXAMPLE = str(Path(__file__).parents[2] / "docs/examples/sessions.jsonl")


@pytest.fixture
def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = str(tmp_path / "palaver.db")
    assert main(["sessions", "import", EXAMPLE, "--store", path]) == 0
    capsys.readouterr()
    return path


def test_all_is_well(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--store", store]) == 0
    printed = capsys.readouterr().out
    assert "Everything is fine." in printed
    assert "P1, nothing accepted is lost: every received message has a known state" in printed
    assert "P4, nothing is irreversible: " in printed
    assert main(["doctor", "--store", store, "--rebuild-search", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    names = ["disk", "data directory", "permissions", "versions", "agent", "search index"]
    assert [check["name"] for check in found["checks"][:6]] == names
    assert found["checks"][4]["found"] == "it answers"
    assert found["checks"][5]["found"].startswith("rebuilt from ")


def test_what_is_broken_is_named_with_a_way_to_mend_it(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.execute("UPDATE routes SET session_no = 99")
        db.commit()
    assert main(["doctor", "--store", store, "--json"]) == 1
    broken = [check for check in json.loads(capsys.readouterr().out)["checks"] if not check["ok"]]
    assert any("every route points to a session" in check["name"] for check in broken)
    assert all(check["fix"] for check in broken)


def damage(store: str, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_damage_is_repaired_after_a_copy_was_made(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store, "UPDATE routes SET session_no = 99", "DROP INDEX one_open_turn_per_key")
    assert main(["doctor", "--store", store]) == 1
    assert "stop the gateway and run palaver doctor --repair: it points it" in capsys.readouterr().out
    assert main(["doctor", "--repair", "--store", store]) == 2
    printed = capsys.readouterr()
    assert "Use --yes to do it without asking, for example palaver doctor --repair --yes" in printed.err
    assert "index turns.one_open_turn_per_key is missing" in printed.out, "it lists what it found before it asks"
    assert main(["doctor", "--repair", "--yes", "--store", store]) == 0
    printed = capsys.readouterr()
    assert "mended  schema: index turns.one_open_turn_per_key is missing" in printed.out
    assert "Everything" in printed.out
    (copy,) = Path(store).parent.glob("palaver.db.repair-*")
    assert f"{copy.name} is the database as it was before the repair." in printed.err
    assert copy.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT DISTINCT session_no FROM routes").fetchall() == [(99,)]
    assert main(["doctor", "--repair", "--yes", "--json", "--store", store]) == 0
    assert json.loads(capsys.readouterr().out)["ok"], "there is nothing to repair any more, and nothing to ask"


def test_a_report_says_what_was_made_again_and_what_is_not_known(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(store, "DELETE FROM sessions", "DELETE FROM routes")
    assert main(["doctor", "--no-test", "--repair", "--yes", "--store", store]) == 0
    printed = capsys.readouterr().out
    assert "its row was lost" in printed
    assert "are not known" in printed
    assert "Everything works. Read the warnings above." in printed


def test_what_was_set_aside_is_warned_of_until_it_is_dismissed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(store)) as db:
        columns = "at, from_table, row_name, reason, content"
        db.execute(f"INSERT INTO set_aside ({columns}) VALUES (1, 'entries', '7', 'cannot be read', '{{}}')")  # noqa: S608
        db.commit()
    assert main(["doctor", "--no-test", "--store", store]) == 0
    printed = capsys.readouterr().out
    assert "entries 7 (cannot be read)" in printed
    assert "once you have read this, run palaver doctor --dismiss" in printed
    assert "Everything works. Read the warnings above." in printed
    assert main(["doctor", "--no-test", "--dismiss", "--store", store]) == 0
    assert "Everything is fine." in capsys.readouterr().out
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT count(*) FROM set_aside").fetchone() == (1,), "nothing is deleted"


def test_without_room_for_a_copy_nothing_is_repaired(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    damage(store, "UPDATE routes SET session_no = 99")
    monkeypatch.setattr(leftovers, "_copy", fill)
    assert main(["doctor", "--no-test", "--repair", "--yes", "--store", store]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "The database could not be copied, so nothing was repaired: [Errno 28] No space left on device." in said
    assert not list(Path(store).parent.glob("palaver.db.repair-*"))


def test_what_a_gateway_uses_is_not_repaired(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store, "UPDATE routes SET session_no = 99")
    lock = FileLock(Path(store))
    lock.take()
    assert main(["doctor", "--repair", "--yes", "--store", store]) == 75
    assert "belongs to a running gateway" in capsys.readouterr().err
    lock.release()
    assert not list(Path(store).parent.glob("palaver.db.repair-*"))


@pytest.mark.parametrize("change", ["DROP TABLE meta", "UPDATE meta SET value = '5'"])
def test_a_wrong_schema_version_is_seen_and_corrected(
    store: str, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(store, f"{change}{' WHERE name = ' + repr('schema') if 'value' in change else ''}")
    newest = known_migrations()[-1].number
    assert main(["doctor", "--store", store]) == 1
    assert f"but its tables are those of schema {newest}" in capsys.readouterr().out
    assert main(["doctor", "--repair", "--yes", "--store", store]) == 0
    assert "mended  schema version: the database says " in capsys.readouterr().out
    assert main(["sessions", "list", "--store", store]) == 0


@pytest.mark.parametrize("has_version", [True, False])
def test_nothing_of_a_newer_schema_is_removed(
    store: str, has_version: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = known_migrations()[-1].number + 1
    version = (
        "UPDATE meta SET value = CAST(value + 1 AS TEXT) WHERE name = 'schema'" if has_version else "DROP TABLE meta"
    )
    damage(store, "ALTER TABLE sessions ADD COLUMN mood TEXT DEFAULT 'glad'", version)
    assert main(["doctor", "--no-test", "--repair", "--yes", "--store", store]) == 1
    said = f"schema {newer}" if has_version else "table sessions has unknown columns: mood"
    assert said in " ".join(capsys.readouterr().out.split())
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT DISTINCT mood FROM sessions").fetchall() == [("glad",)]
        if has_version:
            assert db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() == [(str(newer),)]


def test_what_cannot_be_read_ends_no_command(store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    damage(store, "UPDATE entries SET body = x'00ff' WHERE id = (SELECT min(id) FROM entries)")
    for words in (["sessions", "list"], ["sessions", "search", "train"], ["sessions", "stats"]):
        assert main([*words, "--store", store]) == 0, words
    capsys.readouterr()
    assert main(["sessions", "export", "--all", "-o", str(tmp_path / "all.jsonl"), "--store", store]) == 0
    assert "1 entry could not be exported: palaver doctor names what is damaged." in capsys.readouterr().err
    assert main(["doctor", "--store", store]) == 1
    assert "cannot be read" in capsys.readouterr().out


def test_a_database_that_is_gone_is_not_made_again(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "search", "train", "--store", store]) == 0
    Path(store).unlink()
    capsys.readouterr()
    assert main(["doctor", "--store", store]) == 1
    assert "is missing, but palaver.db.search and palaver.db.mark of an earlier one are left" in capsys.readouterr().out
    assert main(["sessions", "import", EXAMPLE, "--store", store]) == 1
    assert "put the database back" in capsys.readouterr().err
    assert not Path(store).exists()


def test_an_account_that_is_refused_is_named(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)

    async def refuse() -> None:
        async with await open_store(store) as opened:
            fence = await opened.transact(opened.accounts.acquire("telegram", "helper", "w1", now, timedelta(hours=1)))
            down = opened.accounts.mark_down(
                "telegram", "helper", fence or 0, now, "the token is wrong: ask for another"
            )
            await opened.transact(down)

    asyncio.run(refuse())
    assert main(["doctor", "--store", store]) == 1
    printed = capsys.readouterr().out
    assert "error accounts: telegram:helper says: the token is wrong: ask for another" in printed
    assert "palaver platforms check telegram:helper" in printed


def test_accounts_of_a_killed_gateway_are_not_connected(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    killed = subprocess.Popen(["sleep", "60"])
    now, worker = datetime.now(UTC), f"{socket.gethostname()}:{killed.pid}:1"

    async def serve() -> None:
        async with await open_store(store) as opened:
            for account, by in (("helper", worker), ("other", "elsewhere:1:1")):
                work = opened.accounts.acquire("telegram", account, by, now, timedelta(hours=1))
                fence = await opened.transact(work)
                await opened.transact(opened.accounts.mark_connected("telegram", account, fence or 0, now))

    asyncio.run(serve())
    for connected in (2, 1):
        assert main(["doctor", "--store", store]) == 0
        assert f"accounts: {connected} connected, none refused" in capsys.readouterr().out
        killed.kill()
        killed.wait()
    assert main(["platforms", "--store", store, "--json"]) == 0
    states = {each["account"]: each["state"] for each in json.loads(capsys.readouterr().out)["accounts"]}
    assert states == {"helper": "no longer configured", "other": "connected"}


def test_accounts_that_a_gateway_would_not_begin_with_are_named(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(tmp_path / "doves", monkeypatch, {"dove": "tests.cli.doves:DOVE"})
    file = tmp_path / "own.yaml"
    monkeypatch.setenv("PALAVER_CONFIG", str(file))
    for said, words in (
        ("dove: {accounts: {main: {token: coo}}}", "Everything works. Read the warnings above."),
        ("dove: {accounts: {main: {token: coo, mod: 1}}}", "accounts.main has an unknown option 'mod'"),
        ("slot: {accounts: {main: {}}}", "unknown platform 'slot'"),
    ):
        file.write_text(f"platforms: {{{said}}}")
        assert main(["doctor", "--store", store]) == (0 if words.startswith("Everything") else 1)
        assert words in " ".join(capsys.readouterr().out.split())


def test_an_account_that_nobody_serves_is_named(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(tmp_path / "doves", monkeypatch, {"dove": "tests.cli.doves:DOVE"})
    monkeypatch.setenv("PALAVER_CONFIG", str(file := tmp_path / "own.yaml"))
    file.write_text("platforms: {dove: {accounts: {main: {token: coo}, new: {token: coo}}}}")
    assert main(["doctor", "--no-test", "--store", store]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "warn configured accounts: no gateway runs, so nobody serves dove:main; dove:new" in printed
    assert "start one: palaver up, or palaver service install" in printed

    async def serve(platform: str, account: str) -> None:
        async with await open_store(store) as opened:
            now, hour = datetime.now(UTC), timedelta(hours=1)
            await opened.transact(opened.accounts.acquire(platform, account, "elsewhere:1:1", now, hour))

    asyncio.run(serve("gateway", "sweeper"))  # one without an account: it began before they were configured
    assert main(["doctor", "--no-test", "--store", store]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "error configured accounts: no gateway serves dove:main; dove:new" in printed

    asyncio.run(serve("dove", "main"))
    assert main(["doctor", "--no-test", "--store", store]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "error configured accounts: no gateway serves dove:new" in printed
    assert "palaver platforms check dove:new" in printed


def test_repair_takes_rights_from_others(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = [Path(store), *(Path(store).with_name(name) for name in ("gateway.log", "palaver.keys", "backups"))]
    files[1].touch()
    files[2].touch()
    files[3].mkdir()
    for file in files:
        file.chmod(0o755)
    assert main(["doctor", "--no-test", "--store", store, "--repair", "--yes"]) == 0
    printed = capsys.readouterr().out
    for file in files:
        assert f"mended  permissions: others can no longer read {file}" in printed
        assert file.stat().st_mode & 0o777 == 0o700
    assert "only this user reads the files" in printed
    assert not [*Path(store).parent.glob("*.repair-*")], "no copy is needed for that"


def test_repair_does_not_follow_links(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With sudo it would change a file that the user of the service cannot, and linked into the folder."""
    other, folder = tmp_path / "elsewhere", Path(store).parent
    other.mkdir()
    (other / "theirs").touch()
    (folder / "gateway.log").symlink_to(other / "theirs")
    (folder / "backups").symlink_to(other)
    for each in (other, other / "theirs"):
        each.chmod(0o755)
    Path(store).chmod(0o644)
    assert main(["doctor", "--no-test", "--store", store, "--repair", "--yes"]) == 0
    assert f"others can no longer read {store}" in capsys.readouterr().out
    assert [each.stat().st_mode & 0o777 for each in (other, other / "theirs", Path(store))] == [0o755, 0o755, 0o600]
    with pytest.raises(OSError, match="symbolic links"):  # put there after the look
        make_private(folder / "gateway.log")


def test_looking_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--store", str(tmp_path / "none.db")]) == 0
    assert "There is no store yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_beside_an_old_index_is_no_new_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "palaver.db"
    for each in (file, tmp_path / "palaver.db.search"):
        each.touch()
    assert main(["doctor", "--store", str(file)]) == 1
    assert "is empty, but palaver.db.search of an earlier one is left" in " ".join(capsys.readouterr().out.split())
    assert file.stat().st_size == 0


@pytest.mark.parametrize("inside", ["palaver.db", "deep/down/palaver.db"])
def test_a_folder_that_cannot_be_entered_is_one_of_the_things_found(
    inside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0)
        with nobody():
            assert main(["doctor", "--store", str(place / inside)]) == 1
        printed = capsys.readouterr()
        assert f"error data directory: this user cannot enter {place}\n" in printed.out
        assert printed.out.endswith("Something needs fixing.\n")
        assert printed.err == ""
        place.chmod(0o700)


@pytest.mark.parametrize("spoiled", [slice(0, 2048), slice(2048, 60_000)], ids=["head", "pages"])
def test_what_can_be_done_about_a_damaged_file_is_reported(
    store: str, spoiled: slice, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(store)
    assert main(["sessions", "search", "train", "--store", store]) == 0
    content = bytearray(file.read_bytes())
    content[spoiled] = b"x" * len(content[spoiled])
    file.write_bytes(content)
    for ways in (
        "then restore a backup, save what is readable",
        "restore a backup (palaver.db.schema-9 of 1970-01-01 was made before an upgrade)",
    ):
        capsys.readouterr()
        assert main(["doctor", "--store", store]) == 1
        assert ways in " ".join(capsys.readouterr().out.split())
        assert main(["sessions", "list", "--store", store]) == 1
        assert ways in capsys.readouterr().err
        for number in (8, 9):
            copy = file.with_name(f"palaver.db.schema-{number}")
            copy.touch()
            os.utime(copy, (number, number))


def test_a_file_that_was_never_a_database_is_nothing_to_bring_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ann, " * 100)
    assert main(["sessions", "list", "--store", str(file)]) == 1
    assert "backup" not in capsys.readouterr().err


def test_a_secret_that_others_can_read_is_named(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(tmp_path / "doves", monkeypatch, {"dove": "tests.cli.doves:DOVE"})
    (tmp_path / "token").write_text("coo")
    (tmp_path / "token").chmod(0o644)
    (tmp_path / "own.yaml").write_text("platforms: {dove: {accounts: {main: {token_file: token}}}}")
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "own.yaml"))
    assert main(["doctor", "--no-test", "--store", store]) == 0
    assert f"Run: chmod 600 {tmp_path / 'token'}" in capsys.readouterr().out


def test_an_mcp_server_that_does_not_start_is_named_with_its_last_words(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = json.dumps({"command": sys.executable, "args": ["-c", "import sys; sys.exit('no NOTES_TOKEN')"]})
    good = json.dumps({"command": sys.executable, "args": [str(SERVER)]})
    (tmp_path / "config.yaml").write_text(f"tools: {{servers: {{notes: {dies}, good: {good}}}}}")
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "config.yaml"))
    assert main(["doctor", "--store", store, "--json"]) == 1
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["MCP server notes"]["found"].endswith("It wrote: no NOTES_TOKEN")
    assert found["MCP server good"]["ok"]


def test_an_agent_that_does_not_answer_is_named_without_its_key(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("agent: {name: model, model: 'openai:x', key: sk-verysecretkey, base_url: 'http://127.0.0.1:9/v1'}")
    monkeypatch.setenv("PALAVER_CONFIG", str(file))
    assert main(["doctor", "--store", store, "--json"]) == 1
    printed = capsys.readouterr().out
    (agent,) = [check for check in json.loads(printed)["checks"] if check["name"] == "agent"]
    assert agent["found"].startswith("it does not answer: ")
    assert agent["fix"].startswith("Check the network, and that the server at its address runs.")
    assert "verysecretkey" not in printed
    assert main(["doctor", "--store", store, "--no-test"]) == 0
