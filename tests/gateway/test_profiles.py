"""Several agents, accounts and hooks in one gateway."""

import asyncio
import sys
from pathlib import Path

import pytest

from palaver.config.model import Config
from palaver.gateway.gateway import Gateway
from palaver.model.errors import BadArgument
from palaver.model.session import Principal
from palaver.store.opening import open_store
from palaver.store.status.session_list import list_sessions
from tests.gateway.test_gateway import person, serving
from tests.pigeon import install

WORK = {"agent": {"name": "echo", "streams": "true"}, "serves": [{"platform": "pigeon", "account": "work"}]}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)


def config_of(folder: Path, store: str, **more: object) -> Config:
    folders = {name: folder / name for name in ("home", "work")}
    for name, place in folders.items():
        place.mkdir()
        (place / "1.in").write_text(f"{name}-loft: hello")
    accounts = {name: {"folder": str(place)} for name, place in folders.items()}
    said = {"data_dir": folder, "store": store, "platforms": {"pigeon": {"accounts": accounts}}, **more}
    return Config.model_validate(said)


async def answers(folder: Path, count: int = 1) -> list[str]:
    async with asyncio.timeout(60):
        while len(letters := list(folder.glob("*.out"))) < count:  # noqa: ASYNC110, ASYNC240 - nobody would set an event
            await asyncio.sleep(0.01)
    return sorted(letter.read_text() for letter in letters)


async def test_adapters_of_others_are_served_each_account_by_its_profile_and_hooks_run(
    tmp_path: Path, store_url: str
) -> None:
    config = config_of(
        tmp_path,
        store_url,
        hooks=["pigeon_post:tell"],
        grants=[{"platform": "pigeon"}],
        profiles={"work": WORK},
    )
    async with serving(config):
        assert await answers(tmp_path / "home") == ["home-loft: You said: hello"]
        assert await answers(tmp_path / "work") == ["work-loft: You said: hello"]
    happened = vars(sys.modules["pigeon_post"])["HAPPENED"]
    assert {"session started", "turn finished", "message delivered"} <= set(happened)
    assert happened.count("turn finished") == 2
    async with await open_store(store_url) as store:
        page = await store.read(list_sessions(Principal.operator()))
    assert sorted(each.session.key.profile for each in page.previews) == ["main", "work"]


async def test_what_others_made_badly_is_said_before_anything_starts(tmp_path: Path) -> None:
    store = tmp_path / "p.db"
    config = config_of(tmp_path, str(store), hooks=["pigeon_post:deaf"])
    with pytest.raises(BadArgument, match="cannot be awaited"):
        await Gateway(config).serve()
    accounts = {"home": {"folder": str(tmp_path), "speed": "1000"}}
    bad = Config.model_validate(
        {"data_dir": tmp_path, "store": str(store), "platforms": {"pigeon": {"accounts": accounts}}}
    )
    with pytest.raises(BadArgument, match="failed to make an adapter for home"):
        await Gateway(bad).serve()
    assert not store.exists()


async def test_a_terminal_speaks_in_the_profile_it_asks_for(tmp_path: Path, store_url: str) -> None:
    work = {"agent": {"name": "echo", "delay": "10ms"}, "serves": [{"platform": "terminal"}]}
    said = {"data_dir": tmp_path, "store": store_url, "profiles": {"work": work, "home": {}}}
    config = Config.model_validate(said)
    async with serving(config) as gateway:
        routed, asked, same = person(config), person(config, "home/main"), person(config, "work/main")
        async with routed.present() as one, asked.present() as two, same.present():
            await routed.say("/new Plans")
            await asked.say("the canary sings")
            assert (len(one.texts), two.texts) == (1, ["You said: the canary sings"])
            await asked.say("/resume Plans")
            assert "Resumed “Plans”" not in two.texts[-1]
            await same.say("/resume Plans")
            gateway.reload(Config.model_validate({**said, "profiles": {}}))
            await routed.say("/resume Plans")
            assert "Resumed “Plans”" not in one.texts[-1]
    async with serving(config), person(config, "home/main").present() as paper:
        assert [each.text for each in paper.welcomes[0].recap] == ["the canary sings", "You said: the canary sings"]
