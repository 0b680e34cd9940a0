"""MCP servers: started when first needed, kept running, and restarted after they fail."""

import asyncio
import json
import logging
import re
from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus

import anyio
import httpx2
from mcp import Client, MCPError, types
from mcp.client.session import IncomingMessage

from palaver.model.errors import first_error
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.model.tools import matches_any
from palaver.model.value import value
from palaver.protocols.tools import Tool, ToolFailed, ToolUse
from palaver.tools.mcp_results import CallResult, read_result
from palaver.tools.mcp_transport import AnswerRefused, HttpServer, Stderr, StdioServer, connect, watched

log = logging.getLogger(__name__)

_START_TIMEOUT_SECONDS = 20.0
_PING_TIMEOUT_SECONDS = 5.0
_CLOSE_TIMEOUT_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 300.0
_MAX_TOOLS = 200
_MAX_PAGES = 20
_MAX_PROBLEM_LENGTH = 300
_MAX_DESCRIPTION_LENGTH = 2_000
_MAX_SCHEMA_LENGTH = 20_000
_MAX_NAME_LENGTH = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_GONE = "The server no longer has this tool."
_SEPARATOR = "__"
"""Between a server's name, which does not contain it, and the name of its tool."""


_CONNECTION_ERRORS = (OSError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError)


class _Connection:
    """A running server. One task of its own opens and closes its streams, as the library requires."""

    def __init__(self, address: StdioServer | HttpServer, on_change: Callable[[], None]) -> None:
        self._address, self._on_change = address, on_change
        self._ended = asyncio.Event()
        self.asks_for_login = False
        self.problem: Exception | None = None
        """Why we ended it, if we did."""
        self._ready: Future[Client] = asyncio.get_running_loop().create_future()
        self.stderr = Stderr(asyncio.get_running_loop())
        self.task = asyncio.create_task(self._run(), name="mcp server")
        self.task.add_done_callback(lambda _: self.stderr.close())

    async def client(self) -> Client:
        return await asyncio.shield(self._ready)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """Let it close in its own time; cancel one that was never ready."""
        if not self._ready.done() and not self._ended.is_set():  # only once: a second cancel would interrupt its end
            self.task.cancel()
        self._ended.set()

    async def _run(self) -> None:
        try:
            connection = connect(self._address, self.stderr.file, self._note_status, self._note_problem)
            async with Client(
                watched(connection, self._ended.set), mode="legacy", message_handler=self._handle
            ) as client:
                self._ready.set_result(client)
                await self._ended.wait()
        except Exception as error:  # noqa: BLE001 - a server can fail in any way
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._ended.set()
            self._ready.cancel()

    async def _note_status(self, response: httpx2.Response) -> None:
        self.asks_for_login |= response.status_code == HTTPStatus.UNAUTHORIZED

    def _note_problem(self, problem: Exception) -> None:
        self.problem = problem

    async def _handle(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()


class McpServer:
    """One server: connected when needed, and not retried for a while after it failed."""

    def __init__(self, name: str, address: StdioServer | HttpServer) -> None:
        self.name = name
        self._address = address
        self._connection: _Connection | None = None
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        """Connections, including those that are still ending."""
        self._slots = asyncio.Semaphore(address.calls)
        self._pause, self._retry_at = 0.0, 0.0
        self.problem: str | None = None
        """Why the server does not work, in words for the owner."""
        self._tools: dict[str, tuple[str, Tool]] = {}
        """By the agent's name of a tool: the server's name of it, and the tool."""
        self._version, self._listed_version = 0, -1
        """How often the tools may have changed, and the version that was last listed."""
        self._listing: asyncio.Task[None] | None = None

    async def tools(self) -> Sequence[Tool]:
        """Return the latest known tools, also while the server does not answer, so that the prompt stays the same."""
        if self._listed_version != self._version:
            if self._listing is None or self._listing.done():
                self._listing = asyncio.create_task(self._list(), name="mcp tools")
            # Shielded: stopping one turn does not stop the listing for later turns.
            await asyncio.shield(self._listing)
        return [tool for _, tool in self._tools.values()]

    async def _list(self) -> None:
        with suppress(ToolFailed):
            async with self._client() as client, asyncio.timeout(_START_TIMEOUT_SECONDS):
                version = self._version
                self._tools = await self._fetch_tools(client)
                self._listed_version = version

    def has(self, name: str) -> bool:
        return name in self._tools

    async def use(
        self, name: str, arguments: Mapping[str, object], report: Callable[[str], None] | None = None
    ) -> CallResult:
        """Call a tool. A call that is cancelled is cancelled on the server, too. `report` hears how far it is."""
        progress = partial(_report_progress, report) if report else None
        async with self._slots, self._client() as client, asyncio.timeout(self._address.limit):
            if name not in self._tools:  # the list can have changed while the call waited
                raise ToolFailed(_GONE)
            called = await client.call_tool(self._tools[name][0], dict(arguments), progress_callback=progress)
            result = await read_result(client, called)
        if called.is_error:
            raise ToolFailed(f"The tool reports an error: {result.text}")
        return result

    async def close(self) -> None:
        if self._listing is not None:
            self._listing.cancel()
        if self._connection is not None:
            self._connection.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_SECONDS)
        for task in self._tasks:
            task.cancel()

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client]:
        """Lend the connection. If it breaks, the next use restarts the server, after a pause."""
        client = await self._connected_client()
        try:
            yield client
        except MCPError as error:
            if error.code != types.CONNECTION_CLOSED:
                reason = one_line(error.message, _MAX_DESCRIPTION_LENGTH)
                raise ToolFailed(f"The server {self.name} refused the call: {reason}") from error
            raise self._failed(error) from error
        except TimeoutError as error:
            if not await _responds(client):
                raise self._failed(error) from error
            raise ToolFailed(f"The server {self.name} took too long. The effect of the call is unknown.") from error
        except _CONNECTION_ERRORS as error:
            raise self._failed(error) from error
        except ValueError as error:
            raise ToolFailed(f"The server {self.name} gave an invalid answer.") from error
        else:
            self._pause, self.problem = 0.0, None

    async def _connected_client(self) -> Client:
        async with self._starting:
            if self._connection is None or self._connection.has_ended:
                self._connection = self._start()
            try:
                async with asyncio.timeout(_START_TIMEOUT_SECONDS):
                    return await self._connection.client()
            except Exception as error:
                raise self._failed(error) from error

    def _start(self) -> _Connection:
        if (wait := self._retry_at - _time()) > 0:
            raise ToolFailed(f"The server {self.name} failed. The next attempt is in {wait:.0f} seconds.")
        self._mark_changed()
        connection = _Connection(self._address, self._mark_changed)
        self._tasks.add(connection.task)
        connection.task.add_done_callback(self._tasks.discard)
        return connection

    def _mark_changed(self) -> None:
        self._version += 1

    def _failed(self, error: Exception) -> ToolFailed:
        wrote = self._connection.stderr.text() if self._connection else ""
        asks = self._connection is not None and self._connection.asks_for_login
        login = f"It asks for a login. Run palaver mcp login {self.name}." if asks else ""
        ended = self._connection and self._connection.problem
        self.problem = (login or _describe_failure(ended or error)) + (f" It wrote: {wrote}" if wrote else "")
        log.error("the server %s failed: %s", self.name, self.problem, extra={"action": "tool.server_failed"})
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
        self._retry_at = _time() + self._pause
        if self._connection is not None:
            self._connection.end()
        refused = f" {ended}" if isinstance(ended, AnswerRefused) else ""
        return ToolFailed(f"The server {self.name} failed.{refused} The effect of the call is unknown.")

    async def _fetch_tools(self, client: Client) -> dict[str, tuple[str, Tool]]:
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        tools: dict[str, tuple[str, Tool]] = {}
        for listed in sorted(found, key=lambda tool: tool.name)[:_MAX_TOOLS]:
            name = _NOT_IN_NAMES.sub("_", f"{self.name}{_SEPARATOR}{listed.name}")[:_MAX_NAME_LENGTH]
            if listed.execution and listed.execution.task_support == "required":
                continue  # we wait for results, so each call of it would fail
            is_allowed = matches_any(name.partition(_SEPARATOR)[2], self._address.tools)
            if is_allowed and name not in tools and len(json.dumps(listed.input_schema)) <= _MAX_SCHEMA_LENGTH:
                description = (listed.description or listed.title or listed.name)[:_MAX_DESCRIPTION_LENGTH]
                tool = Tool(name=name, description=description, parameters=listed.input_schema, needs_approval=True)
                tools[name] = listed.name, tool
        return tools


