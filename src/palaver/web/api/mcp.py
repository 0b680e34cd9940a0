"""The MCP server over HTTP, at /mcp: every request stands for itself, on behalf of whoever showed a key."""

from importlib import import_module
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from palaver.ports.files import TooLarge
from palaver.web.access.guard import visitor_of
from palaver.web.bodies import TooMuchAtOnce, again
from palaver.web.desk import Desk
from palaver.web.mcp.here import Here
from palaver.web.problems import problem, refusal

__all__ = ["routes"]

_PATH = "/mcp"


def routes(desk: Desk) -> list[Route]:
    return [Route(_PATH, _Door(desk), methods=["POST"])]


class _Door:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, options = Request(scope, receive), self._desk.engine.options
        try:
            # An extra, and slow to import.
            make_server: Any = import_module("palaver.web.mcp.server").make_server
            manager: Any = import_module("mcp.server.streamable_http_manager").StreamableHTTPSessionManager
        except ModuleNotFoundError:
            await refusal(_PATH, 501, "MCP needs a package: pip install 'palaver[mcp]'.")(scope, receive, send)
            return
        try:
            async with self._desk.bodies.read(request.stream(), options, with_files=False) as content:
                receive = again(bytes(content), receive)
        except (TooLarge, TooMuchAtOnce) as error:
            await problem(_PATH, error)(scope, receive, send)
            return
        server = make_server(Here(desk=self._desk, visitor=visitor_of(request), request=request))
        once = manager(app=server, json_response=True, stateless=True)
        async with once.run():
            await once.handle_request(scope, receive, send)
