"""Streams: events as a browser's EventSource reads them, over one request that does not end."""

import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from palaver.web.access.doors import Doors
from palaver.web.access.visitor import Visitor
from palaver.web.events import Event, Hub

__all__ = ["encoded", "stream"]

_BEAT = b":\n\n"


def encoded(event: Event) -> bytes:
    """ASCII only, on one line: no text of anybody's can look like another event."""
    lines = [f"event: {event.name}", f"data: {json.dumps(dict(event.body))}"]
    if event.id is not None:
        lines.insert(0, f"id: {event.id}")
    return "\n".join([*lines, "", ""]).encode()


def stream(request: Request, visitor: Visitor, hub: Hub, doors: Doors) -> StreamingResponse:
    """From where the browser was cut off, else from where its page was made."""
    position = request.headers.get("last-event-id") or request.query_params.get("after")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_lines(visitor, hub, doors, position), media_type="text/event-stream", headers=headers)


async def _lines(visitor: Visitor, hub: Hub, doors: Doors, position: str | None) -> AsyncIterator[bytes]:
    """A key that was taken back closes what it has opened."""
    async for event in hub.events(visitor, position):
        if event is not None:
            yield encoded(event)
        elif await doors.still_stands(visitor):
            yield _BEAT
        else:
            return