@value(kw_only=False)
class McpServers:
    """The tools of all configured servers."""

    servers: Sequence[McpServer]

    async def tools(self) -> Sequence[Tool]:
        listed = await asyncio.gather(*(server.tools() for server in self.servers))
        return [tool for tools in listed for tool in tools]

    def problems(self) -> Mapping[str, str]:
        return {server.name: server.problem for server in self.servers if server.problem}

    async def use(self, use: ToolUse) -> str:
        for server in self.servers:
            if server.has(use.call.name):
                services = use.context.services
                result = await server.use(use.call.name, use.arguments, services.report)
                if result.files:
                    await services.keep(result.files)
                return result.text
        raise ToolFailed(_GONE)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))


def _time() -> float:
    return asyncio.get_running_loop().time()


def _describe_failure(error: BaseException) -> str:
    match error := first_error(error):
        case MCPError():
            is_gone = error.code == types.CONNECTION_CLOSED
            reason = one_line(redact(error.message), _MAX_PROBLEM_LENGTH)
            return "It ended or closed the connection." if is_gone else f"It refused: {reason}"
        case httpx2.HTTPStatusError():
            return f"It answered with HTTP status {error.response.status_code}."
        case httpx2.HTTPError():
            return str(error) if isinstance(error, AnswerRefused) else "It cannot be reached. Check its url."
        case TimeoutError():
            return "It did not answer in time."
        case OSError(filename=str(file), strerror=str(reason)):
            return f"Its command {file} does not start: {reason}."
        case _:
            return f"It failed ({type(error).__name__})."


async def _responds(client: Client) -> bool:
    """Return whether the server is only slow."""
    try:
        async with asyncio.timeout(_PING_TIMEOUT_SECONDS):
            await client.list_tools(cache_mode="refresh")
    except (MCPError, *_CONNECTION_ERRORS):
        return False
    return True


async def _report_progress(
    report: Callable[[str], None], progress: float, total: float | None, message: str | None
) -> None:
    amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
    report(f"{amount}: {message}" if message else amount)
