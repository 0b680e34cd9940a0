"""Ids as text: percent-encoded so that no id can be mistaken for a separator."""

import re
from urllib.parse import quote, unquote

from palaver.model.errors import MalformedSource

MAX_IDS_BYTES = 2048
"""The most bytes that percent-encoded ids can have together, so that every database can index them."""
_MAX_ENCODED_CHARACTER_BYTES = 12
_PLAIN = re.compile(r"[\w.+-]*", re.ASCII)


def encode_id(value: str) -> str:
    """Percent-encode an id: the result is ASCII without colon, comma, slash or space. Lone surrogates survive."""
    return value if _PLAIN.fullmatch(value) else quote(value, safe="@+!=$#", errors="surrogatepass")


def decode_id(text: str) -> str:
    """Reverse `encode_id`. Text that is not a valid encoding is returned unchanged."""
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return text


def check_ids(owner: str, *ids: str | None) -> None:
    """Raise MalformedSource if ids that are stored together are too long. The message does not quote them."""
    given = [identity for identity in ids if identity]
    if sum(map(len, given)) * _MAX_ENCODED_CHARACTER_BYTES <= MAX_IDS_BYTES:
        return
    length = sum(len(encode_id(identity)) for identity in given)
    if length > MAX_IDS_BYTES:
        raise MalformedSource(
            f"The ids of a {owner} are too long: {length} bytes.",
            found=f"{length} bytes",
            allowed=f"at most {MAX_IDS_BYTES} bytes together, percent-encoded.",
            example="!room:example.org",
        )
