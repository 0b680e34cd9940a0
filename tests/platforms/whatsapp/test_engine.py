"""A whole gateway on WhatsApp: who somebody is, buttons, the 24-hour window, and its real address."""

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaver.config.model import Config, PlatformConfig
from palaver.model.access import AccessRole, Grant
from palaver.protocols.agent import Event, Final, Request
from palaver.settings.quotas import GrantConfig
from palaver.store.status.invariants import violations
from tests.engine.agents import Scripted
from tests.engine.gateway import Bench, running, until
from tests.platforms.whatsapp.fakes import ALICE, adapter_of, said
from tests.platforms.whatsapp.server import APP_SECRET, NUMBER_ID, TOKEN, VERIFY_TOKEN, Server, serving, signed
from tests.store.world import NOON
from tests.web.conftest import opened

NEW = "12195555358"
HIDDEN = "US.13491208655302741918"


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as server:
        yield server


def gateway(server: Server, folder: Path, options: Any = None, **changed: object) -> AbstractAsyncContextManager[Bench]:
    """Alice may speak there."""
    grants = (Grant(platform="whatsapp", role=AccessRole.MEMBER, user_id=ALICE),)
    adapters = [adapter_of(server, **(options or {}))]
    return running(folder / "p.db", adapters=adapters, **{"grants": grants, "acknowledges": False, **changed})  # pyright: ignore[reportArgumentType]


def words(message: dict[str, Any]) -> str:
    return str(message[message["type"]])


async def hears(server: Server, text: str) -> dict[str, Any]:
    await until(lambda: any(text in words(each) for each in server.sent))
    return next(each for each in server.sent if text in words(each))


