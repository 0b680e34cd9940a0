"""What each adapter takes: time and memory to import it, and processor time for a message in and its answer out."""

import asyncio
import base64
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from bench.canned import Answers, serving
from bench.measure import Bare, Figure, set_aside
from palaver.model.turn import Outbound
from palaver.platforms.plugins import ENTRY_POINT_GROUP, make_adapter
from palaver.protocols.adapter import Adapter
from palaver.protocols.capabilities import HttpRequest
from palaver.testkit.recorder import Recorder, running

__all__ = ["imports", "message"]

_ROUNDS = 5
_MESSAGES = 200
_PARSED = 300
_BARE = "palaver.protocols.adapter"
_MEASURE = """
import json, sys, time
from pathlib import Path
start = time.process_time()
for name in sys.argv[1:]:
    __import__(name)
seconds = time.process_time() - start
rows = Path("/proc/self/status").read_text().splitlines()
resident = next(int(row.split()[1]) * 1024 for row in rows if row.startswith("VmRSS"))
print(json.dumps([seconds, resident]))
"""
_TEXT = (
    "Here is what I found:\n\n- **Berlin** to Paris, 79 €\n- Paris to *Hendaye*, 45 €\n\n"
    "```python\nprint(79 + 45)\n```\n\nSee [the timetable](https://example.org/trains?day=2026-05-01) for the rest."
)
_SAID = "Can we get to Lisbon by train in May, and what would the tickets cost for two?"


def imports() -> Iterator[Figure]:
    bare = _imported(_BARE)
    for name, module in _modules().items():
        seconds, resident = _imported(_BARE, module)
        of_ports = "the ports alone"
        yield Figure(name=f"adapter.import_{name}", value=seconds, bare=Bare(name=of_ports, value=bare[0]))
        yield Figure(name=f"adapter.memory_{name}", value=resident, unit="B", bare=Bare(name=of_ports, value=bare[1]))


def _modules() -> Mapping[str, str]:
    ours = [each for each in entry_points(group=ENTRY_POINT_GROUP) if each.dist and each.dist.name == "palaver"]
    return {each.name: each.module for each in sorted(ours, key=lambda each: each.name)}


def _imported(*modules: str) -> tuple[float, float]:
    """Seconds of processor time, and bytes that the process has then."""
    command = [sys.executable, "-c", _MEASURE, *modules]
    found = [json.loads(subprocess.check_output(command)) for _ in range(_ROUNDS)]  # noqa: S603
    return statistics.median(each[0] for each in found), statistics.median(each[1] for each in found)


@dataclass(frozen=True, kw_only=True)
class _Platform:
    """A message as it comes in, how it is parsed, and how the platform answers when we send."""

    payload: bytes
    parse: Callable[[bytes], object]
    render: Callable[[Outbound], object]
    options: Callable[[str], dict[str, object]]
    answers: Answers
    chat: str = "7"


def message() -> Iterator[Figure]:
    made = {"matrix": _matrix, "telegram": _telegram, "webhook": _webhook}
    for name in _modules():
        platform = made[name]()
        outbound = Outbound(platform=name, account="main", chat_id=platform.chat, text=_TEXT)
        pure = _each(lambda p=platform, o=outbound: (p.parse(p.payload), p.render(o)))
        bare = _each(lambda p=platform: (json.loads(p.payload), json.dumps({"text": _TEXT})))
        with serving(platform.answers) as url:
            adapter = make_adapter(name, "main", platform.options(url))
            sent = asyncio.run(_sent(adapter, outbound))
        yield Figure(
            name=f"adapter.message_{name}",
            value=pure,
            bare=Bare(name="JSON alone", value=bare),
        )
        yield Figure(name=f"adapter.send_{name}", value=sent, note="through the client library, to a server here")


def _each(work: Callable[[], object]) -> float:
    """Seconds of processor time, the median of a few rounds."""
    set_aside()
    rounds: list[float] = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        for _ in range(_PARSED):
            work()
        rounds.append((time.process_time() - start) / _PARSED)
    return statistics.median(rounds)


async def _sent(adapter: Adapter, outbound: Outbound) -> float:
    """Seconds of this thread, in which the adapter runs and the platform does not."""
    async with running(adapter, Recorder()):
        await _until_connected(adapter, outbound)
        start = time.thread_time()
        for number in range(_MESSAGES):
            await adapter.send(outbound, idempotency_key=f"k{number}")
        return (time.thread_time() - start) / _MESSAGES


async def _until_connected(adapter: Adapter, outbound: Outbound) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await adapter.send(outbound, idempotency_key="first")
            except Exception:  # noqa: BLE001 - not connected yet
                await asyncio.sleep(0.01)
            else:
                return


