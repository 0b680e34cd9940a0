"""Sealed streams: AES-256-GCM in chunks, so that large content needs little memory and cannot be cut or reordered.

A stream is a magic number, a salt, and chunks of 64 KiB, each with its tag. The key of a stream is derived from its
salt; the nonce of a chunk is its number, and whether it is the last one.
"""

import io
import os
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"palaver\x01"
CHUNK = 1 << 16
_SALT_BYTES, _TAG_BYTES, _COUNTER_BYTES = 32, 16, 11


class DamagedContent(OSError):
    """Sealed content was changed, cut, or sealed with another key."""


def derive(key: bytes, purpose: str, salt: bytes | None = None, length: int = 32) -> bytes:
    """Return a key for one purpose."""
    return HKDF(SHA256(), length, salt, f"palaver {purpose}".encode()).derive(key)


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(_COUNTER_BYTES, "big") + bytes([is_last])


class SealedWriter:
    """Seals what is written to it. What is not finished cannot be read."""

    def __init__(self, target: IO[bytes], key: bytes) -> None:
        salt = os.urandom(_SALT_BYTES)
        self._target = target
        self._cipher = AESGCM(derive(key, "stream", salt))
        self._number = 0
        self._rest = bytearray()
        target.write(MAGIC + salt)

    def write(self, content: bytes) -> int:
        self._rest += content
        while len(self._rest) > CHUNK:  # the last chunk is written at the end
            self._write_chunk(bytes(self._rest[:CHUNK]), is_last=False)
            del self._rest[:CHUNK]
        return len(content)

    def finish(self) -> None:
        self._write_chunk(bytes(self._rest), is_last=True)

    def _write_chunk(self, chunk: bytes, *, is_last: bool) -> None:
        self._target.write(self._cipher.encrypt(_nonce(self._number, is_last=is_last), chunk, None))
        self._number += 1


class _Unsealed(io.RawIOBase):
    def __init__(self, source: IO[bytes], key: bytes) -> None:
        head = source.read(len(MAGIC) + _SALT_BYTES)
        if len(head) < len(MAGIC) + _SALT_BYTES or not head.startswith(MAGIC):
            raise DamagedContent("it is not sealed")
        self._source = source
        self._cipher = AESGCM(derive(key, "stream", head[len(MAGIC) :]))
        self._number = 0
        self._ahead = source.read(CHUNK + _TAG_BYTES)
        self._chunk = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not self._chunk and not self._ended:
            self._chunk = memoryview(self._open_chunk())
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count

    def _open_chunk(self) -> bytes:
        sealed, self._ahead = self._ahead, self._source.read(CHUNK + _TAG_BYTES)
        self._ended = not self._ahead
        try:
            chunk = self._cipher.decrypt(_nonce(self._number, is_last=self._ended), sealed, None)
        except (InvalidTag, ValueError) as error:
            raise DamagedContent("it was changed, or sealed with another key") from error
        self._number += 1
        return chunk


def unsealed(source: IO[bytes], key: bytes) -> io.BufferedReader:
    """Return a reader of what was sealed. It raises DamagedContent."""
    return io.BufferedReader(_Unsealed(source, key), CHUNK)


def seal(content: bytes, key: bytes) -> bytes:
    target = io.BytesIO()
    writer = SealedWriter(target, key)
    writer.write(content)
    writer.finish()
    return target.getvalue()


def unseal(content: bytes, key: bytes) -> bytes:
    return unsealed(io.BytesIO(content), key).read()
