"""The suite on encrypted stores: open each SQLite file with a key, and look into files as if they were plain.

`PALAVER_ENCRYPTED=1 make test ARGS=tests/store` runs the contract suite like that.
"""

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from palaver.db.cipher import is_plain, open_file
from palaver.db.sqlite import SqliteDatabase
from palaver.store import opening

__all__ = ["IS_ENCRYPTED", "connect", "encrypted_stores", "read_plain"]

IS_ENCRYPTED = bool(os.environ.get("PALAVER_ENCRYPTED"))
KEY = b"thirty-two bytes for tests only!" if IS_ENCRYPTED else None
_PAGE, _RESERVED, _IV, _SALT = 4096, 80, 16, 16
"""Bytes of a page of SQLCipher, at its end, of what the encryption begins with there, and at the start of a file."""
_LOG_HEAD, _FRAME_HEAD = 32, 24
"""Bytes before the first page of a write-ahead log, and before each page."""


@contextmanager
def encrypted_stores() -> Generator[None]:
    """Open every SQLite store with a key, as if that were configured."""
    open_sqlite = opening._open_sqlite  # pyright: ignore[reportPrivateUsage]

    async def open_encrypted(path: Path, key: bytes | None, *, exclusive: bool) -> SqliteDatabase:
        return await open_sqlite(path, key or KEY, exclusive=exclusive)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_open_sqlite", open_encrypted)
        yield


def connect(path: Path | str) -> sqlite3.Connection:
    """Open a file of a store of the suite behind its back."""
    return open_file(path, KEY)


def read_plain(path: Path, key: bytes | None = KEY) -> bytes:
    """Return the bytes of a file, those of a database or its log decrypted: unused pages and old frames, too."""
    content = path.read_bytes()
    is_log = path.name.endswith("-wal")
    if key is None or not content or is_plain(path) or (len(content) % _PAGE and not is_log):
        return content
    head, first = (_FRAME_HEAD, _LOG_HEAD) if is_log else (0, 0)
    starts = range(first + head, len(content), head + _PAGE)
    return b"".join(_decrypt(content[start : start + _PAGE], key) for start in starts)


def _decrypt(page: bytes, key: bytes) -> bytes:
    """Decrypt a page with and without what stands before the first one of a file: one of both is what was written."""
    iv = page[-_RESERVED : -_RESERVED + _IV]
    return b"".join(
        Cipher(algorithms.AES256(key), modes.CBC(iv)).decryptor().update(page[before:-_RESERVED])
        for before in (0, _SALT)
    )
