"""Rights: what a key may do is what its scopes say, and no more than whoever it is for may do in a chat."""

from pathlib import Path

import httpx
import pytest

from palaver.config.model import Config, GrantChoice
from tests.web.conftest import Opened
from tests.web.test_api import program, say

PEOPLE = tuple(GrantChoice(platform="api", user_id=name) for name in ("alice", "bob"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=PEOPLE)


def beside(client: httpx.AsyncClient, path: str) -> str:
    """The address of a page, for a client of the API."""
    return str(client.base_url.copy_with(path=path))


async def test_figures_and_rules_of_the_gateway_are_the_owners(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window) as owner:
        for path in ("/metrics", "/explain"):
            assert (await alice.get(beside(alice, path))).status_code == 403, path
            assert (await owner.get(beside(owner, path))).status_code != 403, path


async def test_what_was_taken_back_is_shown_to_the_owner_alone(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window) as owner:
        told = await say(alice, "a word too much", conversation="a")
        await say(alice, "/undo", conversation="a")
        path = f"/sessions/{told['session']}/entries"
        assert (await alice.get(path)).status_code == 200
        assert (await alice.get(path, params={"hidden": True})).status_code == 403
        assert "a word too much" in (await owner.get(path, params={"hidden": True})).text
