"""Streams: events as a browser's EventSource reads them, over one request that does not end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import StreamingResponse

from palaver.model.errors import StoreUnavailable
from palaver.web.caller import Caller
from palaver.web.event_hub import HEARTBEAT, Hub
from palaver.web.tokens import Authenticator

__all__ = [
    "stream",
]

_BEAT = b":\n\n"


def stream(request: Request, caller: Caller, hub: Hub, auth: Authenticator) -> StreamingResponse:
    """From where the browser was cut off, else from where its page was made."""
    position = request.headers.get("last-event-id") or request.query_params.get("after")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_lines(caller, hub, auth, position), media_type="text/event-stream", headers=headers)


async def _lines(caller: Caller, hub: Hub, auth: Authenticator, position: str | None) -> AsyncIterator[bytes]:
    """A key that was taken back closes what it has opened, however much there is to tell."""
    now = asyncio.get_running_loop().time
    asked = now()
    async for event in hub.events(caller, position):
        if event is None or now() - asked >= HEARTBEAT:
            with suppress(StoreUnavailable):  # then it is asked at the next event
                if not await auth.still_stands(caller):
                    return
                asked = now()
        yield _BEAT if event is None else event.wire
