"""What `palaver doctor --bundle` puts into a bug report: no word that was said, configured or logged."""

import asyncio
import json
import logging
import sqlite3
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.cli.versions import Library, check_versions
from palaver.gateway.log_file import LogFile
from palaver.protocols.installation import install_line
from palaver.store.damage.health_check import HealthCheck
from palaver.store.opening import open_store
from tests.packages import bring
from tests.store.test_forgetting import live

CANARY = "xylographer"
CONFIGURATION = f"""
agent: {{name: model, model: "openai:{CANARY}", key: "sk-{CANARY}", base_url: "http://127.0.0.1:9/{CANARY}"}}
timezone: Europe/Vienna
attention: {{wake_words: [{CANARY}]}}
platforms:
  dove:
    accounts: {{{CANARY}: {{token: {CANARY}}}}}
    chats: {{{CANARY}: {{pairing: false}}}}
profiles:
  {CANARY}:
    agent: {{name: program, command: ["/bin/false", "{CANARY}"], environment: {{{CANARY.upper()}: {CANARY}}}}}
    serves: [{{platform: dove, chat_id: {CANARY}}}]
grants: [{{platform: dove, user_id: {CANARY}, role: member}}]
caps: {{person_day: {{tokens: 4711}}}}
tools: {{servers: {{{CANARY}: {{command: /bin/false, args: ["--token", "{CANARY}"]}}}}}}
log: {{level: debug}}
"""


def plant(file: Path) -> set[str]:
    """Put the word into every column that can hold text and does not refuse it; return the tables that have it."""
    planted: set[str] = set()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        columns = db.execute(
            "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
            " WHERE m.type = 'table' AND c.type IN ('TEXT', 'BLOB')"
        ).fetchall()
        for table, column in columns:
            if (table, column) == ("meta", "name"):
                continue
            rule = "WHERE name <> 'schema'" if table == "meta" else ""
            with suppress(sqlite3.IntegrityError):
                done = db.execute(f"UPDATE {table} SET {column} = '{CANARY}' || {column} {rule}")  # noqa: S608
                planted |= {table} if done.rowcount else set()
    return planted


async def fill(file: Path) -> None:
    async with await open_store(str(file)) as store:
        await live(store)


def log_words(home: Path) -> None:
    """Lines as they are never written, in case one of ours says too much."""
    handler = LogFile(home, 1)
    logger = logging.Logger("palaver")  # noqa: LOG001 - of nobody else
    logger.addHandler(handler)
    extra = {"action": "turn.failed", "turn": 7, "account": f"dove:{CANARY}", "key": CANARY, "tool": CANARY}
    try:
        int(CANARY)
    except ValueError:
        logger.exception("it said %s", CANARY, extra=extra)
    handler.close()


def test_nothing_that_was_said_or_configured_is_in_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(tmp_path / "doves", monkeypatch, {"dove": "tests.cli.doves:DOVE"})
    home = tmp_path / CANARY
    (config := tmp_path / f"{CANARY}.yaml").write_text(CONFIGURATION)
    config.chmod(0o644)
    monkeypatch.setenv("PALAVER_CONFIG", str(config))
    monkeypatch.setenv("PALAVER_HOME", str(home))
    database = home / "palaver.db"
    asyncio.run(fill(database))
    assert len(plant(database)) >= 20
    log_words(home)
    report = tmp_path / "report.zip"
    assert main(["doctor", "--bundle", str(report)]) == 1, "so much is damaged"
    assert CANARY in capsys.readouterr().out, "you see it, only the report does not"
    assert report.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(report) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    for name, text in parts.items():
        for word in (CANARY, CANARY.upper(), "Annabel", "70071", "marzipan", str(tmp_path)):
            assert word not in text, (name, text[max(0, text.find(word) - 200) :][:300])
    settings = json.loads(parts["configuration.json"])
    assert settings["platforms.dove.accounts.#0.#0"] == settings["agent.key"] == "(set)"
    assert (settings["caps.person_day.tokens"], settings["log.level"]) == (4711, "debug")
    assert settings["profiles.#0.agent.name"] == "program"
    findings = json.loads(parts["findings.json"])
    assert {"agent", "MCP server", "permissions", "versions", "schema"} <= {each["name"] for each in findings}
    assert any(each["found"].endswith("damaged") and not each["ok"] for each in findings)
    assert json.loads(parts["counts.json"])["inbox"]["other"], "states that are none of ours are not quoted"
    line = json.loads(parts["log.jsonl"])
    assert (line["action"], line["turn"], line["error"].partition(" at ")[0]) == ("turn.failed", 7, "ValueError")
    assert json.loads(parts["versions.json"])["libraries"]["pydantic"]
    assert main(["doctor", "--no-test", "--bundle", str(report)]) == 2
    assert "This file already exists" in capsys.readouterr().err
    assert main(["doctor", "--no-test", "--bundle", str(report / "new")]) == 2
    assert "a new file in a folder that you can write" in capsys.readouterr().err


