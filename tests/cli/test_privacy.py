"""`palaver people export`, `forget`, `receipts` and `verify`, from the outside."""

import asyncio
import hashlib
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from palaver.cli.main import main
from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.store.opening import open_store
from palaver.store.privacy import erasure
from palaver.store.store import Store
from tests.store.test_forgetting import ANN, ID, OTHERS, SECRET, live
from tests.store.world import World, dm

T = TypeVar("T")


def _with(path: Path, do: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        async with await open_store(str(path)) as store:
            return await do(store)

    return asyncio.run(run())


@transaction
def _rows(sql: str, *values: Value) -> Statements[list[Row]]:
    return (yield sql, values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    _with(tmp_path / "p.db", live)
    return tmp_path / "p.db"


def test_from_an_export_to_a_receipt_that_holds(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, folder = ["--store", str(path)], path.parent
    assert main(["people", "export", ANN, "-o", str(folder / "ann.jsonl"), *store]) == 0
    assert SECRET in (folder / "ann.jsonl").read_text()
    assert OTHERS not in (folder / "ann.jsonl").read_text()
    assert main(["people", "verify", str(folder / "ann.jsonl"), *store]) == 0
    assert "Complete and unchanged" in capsys.readouterr().out
    assert main(["people", "forget", ANN, "--dry-run", *store]) == 0
    assert "1 conversation with 2 entries" in capsys.readouterr().out
    assert main(["people", "forget", ANN, *store]) == 2
    assert "--yes" in capsys.readouterr().err
    receipt = folder / "receipt.json"
    copies = [folder / f"p.db.{kind}" for kind in ("schema-2", "schema-3")]
    for copy in copies:
        copy.touch()
    assert main(["people", "forget", ANN, "--yes", "--receipt", str(receipt), *store]) == 0
    printed = capsys.readouterr()
    assert "Deleted everything about" in printed.out
    assert all(f"A backup still holds the old data: {copy}" in " ".join(printed.err.split()) for copy in copies)
    (folder / "ann.jsonl").unlink()
    for file in folder.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file
        assert ID.encode() not in file.read_bytes(), file
    assert main(["people", "verify", str(receipt), "--json", *store]) == 0
    assert json.loads(capsys.readouterr().out)["holds"]
    assert main(["people", "forget", ANN, "--yes", "--receipt", str(receipt), *store]) == 2


def test_an_export_of_any_length_is_verified_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However little memory there is."""
    lines = [b'{"format":"palaver-person","version":1}\n', *[b'{"said":"' + b"x" * 50_000 + b'"}\n'] * 200]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    file = tmp_path / "ann.jsonl"
    file.write_bytes(b"".join([*lines, json.dumps({"whole": {"lines": 201, "sha256": digest}}).encode()]))
    tracemalloc.start()
    try:
        assert main(["people", "verify", str(file)]) == 0
        assert tracemalloc.get_traced_memory()[1] < file.stat().st_size / 2
    finally:
        tracemalloc.stop()
    assert "201 lines" in capsys.readouterr().out
    file.write_bytes(file.read_bytes() + b"\nmore")
    assert main(["people", "verify", str(file)]) == 2
    assert "incomplete or was changed" in capsys.readouterr().err


def test_what_is_not_done_is_not_called_done(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_MAX_PASSES", 1)
    assert main(["people", "forget", ANN, "--yes", "--store", str(path)]) == 1
    printed = capsys.readouterr()
    assert "Run this again for the rest." in printed.err
    assert "Deleted everything about" not in printed.out
    assert main(["people", "forget", ANN, "--yes", "--store", str(path)]) == 0


def test_a_receipt_fails_when_something_is_there_again(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, receipt = ["--store", str(path)], path.parent / "receipt.json"
    message = _with(path, lambda opened: opened.read(_rows("SELECT body FROM inbox ORDER BY no LIMIT 1")))[0][0]
    assert main(["people", "forget", ANN, "--yes", *store]) == 0
    assert main(["people", "receipts", "1", "-o", str(receipt), *store]) == 0
    assert main(["people", "receipts", *store]) == 0
    assert "operator" in capsys.readouterr().out
    assert main(["people", "receipts", "1", *store]) == 1
    again = _rows(
        "INSERT INTO inbox (key, state, received, body) VALUES ('agent:main:telegram:group:-9', 'done', 1, ?)", message
    )
    _with(path, lambda opened: opened.transact(again))
    assert main(["people", "verify", str(receipt), *store]) == 1
    assert "Deleted data is back: inbox" in capsys.readouterr().out
    receipt.write_text(receipt.read_text().replace('"by": "operator"', '"by": "nobody"'))
    assert main(["people", "verify", str(receipt), *store]) == 2
    assert "changed, or from another store" in capsys.readouterr().err


def test_a_turn_at_work_is_waited_for(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def begin(opened: Store) -> None:
        world = World(opened)
        world.later(days=10_000)
        await world.say("still at it", dm(ID), id_="new")
        assert await world.begin(dm(ID))

    _with(path, begin)
    assert main(["people", "forget", ANN, "--yes", "--store", str(path)]) == 1
    assert "in the middle of a turn" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["export", "forget"])
def test_nobody_of_that_name(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["people", command, "nobody", "--store", str(path)]) == 1
    assert (
        "There is no person 'nobody' that you can see. Use the id of a person, or an account. List them with"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", [["export"], ["forget", "--yes"]])
def test_somebody_without_stored_data(path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["people", *command, "telegram:999", "--store", str(path)]) == 2
    printed = capsys.readouterr()
    assert "Nothing is stored about 'telegram:999'" in printed.err
    assert not printed.out
    assert main(["people", "receipts", "--store", str(path)]) == 0
    assert "No person has been deleted yet" in capsys.readouterr().err


def test_what_is_no_receipt(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path.parent / "x").write_bytes(b"\xff\xfe")
    for file in ("x", "missing", "p.db"):
        assert main(["people", "verify", str(path.parent / file), "--store", str(path)]) == 2
        assert "palaver people verify receipt.json" in capsys.readouterr().err
