"""Codes: what people read to each other to prove something once. Kept only as a slow, salted hash."""

import hashlib

from palaver.model.errors import BadArgument

__all__ = [
    "ALPHABET",
    "LENGTH",
    "code_hash",
    "make_code",
    "parse_code",
]

ALPHABET = "ACDEFGHJKMNPQRTUVWXY34679"
"""None of these looks like another: no 0 and O, 1, I and L, 2 and Z, 5 and S, 8 and B."""
LENGTH = 8
_SEPARATORS = str.maketrans("", "", " -")
_ROUNDS = 50_000


def make_code(chance: bytes) -> str:
    """A code out of chance: sixteen bytes make every code as likely as any other."""
    number, letters = int.from_bytes(chance, "big"), ""
    for _ in range(LENGTH):
        number, at = divmod(number, len(ALPHABET))
        letters += ALPHABET[at]
    return letters


def parse_code(text: str) -> str:
    """A code as somebody typed it: in any case, with spaces or hyphens for the eye."""
    code = text.translate(_SEPARATORS).upper()
    if len(code) != LENGTH or not set(code) <= set(ALPHABET):
        raise BadArgument(
            "A code cannot be", found=text, allowed=f"{LENGTH} characters out of {ALPHABET}", example="K7QM3XPR"
        )
    return code


def code_hash(code: str, salt: str) -> str:
    """Slow on purpose: a code is short, and whoever reads the hash shall not find it while it is good."""
    return hashlib.pbkdf2_hmac("sha256", code.encode(), salt.encode(errors="surrogatepass"), _ROUNDS).hex()
