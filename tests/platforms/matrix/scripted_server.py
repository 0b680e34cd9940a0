"""A homeserver that answers what a test wants it to, also what a real one would not."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from palaver.platforms.matrix.client import Client, Options, open_client

__all__ = ["ROOM", "US", "Odd", "busy", "odd", "synced"]

US = "@helper:example.org"
ROOM = "!room:example.org"
Replying = Callable[[web.Request], Mapping[str, Any] | web.Response]


@dataclass(kw_only=True)
class Odd:
    client: Client
    options: Options
    asked: list[str]
    """Method and path of each request."""
    told: list[Any]
    """What came with each of them."""


def busy(milliseconds: int = 1) -> web.Response:
    said = {"errcode": "M_LIMIT_EXCEEDED", "error": "slow down", "retry_after_ms": milliseconds}
    return web.json_response(said, status=429)


def synced(
    position: str, *said: Mapping[str, Any], state: tuple[Mapping[str, Any], ...] = (), limited: bool = False
) -> Mapping[str, Any]:
    """What is new in the only room."""
    timeline = {"events": said, "limited": limited, "prev_batch": "before"}
    summary = {"m.joined_member_count": 2, "m.invited_member_count": 0}
    room = {"timeline": timeline, "state": {"events": state}, "summary": summary}
    return {"next_batch": position, "rooms": {"join": {ROOM: room}}, "device_one_time_keys_count": {}}


@asynccontextmanager
async def odd(reply: Replying, keys: Path | None = None) -> AsyncGenerator[Odd]:
    """Our client, let in by a homeserver that answers like this."""
    asked, told = list[str](), list[Any]()

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/whoami"):
            return web.json_response({"user_id": US, "device_id": "DEVICE"})
        asked.append(f"{request.method} {request.path}")
        is_json = request.can_read_body and request.content_type == "application/json"
        told.append(await request.json() if is_json else await request.read())
        replied = reply(request)
        return replied if isinstance(replied, web.Response) else web.json_response(replied)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        given = {"homeserver": f"http://127.0.0.1:{runner.addresses[0][1]}", "user_id": US, "access_token": "t"}
        options = Options.model_validate({**given, "keys": keys})
        async with open_client("helper", options) as client:
            yield Odd(client=client, options=options, asked=asked, told=told)
    finally:
        await runner.cleanup()
