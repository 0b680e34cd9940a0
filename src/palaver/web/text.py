"""Text of others, as every page shows it."""

import re

# Control characters, bidirectional overrides and lone surrogates. Line ends and tabs stay.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def legible(text: str) -> str:
    """Write characters that are invisible or change the direction of text as their code point."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))
