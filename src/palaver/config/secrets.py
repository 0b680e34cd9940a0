"""Secrets: what may be shown of a value."""

import re

from palaver.model.redact import redact

__all__ = [
    "SET",
    "hidden",
]

SET = "(set)"
"""Stands for what is not shown."""
_REFERENCE = re.compile(r"\$\{[^}]*\}?")
# As greedy as a careless hand: an unescaped @ or / in a password must not show the rest of it.
_URL_PASSWORD = re.compile(r"(://[^:@/?]*):.*@")
_QUERY_PASSWORD = re.compile(r"([?&][^=&]*pass[^=&]*)=[^&]*", re.IGNORECASE)


def hidden(text: str) -> str:
    """With `(set)` for what comes out of the environment and for the passwords of a URL."""
    text = _REFERENCE.sub(SET, redact(text))
    text = _URL_PASSWORD.sub(rf"\1:{SET}@", text)
    return _QUERY_PASSWORD.sub(rf"\1={SET}", text)
