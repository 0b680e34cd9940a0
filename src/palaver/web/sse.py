"""Server-sent events: the event hub over one request that stays open."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from palaver.model.errors import NoAccess, StoreUnavailable
from palaver.web.caller import Caller
from palaver.web.event_hub import HEARTBEAT_SECONDS, Hub
from palaver.web.tokens import Authenticator

_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_COMMENT = b":\n\n"


class EventStream(StreamingResponse):
    """A stream of events whose generator ends with the request, even if the client disconnects."""

    def __init__(self, chunks: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers={**_STREAM_HEADERS, **(headers or {})})
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._chunks):
            await super().__call__(scope, receive, send)


def event_stream(http: Request, caller: Caller, hub: Hub, auth: Authenticator) -> EventStream:
    """Stream events after the last one the client knows, else after its page was rendered."""
    position = http.headers.get("last-event-id") or http.query_params.get("after") or None
    return EventStream(event_chunks(caller, hub, auth, position, http.query_params.get("watch") or None))


async def event_chunks(
    caller: Caller, hub: Hub, auth: Authenticator, position: str | None, watch: str | None
) -> AsyncGenerator[bytes]:
    """End the stream when the caller's key is revoked or their person loses access, however much there is to send."""
    now = asyncio.get_running_loop().time
    checked = now()
    with suppress(NoAccess):
        async for event in hub.events(caller, position, watch):
            if event is None or now() - checked >= HEARTBEAT_SECONDS:
                with suppress(StoreUnavailable):  # check again at the next event
                    if not await auth.is_valid(caller):
                        return
                    checked = now()
            yield _COMMENT if event is None else event.wire
