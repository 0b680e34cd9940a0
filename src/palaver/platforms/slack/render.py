"""Render Markdown as Slack's mrkdwn, and choices as Block Kit buttons."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from palaver.protocols import Outbound
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks

MAX_TEXT = 4000
"""Slack rejects a longer edit, and splits a longer message itself."""
MAX_SECTION = 3000
MAX_LABEL = 75
ACTION = "palaver"
"""The ids of our buttons begin with it."""
_MENTION = re.compile(r"(<@[UW][A-Z0-9]{2,30}>)")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LOOKALIKES = str.maketrans({"&": "＆", "<": "‹", ">": "›"})  # noqa: RUF001
_URL_ESCAPES = str.maketrans({"&": "&amp;", "<": "%3C", ">": "%3E", "|": "%7C"})


def escape(text: str) -> str:
    """Escape what Slack reads as markup: `<!channel>` stays text. A mention of one person stays a mention."""
    parts = _MENTION.split(text)
    return "".join(part if number % 2 else part.translate(_ESCAPES) for number, part in enumerate(parts))


_MARKS = Marks(
    bold="*",
    italic="_",
    struck="~",
    code="`",
    code_block="```",
    link=lambda url: (f"<{url.translate(_URL_ESCAPES)}|", ">"),
    escape=escape,
    escape_code=lambda text: text.translate(_ESCAPES),
    layout=Layout(is_linked=is_web_link),
)


def render(text: str) -> str:
    """Return mrkdwn of at most `MAX_TEXT` characters, with less formatting if it would be longer."""
    return next(shown for shown in _candidates(text) if shown.strip() and len(shown) <= MAX_TEXT)


def _candidates(text: str) -> Iterator[str]:
    yield to_marks(text, _MARKS)
    yield to_marks(text, replace(_MARKS, layout=replace(_MARKS.layout, is_even=False)))
    yield escape(text)
    yield (text.translate(_LOOKALIKES) or " ")[:MAX_TEXT]
    yield "…"


def message(outbound: Outbound) -> dict[str, Any]:
    """Return text and blocks. Blocks are always there: an edit without them would keep the old buttons."""
    text = render(outbound.text)
    buttons = [_button(number, choice.label, choice.says) for number, choice in enumerate(outbound.choices)]
    if not buttons or len(text) > MAX_SECTION:
        return {"text": text, "blocks": []}
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
    return {"text": text, "blocks": [section, {"type": "actions", "elements": buttons}]}


def _button(number: int, label: str, says: str) -> dict[str, Any]:
    text = {"type": "plain_text", "text": label[:MAX_LABEL] or "…", "emoji": False}
    return {"type": "button", "action_id": f"{ACTION}:{number}", "text": text, "value": says}
