"""The keys in the pages of a SQLite file, read without SQLite: they name rows that no intact page leads to."""

from collections.abc import Iterator
from pathlib import Path

from palaver.db.transaction import Row

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_LOG_HEAD, _FRAME_HEAD = 32, 24
"""Bytes before the first page of a write-ahead log, and before each page."""
_CIPHER_PAGE, _CIPHER_RESERVED, _IV = 4096, 80, 16
"""Bytes of a page of SQLCipher, at its end besides the content, and of what its encryption begins with."""
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)


def row_numbers(path: Path, key: bytes | None) -> Iterator[int]:
    """Yield the rowids in the pages of a file and its log, of any table, also of rows that were deleted."""
    for page in _pages(path, key):
        for at in _cells(page) if page[0] == _TABLE_LEAF else ():
            try:
                yield _signed(_varint(page, _varint(page, at)[1])[0])
            except IndexError:
                continue


def row_keys(path: Path, key: bytes | None, width: int) -> Iterator[Row]:
    """Yield the first columns of each row in the pages of tables without rowids, and of indexes."""
    for page in _pages(path, key):
        for at in _cells(page) if page[0] in {_INDEX_LEAF, _INDEX_INTERIOR} else ():
            try:
                yield _record(page, _varint(page, at + (4 if page[0] == _INDEX_INTERIOR else 0))[1], width)
            except (IndexError, UnicodeDecodeError):
                continue


def _pages(path: Path, key: bytes | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        size = _CIPHER_PAGE if key else int.from_bytes(file.read(18)[16:], "big")
        size = 65536 if size == 1 else size
        file.seek(size)  # The first page has the schema.
        while len(page := file.read(size)) == size:
            yield _decrypted(page, key) if key else page
    log = path.with_name(f"{path.name}-wal")
    if log.is_file():
        with log.open("rb") as file:
            file.seek(_LOG_HEAD)
            while len(frame := file.read(_FRAME_HEAD + size)) == _FRAME_HEAD + size:
                yield _decrypted(frame[_FRAME_HEAD:], key) if key else frame[_FRAME_HEAD:]


def _decrypted(page: bytes, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - an extra

    end = len(page) - _CIPHER_RESERVED
    decryptor = Cipher(algorithms.AES256(key), modes.CBC(page[end : end + _IV])).decryptor()
    return decryptor.update(page[:end])


def _cells(page: bytes) -> Iterator[int]:
    """Yield where the cells of a page are."""
    head = 12 if page[0] == _INDEX_INTERIOR else 8
    for at in range(head, min(head + 2 * int.from_bytes(page[3:5], "big"), len(page) - 1), 2):
        yield int.from_bytes(page[at : at + 2], "big")


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    number = 0
    for count in range(8):
        byte = page[at + count]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more follow
            return number, at + count + 1
    return number << 8 | page[at + 8], at + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _record(page: bytes, at: int, width: int) -> Row:
    size, place = _varint(page, at)
    body = at + size
    values: list[int | str | None] = []
    while len(values) < width and place < at + size:
        kind, place = _varint(page, place)
        value, body = _column(page, kind, body)
        values.append(value)
    return tuple(values)


def _column(page: bytes, kind: int, at: int) -> tuple[int | str | None, int]:
    """Return the value of a column and where it ends; None for what is no key."""
    if kind in {8, 9}:
        return kind - 8, at
    length = _INTEGER_BYTES[kind] if kind < len(_INTEGER_BYTES) else max(0, kind - 12) // 2
    content = page[at : at + length]
    if len(content) < length:
        raise IndexError
    if kind < len(_INTEGER_BYTES):
        return (int.from_bytes(content, "big", signed=True) if kind else None), at + length
    return (content.decode() if kind % 2 else None), at + length
