"""Text that cannot change how a terminal shows it."""

import re

# Control characters except tab and newline, direction marks, lone surrogates, invisible separators and tags.
_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Escape characters that could change how a terminal shows text."""
    return _UNSAFE_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))
