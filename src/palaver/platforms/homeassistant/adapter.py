"""The adapter for Home Assistant: events and actions over one WebSocket. It keeps no events for us."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, SecretStr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from palaver.platforms.homeassistant import PLATFORM
from palaver.protocols import (
    DM,
    ClientErrors,
    Inbound,
    Limits,
    Outbound,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
    Unit,
    check_url,
    one_line,
    parse_or_skip,
    parse_time,
    proxy_of,
    read_ahead,
    receive_or_skip,
)
from palaver.protocols.markdown import Marks, to_marks
from palaver.protocols.options import AccountOptions
from palaver.protocols.pending import PendingAnswers

PERSISTENT = "persistent_notification"
"""The notifications in Home Assistant's own pages."""
Url = Annotated[str, AfterValidator(check_url("a URL, like http://homeassistant.local:8123"))]


class HomeAssistantOptions(AccountOptions):
    url: Url = Field(description="The address of Home Assistant.", examples=["http://homeassistant.local:8123"])
    token: SecretStr = Field(min_length=1, description="A long-lived access token of an administrator.")
    notify: str = Field(
        default=PERSISTENT,
        pattern=r"^(?:notify\.)?[a-z0-9_]+$",
        description="Where answers go, unless an event says so.",
        examples=["mobile_app_anns_phone"],
    )
    event: str = Field(default="palaver_message", pattern=r"^[a-z0-9_]+$", description="The event that is a message.")


Json = Mapping[str, Any]
ACTION = "mobile_app_notification_action"
OURS = "PALAVER"
"""The first word of the names of our buttons. The others are the chat and what the button says."""


AUTOMATION = "automation"
_CHAT = re.compile(r"(?:notify\.)?[a-z0-9_]+")


class Frame(NamedTuple):
    type: str
    id: int
    content: Json


def read_frame(raw: str | bytes) -> Frame:
    found: Json = json.loads(raw)
    return Frame(str(found["type"]), int(found.get("id") or 0), found)


def is_chat(name: str) -> bool:
    return bool(_CHAT.fullmatch(name))


def action_name(chat: str, says: str = "") -> str:
    return f"{OURS}|{chat}|{says}"


def parse(event: Json, account: str, default_chat: str) -> Inbound | None:
    """Parse a message, or a button of ours that somebody pressed; None if it is another's."""
    data: Json = event["data"]
    if event["event_type"] == ACTION:
        mark, chat, says = (*str(data["action"]).split("|", 2), "", "")[:3]
        text = data.get("reply_text") or says
        if mark != OURS or not text:
            return None
    else:
        text = data["text"]
        chat = str(data.get("notify") or "")
        if isinstance(text, int | float):  # A template that makes a number is a number.
            text = str(text)
    context: Json = event.get("context") or {}
    fired = str(event["time_fired"])
    chat = chat or default_chat
    if not is_chat(chat):
        raise ValueError("it is not the name of a notify action")
    return Inbound(
        source=Source(
            platform="homeassistant",
            account=account,
            chat_kind=DM,
            chat_id=chat,
            # An automation that no user began has no user. It chooses the chat, so that must not be a user's id.
            user_id=str(context.get("user_id") or f"{AUTOMATION}/{chat}"),
            # All events of one run of an automation share a context.
            message_id=f"{context.get('id') or ''} {fired}",
        ),
        text=text,
        at=parse_time(fired),
        mentions_us=True,
    )


MAX_BYTES = 2_000
"""Apple takes four kilobytes for all of a notification."""
_MAX_ACTIONS = 3
_MAX_LABEL = 40
_TEMPLATE = re.compile(r"\{(?=[{%#])")
_INVISIBLE = "\u200b"
_REPLY = "Reply"
_PLAIN = Marks()


def render(outbound: Outbound, receipt: str) -> dict[str, Any]:
    """Return the call of an action. An app shows buttons, and one for a reply."""
    chat = outbound.chat_id
    text = outbound.text
    is_page = chat == PERSISTENT
    # Some versions of Home Assistant would run a template in a message. An invisible character breaks it.
    message = _TEMPLATE.sub(f"{{{_INVISIBLE}", text if is_page else to_marks(text, _PLAIN) or text)
    if is_page:
        return _call(PERSISTENT, "create", {"message": message, "notification_id": receipt})
    if chat.startswith("notify."):
        return {**_call("notify", "send_message", {"message": message}), "target": {"entity_id": chat}}
    return _call("notify", chat, {"message": message, "data": {"tag": receipt, "actions": _actions(outbound)}})


