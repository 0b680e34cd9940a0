"""What a file can say about tools, and how mistakes in it are told."""

from pathlib import Path

import pytest

from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig
from palaver.config.loader import load_with_sources
from palaver.model.access import AccessRole
from palaver.model.tools import ApprovalMode

WRITTEN = """
platforms:
  telegram: {tools: "search"}
tools:
  guest: search
  admin: "off"
  allowed: {"notes__*": always, notes__delete: never, search: ask}
  servers:
    notes: {command: notes-server, args: [serve], environment: {TOKEN: "${NOTES_TOKEN}", PLAIN: hunter2}, timeout: 5s}
    web: {url: "https://tools.example.org/mcp", headers: {Authorization: "Bearer ${NOTES_TOKEN}"}}
"""


def written(folder: Path, text: str) -> dict[str, str]:
    (folder / "user.yaml").write_text(text)
    return {"PALAVER_CONFIG": str(folder / "user.yaml"), "PALAVER_HOME": str(folder), "NOTES_TOKEN": "canary"}


def test_rules_and_servers_are_read(tmp_path: Path) -> None:
    config = load_with_sources(tmp_path, written(tmp_path, WRITTEN)).config
    rules = config.settings().tools
    leaves = [
        rules.approval_mode(name, role, platform, needs_approval=True)
        for name, role, platform in (
            ("search", AccessRole.GUEST, "terminal"),
            ("send_here", AccessRole.GUEST, "terminal"),
            ("search", AccessRole.ADMIN, "terminal"),
            ("notes__read", AccessRole.OWNER, "terminal"),
            ("notes__delete", AccessRole.OWNER, "terminal"),
            ("notes__read", AccessRole.OWNER, "telegram"),
            ("web__look", AccessRole.OWNER, "terminal"),
            ("web__look", AccessRole.MEMBER, "terminal"),
        )
    ]
    ask, always, never = ApprovalMode.ASK, ApprovalMode.ALWAYS, ApprovalMode.NEVER
    assert leaves == [ask, never, never, always, never, never, ask, never]
    assert config.tools.servers["notes"].facts() == {
        "command": "notes-server",
        "args": ("serve",),
        "env": {"TOKEN": "canary", "PLAIN": "hunter2"},
        "limit": 5.0,
        "calls": 8,
        "tools": frozenset({"all"}),
    }
    web = {
        "url": "https://tools.example.org/mcp",
        "headers": {"Authorization": "Bearer canary"},
        "limit": 60.0,
        "calls": 8,
        "tools": frozenset({"all"}),
    }
    assert config.tools.servers["web"].facts() == web


def test_what_is_secret_is_not_shown(tmp_path: Path) -> None:
    loaded = load_with_sources(tmp_path, written(tmp_path, WRITTEN))
    shown = {setting.field: str(setting.value) for setting in effective_settings(loaded)}
    talking = "ask_user, change_job, forget, list_jobs, read_file, read_session, remember, schedule_job, search"
    assert shown["tools.member"] == f"{talking}, send_file, send_here, send_voice"
    assert shown["tools.admin"] == "off"
    assert shown["tools.servers.notes.command"] == "notes-server"
    everything = f"{shown} {loaded.config!r}"
    assert "canary" not in everything
    assert "hunter2" not in everything


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tools: {member: 'search tool'}", "tools.member cannot be 'search tool'"),
        ("tools: {servers: {My_Notes: {command: x}}}", "a server cannot be called 'My_Notes'"),
        ("tools: {servers: {notes: {}}}", "'neither'"),
        ("tools: {servers: {notes: {command: x, url: 'http://h'}}}", "'both'"),
        ("tools: {servers: {notes: {url: 'ftp://h'}}}", "'ftp://h'"),
        ("tools: {servers: {notes: {command: x, arg: [a]}}}", "Did you mean args?"),
        ("tools: {allowed: {search: sometimes}}", "always, ask, never"),
        ("tools: {terminal: {rules: [{roles: 'guest, member'}]}}", "guests can never run commands"),
    ],
)
def test_mistakes_are_reported_with_what_is_allowed(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(MalformedConfig) as mistake:
        load_with_sources(tmp_path, written(tmp_path, text))
    assert told in str(mistake.value)


def test_a_cloned_folder_starts_no_servers(tmp_path: Path) -> None:
    (tmp_path / "palaver.yaml").write_text("tools: {servers: {evil: {command: rm}}}")
    with pytest.raises(MalformedConfig, match="in a project's file"):
        load_with_sources(tmp_path, written(tmp_path, ""))
