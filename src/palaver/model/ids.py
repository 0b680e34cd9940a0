"""Ids as text: percent-encoded so that no id can be mistaken for a separator."""

import re
from urllib.parse import quote, unquote

from palaver.model.errors import MalformedSource

__all__ = [
    "MAX_IDS_BYTES",
    "check_ids",
    "decode_id",
    "encode_id",
]

MAX_IDS_BYTES = 2048
"""Bytes that ids have together at most, percent-encoded: what every database finds again by its index."""
_WIDEST = 12
"""Bytes that one character has at most, percent-encoded."""
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


def check_ids(owner: str, *ids: str | None) -> None:
    """Raises MalformedSource where ids that are written together are too long; they are not quoted."""
    given = [each for each in ids if each]
    if sum(map(len, given)) * _WIDEST <= MAX_IDS_BYTES:
        return
    length = sum(len(encode_id(each)) for each in given)
    if length > MAX_IDS_BYTES:
        raise MalformedSource(
            f"The ids of a {owner} are too long:",
            found=f"{length} bytes",
            allowed=f"{MAX_IDS_BYTES} bytes together, percent-encoded",
            example="!room:example.org",
        )
