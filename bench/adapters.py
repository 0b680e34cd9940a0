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
from functools import partial
from importlib import import_module
from typing import Any

from bench.called import PLATFORMS, Called
from bench.canned import Answers, serving
from bench.measure import Bare, Figure, set_aside
from palaver.model.turn import Outbound
from palaver.platforms.plugins import PLATFORMS as DECLARED
from palaver.platforms.plugins import make_adapter
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
    return {name: DECLARED[name].adapter.partition(":")[0] for name in sorted(DECLARED) if DECLARED[name].adapter}


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
    answers: Answers | None
    """None if it speaks no HTTP: its sends are not measured."""
    chat: str = "7"


def message() -> Iterator[Figure]:
    made: dict[str, Callable[[], _Platform | Called]] = {
        **{name: partial(make, _SAID) for name, make in PLATFORMS.items()},
        "discord": _discord,
        "email": _email,
        "imessage": _imessage,
        "matrix": _matrix,
        "signal": _signal,
        "slack": _slack,
        "telegram": _telegram,
        "webhook": _webhook,
        "whatsapp": _whatsapp,
    }
    for name in _modules():
        platform = made[name]()
        outbound = Outbound(platform=name, account="main", chat_id=platform.chat, text=_TEXT)
        pure = _each(lambda p=platform, o=outbound: (p.parse(p.payload), p.render(o)))
        bare = _each(lambda p=platform: (json.loads(p.payload), json.dumps({"text": _TEXT})))
        yield Figure(
            name=f"adapter.message_{name}",
            value=pure,
            bare=Bare(name="JSON alone", value=bare),
        )
        if platform.answers is None:
            continue
        with serving(platform.answers) as url:
            adapter = make_adapter(name, "main", platform.options(url))
            sent = asyncio.run(_sent(adapter, outbound))
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


def _discord() -> _Platform:
    parsing, rendering = _of("discord.parse"), _of("discord.render")
    ann, bot = {"id": "7", "username": "ann"}, {"id": "900", "username": "helper"}
    said = {"id": "9", "channel_id": "7", "author": ann, "content": _SAID, "timestamp": "2026-05-01T00:00:00+00:00"}
    us, place = parsing.OwnBot("main", "900"), parsing.Place({}, {})

    def answers(path: str) -> tuple[int, object] | None:
        """It has no gateway: sending needs none."""
        method = path.partition("?")[0].rpartition("/")[2]
        return {"@me": (200, bot), "messages": (200, {"id": "10"})}.get(method)

    return _Platform(
        payload=json.dumps(said).encode(),
        parse=lambda payload: parsing.parse_message(json.loads(payload), place, us),
        render=lambda outbound: rendering.message(outbound, key="k"),
        options=lambda url: {"token": "a.b.c", "api_url": url},
        answers=answers,
    )


def _imessage() -> _Platform:
    parsing, markdown = _of("imessage.parse"), import_module("palaver.protocols.markdown")
    ann, guid = "+15551234567", "iMessage;-;+15551234567"
    said: dict[str, object] = {
        "originalROWID": 1,
        "guid": "m1",
        "text": _SAID,
        "handle": {"address": ann},
        "attachments": [],
        "dateCreated": 1_777_000_000_000,
        "isFromMe": False,
        "chats": [{"guid": guid, "style": 45, "chatIdentifier": ann, "displayName": ""}],
    }
    context = parsing.Context(account="main", us="helper@example.org")

    def answers(path: str) -> tuple[int, object] | None:
        info = {"server_version": "1.9.9", "private_api": True, "helper_connected": True}
        known: dict[str, object] = {"server/info": info, "message/text": {"guid": "m2"}}
        return 200, {"status": 200, "data": known.get(path.partition("?")[0].removeprefix("/api/v1/"), [])}

    return _Platform(
        payload=json.dumps(said).encode(),
        parse=lambda payload: parsing.parse(json.loads(payload), context),
        render=lambda outbound: markdown.to_plain(outbound.text),
        options=lambda url: {"url": url, "password": "p", "poll_seconds": 60},
        answers=answers,
        chat=guid,
    )


