"""MCP servers in processes of their own, for tests."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from palaver.tools.mcp import McpServer
from palaver.tools.mcp_transport import HttpServer, StdioServer
from tests.ports import free_port

HERE = Path(__file__).parent


def program(name: str, **env: str) -> StdioServer:
    return StdioServer(command=sys.executable, args=(str(HERE / name),), env=env)


@asynccontextmanager
async def serving(name: str, place: StdioServer | HttpServer, limit: float = 30.0) -> AsyncGenerator[McpServer]:
    server = McpServer(name, replace(place, limit=limit))
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def over_http(*options: str, **env: str) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """Run the good server over HTTP; yield its address and its process."""
    port = free_port()
    program = (sys.executable, str(HERE / "good_server.py"), str(port), *options)
    process = await asyncio.create_subprocess_exec(*program, stderr=asyncio.subprocess.DEVNULL, env=env or None)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def text(server: McpServer, name: str, arguments: Mapping[str, object]) -> str:
    return (await server.use(name, arguments)).text
