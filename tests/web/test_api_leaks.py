"""Nobody learns anything of another's through the API: every endpoint is asked for everything of somebody else's."""

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaver.config.model import Config
from palaver.store.people.api_tokens import Right
from palaver.web.api.endpoints import Endpoint
from palaver.web.api.openapi import ENDPOINTS
from tests.web.conftest import Opened
from tests.web.test_api import PEOPLE, program, say

CANARY = "canary-4711"
BODIES: dict[str, dict[str, Any]] = {
    "/messages": {"text": "let me in", "wait": 5},
    "/sessions/{id}": {"title": "taken over"},
    "/sessions/{id}/commands": {"command": "/history"},
    "/approvals/{id}": {"allow": True, "question": "1-1"},
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=PEOPLE)


async def tell(alice: httpx.AsyncClient) -> dict[str, str]:
    """Alice tells all she has; gives the names of it."""
    file = {"name": f"{CANARY}.txt", "content": base64.b64encode(CANARY.encode()).decode()}
    told = await say(alice, f"my {CANARY}", conversation="secret", files=[file])
    asked = await say(alice, f"!approve {CANARY}", conversation="other")
    await alice.patch(f"/sessions/{told['session']}", json={"title": f"about {CANARY}"})
    entries = (await alice.get(f"/sessions/{told['session']}/entries")).json()["entries"]
    files = [each["id"] for entry in entries for each in entry["files"]]
    return {"session": told["session"], "message": told["id"], "turn": asked["turn"], "file": files[0]}


def paths(endpoint: Endpoint, hers: dict[str, str]) -> list[str]:
    """The path with each of her names in it."""
    if "{" not in endpoint.path:
        return [endpoint.path]
    return [re.sub(r"\{.*?\}", name, endpoint.path) for name in (*hers.values(), "1", "api:alice")]


async def ask(client: httpx.AsyncClient, endpoint: Endpoint, path: str, hers: dict[str, str]) -> str:
    query = {
        "/search": {"q": CANARY},
        "/traces": {"name": hers["message"]},
        "/turns": {"session": hers["session"]},
        "/sessions": {"person": "api:alice"},
    }.get(endpoint.path, {})
    body = {**BODIES.get(endpoint.path, {}), **({"session": hers["session"]} if path == "/messages" else {})}
    answer = await client.request(endpoint.method, path, params=query, json=body or endpoint.example or None)
    assert answer.status_code < 500, answer.text
    return answer.text


@pytest.mark.parametrize("identity", ["api:bob", "telegram:7"])
async def test_nothing_of_hers_is_shown_to_anybody_else(window: Opened, identity: str) -> None:
    async with program(window, "api:alice") as alice, program(window, identity) as other:
        hers = await tell(alice)
        for endpoint in ENDPOINTS:
            if endpoint.path == "/events":
                continue
            for path in paths(endpoint, hers):
                told = await ask(other, endpoint, path, hers)
                asked_for = json.dumps([path, hers["session"]])
                left = told.replace(hers["session"], "") if hers["session"] in asked_for else told
                assert CANARY not in left, (endpoint.path, told)
                assert "api:alice" not in left.replace("'api:alice'", ""), (endpoint.path, told)
        assert (await alice.get(f"/sessions/{hers['session']}")).json()["title"] == f"about {CANARY}"
        assert len((await alice.get("/approvals")).json()["turns"]) == 1, "nobody else has decided"


async def test_streams_tell_nothing_of_hers(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window, "api:bob") as bob:
        heard: list[str] = []

        async def listen() -> None:
            async with bob.stream("GET", "/events") as stream:
                async for line in stream.aiter_lines():
                    heard.append(line)  # noqa: PERF401 - it is read while it grows

        listening = asyncio.create_task(listen())
        async with asyncio.timeout(60):
            while not heard:  # noqa: ASYNC110 - until it listens
                await asyncio.sleep(0.01)
            hers = await tell(alice)
            mine = (await say(bob, "hello"))["session"]
            while mine not in "".join(heard):  # noqa: ASYNC110 - until it was told of what came after
                await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.wait({listening})
        assert CANARY not in "".join(heard)
        assert hers["session"] not in "".join(heard)


async def test_her_conversations_are_not_spoken_in(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window, "api:bob", Right.CHAT) as bob:
        hers = await tell(alice)
        url = f"{window.url}/v1/chat/completions"
        requests: list[tuple[dict[str, Any], dict[str, str]]] = [
            ({"messages": [{"role": "user", "content": "what is it?"}]}, {"x-palaver-session": hers["session"]}),
            (
                {"messages": [{"role": "user", "content": "x"}], "metadata": {"session": f"about {CANARY}"}},
                {},
            ),
        ]
        for body, headers in requests:
            answer = await bob.post(url, json={"model": "palaver", **body}, headers=headers)
            assert answer.status_code == 404
        same = [
            {"role": "user", "content": f"my {CANARY}"},
            {"role": "assistant", "content": f"You said: my {CANARY}"},
            {"role": "user", "content": "go on"},
        ]
        answer = await bob.post(url, json={"model": "palaver", "messages": same})
        assert answer.headers["x-palaver-session"] != hers["session"], "he knows the words, but they are not his"
        entries = (await alice.get(f"/sessions/{hers['session']}/entries")).json()["entries"]
        assert "go on" not in json.dumps(entries)
