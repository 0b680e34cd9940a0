"""Real MCP servers in processes of their own, good and bad."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.attachment import NewFile
from palaver.protocols.tools import ToolFailed
from palaver.tools import mcp
from palaver.tools.mcp import McpServer, McpServers
from palaver.tools.mcp_transport import HttpServer, LimitedStream, StdioServer, ValueCounter
from tests.engine.gateway import running
from tests.engine.test_tools import use
from tests.tools.servers import HERE, over_http, program, serving, text

NAMES = ("add", "environment", "learn", "much", "things", "work")
OWNERS = (Grant(role=AccessRole.OWNER),)
GRANTS = (Grant(role=AccessRole.OWNER, platform="fake", user_id="p1"), Grant())


async def test_a_server_of_the_official_library_over_its_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_STORE", "postgresql://user:canary@host/db")
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    async with serving("good", program("good_server.py", COLOUR="its own")) as server:
        tools = {tool.name: tool for tool in await server.tools()}
        assert list(tools) == [f"good__{name}" for name in NAMES]
        assert tools["good__add"].needs_approval
        assert set(tools["good__add"].parameters) >= {"type", "properties"}
        assert await text(server, "good__add", {"a": 1, "b": 2}) == "3"
        with pytest.raises(ToolFailed, match="valid integer"):
            await server.use("good__add", {"a": "x", "b": 2})
        environment = await text(server, "good__environment", {})
        assert "COLOUR=its own" in environment
        assert "canary" not in environment
        assert await text(server, "good__learn", {}) == "done"
        names = [tool.name for tool in await server.tools()]
        assert names == [f"good__{name}" for name in (*NAMES[:4], "new_one_", *NAMES[4:])]
        assert await text(server, "good__new_one_", {}) == "learned"


async def test_a_program_does_not_run_where_the_gateway_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "server.py").write_text("raise SystemExit(1)")
    (tmp_path / "home/server.py").write_text((HERE / "bad_server.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    async with serving("bad", StdioServer(command=sys.executable, args=("server.py",))) as server:
        assert len(await server.tools()) == 11


async def test_a_server_of_the_official_library_over_http() -> None:
    async with (
        over_http() as (url, process),
        serving("web", HttpServer(url=url, headers={"X-Key": "k"})) as server,
    ):
        assert len(await server.tools()) == len(NAMES)
        assert await text(server, "web__add", {"a": 2, "b": 2}) == "4"
        process.kill()
        await process.wait()
        with pytest.raises(ToolFailed, match="failed"):
            await server.use("web__add", {"a": 2, "b": 2})
        assert len(await server.tools()) == len(NAMES)


async def test_a_bad_server_is_reported_in_words_and_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "_FIRST_PAUSE_SECONDS", 0.0)
    async with serving("bad", program("bad_server.py")) as server:
        tools = await server.tools()
        assert len(tools) == 11
        assert all(len(tool.description) <= 2_000 for tool in tools)
        assert await text(server, "bad__steps_ing_out", {}) == "stepped out"
        picture = (await server.use("bad__picture", {})).files
        assert picture == [NewFile("image-1.png", b"\0\0\0", "image/png")]
        assert len(await text(server, "bad__huge", {})) == 3_000_000
        with pytest.raises(ToolFailed, match="no such file"):
            await server.use("bad__fails", {})
        with pytest.raises(ToolFailed, match="failed"):
            await server.use("bad__crash", {})
        assert await server.tools() == tools
        assert await text(server, "bad__steps_ing_out", {}) == "stepped out"
        with pytest.raises(ToolFailed, match="more than 1000 parts"):
            await server.use("bad__many", {})
        with pytest.raises(ToolFailed, match="refused the call: it sent a message of more than 50,000 values"):
            await server.use("bad__objects", {})
        with pytest.raises(ToolFailed, match="It sent a message of more than 16 MB"):
            await server.use("bad__endless", {})
        assert server.problem == "It sent a message of more than 16 MB."
        with pytest.raises(ToolFailed):
            await server.use("bad__malformed", {})
        assert await text(server, "bad__steps_ing_out", {}) == "stepped out"


async def test_an_answer_over_http_that_never_ends_is_left() -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"x" * 1_000_000)
                await writer.drain()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        async with serving("web", HttpServer(url=url)) as server:
            assert await server.tools() == []
            assert server.problem == "It sent a message of more than 16 MB."


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_message_of_too_many_values_over_http_is_left(kind: str) -> None:
    """Before it is parsed. Values in strings, and those of events before it, do not count."""

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n".encode())
        log = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":['
        text, numbers = b'"' + b'{[,\\\\\\"' * 20_000 + b'"]}}', b"1," * 40_000
        with suppress(ConnectionError):
            for end in (text, numbers + b"1]}}", numbers):
                writer.write(b"data: " + log + end + (b"\n\n" if end is not numbers else b""))
            await writer.drain()
            writer.write(b"1," * 20_000)
            await writer.drain()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        async with serving("web", HttpServer(url=url)) as server:
            assert await server.tools() == []
            assert server.problem == "It sent a message of more than 50,000 values."


async def test_the_values_of_each_event_are_counted_apart() -> None:
    """Also if its end comes in pieces."""

    async def pieces() -> AsyncGenerator[bytes]:
        for end in (b"\n\n", b"\r\n\r\n"):
            for at in range(len(end) + 1):
                yield b"data: [" + b"1," * 40_000 + b"1]" + end[:at]
                yield end[at:]

    problems = list[Exception]()
    async for _ in LimitedStream(pieces(), problems.append, is_events=True):
        assert problems == []


def test_values_are_counted_in_any_pieces() -> None:
    text = rb'{"a": ["\\", "x\"[{,", 1, {}], "b": "\\\"[,"}'
    for size in range(1, len(text) + 1):
        counter = ValueCounter()
        for start in range(0, len(text), size):
            counter.add(text[start : start + size])
        assert counter.count == 7, size


@pytest.mark.parametrize("first", ["REFUSES_FIRST", "CHANGES_FIRST"])
async def test_a_listing_that_is_nothing_yet_is_asked_for_again(first: str) -> None:
    async with serving("bad", program("bad_server.py", **{first: "yes"})) as server:
        assert await server.tools() == []
        assert len(await server.tools()) == 11


async def test_a_turn_that_is_stopped_takes_the_tools_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on, listed = asyncio.Event(), asyncio.Event(), vars(McpServer)["_fetch_tools"]

    async def slowly(*given: object) -> object:
        began.set()
        await goes_on.wait()
        return await listed(*given)

    monkeypatch.setattr(McpServer, "_fetch_tools", slowly)
    async with serving("bad", program("bad_server.py")) as server:
        stopped = asyncio.create_task(server.tools())
        await began.wait()
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        began.clear()
        goes_on.set()
        assert len(await server.tools()) == 11
        assert not began.is_set()


async def test_a_slow_call_is_left_and_a_stuck_server_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "_PING_TIMEOUT_SECONDS", 0.5)
    async with serving("bad", program("bad_server.py"), limit=0.2) as server:
        await server.tools()
        with pytest.raises(ToolFailed, match="took too long"):
            await server.use("bad__hang", {})
        assert await text(server, "bad__steps_ing_out", {}) == "stepped out"
        with pytest.raises(ToolFailed, match="failed"):
            await server.use("bad__stuck", {})
        with pytest.raises(ToolFailed, match="next attempt is in 1 second"):
            await server.use("bad__steps_ing_out", {})


@pytest.mark.parametrize(
    "place",
    [
        StdioServer(command="/nowhere/at/all"),
        StdioServer(command=sys.executable, args=("-c", "raise SystemExit(1)")),
        HttpServer(url="http://127.0.0.1:9/mcp"),
    ],
)
async def test_a_server_that_cannot_be_had_has_no_tools_and_is_left_alone_for_a_while(
    place: StdioServer | HttpServer,
) -> None:
    async with serving("gone", place) as server:
        assert await server.tools() == []
        assert await server.tools() == []
        with pytest.raises(ToolFailed, match="next attempt"):
            await server.use("gone__any", {})


async def test_of_a_server_that_never_answers_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "_START_TIMEOUT_SECONDS", 0.5)
    hung = StdioServer(command=sys.executable, args=("-c", "import sys; sys.stdin.read()"))
    me = psutil.Process()
    before = set(me.children())
    async with serving("hung", hung) as server:
        assert not await server.tools()
    assert set(me.children()) <= before


async def test_a_call_ends_with_its_turn() -> None:
    async with serving("bad", program("bad_server.py")) as server:
        await server.tools()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await server.use("bad__hang", {})
        assert await text(server, "bad__steps_ing_out", {}) == "stepped out"


async def test_the_agent_uses_a_server_once_its_owner_has_allowed_it(tmp_path: Path) -> None:
    async with (
        serving("bad", program("bad_server.py")) as server,
        running(tmp_path / "p.db", toolsets=lambda _: (McpServers((server,)),), grants=OWNERS) as here,
    ):
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, use("bad__crash"))
        await chat.hears("May I use bad__crash?")
        await chat.say(alice, "/approve")
        await chat.hears("bad__crash: The server bad failed")
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")


async def test_why_a_server_does_not_start_is_listed_for_those_who_run_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    complaint = "import sys; sys.exit('NOTES_TOKEN is not set; password=hunter22hunter22')"
    dies = StdioServer(command=sys.executable, args=("-c", complaint))
    async with (
        serving("notes", dies) as notes,
        serving("gone", StdioServer(command="no-such-program")) as gone,
        serving("far", HttpServer(url="http://127.0.0.1:9/mcp")) as far,
        running(tmp_path / "p.db", toolsets=lambda _: (McpServers((notes, gone, far)),), grants=GRANTS) as here,
    ):
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, other = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "/tools")
        heard = await chat.hears("The server notes does not work: It ended or closed the connection.")
        assert "It wrote: NOTES_TOKEN is not set; password=[redacted" in heard.text
        assert "The server gone does not work: Its command no-such-program does not start: No such file" in heard.text
        assert "The server far does not work: It cannot be reached. Check its url." in heard.text
        await other.say(bob, "/tools")
        heard = await other.hears("The server notes does not work.")
        assert "NOTES_TOKEN" not in heard.text
    logged = [record.getMessage() for record in caplog.records if "server notes failed" in record.getMessage()]
    assert "NOTES_TOKEN is not set" in logged[0]
    assert "hunter22" not in caplog.text


async def test_a_server_that_writes_much_to_its_standard_error_is_not_blocked() -> None:
    loud = "import runpy, sys; sys.stderr.write('x' * 1_000_000); runpy.run_path(sys.argv[1])"
    server = StdioServer(command=sys.executable, args=("-c", loud, str(HERE / "bad_server.py")))
    async with serving("bad", server) as loud_server:
        assert len(await loud_server.tools()) == 11
        assert loud_server.problem is None
