"""A server made with the official library, for tests: `python good_server.py` or, with a port, over HTTP."""

import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("good")


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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
