"""`palaver sessions` from the outside: what it prints, what it refuses, what it leaves alone."""

import asyncio
import io
import json
import re
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.cli.search import print_hits
from palaver.cli.shared_options import store_url as chosen_url
from palaver.cli.transcripts import entry_fields, print_entries, print_previews
from palaver.commands.formatting import ago
from palaver.model.attachment import Attachment
from palaver.model.errors import StoreUnavailable
from palaver.model.label import Label
from palaver.model.transcript import Role, Sender, ToolCall
from palaver.store.conversations import sessions, titles
from palaver.store.opening import open_store
from palaver.store.queue import turns
from palaver.store.results import Preview
from palaver.store.search.search import Hit
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, answer, dm

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "docs/examples/sessions.jsonl"
HOLIDAY = "01kmjz3d80ann0h011day00000"
SHELF = "01kmpmt4c0b0she1f000000000"
ROOM = "01kmvnzcb0dev0r00m00000000"
NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)
HOSTILE = "\x1b[31mred\x9b2J\u202eevil\x07\x00\r\n[bold]x[/bold] \ud800"
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]")
READING = [
    ["list"],
    ["show", "x"],
    ["search", "x"],
    ["rename", "x", "y"],
    ["export", "--all"],
    ["delete", "x", "--yes"],
    ["prune", "--keep", "1", "--yes"],
    ["stats"],
]

