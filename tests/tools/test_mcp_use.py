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


async def test_images_and_resources_are_files_of_the_conversation(tmp_path: Path) -> None:
    shelf = BlobStore(tmp_path / "files")
    async with (
        serving("good", program("good_server.py")) as server,
        running(
            tmp_path / "p.db",
            toolsets=lambda _: (McpServers((server,)), FileTools()),
            grants=OWNERS,
            tools=FREE,
            shelf=shelf,
        ) as here,
    ):
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


async def test_a_large_result_is_shortened_and_a_large_file_is_not_kept(tmp_path: Path) -> None:
    async with (
        serving("good", program("good_server.py"), limit=120.0) as server,
        running(
            tmp_path / "p.db",
            toolsets=lambda _: (McpServers((server,)),),
            grants=OWNERS,
            tools=FREE,
            shelf=BlobStore(tmp_path / "files"),
            file_size=10,
        ) as here,
    ):
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, use("good__much", size=10_000_000))
        await here.settled()
        (result,) = [entry.text for entry in await here.entries() if entry.role is Role.TOOL]
        assert len(result) < 33_000
        assert "… (9968000 characters omitted) …" in result
        await chat.say(alice, use("good__things"))
        await chat.hears("not available: it is larger than 10 bytes")


async def test_a_stopped_turn_cancels_the_call_on_the_server(tmp_path: Path) -> None:
    file = tmp_path / "work"
    async with (
        serving("good", program("good_server.py")) as server,
        running(tmp_path / "p.db", toolsets=lambda _: (McpServers((server,)),), grants=OWNERS, tools=FREE) as here,
    ):
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, use("good__work", file=str(file)))
        await until(lambda: file.exists() and file.read_text() == "begun")
        await chat.say(alice, "/stop")
        await until(lambda: file.read_text() == "cancelled")
        assert await text(server, "good__add", {"a": 1, "b": 1}) == "2"


async def test_progress_is_reported_in_words(tmp_path: Path) -> None:
    reported: list[str] = []
    async with serving("good", program("good_server.py"), limit=5.0) as server:
        await server.tools()
        call = asyncio.create_task(server.use("good__work", {"file": str(tmp_path / "work")}, reported.append))
        await until(lambda: bool(reported))
        call.cancel()
    assert reported == ["1 of 3: the first page"]


async def test_only_allowed_tools_of_a_server_are_used() -> None:
    place = replace(program("good_server.py"), tools=frozenset({"add", "m*"}))
    async with serving("good", place) as server:
        assert [tool.name for tool in await server.tools()] == ["good__add", "good__much"]
        with pytest.raises(ToolFailed):
            await server.use("good__environment", {})
        assert not server.has("good__environment")


async def test_a_server_runs_so_many_calls_at_once(tmp_path: Path) -> None:
    place = replace(program("good_server.py"), calls=2)
    async with serving("good", place) as server:
        await server.tools()
        files = [tmp_path / str(number) for number in range(3)]
        calls = [asyncio.create_task(server.use("good__work", {"file": str(file)})) for file in files]
        await until(lambda: files[0].exists() and files[1].exists())
        # The third call waits here, not on the server: nothing of it has arrived there.
        assert not files[2].exists()
        calls[0].cancel()
        await until(files[2].exists)
        for call in calls:
            call.cancel()
        assert await text(server, "good__add", {"a": 1, "b": 1}) == "2"


async def test_a_tool_that_is_gone_when_its_turn_comes_says_so(tmp_path: Path) -> None:
    place = replace(program("good_server.py"), calls=1)
    async with serving("good", place) as server:
        await server.tools()
        first = asyncio.create_task(server.use("good__work", {"file": str(tmp_path / "a")}))
        await until((tmp_path / "a").exists)
        second = asyncio.create_task(text(server, "good__add", {"a": 1, "b": 1}))
        await asyncio.sleep(0)
        del vars(server)["_tools"]["good__add"]  # as a list that was read meanwhile
        first.cancel()
        with pytest.raises(ToolFailed, match="no longer has this tool"):
            await second
        assert server.problem is None


async def test_a_server_that_is_killed_between_two_calls_is_there_for_the_next() -> None:
    async with serving("good", program("good_server.py")) as server:
        assert await server.tools()
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
