"""MCP over HTTP at /mcp: stateless, on behalf of the caller of each request."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from palaver.model.attachment import TooLarge
from palaver.model.errors import PalaverError
from palaver.model.value import value
from palaver.operations.operation import Schema
from palaver.protocols.installation import install_line
from palaver.web.api.endpoints import Deferred, convert
from palaver.web.bodies import BodyTooSlow, ServerBusy, replay_body
from palaver.web.errors import API_PREFIX, error_response, text_response
from palaver.web.mcp.tools import McpTool
from palaver.web.routes import WebRequest

_PATH = "/mcp"


@value
class LocalClient:
    """Calls the API inside the gateway."""

    http: Request

    async def call(self, tool: McpTool, arguments: Mapping[str, Any]) -> tuple[bool, bytes]:
        try:
            result = await self._call(tool, arguments)
            if isinstance(result, Deferred):
                result = await result.result()
        except (PalaverError, HTTPException) as error:
            return False, bytes(error_response(API_PREFIX, error).body)
        return True, bytes(result.body) if isinstance(result, Response) else msgspec.json.encode(result)

    async def _call(self, tool: McpTool, arguments: Mapping[str, Any]) -> object:
        endpoint = tool.endpoint
        path, rest = tool.split(arguments)
        request = WebRequest(self.http, path)
        request.require(endpoint.needs, owner_only=endpoint.owner_only)
        example = msgspec.json.encode(endpoint.example).decode()
        given = convert(endpoint.query or endpoint.body or Schema, rest, example)
        return await endpoint.call(request, given, given if endpoint.body else None)


class _McpEndpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Request(scope, receive)
        try:
            # An extra, and slow to import.
            make_server: Any = import_module("palaver.web.mcp.server").make_server
            manager: Any = import_module("mcp.server.streamable_http_manager").StreamableHTTPSessionManager
        except ModuleNotFoundError:
            text = f"Install the MCP package: {install_line('mcp')}"
            await text_response(_PATH, 501, text)(scope, receive, send)
            return
        try:
            async with WebRequest(http).read_body(with_files=False) as content:
                receive = replay_body(bytes(content), receive)
        except (TooLarge, ServerBusy, BodyTooSlow) as error:
            await error_response(_PATH, error)(scope, receive, send)
            return
        session = manager(app=make_server(LocalClient(http=http)), json_response=True, stateless=True)
        async with session.run():
            await session.handle_request(scope, receive, send)


ROUTES = (Route(_PATH, _McpEndpoint(), methods=["POST"]),)
