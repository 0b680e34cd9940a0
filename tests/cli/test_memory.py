"""`palaver memory`: what agents remember, listed for all or one person, edited and deleted."""

import asyncio
import json
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.db.transaction import Statements, transaction
from palaver.store.opening import open_store


@transaction
def _plant() -> Statements[None]:
    for number, identity, place in ((1, "telegram:7", None), (2, "telegram:8", "agent:main:telegram:group:-100")):
        yield (
            "INSERT INTO memory_notes (profile, identity, place, text, created) VALUES ('main', ?, ?, ?, 1)",
            (identity, place, f"likes tea {number}"),
        )
    of_second = "SELECT profile, identity, place, 'likes milk', 1, no FROM memory_notes WHERE no = 2"
    yield f"INSERT INTO memory_notes (profile, identity, place, text, created, replaced_by) {of_second}", ()


async def _make(url: str) -> None:
    async with await open_store(url) as store:
        await store.transact(_plant())


def test_notes_are_listed_edited_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))

    def palaver(*args: str, code: int = 0) -> str:
        assert main(["memory", *args]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    assert json.loads(palaver("list", "--json")) == {"notes": [], "after": None}
    asyncio.run(_make(str(tmp_path / "palaver.db")))
    assert ("telegram:7" in palaver("list"), "agent:main:telegram:group:-100" in palaver("list")) == (True, True)
    listed = json.loads(palaver("list", "--person", "telegram:7", "--json"))["notes"]
    assert [(note["number"], note["identity"], note["chat"]) for note in listed] == [(1, "telegram:7", None)]
    assert json.loads(palaver("list", "--person", "telegram:8", "--json"))["notes"] == []
    assert json.loads(palaver("list", "--limit", "1", "--json"))["after"] == 1
    assert "replaced by 2" in palaver("list")
    assert palaver("edit", "2", "meets  on\nMondays") == "Note 2 is now: meets on Mondays\n"
    assert "1 to 500 characters" in palaver("edit", "2", " ", code=2)
    assert palaver("forget", "2") == "Deleted note 2, and 1 note that it replaced.\n"
    assert "There is no note '2' that you can see. List them with palaver memory list" in palaver("forget", "2", code=1)
