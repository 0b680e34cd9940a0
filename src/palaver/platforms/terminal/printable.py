"""Text from anywhere made safe to print: nothing in it can move the cursor, change colours or turn lines around."""

import re

__all__ = ["printable"]

# Controls but tab and newline; what turns the direction of text; half surrogates; separators and tags nobody sees.
_TRICKS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with every such character written as its number."""
    return _TRICKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))
