"""Files below one folder: read, write, patch, list and search them, and never anything outside it.

Every path is walked from the folder down, one directory descriptor after the other, and symbolic links are resolved by
hand: what others change meanwhile cannot lead outside. This file needs only the standard library of Python 3.9, so
that it can also run where the files are, on another machine.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import secrets
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping  # noqa: TC003 - it takes nothing to import them
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

MAX_LINKS = 40
MAX_WRITE_BYTES = 2_000_000
MAX_PATCH_BYTES = 5_000_000
MAX_LOADED_BYTES = 20_000_000
MAX_SCAN_BYTES = 50_000_000
MAX_SEARCHED_BYTES = 5_000_000
MAX_LINES, MAX_LINE_LENGTH = 2_000, 2_000
MAX_ENTRIES, MAX_HITS, MAX_FILES = 500, 200, 20_000
MAX_DEPTH, MAX_SCANNED = 100, 20_000
"""How many folders a path goes through, and how many entries of one folder are looked at."""
SEARCH_SECONDS = 10.0
HEAD_BYTES = 8_192
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Folders that a search leaves out unless it starts in one."""
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkspaceError(Exception):
    """It cannot be done. The message says why, for the agent."""


class Budget:
    """How long and how deep to look into folders."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SEARCH_SECONDS
        self.is_spent = False
        """Whether anything was left out."""

    def allows(self, above: str = "") -> bool:
        """Tell whether to look into one more folder, whose path ends with a slash."""
        is_allowed = time.monotonic() <= self._until and above.count("/") <= MAX_DEPTH
        self.is_spent |= not is_allowed
        return is_allowed

    def scan(self, folder: int) -> list[os.DirEntry[str]]:
        with os.scandir(folder) as found:
            entries = list(islice(found, MAX_SCANNED + 1))
        self.is_spent |= len(entries) > MAX_SCANNED
        return sorted(entries[:MAX_SCANNED], key=lambda entry: entry.name)


class Place:
    """The last part of a path: a name in an open folder. Close the stack when you are done."""

    def __init__(self, folder: int, name: str, shown: str) -> None:
        self.folder, self.name, self.shown = folder, name, shown

    def status(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


class Workspace:
    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    @contextmanager
    def find(self, path: str, *, makes: bool = False) -> Generator[Place]:
        """Walk to a path, through links that stay inside. With `makes`, make missing folders before the last part."""
        with ExitStack() as stack:
            yield _Walk(self._root, stack, makes=makes).to(path)

    def read(self, path: str, first: int = 1, count: int = MAX_LINES) -> str:
        with self.find(path) as place, _opened(place) as (file, status):
            size = status.st_size
            head = os.pread(file, HEAD_BYTES, 0)
            if b"\0" in head:
                return f"({place.shown} is binary: {size} bytes)"
            lines: list[str] = []
            number, is_more = 0, False
            with os.fdopen(os.dup(file), "rb") as stream:
                for number, line in enumerate(_lines(stream), 1):
                    if number >= first + min(count, MAX_LINES):
                        is_more = True
                        break
                    if number >= first:
                        lines.append(_shown(line))
        last = first + len(lines) - 1
        more = f"; continue at line {last + 1}" if is_more else ""
        return f"({place.shown}, lines {first} to {last}, {size} bytes in all{more})\n" + "\n".join(lines)

    def load(self, path: str) -> str:
        """Return a whole file in base64, to be sent."""
        with self.find(path) as place, _opened(place) as (file, status):
            if status.st_size > MAX_LOADED_BYTES:
                raise WorkspaceError(f"{place.shown} has more than {MAX_LOADED_BYTES} bytes")
            with os.fdopen(os.dup(file), "rb") as stream:
                return base64.b64encode(stream.read(MAX_LOADED_BYTES)).decode()

    def write(self, path: str, text: str) -> str:
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > MAX_WRITE_BYTES:
            raise WorkspaceError(f"at most {MAX_WRITE_BYTES} bytes can be written at once")
        with self.find(path, makes=True) as place:
            is_new = _replace(place, data)
        return f"{'Created' if is_new else 'Replaced'} {place.shown}, {len(data)} bytes."

    def patch(self, path: str, old: str, new: str, *, everywhere: bool = False) -> str:
        if not old:
            raise WorkspaceError("old must not be empty")
        with self.find(path) as place:
            with _opened(place) as (file, status):
                if status.st_size > MAX_PATCH_BYTES:
                    raise WorkspaceError(f"{place.shown} has more than {MAX_PATCH_BYTES} bytes")
                with os.fdopen(os.dup(file), "rb") as stream:
                    text = _text(stream.read(), place)
            count = text.count(old)
            if count == 0:
                raise WorkspaceError(f"old does not occur in {place.shown}; read it again and copy it exactly")
            if count > 1 and not everywhere:
                raise WorkspaceError(f"old occurs {count} times in {place.shown}; add lines around it, or set all")
            line = text[: text.index(old)].count("\n") + 1
            _replace(place, text.replace(old, new).encode())
        return f"Changed {place.shown} in {count} place{'s' if count > 1 else ''}, from line {line} on."

    def list(self, path: str = ".", *, deep: bool = False) -> str:
        budget = Budget()
        with self.find(path) as place:
            folder = _open_folder(place)
            try:
                found = list(islice(_entries(folder, "", budget, deep=deep), MAX_ENTRIES + 1))
            finally:
                os.close(folder)
        more = "\n(there are more: list a smaller folder)" if budget.is_spent else ""
        more = f"\n(only the first {MAX_ENTRIES})" if len(found) > MAX_ENTRIES else more
        return "\n".join(found[:MAX_ENTRIES]) + more or "(empty)"

    def search(self, text: str, path: str = ".", names: str = "*", *, ignores_case: bool = False) -> str:
        wanted = text.casefold() if ignores_case else text
        budget, files, hits = Budget(), 0, list[str]()
        with self.find(path) as place:
            for name, data in _contents(place, names, budget):
                files += 1
                hits += _hits(name, data, wanted, ignores_case=ignores_case)
                if len(hits) >= MAX_HITS or files >= MAX_FILES or not budget.allows():
                    budget.is_spent = True
                    break
        found = "\n".join(hits[:MAX_HITS]) or f"Nothing was found in {files} files."
        return f"{found}\n(there may be more: search in a smaller folder)" if budget.is_spent else found


class _Walk:
    """Goes down from the root. It holds every folder on the way open, and never goes above the first one."""

    def __init__(self, root: str, stack: ExitStack, *, makes: bool) -> None:
        self._root, self._stack, self._makes = root, stack, makes
        self._folders = [self._open(root)]
        self._names: list[str] = []

    def to(self, path: str) -> Place:
        parts, links = deque(self._inside(path)), 0
        while parts:
            part = parts.popleft()
            if part in {"", "."}:
                continue
            if part == "..":
                self._go_up(path)
                continue
            status = _status(part, self._folders[-1])
            if status is not None and stat.S_ISLNK(status.st_mode):
                links += 1
                if links > MAX_LINKS:
                    raise WorkspaceError(f"{path} has too many links")
                parts.extendleft(reversed(self._follow(part)))
            elif any(each not in {"", "."} for each in parts):
                self._enter(part, is_missing=status is None, path=path)
            else:
                return Place(self._folders[-1], part, "/".join([*self._names, part]))
        return Place(self._folders[-1], ".", "/".join(self._names) or ".")

    def _inside(self, path: str) -> list[str]:
        """Return the parts of a path below the root."""
        if "\0" in path:
            raise WorkspaceError("a path cannot have NUL in it")
        if not path.startswith("/"):
            return path.split("/")
        root = "" if self._root == "/" else self._root
        if path != root and not path.startswith(f"{root}/"):
            raise WorkspaceError(f"{path} is outside the working directory")
        return path[len(root) :].split("/")

    def _go_up(self, path: str) -> None:
        if len(self._folders) == 1:
            raise WorkspaceError(f"{path} is outside the working directory")
        self._folders.pop()
        self._names.pop()

    def _follow(self, name: str) -> list[str]:
        target = os.readlink(name, dir_fd=self._folders[-1])
        parts = self._inside(target)
        if target.startswith("/"):
            del self._folders[1:]
            self._names.clear()
        return parts

    def _enter(self, name: str, *, is_missing: bool, path: str) -> None:
        if len(self._folders) > MAX_DEPTH:
            raise WorkspaceError(f"a path cannot have more than {MAX_DEPTH} folders")
        if is_missing and not self._makes:
            raise WorkspaceError(f"{path} does not exist")
        if is_missing:
            os.mkdir(name, dir_fd=self._folders[-1])
        self._folders.append(self._open(name, self._folders[-1]))
        self._names.append(name)

    def _open(self, name: str, folder: int | None = None) -> int:
        try:
            number = os.open(name, OPEN_FOLDER if folder is not None else OPEN_FOLDER & ~os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            raise WorkspaceError(f"{name} is no folder that can be opened: {error.strerror}") from error
        self._stack.callback(os.close, number)
        return number


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextmanager
def _opened(place: Place) -> Generator[tuple[int, os.stat_result]]:
    """Open an ordinary file; never one that would block, or be something else behind its name."""
    try:
        file = os.open(place.name, OPEN_FILE, dir_fd=place.folder)
    except FileNotFoundError:
        raise WorkspaceError(f"{place.shown} does not exist") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise WorkspaceError(f"{place.shown} is no ordinary file")
        yield file, status
    finally:
        os.close(file)


def _open_folder(place: Place) -> int:
    status = place.status()
    if status is None or not stat.S_ISDIR(status.st_mode):
        raise WorkspaceError(f"{place.shown} is no folder")
    return os.open(place.name, OPEN_FOLDER, dir_fd=place.folder)


def _replace(place: Place, data: bytes) -> bool:
    """Write a new file and put it in the place of the old one in one step. Return whether there was none."""
    before = place.status()
    if place.name == "." or (before is not None and not stat.S_ISREG(before.st_mode)):
        raise WorkspaceError(f"{place.shown} is no ordinary file")
    unfinished = f".{secrets.token_hex(8)}.unfinished"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(unfinished, flags, 0o666, dir_fd=place.folder)
    try:
        with os.fdopen(file, "wb") as stream:
            if before is not None:
                os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
            stream.write(data)
        os.rename(unfinished, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        os.unlink(unfinished, dir_fd=place.folder)
        raise
    return before is None


def _lines(stream: Any) -> Iterator[bytes]:  # noqa: ANN401 - any binary file
    """Yield lines, long ones cut, as far as it makes sense to look."""
    seen = 0
    while seen < MAX_SCAN_BYTES and (line := stream.readline(MAX_SCAN_BYTES)):
        seen += len(line)
        yield line


def _shown(line: bytes) -> str:
    text = line.rstrip(b"\r\n").decode("utf-8", "replace")
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[:MAX_LINE_LENGTH]}… ({len(text)} characters)"


def _text(data: bytes, place: Place) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WorkspaceError(f"{place.shown} is not text in UTF-8") from None


def _entries(folder: int, above: str, budget: Budget, *, deep: bool) -> Iterator[str]:
    """Yield the entries of a folder, sorted, each with its size; those of folders in it after their name."""
    if not budget.allows(above):
        return
    for entry in budget.scan(folder):
        name = f"{above}{entry.name}"
        if entry.is_symlink():
            yield f"{name} -> {os.readlink(entry.name, dir_fd=folder)}"
        elif entry.is_dir(follow_symlinks=False):
            yield f"{name}/"
            if deep and entry.name not in SKIPPED:
                yield from _inner(
                    folder, entry.name, lambda inner, name=name: _entries(inner, f"{name}/", budget, deep=True)
                )
        else:
            yield f"{name} ({entry.stat(follow_symlinks=False).st_size} bytes)"


def _inner(folder: int, name: str, walk: Callable[[int], Iterator[Any]]) -> Iterator[Any]:
    try:
        inner = os.open(name, OPEN_FOLDER, dir_fd=folder)
    except OSError:
        return  # it is gone, became a link, or cannot be read
    try:
        yield from walk(inner)
    finally:
        os.close(inner)


def _contents(place: Place, names: str, budget: Budget) -> Iterator[tuple[str, bytes]]:
    status = place.status()
    if status is None:
        raise WorkspaceError(f"{place.shown} does not exist")
    if stat.S_ISDIR(status.st_mode):
        above = "" if place.shown == "." else f"{place.shown}/"
        yield from _inner(place.folder, place.name, lambda folder: _files(folder, above, names, budget))
    else:
        yield from _content(place.folder, place.name, place.shown)


def _files(folder: int, above: str, names: str, budget: Budget) -> Iterator[tuple[str, bytes]]:
    if not budget.allows(above):
        return
    for entry in budget.scan(folder):
        path = f"{above}{entry.name}"
        if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
            yield from _inner(folder, entry.name, lambda inner, path=path: _files(inner, f"{path}/", names, budget))
        elif entry.is_file(follow_symlinks=False) and fnmatch.fnmatch(entry.name, names):
            yield from _content(folder, entry.name, path)


def _content(folder: int, name: str, shown: str) -> Iterator[tuple[str, bytes]]:
    """Yield the content of a text file that is not too big."""
    try:
        with _opened(Place(folder, name, shown)) as (file, status):
            if status.st_size > MAX_SEARCHED_BYTES:
                return
            with os.fdopen(os.dup(file), "rb") as stream:
                data = stream.read()
    except (OSError, WorkspaceError):
        return
    if b"\0" not in data[:HEAD_BYTES]:
        yield shown, data


def _hits(name: str, data: bytes, wanted: str, *, ignores_case: bool) -> list[str]:
    text = data.decode("utf-8", "replace")
    if wanted not in (text.casefold() if ignores_case else text):
        return []
    lines = enumerate(text.split("\n"), 1)
    found = ((number, line) for number, line in lines if wanted in (line.casefold() if ignores_case else line))
    return [f"{name}:{number}: {_shown(line.encode()).strip()}" for number, line in found][:MAX_HITS]


def perform(root: str, action: str, arguments: Mapping[str, Any]) -> str:
    """Do one thing in a folder, and return what the agent learns. Raises WorkspaceError."""
    try:
        return _encodable(getattr(Workspace(root), action)(**arguments))
    except WorkspaceError as error:
        raise WorkspaceError(_encodable(str(error))) from error
    except UnicodeEncodeError as error:
        raise WorkspaceError("paths and texts cannot have half a character in them") from error
    except OSError as error:
        raise WorkspaceError(_encodable(f"{arguments.get('path', '.')}: {error.strerror or error}")) from error


def _encodable(text: str) -> str:
    """Return a text that can be stored: a name need not be one."""
    return text.encode("utf-8", "replace").decode()


def main(request: str) -> None:
    """Run where the files are: take root, action and arguments as JSON, and print the result as JSON."""
    try:
        result = {"text": perform(*json.loads(request))}
    except WorkspaceError as error:
        result = {"problem": str(error)}
    sys.stdout.write(json.dumps(result))
