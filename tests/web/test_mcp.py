"""The MCP server: real clients list, read, search and talk, over HTTP and standard input; each sees their own."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent, TextResourceContents

from palaver.config.model import Config
from palaver.protocols.clock import SystemClock
from palaver.store.people.api_tokens import CredentialKind, Right
from palaver.web.mcp.remote_client import RemoteClient
from palaver.web.mcp.server import make_server
from tests.web.conftest import Opened
from tests.web.test_api import PEOPLE, program, say, token

Mode = Literal["legacy", "auto"]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=PEOPLE)


@asynccontextmanager
async def over_http(
    window: Opened, identity: str | None = None, *rights: Right, mode: Mode = "auto"
) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {await token(window, identity, *rights)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{window.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(window: Opened, *options: str) -> AsyncGenerator[Client]:
    place = window.config.data_dir / "own.yaml"
    place.write_text(json.dumps({"web": {"port": window.config.web.port}, "store": window.config.store}))
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "palaver", "mcp", *options],
        env={"PALAVER_HOME": str(window.config.data_dir), "PALAVER_CONFIG": str(place)},
    )
    async with Client(stdio_client(server, errlog=sys.__stderr__ or sys.stderr)) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    # The client has compared it with the schema that the tool declares.
    assert result.structured_content == json.loads(content.text)
    return result.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert result.is_error
    return content.text


async def tour(client: Client) -> None:
    """All there is to do."""
    tools = (await client.list_tools()).tools
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.output_schema or {})
        assert (tool.output_schema or {})["required"], tool.name
    names = [tool.name for tool in tools]
    assert names == ["list_sessions", "read_session", "search", "send_message"]
    told = await call(client, "send_message", text="hello from afar", conversation="mcp")
    assert told["answer"] == "You said: hello from afar"
    (session,) = (await call(client, "list_sessions"))["sessions"]
    assert session["id"] == told["session"]
    entries = (await call(client, "read_session", session=session["id"], after=0))["entries"]
    assert [entry["text"] for entry in entries] == ["hello from afar", "You said: hello from afar"]
    hits = (await call(client, "search", q="afar", role="user"))["hits"]
    assert [hit["snippet"] for hit in hits] == ["hello from afar"]
    (resource,) = (await client.list_resources()).resources
    (content,) = (await client.read_resource(resource.uri)).contents
    assert isinstance(content, TextResourceContents)
    assert "hello from afar" in content.text
    assert "no session" in await refused(client, "read_session", session="no such")
    assert "Unknown argument 'quary'. Use q," in await refused(client, "search", q="x", quary="y")
    assert await refused(client, "read_session", id="nope") == (
        "Missing argument 'session'. Use session, before, after, summarised, hidden, limit, for example session=…"
    )
    assert await refused(client, "search", q="x", limit=999) == "limit cannot be '999'. Use 1 to 100"
    assert "Unknown tool" in await refused(client, "delete_everything")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_over_http(window: Opened, mode: Mode) -> None:
    async with over_http(window, mode=mode) as client:
        await tour(client)


async def test_a_client_that_starts_us(window: Opened) -> None:
    async with over_stdio(window) as client:
        await tour(client)
    keys = await window.store.read(window.store.api_tokens.list_valid(CredentialKind.TOKEN, SystemClock().now()))
    assert [key.name for key in keys] == [], "its token goes with it"


async def test_each_sees_their_own_and_does_what_they_may(window: Opened) -> None:
    async with program(window, "api:alice") as alice:
        secret = (await say(alice, "the canary of alice"))["session"]
    async with over_http(window, "api:bob") as bob:
        assert (await call(bob, "list_sessions"))["sessions"] == []
        assert (await call(bob, "search", q="canary"))["hits"] == []
        assert (await bob.list_resources()).resources == []
        assert "no session" in await refused(bob, "read_session", session=secret)
        assert "no session" in await refused(bob, "send_message", text="let me in", session=secret)
        with pytest.raises(MCPError, match="no session"):
            await bob.read_resource(f"palaver://sessions/{secret}")
    async with over_http(window, "api:alice", Right.READ) as reader:
        assert [tool.name for tool in (await reader.list_tools()).tools][-1] == "search"
        assert "scope chat" in await refused(reader, "send_message", text="hello")
        assert len((await call(reader, "list_sessions"))["sessions"]) == 1


async def test_what_cannot_be_reported_is_an_error_and_not_nothing(window: Opened, unused_tcp_port: int) -> None:
    talks = RemoteClient(url=window.url, token=await token(window, "api:bob", Right.CHAT))
    async with Client(make_server(talks)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["send_message"]
        assert (await client.list_resources()).resources == []
    stranger = RemoteClient(url=window.url, token="pal_wrong")  # noqa: S106 - it opens nothing
    nowhere = RemoteClient(url=f"http://127.0.0.1:{unused_tcp_port}", token="")
    elsewhere = RemoteClient(url=f"{window.url}/static", token="")
    for reach, words in ((stranger, "Log in, or send a token"), (nowhere, "No gateway answers"), (elsewhere, "error")):
        async with Client(make_server(reach)) as client:
            for asked in (client.list_tools, client.list_resources):
                with pytest.raises(MCPError, match=words):
                    await asked()


async def test_nobody_is_served_without_a_key(window: Opened) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{window.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert answer.status_code == 401
