"""An MCP server that paints a circle, and says how far it is; the paint is dry when the file DRY is there."""

import asyncio
import base64
import os
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, ImageContent, TextContent

from tests.demonstration.picture import COLOURS, circle

server = MCPServer("studio")


@server.tool()
async def paint(context: Context, colour: str) -> CallToolResult:
    """Paint a circle in a colour."""
    await context.report_progress(1, 2, "The paint is drying.")
    while not Path(os.environ["DRY"]).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.05)
    image = base64.b64encode(circle(COLOURS[colour])).decode()
    return CallToolResult(
        content=[TextContent(text=f"Here is a {colour} circle."), ImageContent(data=image, mime_type="image/png")]
    )


if __name__ == "__main__":
    server.run()
