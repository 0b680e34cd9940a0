"""Render Markdown for Telegram: plain text with entities for bold, code, links and so on."""

from palaver.protocols import Unit
from palaver.protocols.markdown import Layout, Rendered, is_web_link, to_spans

MAX_ENTITIES = 100
"""Telegram ignores further ones."""


def render(text: str, room: int) -> Rendered:
    """Render at most `room` UTF-16 units; return the text unrendered if it gets longer or has too many entities."""
    for is_even in (True, False):
        shown = to_spans(text, Layout(is_linked=is_web_link, has_quotes=True, is_even=is_even))
        if shown.text.strip() and Unit.UTF16.measure(shown.text) <= room and len(shown.spans) <= MAX_ENTITIES:
            return shown
    return Rendered(text)