async def test_somebody_is_the_same_person_under_number_and_hidden_id(server: Server, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        server.push(said("text", {"body": "one"}, from_user_id=HIDDEN))
        await hears(server, "You said: one")
        server.push(said("text", {"body": "two"}, **{"from": None, "from_user_id": HIDDEN}))
        assert (await hears(server, "You said: two"))["to"] == ALICE
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        server.push(said("text", {"body": "let me in"}, **{"from": None, "from_user_id": "US.7"}))
        await until(lambda: not server.queue)
        await here.settled()
        refused = await here.rows("SELECT state = 'refused' FROM inbox ORDER BY no")
        assert [bool(each) for (each,) in refused] == [False, False, True], "a stranger has none of her rights"
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize(
    "system",
    [
        {"type": "user_changed_number", "wa_id": "12195555358"},
        {"type": "customer_changed_number", "new_wa_id": 12195555358},
    ],
)
async def test_somebody_stays_the_same_person_with_a_new_number_and_who_gets_the_old_one_is_new(
    server: Server, tmp_path: Path, system: dict[str, Any]
) -> None:
    changed = said("system", {"body": f"User A changed from {ALICE} to {NEW}", **system})
    async with gateway(server, tmp_path, grants=()) as here:
        theirs = Grant(platform="whatsapp", role=AccessRole.MEMBER, user_id=ALICE)
        await here.store.transact(here.store.grants.add(theirs, NOON, by="test"))
        server.push(said("text", {"body": "one"}, from_user_id=HIDDEN))
        await hears(server, "You said: one")
        server.push(changed)
        server.push(said("text", {"body": "two"}, **{"from": NEW}))
        assert (await hears(server, "You said: two"))["to"] == NEW
        server.push(said("text", {"body": "who is this?"}, timestamp="1750000000"))
        server.push({**changed, "id": "wamid.again"})
        server.push(said("text", {"body": "three"}, **{"from": NEW}))
        await hears(server, "You said: three")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        refused = await here.rows("SELECT state FROM inbox WHERE state = 'refused'")
        assert len(refused) == 1, "whoever has the old number has none of her rights and reads nothing"
        assert await here.store.read(violations()) == []


async def test_a_grant_of_the_configuration_stays_with_the_number_and_the_owner_hears_of_it(
    server: Server, tmp_path: Path
) -> None:
    boss = "14155550000"
    grants = tuple(
        Grant(platform="whatsapp", role=role, user_id=user)
        for role, user in ((AccessRole.MEMBER, ALICE), (AccessRole.OWNER, boss))
    )
    async with gateway(server, tmp_path, grants=grants) as here:
        for user, text in ((boss, "zero"), (ALICE, "one")):
            server.push(said("text", {"body": text}, **{"from": user}))
            await hears(server, f"You said: {text}")
        for _ in range(2):
            server.push(said("system", {"body": "changed", "type": "user_changed_number", "wa_id": NEW}))
        notice = await hears(server, f"whatsapp:{ALICE} is whatsapp:{NEW} now")
        assert notice["to"] == boss
        server.push(said("text", {"body": "two"}, **{"from": NEW}))
        await until(lambda: _count(here, "SELECT 1 FROM inbox WHERE state = 'refused'"))
        await here.settled()
        assert sum("configuration still names" in words(each) for each in server.sent) == 1


async def test_a_redelivery_is_no_second_turn_and_a_button_approves(server: Server, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        message = said("text", {"body": "!approve it"})
        for _ in range(3):
            server.push(message)
        question = await hears(server, "May I")
        button = question["interactive"]["action"]["buttons"][0]["reply"]
        server.push(said("interactive", {"type": "button_reply", "button_reply": button}))
        await hears(server, "You said: it")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM turns")) == 1
        assert sum("You said: it" in words(each) for each in server.sent) == 1


@pytest.mark.parametrize("template", ["update", None])
async def test_an_answer_after_a_day_is_a_template_or_marked_as_failed(
    server: Server, tmp_path: Path, template: str | None
) -> None:
    async def answers(_: Request) -> AsyncGenerator[Event]:
        server.silent.add(ALICE)
        yield Final(text="at last\nit is done")

    async with gateway(server, tmp_path, {"template": template}, agent=Scripted(answers)) as here:
        server.push(said("text", {"body": "go"}))
        await until(lambda: _count(here, "SELECT 1 FROM outbox"))
        await here.settled()
        states = await here.rows("SELECT state FROM outbox")
        assert states == [("delivered",) if template else ("dead",)]
        assert await here.rows("SELECT 1 FROM gone_chats") == [], "the chat is not gone"
    assert [each["type"] for each in server.sent] == (["template"] if template else [])


async def _count(here: Bench, sql: str) -> bool:
    return bool(await here.rows(sql))


async def test_a_long_answer_is_cut_at_what_whatsapp_takes(server: Server, tmp_path: Path) -> None:
    async def long(_: Request) -> AsyncGenerator[Event]:
        yield Final(text="💚🇩🇪 **word** " * 1500)

    async with gateway(server, tmp_path, agent=Scripted(long)) as here:
        server.push(said("text", {"body": "go"}))
        await here.settled()
        await until(lambda: sum(words(each).count("word") for each in server.sent) == 1500)


async def test_whatsapp_reaches_the_gateway_at_its_address(server: Server, tmp_path: Path) -> None:
    """The handshake, a signed call and a forged one over HTTP, and the answer through the Graph API."""
    options = {"phone_number_id": NUMBER_ID, "token": TOKEN, "app_secret": APP_SECRET, "verify_token": VERIFY_TOKEN}
    config = Config(
        data_dir=tmp_path,
        store=str(tmp_path / "palaver.db"),
        platforms={"whatsapp": PlatformConfig(accounts={"shop": {**options, "api_url": server.url}})},
        grants=(GrantConfig(platform="whatsapp", user_id=ALICE),),
    )
    async with (
        opened(config) as window,
        httpx.AsyncClient(timeout=60, base_url=window.url, headers={"host": "chat.example.org"}) as meta,
    ):
        query = {"hub.mode": "subscribe", "hub.challenge": "42", "hub.verify_token": VERIFY_TOKEN}
        shaken = await meta.get("/in/whatsapp/shop", params=query)
        assert (shaken.status_code, shaken.text) == (200, "42")
        server.push(said("text", {"body": "hello"}))
        body = json.dumps(server.queue.pop()).encode()
        assert (await meta.post("/in/whatsapp/shop", content=body, headers=signed(body, "guess"))).status_code == 401
        assert (await meta.post("/in/whatsapp/shop", content=body, headers=signed(body))).status_code == 200
        await hears(server, "You said: hello")
        await until(lambda: bool(server.reads))
        # A call has up to 3 MB, most of it about messages of others.
        server.push(said("text", {"body": "the last of many"}))
        call = server.queue.pop()
        statuses = [{"id": f"wamid.{number}", "status": "read"} for number in range(72_000)]
        call["entry"][0]["changes"].insert(0, {"field": "messages", "value": {"metadata": {"phone_number_id": "7"}}})
        call["entry"][0]["changes"][0]["value"]["statuses"] = statuses
        body = json.dumps(call).encode()
        assert 2_900_000 < len(body) < 3_000_000
        assert (await meta.post("/in/whatsapp/shop", content=body, headers=signed(body))).status_code == 200
        await hears(server, "You said: the last of many")
