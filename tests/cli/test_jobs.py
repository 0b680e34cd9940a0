"""`palaver jobs`: add, look at and change scheduled jobs without a gateway; what is wrong is said at once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from palaver.cli.main import main

Palaver = Callable[..., str]


@pytest.fixture
def palaver(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Palaver:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))

    def run(*args: str, code: int = 0) -> str:
        assert main(["jobs", *args]) == code
        printed = capsys.readouterr()
        return printed.err if code or not printed.out else printed.out

    return run


def test_a_job_is_tried_added_shown_and_changed(palaver: Palaver) -> None:
    tried = palaver("add", "every day at 18:00", "What is new?", "--zone", "Asia/Tokyo", "--dry-run")
    assert tried.startswith("It would run at 18:00 every day in Asia/Tokyo:\n")
    assert tried.count("18:00 JST") == 5
    assert json.loads(palaver("list", "--json")) == {"jobs": [], "after": None}

    added = palaver("add", "every 2h", "What is new?", "--repeat", "3", "--name", "news \x1b[31m<b>")
    assert added.startswith("Job 1 “news [31m<b>” runs every 2 hours, 3 times:\n")
    listed = palaver("list")
    assert "news [31m<b>" in listed
    assert "every 2 hours, 3 times" in listed
    for action, done in (
        ("pause", "is paused"),
        ("resume", "runs again"),
        ("run", "runs now, or when a gateway starts"),
    ):
        assert palaver(action, "1").endswith(f"{done}.\n")
    shown = json.loads(palaver("show", "1", "--json"))
    assert (shown["state"], shown["repeats"], len(shown["next"]), shown["runs"]) == ("active", 3, 3, [])
    assert palaver("remove", "1").endswith("is removed.\n")
    assert palaver("list") == "There are no jobs.\n"
    assert json.loads(palaver("list", "--all", "--json")) == {"jobs": [], "after": None}


def test_mistakes_are_reported(palaver: Palaver) -> None:
    palaver("add", "1h", "x", "--name", "twice")
    assert "“twice 2” runs once" in palaver("add", "1h", "x", "--name", "twice")
    add = ("add", "1h", "x")
    for args, told, code in (
        (("add", "", "x"), "'' is not a schedule", 2),
        (("add", "every 30s", "x"), "is not 1m or more", 2),
        (("add", "9999-12-31T23:59", "x"), "not in the years", 2),
        (("add", "0 0 30 2 *", "x"), "No day ever matches", 2),
        (("add", "1h"), "A job needs a prompt", 2),
        (("add", "1h", "x" * 20_001), "at most 20000 characters", 2),
        ((*add, "--repeat", "99999999999999999999"), "Use a whole number from -1 to 1000000", 2),
        ((*add, "--to", "telegram"), "Nothing can be sent to 'telegram'", 2),
        ((*add, "--model", "nobody"), "no model called 'nobody'", 2),
        ((*add, "--script", "../x"), "Jobs cannot run scripts here", 2),
        (
            ("show", "9" * 20),
            f"There is no job '{'9' * 20}' that you can see. List them with palaver jobs list --all",
            1,
        ),
    ):
        assert told in palaver(*args, code=code)
    assert len(json.loads(palaver("list", "--json"))["jobs"]) == 2