def test_a_database_that_cannot_be_opened_can_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "palaver.db").write_text("no database " * 100)
    report = tmp_path / "report.zip"
    assert main(["doctor", "--no-test", "--store", str(tmp_path / "palaver.db"), "--bundle", str(report)]) == 1
    assert "Look before you send it." in capsys.readouterr().err
    with zipfile.ZipFile(report) as archive:
        assert json.loads(archive.read("counts.json")) == {}


def test_a_configuration_that_does_not_load_can_be_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.setenv("PALAVER_CONFIG", str(file := tmp_path / "own.yaml"))
    secret = f"sk-{CANARY}"
    for number, (text, found) in enumerate(
        (
            (f"agent:\n  name: model\n  modle: {secret}\n", "a mistake in agent.#, line 3"),
            (f"profiles:\n  {CANARY}: {{busy: {secret}}}\n", "a mistake in profiles.#.busy, line 2"),
            (f"agent: {{{secret}", "a mistake in the whole file"),
        )
    ):
        file.write_text(text)
        report = tmp_path / f"{number}.zip"
        assert main(["doctor", "--bundle", str(report)]) == 1
        assert "error configuration: " in capsys.readouterr().out
        with zipfile.ZipFile(report) as archive:
            parts = {name: archive.read(name).decode() for name in archive.namelist()}
        assert not [name for name, part in parts.items() if CANARY in part]
        assert any(each["found"].startswith(found) for each in json.loads(parts["findings.json"])), parts[
            "findings.json"
        ]


def test_files_that_others_can_read_are_named_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(database := tmp_path / "palaver.db"))
    database.chmod(0o644)
    assert main(["doctor", "--no-test", "--store", str(database)]) == 0
    printed = capsys.readouterr().out
    assert f"others on this machine can read {database}" in printed
    assert f"chmod go-rwx {database}" in printed


def test_libraries_that_are_too_old_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_versions().ok
    for limits, fits in (((">=", "2"),), True), (((">=", "99"),), False), (((">=", "2"), ("<", "2.1")), False):
        library = Library(name="pydantic", extra="web", limits=limits)
        assert library.fits is fits
    assert Library(name="never-heard-of", extra="", limits=((">=", "1"),)).fits
    needed = ["pydantic>=99; extra == 'web'"]
    monkeypatch.setattr("palaver.cli.versions.requires", {"palaver": needed}.get)
    check = check_versions()
    assert "and palaver needs >=99" in check.found
    assert check.fix == f"install what fits: {install_line('web')}"


def test_a_finding_without_a_fix_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="does not say how to fix"):
        HealthCheck(name="x", ok=False, found="broken")
    with pytest.raises(ValueError, match="does not say how to fix"):
        HealthCheck(name="x", ok=True, is_warning=True, found="strange")
