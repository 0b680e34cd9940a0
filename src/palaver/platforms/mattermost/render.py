"""Render messages for Mattermost. It shows Markdown itself; only mentions of everybody are taken out."""

import re
from typing import Any

from palaver.protocols import Outbound

MAX_TEXT = 16_383
_EVERYBODY = re.compile(r"@(?=(?:all|channel|here)\b)", re.IGNORECASE)
_INVISIBLE = "\u200b"


def render(outbound: Outbound) -> dict[str, Any]:
    """Return the text of a post. An invisible character keeps `@all` from notifying a whole channel."""
    quiet = _EVERYBODY.sub(f"@{_INVISIBLE}", outbound.text)
    return {"message": quiet if len(quiet) <= MAX_TEXT else outbound.text.replace("@", "＠")}  # noqa: RUF001
