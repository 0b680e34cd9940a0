"""Files of a terminal chat: what was typed, and what arrives."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

from palaver.platforms.terminal import wire

_OWNER = "terminal:owner"


def history_file(data_dir: Path) -> Path:
    return data_dir / "history"


def history_eraser(data_dir: Path) -> Callable[[frozenset[str]], None]:
    def forget(identities: frozenset[str]) -> None:
        file = history_file(data_dir)
        if _OWNER in identities and file.exists():
            file.write_bytes(b"")

    return forget


_UNSAFE = re.compile(r"[^\w .()+-]")
_MAX_NAME = 100
_MAX_TRIES = 1000


def save_file(file: wire.File, folder: Path) -> str:
    """Save a file in a folder under its own name, never over another one; return what to tell the person."""
    name = _UNSAFE.sub("_", file.name).strip(" .")[-_MAX_NAME:] or "file"
    stem = Path(name).stem
    suffix = Path(name).suffix
    try:
        content = Path(file.path).read_bytes()
        for number in count(1):
            target = folder / (name if number == 1 else f"{stem} ({number}){suffix}")
            try:
                with target.open("xb") as out:
                    out.write(content)
            except FileExistsError:
                if number == _MAX_TRIES:
                    raise
                continue
            return f"Saved {target}"
    except OSError as error:
        return f"{name} could not be saved here: {error.strerror}. Get it with: palaver file {file.id}"
    raise AssertionError
