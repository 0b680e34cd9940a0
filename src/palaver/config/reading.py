"""Reading: from a file to nodes that know their lines."""

from collections.abc import Mapping
from pathlib import Path

from palaver.config.mistakes import Mistake
from palaver.config.nodes import Node, Spot
from palaver.config.syntax import EXAMPLE, Reading, parse

__all__ = ["read"]

_LARGEST = 256 * 1024


def read(file: Path, environ: Mapping[str, str] | None) -> Reading:
    """What `file` says. Only where an environment is given may values refer to it."""
    content = _content(file)
    if isinstance(content, Mistake):
        return Reading(node=Node(spot=Spot(file=file, line=1), value={}), mistakes=[content])
    return parse(file, content, environ)


def _content(file: Path) -> str | Mistake:
    try:
        if not file.is_file() and (file.is_dir() or file.is_fifo() or file.is_socket()):
            return _mistake(file, "not a file but", "a folder" if file.is_dir() else "a pipe", "a YAML file")
        with file.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        return _mistake(
            file,
            "cannot be read:",
            error.strerror or str(error),
            "a file that you may read; PALAVER_CONFIG names another",
        )
    if len(content) > _LARGEST:
        return _mistake(file, "too large:", f"more than {_LARGEST} bytes", f"up to {_LARGEST} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _mistake(file, "not UTF-8:", f"byte {content[error.start]:#04x}", "text in UTF-8", line)


def _mistake(file: Path, problem: str, found: str, allowed: str, line: int | None = None) -> Mistake:
    return Mistake(spot=Spot(file=file, line=line), problem=problem, found=found, allowed=allowed, example=EXAMPLE)