Palaver = Callable[..., str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of its own, and a clock that stands."""
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "place"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setattr(shared_options, "now", lambda: NOW)
    return tmp_path / "place"


@pytest.fixture
def palaver(capsys: pytest.CaptureFixture[str]) -> Palaver:
    """Run a command about sessions that must go well; gives what it printed."""

    def run(*args: str, code: int = 0) -> str:
        assert main(["sessions", *args]) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def filled(palaver: Palaver) -> Palaver:
    palaver("import", str(ARCHIVE))
    return palaver


def as_json(printed: str) -> Any:
    return json.loads(printed)


def listed(printed: str) -> list[str]:
    return [session["id"] for session in as_json(printed)["sessions"]]


def refusal(capsys: pytest.CaptureFixture[str], *args: str, code: int = 2) -> str:
    assert main(["sessions", *args]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    return printed.err


# Where


def test_which_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_HOME", "/data")
    monkeypatch.setenv("PALAVER_STORE", "y.db")
    assert [chosen_url(option) for option in ("x.db", "", None)] == ["x.db", "", "y.db"]
    monkeypatch.setenv("PALAVER_STORE", "")
    assert chosen_url(None) == "/data/palaver.db"


@pytest.mark.parametrize("args", READING, ids=lambda args: args[0])
def test_looking_makes_no_store(args: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sessions", *args])
    printed = capsys.readouterr()
    assert code == (0 if args[0] in {"list", "search", "prune", "stats"} else 1)
    assert "there is no store yet" in printed.err.lower()
    assert len(printed.err.splitlines()) == 1
    assert not home.exists()


def test_the_store_can_be_named(filled: Palaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed(filled("list", "--store", str(tmp_path / "place/palaver.db"), "--json")) == [HOLIDAY, ROOM, SHELF]
    assert listed(filled("list", "--store", f"sqlite:///{tmp_path}/place/palaver.db", "--json"))
    assert listed(filled("list", "--store", str(tmp_path / "nothing.db"), "--json")) == []
    monkeypatch.setenv("PALAVER_STORE", str(tmp_path / "nothing.db"))
    assert listed(filled("list", "--json")) == []


# Looking


def test_list_for_people(filled: Palaver) -> None:
    heads, first, second, third = filled("list").splitlines()
    assert re.split(r"  +", heads.strip()) == ["session", "title", "platform", "last active", "entries", "last said"]
    assert re.split(r"  +", first.strip()) == [
        HOLIDAY,
        "Holiday",
        "telegram",
        "3 hours ago",
        "8",
        "Rügen it is. Which train?",
    ]
    assert "17 hours ago" in second
    assert "2 days ago" in third


def test_list_for_machines(filled: Palaver) -> None:
    first = as_json(filled("list", "--json"))["sessions"][0]
    assert first["id"] == HOLIDAY
    assert first["last_active"] == "2026-03-29T09:00:00Z"
    assert (first["state"], first["entries"], first["turns"], first["cost_micros"]) == ("open", 8, 3, 4200)
    assert first["last_said"] == "Rügen it is. Which train?"


def test_pages(filled: Palaver, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = as_json(filled("list", "--limit", "1", *after, "--json"))
        seen += [session["id"] for session in page["sessions"]]
        if page["after"] is None:
            break
        after = ["--after", page["after"]]
    assert seen == [HOLIDAY, ROOM, SHELF]
    assert main(["sessions", "list", "--limit", "2"]) == 0
    assert re.search(r"--after \S+$", capsys.readouterr().err.strip())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--platform", "signal"], [SHELF]),
        (["--platform", "Signal"], [SHELF]),
        (["--profile", "main"], [HOLIDAY, ROOM, SHELF]),
        (["--profile", "work"], []),
        (["--open"], [HOLIDAY, ROOM]),
        (["--ended"], [SHELF]),
        (["--titled"], [HOLIDAY, SHELF]),
        (["--title", "shelf"], [SHELF]),
        (["--person", "discord:31"], [ROOM]),
        (["--person", "Discord:31"], [ROOM]),
        (["--since", "1d"], [HOLIDAY, ROOM]),
        (["--since", "2026-03-29"], [HOLIDAY]),
        (["--until", "2026-03-28T18:54:00+01:00"], [SHELF]),
        (["--since", "2026-03-28T00:00:00Z", "--until", "2026-03-29"], [ROOM]),
    ],
)
def test_filters(filled: Palaver, args: list[str], expected: list[str]) -> None:
    assert listed(filled("list", *args, "--json")) == expected


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["list", "--title", "nothing"], "There are no such sessions.\n"),
        (["search", "nothing"], "Nothing found.\n"),
    ],
)
def test_nothing_is_said_to_be_nothing(
    filled: Palaver, capsys: pytest.CaptureFixture[str], *, args: list[str], sentence: str
) -> None:
    assert filled
    assert main(["sessions", *args]) == 0
    assert capsys.readouterr() == ("", sentence)


@pytest.mark.parametrize("name", [HOLIDAY, HOLIDAY[:6], HOLIDAY.upper(), "Holiday", " Holiday\n"])
def test_show_by_any_name(filled: Palaver, name: str) -> None:
    assert as_json(filled("show", name, "--json"))["session"]["id"] == HOLIDAY


def test_show_for_people(filled: Palaver) -> None:
    printed = filled("show", "Holiday")
    for expected in ("Holiday", HOLIDAY, "2026-03-25 09:00:00 UTC (4 days ago)", "8 in 3 turns", "Ann · 2026-03-25"):
        assert expected in printed
    assert 'calls trains with {"to":"Binz"}' in printed
    assert "Mars" not in printed
    everything = filled("show", "Holiday", "--all")
    assert "Mars" in everything
    assert "· hidden" in everything


def test_times_are_in_the_configured_zone(filled: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_TIMEZONE", "Asia/Tokyo")
    printed = filled("show", "Holiday")
    for expected in ("2026-03-25 18:00:00 JST (4 days ago)", "Ann · 2026-03-25 18:00:00 JST"):
        assert expected in printed
    assert "UTC" not in printed
    for form in ("md", "html"):
        exported = filled("export", "Holiday", "--format", form)
        assert "2026-03-25 18:00:00 JST" in exported
        assert " UTC" not in exported
    assert as_json(filled("show", "Holiday", "--json"))["session"]["started"] == "2026-03-25T09:00:00Z"
    # The day begins at 15:00 UTC of the day before.
    assert HOLIDAY in listed(filled("list", "--since", "2026-03-25", "--json"))
    days = [[each["first"] for each in as_json(filled("stats", "--json", *zone))["days"]] for zone in ((), _IN_UTC)]
    assert days[0] != days[1]


_IN_UTC = ("--zone", "UTC")


def test_usage_errors_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    example = "example palaver sessions list --platform telegram --since 7d\n"
    assert refusal(capsys, "list", "--since").endswith(f"--since needs a value, for {example}")
    said = refusal(capsys, "list", "extra")
    assert "This command does not take extra. Use --platform, " in said
    assert said.endswith(f", for {example}")


def test_show_for_machines(filled: Palaver) -> None:
    found = as_json(filled("show", "Holiday", "--all", "--json"))["entries"]
    assert [entry["seq"] for entry in found] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found[2]["hidden_by"]
    assert found[0]["sender"] == {"id": "7", "name": "Ann"}
    assert found[5]["calls"] == [{"id": "c1", "name": "trains", "arguments": '{"to":"Binz"}'}]
    assert "blob" not in found[0]
    assert (found[1]["tokens"], found[1]["cost_micros"]) == (19, None)  # a price that nobody knows is not zero
    assert "cost_micros" not in found[0]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--limit", "2"], [7, 8]),
        (["--limit", "0"], [1, 2, 5, 6, 7, 8]),
        (["--after", "2"], [5, 6, 7, 8]),
        (["--after", "2", "--limit", "1"], [5]),
        (["--after", "99"], []),
    ],
)
def test_show_a_part(filled: Palaver, args: list[str], expected: list[int]) -> None:
    assert [entry["seq"] for entry in as_json(filled("show", "Holiday", *args, "--json"))["entries"]] == expected


@pytest.mark.parametrize(
    ("args", "notes"),
    [
        ([], ["2 entries are hidden (undone or summarised): --all shows all."]),
        (["--after", "4", "--limit", "3"], ["1 entry is not shown: --limit 0 shows all."]),
        (["--after", "3"], ["1 entry is hidden (undone or summarised): --all shows all."]),
        (["--all"], []),
        (["--all", "--limit", "6"], ["2 entries are not shown: --limit 0 shows all."]),
    ],
)
def test_what_is_left_out_is_reported(
    filled: Palaver, capsys: pytest.CaptureFixture[str], args: list[str], notes: list[str]
) -> None:
    assert filled
    assert main(["sessions", "show", "Holiday", *args]) == 0
    assert capsys.readouterr().err.splitlines() == notes


def test_a_call_beside_what_was_found_is_reported(filled: Palaver) -> None:
    printed = filled("search", "tra*", "--platform", "telegram", "--around", "1")
    assert 'assistant: calls trains with {"to":"Binz"}\n' in printed
    assert not [line for line in printed.splitlines() if line.endswith(": ")]


def test_search(filled: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = filled("search", "train")
    assert "Ann: Rügen it is. Which train?" in printed
    assert "Cy: when does the night train leave?" in printed
    assert f"Holiday · {HOLIDAY} · entry 5 · 3 hours ago" in printed
    found = as_json(filled("search", "train", "--platform", "telegram", "--around", "1", "--json"))["hits"]
    assert [hit["session"] for hit in found] == [HOLIDAY]
    start, end = found[0]["marks"][0]
    assert found[0]["snippet"][start:end] == "train"
    assert len(found[0]["before"]) == len(found[0]["after"]) == 1
    assert as_json(filled("search", "Mars", "--json")) == {"hits": []}
    assert as_json(filled("search", "train", "--session", ROOM, "--role", "user", "--order", "best", "--json"))["hits"]
    assert as_json(filled("search", "train", "--since", "4h", "--json"))["hits"][0]["session"] == HOLIDAY
    assert as_json(filled("search", "direct", "--json")) == {"hits": []}
    assert as_json(filled("search", "direct", "--role", "tool", "--role", "note", "--json"))["hits"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;7mtrain\x1b[0m" in filled("search", "train")


def test_roles_have_colours(filled: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    printed = filled("show", "Holiday", "--all")
    assert "\x1b[1;36mAnn" in printed
    assert "\x1b[1;32massistant" in printed
    assert "\x1b[2;9mAnn" in printed


def test_stats(filled: Palaver) -> None:
    found = as_json(filled("stats", "--json"))
    assert found["total"] | {"sessions": 3, "open": 2, "ended": 1, "entries": 12, "turns": 5} == found["total"]
    assert found["total"]["cost_micros"] == 5600
    assert set(found["platforms"]) == {"discord", "signal", "telegram"}
    assert [day["first"] for day in found["days"]] == ["2026-03-25", "2026-03-26", "2026-03-28"]
    assert [week["first"] for week in found["weeks"]] == ["2026-03-23"]
    assert found["database_bytes"] > 0
    printed = filled("stats", "--by", "week", "--zone", "Asia/Tokyo")
    assert "3 sessions, 2 open" in printed
    assert "2026-03-23" in printed


@pytest.mark.parametrize(
    ("args", "days"),
    [
        (["--since", "2026-03-26T21:00Z"], ["2026-03-26", "2026-03-28"]),
        (["--since", "2026-03-26T21:00Z", "--zone", "Asia/Tokyo"], ["2026-03-27", "2026-03-29"]),
        (["--since", "2026-03-28", "--by", "week"], ["2026-03-25", "2026-03-26", "2026-03-28"]),
    ],
)
def test_the_first_day_and_the_first_week_are_whole(filled: Palaver, args: list[str], days: list[str]) -> None:
    assert [day["first"] for day in as_json(filled("stats", *args, "--json"))["days"]] == days


def test_weeks_reach_further_back_than_days(filled: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_options, "now", lambda: NOW + timedelta(days=60))
    assert as_json(filled("stats", "--json"))["days"] == []
    assert [week["first"] for week in as_json(filled("stats", "--by", "week", "--json"))["weeks"]] == ["2026-03-23"]


def test_rename(filled: Palaver) -> None:
    assert filled("rename", SHELF, "Shelf\x1b[31m") == f"{SHELF} is now called Shelf[31m\n"
    assert as_json(filled("rename", ROOM[:8], "Night train", "--json"))["session"]["title"] == "Night train"
    assert listed(filled("list", "--title", "night", "--json")) == [ROOM]
    assert "/" not in as_json(filled("rename", SHELF, " ", "--json", code=2))["error"]


def test_a_title_that_is_cut_is_reported(filled: Palaver, capsys: pytest.CaptureFixture[str]) -> None:
    assert filled
    assert main(["sessions", "rename", SHELF, "x" * 101]) == 0
    assert capsys.readouterr() == (
        f"{SHELF} is now called {'x' * 99}…\n",
        "The title was cut to 100 characters.\n",
    )
    assert main(["sessions", "rename", SHELF, f"  {'y' * 100}\n"]) == 0
    assert capsys.readouterr().err == ""


# Keeping


def test_there_and_back(palaver: Palaver, store_url: str, tmp_path: Path) -> None:
    """On both engines, and from each to the other."""
    at = ("--store", store_url)
    assert palaver("import", str(ARCHIVE), *at) == "3 imported\n"
    assert palaver("import", str(ARCHIVE), *at) == "3 already there, unchanged\n"
    assert palaver("export", "--all", *at) == ARCHIVE.read_text()
    file = tmp_path / "archive.jsonl"
    assert palaver("export", "--all", "-o", str(file), *at) == f"3 sessions in {file}\n"
    assert palaver("export", "--all", "-o", "-", *at) == ARCHIVE.read_text()
    assert file.read_bytes() == ARCHIVE.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert as_json(palaver("import", str(file), "--json"))["imported"] == 3
    assert palaver("export", "--all") == ARCHIVE.read_text()
    assert listed(palaver("list", *at, "--json")) == [HOLIDAY, ROOM, SHELF]
    assert as_json(palaver("search", "shelf", *at, "--json"))["hits"][0]["session"] == SHELF
    palaver("delete", SHELF, "--yes", *at)
    assert as_json(palaver("search", "shelf", *at, "--json")) == {"hits": []}


def test_export_some(filled: Palaver, tmp_path: Path) -> None:
    assert filled("export", "Holiday", SHELF, "Holiday").count('\n{"session"') == 2
    assert filled("export", "--platform", "discord").count('\n{"session"') == 1
    assert filled("export", "--since", "1d").count('\n{"session"') == 2
    page, text = tmp_path / "a.html", tmp_path / "a.md"
    assert as_json(filled("export", "Holiday", "-o", str(page), "--json")) == {"sessions": 1, "file": str(page)}
    filled("export", "Holiday", "-o", str(text))
    assert page.read_text().startswith("<!doctype html>")
    assert text.read_text().startswith("# Holiday\n")
    assert "Mars" not in page.read_text() + text.read_text()
    shown = filled("export", "Holiday", "--format", "markdown", "--hidden")
    assert "Mars" in shown
    assert filled("export", "Holiday", "--format", "md", "--hidden") == shown


def test_a_file_is_not_overwritten_unasked(filled: Palaver, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "archive.jsonl"
    file.write_text("precious")
    assert "--force" in refusal(capsys, "export", "--all", "-o", str(file))
    assert file.read_text() == "precious"
    filled("export", "--all", "-o", str(file), "--force")
    assert file.read_bytes() == ARCHIVE.read_bytes()
    assert "Cannot use" in refusal(capsys, "export", "--all", "-o", str(tmp_path / "no/where.jsonl"))
    refusal(capsys, "export", "no such session", "-o", str(tmp_path / "new.jsonl"), code=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.jsonl", "place"]


def test_import_from_standard_input(palaver: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ARCHIVE.read_bytes())))
    assert palaver("import", "-") == "3 imported\n"


def test_what_is_refused_is_named_and_the_rest_goes_on(
    filled: Palaver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "changed.jsonl"
    file.write_text(ARCHIVE.read_text().replace("oak shelf", "pine shelf").replace('"discord"', '"dis\\u0000cord"', 1))
    assert main(["sessions", "import", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "1 already there, unchanged, 2 refused\n"
    assert f"session {SHELF} was not imported: a session with this id but different content exists here" in printed.err
    assert "line 16: " in printed.err
    assert filled("import", str(file), "--as-copy", code=1).startswith(
        "1 already there, unchanged, 1 imported as a copy"
    )
    assert len(listed(filled("list", "--json"))) == 4
    assert as_json(filled("import", str(file), "--json", code=1))["refused"] == 2


def test_a_file_that_is_no_archive_makes_no_store(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.txt"
    file.write_text("\x1b[31mhello")
    sentence = refusal(capsys, "import", str(file))
    assert "not a session archive" in sentence
    assert "\x1b" not in sentence
    refusal(capsys, "import", str(tmp_path / "nothing"))
    refusal(capsys, "import", str(tmp_path))
    assert not home.exists()


# Removing


def test_nothing_is_deleted_where_nobody_can_be_asked(filled: Palaver, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["delete", "Holiday"], ["prune", "--keep", "0"]):
        assert main(["sessions", *args]) == 2
        assert "--yes" in capsys.readouterr().err
        assert main(["sessions", *args, "--json"]) == 2
        assert "--yes" in as_json(capsys.readouterr().out)["error"]
    assert len(listed(filled("list", "--json"))) == 3


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("reply", "code", "left"), [("y\n", 0, 2), ("yes\n", 0, 2), ("n\n", 1, 3), ("\n", 1, 3), ("", 1, 3)]
)
@pytest.mark.parametrize("args", [["delete", SHELF], ["prune", "--keep", "0"]], ids=lambda args: args[0])
def test_somebody_is_asked(
    filled: Palaver, monkeypatch: pytest.MonkeyPatch, *, args: list[str], reply: str, code: int, left: int
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(reply))
    filled(*args, code=code)
    assert len(listed(filled("list", "--json"))) == left


def test_delete(filled: Palaver) -> None:
    assert "Holiday deleted with 8 entries" in filled("delete", "Holiday", "--yes")
    assert as_json(filled("delete", ROOM, SHELF, ROOM, "--yes", "--json"))["deleted"] == [
        {"id": ROOM, "title": None, "entries": 2, "turns": 1},
        {"id": SHELF, "title": "Kitchen shelf", "entries": 2, "turns": 1},
    ]
    assert listed(filled("list", "--json")) == []


def test_a_title_to_delete_by_is_exact(filled: Palaver, capsys: pytest.CaptureFixture[str]) -> None:
    """To look, the newest of those that share a title is meant; what cannot be taken back is not guessed."""
    for session, title in ((HOLIDAY, "hello"), (ROOM, "hello #2"), (SHELF, "hello #draft")):
        filled("rename", session, title)
    assert as_json(filled("show", "hello", "--json"))["session"]["id"] == ROOM
    assert [each["id"] for each in as_json(filled("delete", "hello", "--yes", "--json"))["deleted"]] == [HOLIDAY]
    for name in ("hello", "hello #3"):
        sentence = refusal(capsys, "delete", name, "--yes")
        assert f"No session is called exactly '{name}'" in sentence
        assert f"the whole title of one: {ROOM} 'hello #2'" in sentence
    assert "There is no session 'hell'" in refusal(capsys, "delete", "hell", "--yes", code=1)
    assert listed(filled("list", "--json")) == [ROOM, SHELF]
    filled("delete", "hello #2", "--yes")
    assert listed(filled("list", "--json")) == [SHELF]


def test_what_two_sessions_are_called_is_not_enough_to_delete_one(
    filled: Palaver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each owner has titles of their own; and a title may look like the beginning of an id."""
    for session, title in ((HOLIDAY, "x"), (SHELF, "x"), (ROOM, HOLIDAY[:8])):
        filled("rename", session, title)
    for name, others in (("x", (HOLIDAY, SHELF)), (HOLIDAY[:8], (HOLIDAY, ROOM)), ("01km", (HOLIDAY, ROOM, SHELF))):
        sentence = refusal(capsys, "delete", name, "--yes")
        assert f"Several sessions match '{name}'" in sentence
        assert all(other in sentence for other in others)
    assert len(listed(filled("list", "--json"))) == 3
    filled("delete", HOLIDAY, "--yes")
    assert listed(filled("list", "--json")) == [ROOM, SHELF]


def test_prune(filled: Palaver) -> None:
    found = as_json(filled("prune", "--older-than", "2d", "--dry-run", "--json"))
    assert found["found"] == {"sessions": 1, "entries": 2}
    assert found["sample"][0]["id"] == SHELF
    assert found["deleted"]["sessions"] == 0
    assert "1 session with 2 entries would be deleted" in filled("prune", "--before", "2026-03-28", "--dry-run")
    assert as_json(filled("prune", "--before", "2026-03-27", "--yes", "--json"))["deleted"]["sessions"] == 0
    assert as_json(filled("prune", "--keep", "1", "--yes", "--json"))["deleted"]["sessions"] == 0
    assert as_json(filled("prune", "--keep", "0", "--platform", "discord", "--yes", "--json"))["found"]["sessions"] == 0
    assert "1 session deleted with 2 entries" in filled("prune", "--older-than", "2d", "--yes")
    assert listed(filled("list", "--json")) == [HOLIDAY, ROOM]


@pytest.mark.parametrize("args", [["delete", SHELF], ["prune", "--keep", "0"]], ids=lambda args: args[0])
def test_deleted_words_are_in_no_file_any_more(filled: Palaver, home: Path, args: list[str]) -> None:
    """Neither in the log, which stays while a gateway has the file open, nor in the search index."""
    filled("search", "shelf")
    with (
        closing(sqlite3.connect(home / "palaver.db")) as gateway,
        closing(sqlite3.connect(home / "palaver.db.search")) as index,
    ):
        for held in (gateway, index):
            held.execute("SELECT * FROM meta").fetchall()
        filled("rename", SHELF, "Two brackets")
        assert _files_with(home, b"brackets")
        filled(*args, "--yes")
        assert _files_with(home, b"brackets") == []
        assert _files_with(home, b"oak shelf") == []


@pytest.mark.parametrize("args", [["delete", SHELF], ["prune", "--keep", "0"]], ids=lambda args: args[0])
def test_a_long_reader_keeps_nothing_from_being_deleted(
    filled: Palaver, home: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    monkeypatch.setattr("palaver.db.sqlite._BUSY_TIMEOUT_MS", 10)
    with closing(sqlite3.connect(home / "palaver.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sessions").fetchall()
        filled(*args, "--yes")
        assert listed(filled("list", "--json")) == [HOLIDAY, ROOM]


@pytest.mark.parametrize("args", [["delete", SHELF], ["prune", "--keep", "0"]], ids=lambda args: args[0])
def test_what_cannot_be_wiped_is_deleted_all_the_same(
    filled: Palaver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    async def refuse(_: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(Store, "scrub", refuse)
    assert main(["sessions", *args, "--yes"]) == 0
    assert "in the index or the log for a while: the disk is full" in capsys.readouterr().err
    assert listed(filled("list", "--json")) == [HOLIDAY, ROOM]


def _files_with(folder: Path, words: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if file.is_file() and words in file.read_bytes()]


def test_a_session_in_use_is_not_deleted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def speak() -> str:
        async with await open_store(str(home / "palaver.db")) as store:
            world = World(store)
            await world.say("hello")
            begun = await world.begin()
            assert begun
            return begun.turn.session

    session = asyncio.run(speak())
    assert main(["sessions", "import", str(ARCHIVE)]) == 0
    assert main(["sessions", "delete", session, "Kitchen shelf", "--yes"]) == 1
    printed = capsys.readouterr()
    assert "in the middle of a turn" in printed.err
    assert "Kitchen shelf deleted" in printed.out
    assert main(["sessions", "delete", session, "--yes", "--json"]) == 1
    assert as_json(capsys.readouterr().out) == {"deleted": [], "busy": [session]}


@pytest.mark.parametrize("option", ["--platform", "--profile", "--before", "--older-than"])
def test_an_empty_filter_is_refused_instead_of_deleting_more(
    filled: Palaver, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert filled
    sentence = refusal(capsys, "prune", "--keep", "0", option, "", "--yes")
    assert f"{option} cannot be ''. Give it a value, or leave it out." in sentence


# What is wrong


@pytest.mark.parametrize(
    ("args", "found", "allowed", "example"),
    [
        (["list", "--limit", "0"], "--limit cannot be '0'", "a whole number from 1 to 500,", "palaver sessions list"),
        (["list", "--limit", "x"], "--limit cannot be 'x'", "a whole number from 1 to 500,", "palaver sessions list"),
        (["list", "--store", ""], "''", "sqlite:///path", "sqlite:///palaver.db"),
        (["list", "--store", " "], "' '", "sqlite:///path", "sqlite:///palaver.db"),
        (["list", "--after", "x"], "'x'", "the cursor", "647494a9b2000-2a"),
        (["list", "--since", "soon"], "'soon'", "a date", "palaver sessions list"),
        (["list", "--until", "2026-02-30"], "'2026-02-30'", "a date", "palaver sessions list"),
        (
            ["search", "x", "--role", "king"],
            "--role cannot be 'king'",
            "user, assistant, tool, note",
            "sessions search",
        ),
        (["list", "--person", "foo"], "--person cannot be 'foo'", "platform:id", "--person telegram:7"),
        (["search", "x", "--person", "7"], "--person cannot be '7'", "platform:id", "--person telegram:7"),
        (["export", "--person", ":7"], "--person cannot be ':7'", "platform:id", "--person telegram:7"),
        (["show"], "SESSION", "--all", "palaver sessions show"),
        (["rename", HOLIDAY, "\u200b"], "visible", "1 to 100", "Holiday"),
        (["export"], "Choose what to export", "--all", "palaver sessions export"),
        (["export", "--all", "Holiday"], "by name or by filter, not both", "--all", "palaver sessions export"),
        (
            ["export", "--all", "--format", "pdf"],
            "--format cannot be 'pdf'",
            "jsonl, markdown, html,",
            "sessions export",
        ),
        (["export", "--all", "-o", "a.txt"], "'.txt'", ".jsonl, .md, .html, .htm", "palaver sessions export"),
        (["export", "--all", "-o", "archive"], "''", ".jsonl, .md, .html, .htm", "palaver sessions export"),
        (["prune"], "Choose which sessions", "a date", "palaver sessions prune"),
        (["prune", "--older-than", "old"], "'old'", "90d", "palaver sessions prune"),
        (["prune", "--older-than", "99999y"], "'99999y'", "90d", "palaver sessions prune"),
        (["stats", "--by", "year"], "--by cannot be 'year'", "Use day, week,", "palaver sessions stats"),
        (["prune", "--keep", "-1"], "--keep cannot be '-1'", "a whole number from 0 to 1000", "palaver sessions prune"),
        (["prune", "--keep", "9" * 30], "--keep cannot be", "a whole number from 0 to 1000", "palaver sessions prune"),
        (["show", HOLIDAY, "--after", "-1"], "--after cannot be '-1'", "a whole number from 0 up,", "sessions show"),
        (["list", "--limit"], "--limit", "needs a value", "palaver sessions list"),
        ([], "Missing command", "list", "palaver sessions --help"),
        (["show", "01km"], "'01km'", "longer prefix", HOLIDAY),
        (["show", "01k"], "3 sessions begin with '01k'", "at least 4 characters of an id", "01kjmma2g0"),
        (["delete", "01K", "--yes"], "3 sessions begin with '01K'", "at least 4 characters", "01kjmma2g0"),
    ],
)
def test_wrong_input_gets_one_sentence(
    filled: Palaver, capsys: pytest.CaptureFixture[str], *, args: list[str], found: str, allowed: str, example: str
) -> None:
    assert filled
    sentence = refusal(capsys, *args)
    assert sentence.index(found) < sentence.index(", for example ")
    assert allowed in sentence
    assert example in sentence.partition(", for example ")[2]


def test_two_filters_that_exclude_each_other(filled: Palaver, capsys: pytest.CaptureFixture[str]) -> None:
    assert filled
    assert refusal(capsys, "list", "--open", "--ended") == "palaver: Use --open or --ended, not both.\n"


def test_an_unknown_time_zone_names_those_that_are_close(filled: Palaver, capsys: pytest.CaptureFixture[str]) -> None:
    assert filled
    sentence = refusal(capsys, "stats", "--zone", "Berlin")
    assert "Unknown time zone 'Berlin'. Did you mean Europe/Berlin" in sentence


@pytest.mark.parametrize(
    "name", ["nothing", "%", "_", "\ud800", "x" * 100_000, "\x1b[31m", "'; DROP TABLE sessions", "", " "]
)
def test_a_session_that_is_not_there(filled: Palaver, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert filled
    sentence = refusal(capsys, "show", name, code=1)
    assert "There is no session" in sentence
    assert ". Use an id, the start of an id, or a title. List them with palaver sessions list" in sentence
    assert "\x1b" not in sentence
    assert len(sentence) < 300


def test_a_store_that_cannot_be_used_is_one_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    file = home / "palaver.db"
    file.write_bytes(b"this is no database" * 100)
    refusal(capsys, "list", code=1)
    assert main(["sessions", "list", "--json"]) == 1
    assert "error" in as_json(capsys.readouterr().out)
    file.unlink()
    main(["sessions", "import", str(ARCHIVE)])
    capsys.readouterr()
    with sqlite3.connect(file) as database:
        database.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
    database.close()
    assert "Install a newer Palaver" in refusal(capsys, "list", code=1)
    assert "mysql" in refusal(capsys, "list", "--store", "mysql://localhost/x")


# What strangers wrote


def test_nothing_hostile_reaches_the_terminal(home: Path, palaver: Palaver) -> None:
    async def write() -> str:
        async with await open_store(str(home / "palaver.db")) as store:
            world = World(store)
            source = dm("7", profile="pro\x1bfile", thread_id=HOSTILE)
            await world.say(HOSTILE, source)
            begun = await world.begin(source)
            assert begun
            call = ToolCall(HOSTILE, HOSTILE, HOSTILE)
            said = [answer(f"needle {HOSTILE}", calls=(call,), sender=Sender(HOSTILE, Label(HOSTILE)))]
            said.append(answer(HOSTILE, Role.USER, sender=Sender(HOSTILE, Label(HOSTILE))))
            await store.transact(turns.settle(begun.turn, said, [], world.now))
            await store.transact(titles.rename(begun.turn.session, HOSTILE, OPERATOR))
            return begun.turn.session

    session = asyncio.run(write())
    commands = (
        ["list"],
        ["show", session, "--all"],
        ["search", "needle", "--around", "3"],
        ["stats"],
        ["export", session],
        ["export", session, "--format", "markdown"],
        ["export", session, "--format", "html"],
        ["prune", "--keep", "0", "--dry-run"],
    )
    for command in commands:
        assert not UNSEEN.search(palaver(*command)), command
        if command[0] != "export":
            printed = palaver(*command, "--json")
            assert not UNSEEN.search(printed), command
            assert as_json(printed)
    assert as_json(palaver("list", "--json"))["sessions"][0]["last_said"].startswith("\x1b[31mred\x9b2J\u202e")
    assert not UNSEEN.search(palaver("delete", session, "--yes"))


def test_an_entry_of_a_megabyte_is_shown(home: Path, palaver: Palaver) -> None:
    async def write() -> str:
        async with await open_store(str(home / "palaver.db")) as store:
            return (await World(store).exchange("ü" * 1_000_000)).turn.session

    session = asyncio.run(write())
    assert "ü" * 1_000_000 in palaver("show", session)
    assert len(palaver("list")) < 1000


def test_values_are_printed_clean_no_matter_who_made_them(capsys: pytest.CaptureFixture[str], filled: Palaver) -> None:
    found = asyncio.run(_holiday())
    entry = answer(HOSTILE, Role.USER, sender=Sender(HOSTILE, Label(HOSTILE)))
    print_entries([entry, entry._replace(hidden_by="1", observed=True)])
    print_previews([Preview(session=found, last_said=HOSTILE)], NOW)
    print_hits([Hit(session=found, entry=entry, snippet=HOSTILE, marks=((0, 3), (5, 8)), before=(entry,))], NOW)
    assert not UNSEEN.search(capsys.readouterr().out)
    assert filled


def test_an_entry_names_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    file = Attachment(name=Label("cat.png"), media_type="image/png", size=2_000, sha256="ab" * 32)
    entry = answer("", Role.USER)._replace(files=(file, file._replace(name=Label(HOSTILE), sha256=None)))
    print_entries([entry])
    printed = capsys.readouterr().out
    assert f"file cat.png (image/png, 2 kB, {file.id})\n" in printed
    assert not UNSEEN.search(printed)
    named = {"name": "cat.png", "media_type": "image/png", "size": 2_000, "id": file.id}
    assert cast("Any", entry_fields(entry))["files"][0] == named


async def _holiday() -> Any:
    async with await open_store(chosen_url(None)) as store:
        return await store.read(sessions.find(HOLIDAY, OPERATOR))


# Times


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (timedelta(), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=3, minutes=59), "3 hours ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=13), "1 week ago"),
        (timedelta(days=31), "1 month ago"),
        (timedelta(days=800), "2 years ago"),
        (timedelta(days=-2, seconds=-1), "in 2 days"),
    ],
)
def test_times_for_people(distance: timedelta, words: str) -> None:
    assert ago(NOW - distance, NOW) == words


# Help


def test_help_shows_an_example_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "--help"]) == 0
    commands = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out, re.MULTILINE)
    assert commands == ["list", "show", "rename", "search", "export", "import", "delete", "prune", "stats"]
    for command in commands:
        assert main(["sessions", command, "--help"]) == 0
        printed = capsys.readouterr().out
        assert f"palaver sessions {command}" in printed.partition("Options:")[0].split("\n", 1)[1]
        assert "--json" in printed
        assert "--store" in printed
