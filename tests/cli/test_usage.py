"""`palaver usage`: what was used, for people and for machines."""

import asyncio
import json
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.store.opening import open_store
from tests.store.world import NOON, World, dm


def _used(path: Path) -> None:
    async def use() -> None:
        async with await open_store(str(path)) as store:
            world = World(store)
            await world.exchange("a", source=dm("7"))
            await world.exchange("b", source=dm("7"))
            await world.exchange("c", source=dm("8"))

    asyncio.run(use())


def test_by_person_model_and_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _used(tmp_path / "p.db")
    args = ["usage", "--store", str(tmp_path / "p.db"), "--since", f"{NOON:%Y-%m-%d}"]
    assert main([*args, "--by", "person"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "person      turns  tokens in  cached  tokens out  cost",
        "telegram:7  2      20         0       10          0.0000",
        "telegram:8  1      10         0       5           0.0000",
    ]
    assert main([*args, "--by", "model", "--json"]) == 0
    tokens = {"input_tokens": 30, "output_tokens": 15, "cached_tokens": 0, "unpriced_tokens": 0}
    use = {"turns": 3, **tokens, "cost_micros": 9}
    assert json.loads(capsys.readouterr().out) == {"model": [{"model": "", **use}]}
    assert main([*args, "--zone", "Pacific/Auckland"]) == 0
    assert "2026-03-02" in capsys.readouterr().out


def test_wrong_words_are_refused_with_an_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--by", "colour", "--store", str(tmp_path / "p.db")]) == 2
    assert "person, model, day" in capsys.readouterr().err
    assert main(["usage", "--since", "soon", "--store", str(tmp_path / "p.db")]) == 2
    assert "palaver usage --by person" in capsys.readouterr().err
