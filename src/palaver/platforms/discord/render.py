"""Render Markdown for Discord, which has most of it, and the rest of a message."""

import hashlib
import re
from typing import Any

from palaver.protocols import Outbound
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks

MAX_TEXT = 2000
"""Code points."""
_MAX_BUTTONS = 25
_BUTTONS_IN_ROW = 5
_MAX_LABEL = 80
_MAX_BUTTON_ID = 100
_NO_PREVIEW = 1 << 2
"""Discord would fetch the URL for a preview, and a crafted one could leak what the agent writes into it."""
# URLs, mentions, custom emoji and times stay as they are.
_SPECIAL = re.compile(
    r"(?P<kept>https?://[^\s<]+|<(?:@[!&]?|#|a?:\w+:|t:)[\w:-]+>)"
    r"|(?P<mark>[\\*_~`|]|\[(?=[^\]]*\]\()|(?:(?<=\n)|\A)(?:-#|[>#+-]))"
)


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: found["kept"] or f"\\{found['mark']}", text)


_MARKS = Marks(
    bold="**",
    italic="*",
    struck="~~",
    code="`",
    code_block="```",
    has_languages=True,
    link=lambda url: ("[", f"]({url.replace(')', '%29')})"),
    escape=_escape,
    layout=Layout(is_linked=is_web_link, bullet="- "),
)


def render(text: str) -> str:
    """Return it with Discord's marks; as written if it gets too long."""
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown) <= MAX_TEXT else text


def message(outbound: Outbound, *, key: str | None = None) -> dict[str, Any]:
    """Return a new message, or without a key the edit of one. Under the same key Discord shows it once, for minutes."""
    payload: dict[str, Any] = {
        "content": render(outbound.text) if outbound.text else "",
        "flags": _NO_PREVIEW,
        "allowed_mentions": {"parse": ["users"], "replied_user": True},
        "components": _buttons(outbound),
    }
    if key is not None:
        payload |= {"nonce": hashlib.sha256(key.encode()).hexdigest()[:25], "enforce_nonce": True}
        payload |= _reference(outbound)
    return payload


def _reference(outbound: Outbound) -> dict[str, Any]:
    """Leave out a reply to a pressed button, and to the message at which the thread was opened."""
    answered = outbound.quoted(in_group=bool(outbound.scope_id))
    if not (answered and is_id(answered) and answered != outbound.thread_id):
        return {}
    return {"message_reference": {"message_id": answered, "fail_if_not_exists": False}}


def _buttons(outbound: Outbound) -> list[dict[str, Any]]:
    """Return rows of buttons; leave out those that are too long: people can type them."""
    buttons = [
        {"type": 2, "style": 2, "label": choice.label[:_MAX_LABEL], "custom_id": choice.says}
        for choice in outbound.choices[:_MAX_BUTTONS]
        if 0 < len(choice.says) <= _MAX_BUTTON_ID
    ]
    rows = range(0, len(buttons), _BUTTONS_IN_ROW)
    return [{"type": 1, "components": buttons[start : start + _BUTTONS_IN_ROW]} for start in rows]


def is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal()