def _telegram() -> _Platform:
    parsing, rendering = import_module("palaver.platforms.telegram.parse"), _of("telegram.render")
    telegram, now = import_module("telegram"), datetime(2026, 5, 1, tzinfo=UTC)
    chat: dict[str, object] = {"id": 7, "type": "private", "first_name": "Ann"}
    bot: dict[str, object] = {"id": 123456, "is_bot": True, "first_name": "Helper", "username": "helper_bot"}
    ann = {"id": 7, "is_bot": False, "first_name": "Ann"}
    said = {"message_id": 1, "date": 1_777_000_000, "chat": chat, "from": ann, "text": _SAID}
    us = parsing.OwnBot("main", 123456, "helper_bot")

    def answers(path: str) -> tuple[int, object] | None:
        method = path.partition("?")[0].rpartition("/")[2]
        if method.lower() == "getupdates":
            return None
        sent = {"message_id": 2, "date": 1_777_000_000, "chat": chat, "from": bot, "text": "…"}
        return 200, {"ok": True, "result": {"getMe": bot, "sendMessage": sent}.get(method, True)}

    return _Platform(
        payload=json.dumps({"update_id": 1, "message": said}).encode(),
        parse=lambda payload: parsing.parse(telegram.Update.de_json(json.loads(payload), None), us, now),
        render=lambda outbound: rendering.render(outbound.text, 4096),
        options=lambda url: {"token": "123456:" + "A" * 35, "api_url": url},
        answers=answers,
    )


def _matrix() -> _Platform:
    parsing, rendering, events = _of("matrix.parse"), _of("matrix.render"), _of("matrix.events")
    room, us = "!room:example.org", "@helper:example.org"
    event = {
        "type": "m.room.message",
        "event_id": "$1",
        "sender": "@ann:example.org",
        "origin_server_ts": 1_777_000_000_000,
        "content": {"msgtype": "m.text", "body": _SAID},
    }
    scene = parsing.EventContext(
        account="main", us=us, our_name="Helper", chat_id=room, kind="dm", title=None, name="Ann"
    )
    empty: dict[str, object] = {
        "timeline": {"events": [], "limited": False, "prev_batch": "p"},
        "state": {"events": []},
    }
    joined: dict[str, object] = {
        **empty,
        "account_data": {"events": []},
        "ephemeral": {"events": []},
        "unread_notifications": {},
    }

    def answers(path: str) -> tuple[int, object] | None:
        place, _, query = path.partition("?")
        if place.endswith("/sync"):
            first: dict[str, object] = {
                "next_batch": "s1",
                "rooms": {"join": {room: joined}},
                "device_one_time_keys_count": {},
            }
            return None if "since=s1" in query else (200, first)
        if place.endswith("/account/whoami"):
            return 200, {"user_id": us, "device_id": "D"}
        return (200, {"event_id": "$2"}) if "/send/" in place else (404, {"errcode": "M_NOT_FOUND", "error": ""})

    return _Platform(
        payload=json.dumps(event).encode(),
        parse=lambda payload: parsing.parse(events.parse_event(json.loads(payload)), scene),
        render=lambda outbound: json.dumps(rendering.message_content(outbound)),
        options=lambda url: {"homeserver": url, "user_id": us, "access_token": "t"},
        answers=answers,
        chat=room,
    )


def _webhook() -> _Platform:
    parsing, rendering, signing = _of("webhook.parse"), _of("webhook.render"), _of("webhook.signature")
    options = _of("webhook.options").WebhookOptions
    secret, now = "whsec_" + base64.b64encode(b"k" * 32).decode(), datetime(2026, 5, 1, tzinfo=UTC)
    body = json.dumps({"build": {"status": "red"}, "repository": {"full_name": "a/b"}, "said": _SAID}).encode()
    key = signing.decode_secret(signing.Scheme.STANDARD, secret)
    headers = {**signing.sign(key, "msg_1", now, body), "content-type": "application/json"}
    chosen = options.model_validate({"secret": secret, "text": "Build {{ build.status }}: {{ said }}"})

    def parse(payload: bytes) -> object:
        call = HttpRequest(method="POST", headers=headers, body=payload)
        return parsing.parse_request("webhook", "main", chosen, call, now)

    return _Platform(
        payload=body,
        parse=parse,
        render=rendering.message_json,
        options=lambda url: {"secret": secret, "url": f"{url}/hook"},
        answers=lambda _: (200, {}),
        chat="main",
    )


def _of(module: str) -> Any:  # noqa: ANN401 - a module; those of adapters are imported only for this figure
    return import_module(f"palaver.platforms.{module}")
