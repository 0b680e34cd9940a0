"""`palaver people` from the outside."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.model.access import AccessRole, Grant
from palaver.store.opening import open_store
from palaver.store.people import grants, people
from tests.store.world import NOON

Call = Callable[..., Any]


@pytest.fixture
def call(store_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.setattr(shared_options, "now", lambda: NOON)
    asyncio.run(_fill(store_url))

    def called(*args: str, code: int = 0, plain: bool = False) -> Any:
        assert main(["people", *args, "--store", store_url, *(() if plain else ("--json",))]) == code
        printed = capsys.readouterr()
        return printed.out if plain else json.loads(printed.out)

    return called


async def _fill(url: str) -> None:
    async with await open_store(url) as store:
        await store.transact(people.person_of("telegram:7", NOON - timedelta(hours=1), name="Ann\n\u202e[bold]"))
        await store.transact(people.person_of("matrix:@bea%3Ahs", NOON, name="Bea"))
        ann = Grant(platform="telegram", user_id="7", role=AccessRole.ADMIN)
        await store.transact(grants.add(ann, NOON, by="operator"))


def test_everybody_is_listed_page_by_page(call: Call) -> None:
    everybody = call("list")["people"]
    assert [each["identities"][0]["identity"] for each in everybody] == ["telegram:7", "matrix:@bea%3Ahs"]
    assert everybody[0]["name"] == "Ann [bold]"
    first = call("list", "--limit", "1")
    assert first["people"] == everybody[:1]
    assert call("list", "--after", first["after"])["people"] == everybody[1:]
    assert "Ann [bold]" in call("list", plain=True)


def test_one_is_shown_with_the_grants_that_name_them(call: Call) -> None:
    ann = call("list")["people"][0]
    for name in (ann["id"], "telegram:7"):
        shown = call("show", name)
        assert shown["person"] == ann
        assert [grant["role"] for grant in shown["grants"]] == ["admin"]
    for name in ("matrix:@bea%3Ahs", "matrix:@bea:hs"):
        assert call("show", name)["grants"] == []
    assert "matrix:@bea:hs" in call("list", plain=True)
    assert "admin" in call("show", "telegram:7", plain=True)
    assert "List them with palaver people list" in call("show", "telegram:8", code=1)["error"]
