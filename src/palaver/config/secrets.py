"""Secrets: what a configuration may show of a value."""

import re

__all__ = ["SET", "hidden"]

SET = "(set)"
_REFERENCE = re.compile(r"\$\{[^}]*\}?")
# As greedy as a careless hand: an unescaped @ or / in a password must not show the rest of it.
_URL_PASSWORD = re.compile(r"(://[^:@/?]*):.*@")
_QUERY_PASSWORD = re.compile(r"([?&][^=&]*pass[^=&]*)=[^&]*", re.IGNORECASE)


def hidden(text: str) -> str:
    """As it was written, with `(set)` for what came out of the environment and for passwords in a URL."""
    text = _REFERENCE.sub(SET, text)
    text = _URL_PASSWORD.sub(rf"\1:{SET}@", text)
    return _QUERY_PASSWORD.sub(rf"\1={SET}", text)
