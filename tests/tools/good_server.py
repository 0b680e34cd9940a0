"""A server made with the official library, for tests: `python good_server.py` or, with a port, over HTTP.

With `login` after the port it asks for OAuth and is its own authorisation server, which agrees to everything.
"""

import asyncio
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import AnyHttpUrl

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Agreeable(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorisation server that asks nobody, with tokens that last as long as `LIFETIME` says."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.tokens: dict[str, AccessToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id or ""] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:  # noqa: ARG002
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self,
        client: OAuthClientInformationFull,
        authorization_code: AuthorizationCode,  # noqa: ARG002
    ) -> OAuthToken:
        return self.issue(client.client_id or "")

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:  # noqa: ARG002
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,
        refresh_token: RefreshToken,
        scopes: list[str],  # noqa: ARG002
    ) -> OAuthToken:
        del self.refreshing[refresh_token.token]
        return self.issue(client.client_id or "")

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.tokens.get(token)
        return found if found and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: Any) -> None:
        self.tokens.pop(token.token, None)

    def issue(self, client: str) -> OAuthToken:
        lifetime = int(os.environ.get("LIFETIME", "3600"))
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self.tokens[access] = AccessToken(
            token=access, client_id=client, scopes=[], expires_at=int(time.time()) + lifetime
        )
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client, scopes=[])
        return OAuthToken(access_token=access, expires_in=lifetime, refresh_token=refresh)


def made() -> MCPServer:
    if sys.argv[2:] != ["login"]:
        return MCPServer("good")
    here = AnyHttpUrl(f"http://127.0.0.1:{sys.argv[1]}")
    auth = AuthSettings(
        issuer_url=here,
        resource_server_url=AnyHttpUrl(f"{here}mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=False,
    )
    return MCPServer("good", auth_server_provider=Agreeable(), auth=auth)


server = made()


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def environment() -> str:
    """Every variable there is."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@server.tool()
async def learn(context: Context) -> str:
    """Have one tool more."""
    server.add_tool(lambda: "learned", name="new one!", description="It was not there before.")
    await context.session.send_tool_list_changed()
    return "done"


@server.tool()
async def things() -> CallToolResult:
    """An image, a file, a text and a link."""
    return CallToolResult(
        content=[
            TextContent(text="Here they are."),
            ImageContent(data=PIXEL, mime_type="image/png"),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///a/b%20c.bin", blob="AAEC")),
            EmbeddedResource(resource=TextResourceContents(uri="file:///notes.txt", text="words of a resource")),
            ResourceLink(uri="notes://linked", name="linked"),
            ResourceLink(uri="notes://missing", name="missing"),
        ]
    )


@server.resource("notes://linked")
def linked() -> str:
    """What the link of `things` leads to."""
    return "words behind a link"


@server.tool()
async def work(context: Context, file: str) -> None:
    """Report progress and wait for ever; write into the file when it begins and if it is cancelled."""
    await context.report_progress(1, 3, "the first page")
    Path(file).write_text("begun")  # noqa: ASYNC240
    try:
        await asyncio.Event().wait()
    except BaseException:
        Path(file).write_text("cancelled")  # noqa: ASYNC240
        raise


@server.tool()
def much(size: int) -> str:
    """Say much."""
    return "x" * size


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