def _signal() -> _Platform:
    parsing, rendering = _of("signal.parse"), _of("signal.render")
    number, ann = "+15550100200", "a11ce000-0000-4000-8000-000000000002"
    sender = {"sourceNumber": "+15550100300", "sourceUuid": ann, "sourceName": "Ann"}
    said = {"timestamp": 1_777_000_000_000, "message": _SAID, "expiresInSeconds": 0, "viewOnce": False}
    us, known = parsing.OwnAccount("main", number), parsing.Known({}, {})

    def answers(path: str) -> tuple[int, object] | None:
        result = {"timestamp": 1_777_000_001_000} if path.endswith("#send") else [{"number": number}]
        return None if "/events" in path else (200, {"jsonrpc": "2.0", "result": result, "id": 1})

    return _Platform(
        payload=json.dumps({"account": number, "envelope": {**sender, "dataMessage": said}}).encode(),
        parse=lambda payload: parsing.parse(json.loads(payload), us, known),
        render=rendering.render,
        options=lambda url: {"number": number, "url": url},
        answers=answers,
        chat=ann,
    )


def _slack() -> _Platform:
    parsing, rendering = _of("slack.parse"), _of("slack.render")
    us, now = parsing.OwnApp("main", "T1", "U1", "B1"), datetime(2026, 5, 1, tzinfo=UTC)
    said = {"type": "message", "channel": "D7", "channel_type": "im", "user": "U7", "text": _SAID, "ts": "1777000000.1"}
    results = {
        "auth.test": {"user": "helper", "team": "Example", "team_id": "T1", "user_id": "U1", "bot_id": "B1"},
        "chat.postMessage": {"channel": "D7", "ts": "1777000001.2"},
    }

    def answers(path: str) -> tuple[int, object] | None:
        method = path.partition("?")[0].rpartition("/")[2]
        return (200, {"ok": True, **results[method]}) if method in results else None

    return _Platform(
        payload=json.dumps({"type": "event_callback", "team_id": "T1", "event": said}).encode(),
        parse=lambda payload: parsing.parse(json.loads(payload), us, now),
        render=rendering.message,
        options=lambda url: {"bot_token": "xoxb-1", "app_token": "xapp-1", "api_url": url},
        answers=answers,
        chat="D7",
    )


def _whatsapp() -> _Platform:
    parsing, rendering = _of("whatsapp.parse"), _of("whatsapp.render")
    number = {"display_phone_number": "15550783881", "phone_number_id": "106540352242922"}
    text = {"body": _SAID}
    said = {"from": "16505551234", "id": "wamid.1", "timestamp": "1777000000", "type": "text", "text": text}
    contact = {"profile": {"name": "Ann"}, "wa_id": "16505551234"}
    value = {"messaging_product": "whatsapp", "metadata": number, "contacts": [contact], "messages": [said]}
    update = {"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": value}]}]}
    us = parsing.OwnNumber(account="main", id="106540352242922")

    def parse(payload: bytes) -> object:
        changes = parsing.parse_changes(json.loads(payload))
        return [parsing.parse_message(message, change, us) for change in changes for message in change.messages]

    return _Platform(
        payload=json.dumps(update).encode(),
        parse=parse,
        render=rendering.render,
        options=lambda url: {
            "phone_number_id": "106540352242922",
            "token": "t",
            "app_secret": "s",
            "verify_token": "v",
            "api_url": url,
        },
        answers=lambda _: (200, {"messages": [{"id": "wamid.2"}], "display_phone_number": "1"}),
        chat="16505551234",
    )


def _email() -> _Platform:
    parsing, rendering, mailbox = _of("email.parse"), _of("email.render"), _of("email.mailbox")
    account = {
        "address": "helper@example.org",
        "password": "p",
        "imap_host": "i",
        "smtp_host": "s",
        "auth_server": "mx",
    }
    chosen, now = _of("email.options").EmailOptions.model_validate(account), datetime(2026, 5, 1, tzinfo=UTC)
    headers = "Authentication-Results: mx; dmarc=pass header.from=example.com\nFrom: Ann <ann@example.com>\n"
    mail = f"{headers}To: helper@example.org\nSubject: Trains\nMessage-ID: <1@example.com>\n\n{_SAID}\n".encode()
    return _Platform(
        payload=json.dumps(mail.decode()).encode(),
        parse=lambda _: parsing.parse(mailbox.RawMail(content=mail, size=len(mail)), chosen, "main", "1.1", now),
        render=lambda outbound: rendering.render(outbound, chosen, "2@example.org", "Re: Trains", now).as_bytes(),
        options=lambda _: {**account},
        answers=None,
        chat="ann@example.com",
    )
