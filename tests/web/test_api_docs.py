"""The page about the API has every line of its table, and no other; the page about MCP every tool."""

import re
from pathlib import Path

from palaver.web.api.openapi import ENDPOINTS
from palaver.web.mcp.tools import TOOLS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_the_table() -> None:
    told = re.findall(r"^\| `([A-Z]+ /.*)` \| (.*) \| (.*) \|$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert told == [
        (
            f"{each.method} {each.path.replace(':int', '')}",
            each.scope + (", owner" if each.owner_only else ""),
            each.summary,
        )
        for each in ENDPOINTS
    ]


def test_the_page_has_the_tools() -> None:
    told = re.findall(r"^\| `(\w+)` \| (\w+) \|", (DOCS / "mcp.md").read_text(), re.MULTILINE)
    assert told == [(deed.name, deed.endpoint.scope) for deed in TOOLS]
