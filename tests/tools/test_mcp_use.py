"""MCP servers as people use them: files in results, progress, stopped turns, changed lists, limits, a published one."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.tools import ApprovalMode, ToolRules
from palaver.model.transcript import Role
from palaver.protocols.tools import ToolFailed
from palaver.store.conversations.blob_store import BlobStore
from palaver.tools.mcp import McpServer, McpServers
from palaver.tools.mcp_transport import HttpServer, StdioServer
from palaver.tools.messages import FileTools
from tests.children import children_running
from tests.engine.gateway import running, until
from tests.engine.test_tools import use
from tests.tools.servers import over_http, program, serving, text

OWNERS = (Grant(role=AccessRole.OWNER),)
FREE = ToolRules(allowed={"all": ApprovalMode.ALWAYS})


async def test_one_server_in_a_conversation(tmp_path: Path) -> None:
    """To start a server of the official library takes a second, so one serves all of it."""
    async with serving("good", program("good_server.py"), limit=120.0) as server:
        await _get_files(server, tmp_path)
        await _stop_a_turn(server, tmp_path)
        await _get_too_much(server, tmp_path)


async def _get_files(server: McpServer, tmp_path: Path) -> None:
    """Images and resources are files of the conversation."""
    shelf = BlobStore(tmp_path / "files")
    async with running(
        tmp_path / "p.db",
        toolsets=lambda _: (McpServers((server,)), FileTools()),
        grants=OWNERS,
        tools=FREE,
        shelf=shelf,
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, use("good__things"))
        heard = await chat.hears("good__things: Here they are.")
        assert "words of a resource\nwords behind a link\n(a link to notes://missing" in heard.text
        assert '"image-1.png", image/png' in heard.text
        assert '"b c.bin", application/octet-stream, 3 bytes' in heard.text
        result = next(entry for entry in await here.entries() if entry.role is Role.TOOL)
        image, data = result.files
        assert "⟦" not in result.text
        assert str(image.id) in heard.text
        await chat.say(alice, use("send_file", file=image.id))
        await chat.hears("send_file: The file is queued.")
        await here.settled()
        (sent,) = [file for message in chat.shown for file in message.files]
        assert (sent.name, sent.media_type) == ("image-1.png", "image/png")
        assert sent.content.startswith(b"\x89PNG")
        assert shelf.place(data.sha256 or "")


async def _stop_a_turn(server: McpServer, tmp_path: Path) -> None:
    """A stopped turn cancels the call on the server."""
    file = tmp_path / "work"
    async with running(
        tmp_path / "stopped.db", toolsets=lambda _: (McpServers((server,)),), grants=OWNERS, tools=FREE
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, use("good__work", file=str(file)))
        await until(lambda: file.exists() and file.read_text() == "begun")
        await chat.say(alice, "/stop")
        await until(lambda: file.read_text() == "cancelled")
        assert await text(server, "good__add", {"a": 1, "b": 1}) == "2"


async def _get_too_much(server: McpServer, tmp_path: Path) -> None:
    """A large result is shortened, and a large file is not kept."""
    async with running(
        tmp_path / "much.db",
        toolsets=lambda _: (McpServers((server,)),),
        grants=OWNERS,
        tools=FREE,
        shelf=BlobStore(tmp_path / "small files"),
        file_size=10,
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, use("good__much", size=5_000_000))
        await here.settled()
        (result,) = [entry.text for entry in await here.entries() if entry.role is Role.TOOL]
        assert len(result) < 33_000
        assert "… (4968000 characters omitted) …" in result
        await chat.say(alice, use("good__things"))
        await chat.hears("not available: it is larger than 10 bytes")


async def test_a_server_runs_so_many_calls_at_once_and_reports_their_progress(tmp_path: Path) -> None:
    place, reported = replace(program("good_server.py"), calls=2), list[str]()
    async with serving("good", place) as server:
        await server.tools()
        files = [tmp_path / str(number) for number in range(3)]
        calls = [
            asyncio.create_task(server.use("good__work", {"file": str(file)}, report))
            for file, report in zip(files, (reported.append, ignore, ignore), strict=True)
        ]
        await until(lambda: files[0].exists() and files[1].exists() and bool(reported))
        # The third call waits here, not on the server: nothing of it has arrived there.
        assert not files[2].exists()
        calls[0].cancel()
        await until(files[2].exists)
        waiting = asyncio.create_task(text(server, "good__add", {"a": 1, "b": 1}))
        await asyncio.sleep(0)
        gone = vars(server)["_tools"].pop("good__add")  # as a list that was read meanwhile
        for call in calls:
            call.cancel()
        with pytest.raises(ToolFailed, match="no longer has this tool"):
            await waiting
        assert server.problem is None
        vars(server)["_tools"]["good__add"] = gone
        assert await text(server, "good__add", {"a": 1, "b": 1}) == "2"
    assert reported == ["1 of 3: the first page"]


def ignore(_: str) -> None:
    """Leave out what this call reports."""


async def test_a_server_that_is_killed_between_two_calls_is_there_for_the_next() -> None:
    place = replace(program("good_server.py"), tools=frozenset({"add", "m*"}))
    async with serving("good", place) as server:
        assert [tool.name for tool in await server.tools()] == ["good__add", "good__much"]  # what is allowed
        with pytest.raises(ToolFailed):
            await server.use("good__environment", {})
        assert not server.has("good__environment")
        assert await text(server, "good__add", {"a": 1, "b": 1}) == "2"
        (child,) = children_running("good_server.py")
        child.kill()
        await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        connection = vars(server)["_connection"]
        await until(lambda: connection.has_ended)
        assert await text(server, "good__add", {"a": 1, "b": 2}) == "3"
        assert server.problem is None


async def test_a_list_that_changes_over_http_is_read_again() -> None:
    async with over_http() as (url, _), serving("web", HttpServer(url=url)) as server:
        before = len(await server.tools())
        assert await text(server, "web__learn", {}) == "done"
        await until(lambda: _is_changed(server))
        assert len(await server.tools()) == before + 1


def _is_changed(server: McpServer) -> bool:
    known = vars(server)
    return known["_version"] != known["_listed_version"]


async def test_a_published_server_answers_the_agent_and_is_killed_in_the_middle(tmp_path: Path) -> None:
    """`mcp-server-time`, from the package index."""
    place = StdioServer(command=sys.executable, args=("-m", "mcp_server_time", "--local-timezone", "Europe/Rome"))
    async with (
        serving("time", place) as server,
        running(tmp_path / "p.db", toolsets=lambda _: (McpServers((server,)),), grants=OWNERS) as here,
    ):
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        told = {"source_timezone": "Europe/Rome", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        await chat.say(alice, use("time__convert_time", **told))
        await chat.hears("May I use time__convert_time?")
        await chat.say(alice, "/approve")
        await chat.hears("time_difference")
        (child,) = children_running("mcp_server_time")
        child.suspend()
        await chat.say(alice, use("time__get_current_time", timezone="Europe/Rome"))
        await chat.hears("May I use time__get_current_time?")
        await chat.say(alice, "/approve")
        await until(lambda: vars(server)["_slots"]._value < place.calls)
        child.kill()
        await chat.hears("The server time failed. The effect of the call is unknown.")
