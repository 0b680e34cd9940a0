"""Home Assistant on the loopback, as its documentation describes it, and a person with a phone."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from aiohttp import WSMsgType, web

from palaver.platforms.homeassistant.adapter import HomeAssistantAdapter, HomeAssistantOptions
from palaver.protocols import Adapter, Source
from palaver.testkit.fake_server import NotPossible
from palaver.testkit.recorder import TIMEOUT_SECONDS
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached

TOKEN, ANN, PHONE = "long-lived", "31ddb597e03147118cf8d2f8fbea5553", "mobile_app_anns_phone"
PUSHED = "mobile_app_notification_action"


def options_of(url: str, **more: Any) -> HomeAssistantOptions:
    return HomeAssistantOptions.model_validate({"url": url, "token": TOKEN, "notify": PHONE, **more})


@dataclass
class HomeAssistant(Loopback):
    busy: ClassVar[No] = No({"code": "home_assistant_error", "message": "too much"})
    closed: ClassVar[No] = No({"code": "not_found", "message": "Action notify.x not found."})
    wrong: ClassVar[No] = No({})
    lines: dict[web.WebSocketResponse, dict[str, int]] = field(
        default_factory=dict[web.WebSocketResponse, dict[str, int]]
    )
    """The connections, and the number of each subscription."""
    accepts: str = TOKEN
    is_admin: bool = True
    fires_early: Json | None = None
    """Fired after the first subscription and before the second."""

    async def api(self, method: str, path: str, request: web.Request) -> object:
        assert (method, path) == ("GET", "/api/websocket")
        line = web.WebSocketResponse()
        await line.prepare(request)
        await line.send_json({"type": "auth_required", "ha_version": "2026.4.0"})
        try:
            login = await line.receive_json()
            if login != {"type": "auth", "access_token": self.accepts}:
                await line.send_json({"type": "auth_invalid", "message": "Invalid access token or password"})
                return line
            await line.send_json({"type": "auth_ok", "ha_version": "2026.4.0"})
            self.lines[line] = {}
            async for message in line:
                if message.type is WSMsgType.TEXT:
                    await self._command(json.loads(message.data), line, request)
        except TypeError:
            pass  # The connection was closed before the login.
        finally:
            self.lines.pop(line, None)
        return line

    async def _command(self, asked: Json, line: web.WebSocketResponse, request: web.Request) -> None:
        answer: Json = {"id": asked["id"], "type": "result", "success": True, "result": None}
        try:
            if asked["type"] == "subscribe_events":
                self._check_rights()
                self.lines[line][asked["event_type"]] = asked["id"]
                if asked["event_type"] == PUSHED and self.fires_early:
                    await self._fire("palaver_message", self.fires_early, ANN)
            else:
                assert asked["type"] == "call_service"
                await self._notify(asked, request)
        except No as no:
            answer |= {"success": False, "error": no.answer}
        await line.send_json(answer)

    def _check_rights(self) -> None:
        if not self.is_admin:
            raise No({"code": "unauthorized", "message": "Unauthorized"})

    async def _notify(self, asked: Json, request: web.Request) -> None:
        data = asked["service_data"]
        match asked["domain"], asked["service"]:
            case "persistent_notification", "create":
                chat, receipt = "persistent_notification", data["notification_id"]
            case "notify", "send_message":
                chat, receipt = asked["target"]["entity_id"], "r"
            case "notify", service:
                chat, receipt = service, data["data"]["tag"]
            case _:
                raise self.closed
        await self.show(request, Sent(chat, data["message"], receipt, data))

    async def fire(self, kind: str, data: Json, user: str | None = ANN) -> Json:
        """Fire an event, once somebody listens."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not any(PUSHED in each for each in self.lines.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return await self._fire(kind, data, user)

    async def _fire(self, kind: str, data: Json, user: str | None) -> Json:
        event: Json = {
            "event_type": kind,
            "data": data,
            "origin": "REMOTE",
            "time_fired": datetime.now(UTC).isoformat(),
            "context": {"id": f"c{next(self.numbers)}", "parent_id": None, "user_id": user},
        }
        for line, subscriptions in [*self.lines.items()]:
            if kind in subscriptions:
                await line.send_json({"id": subscriptions[kind], "type": "event", "event": event})
        return event


class FakeHomeAssistant(CalledChat):
    platform = "homeassistant"
    person = ANN
    chat_id = PHONE

    def adapter(self) -> Adapter:
        return reached(HomeAssistantAdapter(ACCOUNT, options_of(self.server.url)), self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert (name, thread_id) == ("alice", None)
        return self.of(await self.server.fire("palaver_message", {"text": text}))

    def of(self, event: Json) -> Source:
        return self.source(f"{event['context']['id']} {event['time_fired']}")

    async def choices(self) -> Sequence[str]:
        actions = self.server.sent[-1].raw["data"]["actions"]
        return [each["title"] for each in actions if "behavior" not in each]

    async def press(self, label: str) -> Source:
        actions = self.server.sent[-1].raw["data"]["actions"]
        action = next(each["action"] for each in actions if each["title"] == label)
        return self.of(await self.server.fire(PUSHED, {"action": action, "tag": self.server.sent[-1].id}))

    async def cut(self) -> None:
        for line in [*self.server.lines]:
            await line.close()

    async def limit_rate(self) -> None:
        raise NotPossible("Home Assistant has no rate limit; its push service says only that it failed")
