"""Streams: events as a browser's EventSource reads them, over one request that does not end."""

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from palaver.web.access.doors import Doors
from palaver.web.access.visitor import Visitor
from palaver.web.events import Hub

__all__ = ["stream"]

_BEAT = b":\n\n"


def stream(request: Request, visitor: Visitor, hub: Hub, doors: Doors) -> StreamingResponse:
    """From where the browser was cut off, else from where its page was made."""
    position = request.headers.get("last-event-id") or request.query_params.get("after")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_lines(visitor, hub, doors, position), media_type="text/event-stream", headers=headers)


async def _lines(visitor: Visitor, hub: Hub, doors: Doors, position: str | None) -> AsyncIterator[bytes]:
    """A key that was taken back closes what it has opened."""
    async for event in hub.events(visitor, position):
        if event is not None:
            yield event.wire
        elif await doors.still_stands(visitor):
            yield _BEAT
        else:
            return
