"""Ids as text: percent-encoded so that no id can be mistaken for a separator."""

import re
from urllib.parse import quote, unquote

__all__ = ["decode_id", "encode_id"]

_PLAIN = re.compile(r"[\w.+-]*", re.ASCII)


def encode_id(value: str) -> str:
    """ASCII without colon, comma, slash, percent or space; half surrogates survive too."""
    return value if _PLAIN.fullmatch(value) else quote(value, safe="@+!=$#", errors="surrogatepass")


def decode_id(text: str) -> str:
    """What `encode_id` was given. Text that is no valid encoding stands for itself."""
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return text
