"""Server-sent events: the event hub over one request that stays open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import StreamingResponse

from palaver.model.errors import StoreUnavailable
from palaver.web.event_hub import HEARTBEAT_SECONDS
from palaver.web.routes import WebRequest

STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_COMMENT = b":\n\n"


def event_stream(request: WebRequest) -> StreamingResponse:
    """Stream events after the last one the client knows, else after its page was rendered."""
    http = request.http
    position = http.headers.get("last-event-id") or http.query_params.get("after")
    return StreamingResponse(_chunks(request, position), media_type="text/event-stream", headers=STREAM_HEADERS)


async def _chunks(request: WebRequest, position: str | None) -> AsyncIterator[bytes]:
    """End the stream when the caller's key is revoked, however much there is to send."""
    services, now = request.services, asyncio.get_running_loop().time
    checked = now()
    async for event in services.hub.events(request.caller, position):
        if event is None or now() - checked >= HEARTBEAT_SECONDS:
            with suppress(StoreUnavailable):  # check again at the next event
                if not await services.auth.is_valid(request.caller):
                    return
                checked = now()
        yield _COMMENT if event is None else event.wire
