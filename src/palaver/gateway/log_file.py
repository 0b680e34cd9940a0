"""The log that the gateway keeps in its data directory: bounded, without content, readable only by its owner."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from io import TextIOWrapper
from itertools import islice
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import NamedTuple

from palaver.db.private_files import make_private_folder, touch_private
from palaver.gateway.logs import JsonFormat, OutageFilter
from palaver.model.log_line import LogFilter, LogLine, parse_log_line

NAME = "gateway.log"
_OLDER = f"{NAME}.1"
_MEGABYTE = 1_000_000
_LONGEST_LINE_BYTES = 16_000
"""Room for the line that fills a file: a sentence of at most 500 characters, and a few names and numbers."""


class LogFile(RotatingFileHandler):
    """Two files of half the size each: the newer takes the older one's place when it is full."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        most = megabytes * _MEGABYTE // 2 - _LONGEST_LINE_BYTES
        super().__init__(folder / NAME, maxBytes=most, backupCount=1, encoding="utf-8", delay=True)
        self.setFormatter(JsonFormat())
        self.addFilter(OutageFilter())

    def _open(self) -> TextIOWrapper:
        file = Path(self.baseFilename)
        make_private_folder(file.parent)
        touch_private(file)
        return super()._open()

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: ARG002, N802 - its name in logging
        """Look only at the size of the file: logging's own formats every line a second time for it."""
        if self.stream is None:
            self.stream = self._open()
        return os.fstat(self.stream.fileno()).st_size >= self.maxBytes

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        """Ignore write errors, such as a full disk: the gateway goes on."""


class LogEnd(NamedTuple):
    """How far the log has been written."""

    inode: int
    size: int


def log_end(folder: Path) -> LogEnd:
    return _end(folder / NAME)


def read_log(folder: Path, wanted: LogFilter, limit: int, end: LogEnd | None = None) -> list[LogLine]:
    """Return the newest lines that somebody wants, written before `end`, the oldest of them first."""
    found = (line for line in _newest_first(folder, end) if wanted.keeps(line))
    return list(islice(found, limit))[::-1]


def _newest_first(folder: Path, end: LogEnd | None) -> Iterator[LogLine]:
    for file in (folder / NAME, folder / _OLDER):
        is_last = end is not None and _end(file).inode == end.inode
        content = _read(file)[: end.size] if end and is_last else _read(file)
        yield from _parsed(reversed(content.splitlines()))


def follow_log(folder: Path, wanted: LogFilter, end: LogEnd, wait: Callable[[], object]) -> Iterator[LogLine]:
    """Yield lines written after `end`, for ever. `wait` is called whenever there is nothing new."""
    file, older, rest = folder / NAME, folder / _OLDER, b""
    while True:
        if _end(file).inode == end.inode:
            new = _read(file, end.size)
            end = LogEnd(end.inode, end.size + len(new))
        else:  # the file was full: its last lines are in the older one
            new = _read(older, end.size) if _end(older).inode == end.inode else b""
            end = LogEnd(_end(file).inode, 0)
        *lines, rest = (rest + new).split(b"\n")
        yield from filter(wanted.keeps, _parsed(lines))
        if not new:
            wait()


def _parsed(lines: Iterable[bytes]) -> Iterator[LogLine]:
    return (line for each in lines if (line := parse_log_line(each.decode("utf-8", "replace"))))


def _read(file: Path, position: int = 0) -> bytes:
    try:
        with file.open("rb") as stream:
            stream.seek(position)
            return stream.read()
    except FileNotFoundError:
        return b""


def _end(file: Path) -> LogEnd:
    try:
        found = file.stat()
    except FileNotFoundError:
        return LogEnd(0, 0)
    return LogEnd(found.st_ino, found.st_size)
