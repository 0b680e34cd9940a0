"""Render a line with the formatting codes of IRC clients."""

from palaver.protocols import Unit
from palaver.protocols.markdown import Layout, Marks, to_marks

MAX_BYTES = 340
"""Of the 512 bytes of a line, the server needs some for who we are and where it goes."""
_MARKS = Marks(
    bold="\x02",
    italic="\x1d",
    struck="\x1e",
    code="\x11",
    code_block="",
    escape=lambda text: text,
    layout=Layout(is_even=False),
)


def render(text: str) -> str:
    """Return one line. A code at its beginning would make it a CTCP request, so control characters go."""
    text = "".join(each for each in text if each == "\t" or each >= " ")
    shown = " ".join(to_marks(text, _MARKS).split("\n")).strip()
    return shown if shown and Unit.UTF8.measure(shown) <= MAX_BYTES else text
