"""Render Markdown as plain text: iMessage shows no formatting. Also the name of a file on the Mac."""

from palaver.protocols import Label
from palaver.protocols.markdown import Layout, to_spans

_LAYOUT = Layout(is_even=False)
"""Without aligned columns: bubbles have no fixed-width letters."""


def render(text: str) -> str:
    shown = to_spans(text, _LAYOUT).text.strip()
    return shown or text


def file_name(name: Label) -> str:
    """Return a name without folders. BlueBubbles uses it in a path; the Finder shows a colon as a slash."""
    safe = name.plain().replace("/", ":")
    return safe if safe.strip(". ") else "file"
