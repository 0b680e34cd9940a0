"""One-time codes that people read to each other, stored only as a slow, salted hash."""

import hashlib

from palaver.model.errors import BadArgument

CODE_ALPHABET = "ACDEFGHJKMNPQRTUVWXY34679"
"""Without characters that look alike: 0 and O, 1, I and L, 2 and Z, 5 and S, 8 and B."""
CODE_LENGTH = 8
_SEPARATORS = str.maketrans("", "", " -")
_HASH_ROUNDS = 50_000


def make_code(random_bytes: bytes) -> str:
    """Make a code from random bytes: with sixteen of them every code is about equally likely."""
    number, letters = int.from_bytes(random_bytes, "big"), ""
    for _ in range(CODE_LENGTH):
        number, at = divmod(number, len(CODE_ALPHABET))
        letters += CODE_ALPHABET[at]
    return letters


def parse_code(text: str) -> str:
    """Read a code as people type it: in any case, with spaces or hyphens."""
    code = text.translate(_SEPARATORS).upper()
    if len(code) != CODE_LENGTH or not set(code) <= set(CODE_ALPHABET):
        raise BadArgument(
            "This is not a code:",
            found=text,
            allowed=f"{CODE_LENGTH} of the characters {CODE_ALPHABET}",
            example="K7QM3XPR",
        )
    return code


def code_hash(code: str, salt: str) -> str:
    """Hash a code, slowly: it is short, and must not be guessed from the hash while it is valid."""
    return hashlib.pbkdf2_hmac("sha256", code.encode(), salt.encode(errors="surrogatepass"), _HASH_ROUNDS).hex()