def _call(domain: str, service: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": "call_service", "domain": domain, "service": service, "service_data": data}


def _actions(outbound: Outbound) -> list[dict[str, str]]:
    """Return the buttons: Android shows three."""
    chat = outbound.chat_id
    buttons = [
        {"action": action_name(chat, choice.says), "title": one_line(choice.label, _MAX_LABEL)}
        for choice in outbound.choices
    ]
    reply = {"action": action_name(chat), "title": _REPLY, "behavior": "textInput"}
    return [*buttons, reply][:_MAX_ACTIONS]


_WRONG_TOKEN = "Home Assistant rejects the access token. Create another one in your profile, under Security."  # noqa: S105
_NO_ADMIN = "The access token is not an administrator's, so it cannot read events. Create one as an administrator."
_ANSWER_SECONDS = 30.0
_STORE_SECONDS = 5.0
"""How long to wait for what was read but not stored, when we stop."""
_MAX_FRAME_BYTES = 4 << 20


class HomeAssistantAdapter:
    platform = PLATFORM
    options = HomeAssistantOptions
    limits = Limits(text=MAX_BYTES, unit=Unit.UTF8, interval=1.0)

    def __init__(self, account: str, options: HomeAssistantOptions) -> None:
        self.account = account
        self._options = options
        where = f"Home Assistant at {options.url}"
        self._errors = ClientErrors(title=where, raised=(OSError, WebSocketException), hint="Check url.")
        self._line: ClientConnection | None = None
        self._numbers = count(1)
        self._asked = PendingAnswers[int, Json]()

    async def check(self) -> str:
        async with self._connected() as (line, version):
            await self._subscribe(line)
            return one_line(f"Home Assistant {version}", 100)

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        async with self._connected() as (line, _):
            early = await self._subscribe(line)
            self._line = line
            try:
                await receiver.connected()
                async with aclosing(self._events(line, early)) as events:
                    await read_ahead(events, lambda event: self._take(event, receiver), finish_within=_STORE_SECONDS)
            finally:
                self._line = None
                self._asked.fail("The connection was lost while sending.")
        raise PlatformDown("Home Assistant closed the connection.")

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[tuple[ClientConnection, str]]:
        """Connect and log in; yield the connection and the version of Home Assistant."""
        url = f"ws{self._options.url.removeprefix('http')}/api/websocket"
        with self._errors.requests():
            async with connect(url, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    version = await self._log_in(line)
                yield line, version

    async def _log_in(self, line: ClientConnection) -> str:
        token = self._options.token.get_secret_value()
        async for raw in line:
            frame = parse_or_skip(self.platform.name, lambda raw=raw: read_frame(raw))
            match frame and frame.type:
                case "auth_required":
                    await line.send(json.dumps({"type": "auth", "access_token": token}))
                case "auth_ok":
                    return str(frame.content.get("ha_version") or "") if frame else ""
                case "auth_invalid":
                    raise PlatformRefused(_WRONG_TOKEN)
                case _:
                    pass
        raise PlatformDown("Home Assistant closed the connection.")

    async def _subscribe(self, line: ClientConnection) -> list[Json]:
        """Return the events that came meanwhile: Home Assistant does not repeat them."""
        early: list[Json] = []
        for event in (self._options.event, ACTION):
            number = next(self._numbers)
            await line.send(json.dumps({"id": number, "type": "subscribe_events", "event_type": event}))
            async with asyncio.timeout(_ANSWER_SECONDS):
                while (frame := read_frame(await line.recv())).id != number or frame.type != "result":
                    early += [frame.content] if frame.type == "event" else []
            if not frame.content.get("success"):
                raise PlatformRefused(_NO_ADMIN)
        return early

    async def _events(self, line: ClientConnection, early: list[Json]) -> AsyncGenerator[Json]:
        """Yield events; the results of our calls are dealt with here, however slowly events are stored."""
        for content in early:
            yield content
        async for raw in line:
            frame = parse_or_skip(self.platform.name, lambda raw=raw: read_frame(raw))
            if frame is not None and frame.type == "event":
                yield frame.content
            elif frame is not None and frame.type == "result":
                self._asked.settle(frame.id, frame.content)

    async def _take(self, content: Json, receiver: Receiver) -> None:
        default = self._options.notify
        await receive_or_skip(self.platform.name, lambda: parse(content["event"], self.account, default), receiver)

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        line = self._line
        if line is None:
            raise PlatformDown("There is no connection to Home Assistant.")
        if not is_chat(outbound.chat_id):
            raise TargetGone("Home Assistant has no such name of a notify action.")
        receipt = f"palaver_{hashlib.sha256(idempotency_key.encode()).hexdigest()[:24]}"
        result = await self._call(line, render(outbound, receipt))
        if not result.get("success"):
            raise _explain(result.get("error"))
        return receipt

    async def _call(self, line: ClientConnection, call: dict[str, Any]) -> Json:
        number = next(self._numbers)
        with self._errors.sends(), self._asked.expect(number) as answer:
            await line.send(json.dumps({"id": number, **call}))
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer


def _explain(error: Any) -> PlatformError:  # noqa: ANN401 - JSON is anything
    try:
        code = str(error["code"])
        words = one_line(str(error["message"]), 200)
    except (LookupError, TypeError):
        return SendUnclear("Home Assistant did not say what is wrong.")
    if code == "not_found":
        return TargetGone(f"Home Assistant has no such notify action: {words}")
    if code == "unauthorized":
        return PlatformRefused(_NO_ADMIN)
    if code in {"unknown_error", "timeout"}:
        return SendUnclear(f"Home Assistant failed: {words}")
    return SendRefused(f"Home Assistant rejects it: {words}")
