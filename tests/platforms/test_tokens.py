"""What the platforms with access tokens share: tokens, looked-up names, reply windows, and the texts of files."""

import asyncio
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from palaver.protocols import Label, Outbound, PlatformDown, SendUnclear
from palaver.protocols.files import send_text_of_file
from palaver.protocols.recent import Names, ReplyWindows, remember
from palaver.protocols.tokens import AccessToken, ApiCodes, TokenApi, in_query


@dataclass
class Clock:
    now: float = 0.0
    given: list[str] = field(default_factory=list[str])

    def __call__(self) -> float:
        return self.now

    async def fetch(self) -> tuple[str, float]:
        await asyncio.sleep(0)
        self.given.append(f"t{len(self.given)}")
        return self.given[-1], 7200.0


async def test_a_token_is_fetched_once_and_again_shortly_before_its_end() -> None:
    clock = Clock()
    token = AccessToken(clock.fetch, clock)
    assert await asyncio.gather(*(token.get() for _ in range(5))) == ["t0"] * 5
    clock.now = 6899.0
    assert await token.get() == "t0"
    clock.now = 6901.0
    assert await token.get() == "t1"
    token.drop("t0")
    assert await token.get() == "t1", "an older one was refused"
    token.drop("t1")
    assert await token.get() == "t2"


@pytest.mark.parametrize(
    "found",
    [
        *({}, [], None, {"access_token": None}, {"access_token": ""}),
        *({"access_token": "t", "expires_in": "soon"}, {"access_token": "t", "expires_in": 10**400}),
    ],
)
async def test_an_answer_without_a_token_is_an_outage_so_that_the_message_is_sent_later(found: Any) -> None:
    async def fetch() -> tuple[Any, Any]:
        return found["access_token"], found.get("expires_in", 7200)

    api = TokenApi("Pigeon", "https://pigeon.example.org", fetch=fetch, place=in_query(), codes=ApiCodes())
    with pytest.raises(PlatformDown, match="Pigeon gives no access token"):
        await api.call("POST", "/send", sending=True)


async def test_a_name_is_looked_up_once_and_missing_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def fetch(key: str) -> object:
        await asyncio.sleep(0)
        asked.append(key)
        if key == "down":
            raise PlatformDown("no connection")
        return {"ann": "Ann", "odd": 7}[key]

    names = Names(fetch)
    for _ in range(2):
        assert [await names.get(key) for key in ("ann", "odd", "down", "nobody")] == [Label("Ann"), None, None, None]
    assert asked == ["ann", "odd", "down", "nobody"]
    later = time.monotonic() + 100
    monkeypatch.setattr("palaver.protocols.recent.time", SimpleNamespace(monotonic=lambda: later))
    assert await names.get("ann") == Label("Ann")
    assert await names.get("down") is None
    assert asked[4:] == ["down"], "after a minute"


def test_a_reply_window_closes_after_some_time_and_some_replies() -> None:
    clock = Clock()
    windows = ReplyWindows(2, clock)
    windows.open("a", "m1", 60.0)
    assert [windows.take("a") for _ in range(3)] == ["m1", "m1", None]
    windows.open("a", "m2", 60.0)
    windows.open("a", "m3", 60.0)
    assert (windows.take("a"), windows.take("b")) == ("m3", None)
    clock.now = 61.0
    assert windows.take("a") is None


def test_only_the_newest_entries_are_remembered() -> None:
    kept: dict[str, int] = {}
    for key, number in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        remember(kept, key, number, 2)
    assert kept == {"a": 3, "c": 4}


async def test_a_file_whose_text_fails_is_not_simply_sent_again() -> None:
    sent: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        sent.append("text")
        raise PlatformDown("no connection")

    await send_text_of_file(Outbound(platform="x", chat_id="1", text=" "), fail)
    assert not sent
    with pytest.raises(SendUnclear, match="its text failed: no connection"):
        await send_text_of_file(Outbound(platform="x", chat_id="1", text="look"), fail)
