"""Replace fields in a YAML file and keep every other byte of it."""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from palaver.model.errors import BadArgument

_COMPOSE: Any = getattr(yaml, "compose")  # noqa: B009 - the types are not ours
_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700


def yaml_scalar(value: str) -> str:
    """Return `value` plain if possible, else as JSON, which is valid YAML."""
    is_plain = value.isascii() and value.replace("_", "").replace("/", "").replace("-", "").isalnum()
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def replace_value(text: str, path: Sequence[str], value: str | Mapping[str, str]) -> str:
    """Set the field at `path` to a value or a section; keep everything beside it."""
    ending = "\r\n" if "\r\n" in text else "\n"
    rows = text.splitlines(keepends=True)
    if rows and not rows[-1].endswith(("\n", "\r")):
        rows[-1] += ending
    (first, end), depth, indent = _room(text, path, len(rows))
    new = [f"{'  ' * step}{yaml_scalar(name)}:" for step, name in enumerate(path[depth:])]
    if isinstance(value, str):
        new[-1] += f" {yaml_scalar(value)}"
    else:
        new += [f"{'  ' * len(path[depth:])}{name}: {yaml_scalar(inner)}" for name, inner in value.items()]
    return "".join([*rows[:first], *(f"{indent}{line}{ending}" for line in new), *rows[end:]])


def has_value(text: str, path: Sequence[str]) -> bool:
    node = _root(text)
    for name in path:
        inner = {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
        if name not in inner:
            return False
        node = inner[name]
    return True


def _room(text: str, path: Sequence[str], last: int) -> tuple[tuple[int, int], int, str]:
    """Return the lines for the rest of `path`, how much of it exists, and its indentation."""
    node = _root(text)
    indent = " " * node.start_mark.column if node else ""
    room, depth = (last, last), 0
    for depth, name in enumerate(path):
        inner = {key.value: (key, value) for key, value in node.value} if node else {}
        if name not in inner:
            return room if depth == 0 else (_end(node), _end(node)), depth, indent
        key, node = inner[name]
        room = (key.start_mark.line, _end(node))
        if depth == len(path) - 1 or not node.value:
            break
        if not isinstance(node, yaml.MappingNode) or node.flow_style:
            raise _unwritable("in braces" if isinstance(node, yaml.MappingNode) else f"with another {name}")
        indent = " " * node.start_mark.column
    return room, depth, indent


def _root(text: str) -> Any:  # noqa: ANN401 - the types are not ours
    try:
        root = _COMPOSE(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _unwritable("as several documents") from error
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise _unwritable("in braces")
    return root


def _unwritable(found: str) -> BadArgument:
    return BadArgument(
        "Palaver cannot edit a file written",
        found=found,
        allowed="one field per line",
        example="busy: queue",
    )


def _end(node: Any) -> int:  # noqa: ANN401 - the types are not ours
    """A block ends with its last value: comments after it belong to the next field."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last: Any = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    mark = node.end_mark
    return mark.line + 1 if mark.column else mark.line


def replace_file(file: Path, content: str, *, private: bool = False) -> None:
    """Write `content` atomically: readers see the old or the new file. A symbolic link stays a link."""
    place = Path(os.path.realpath(file))
    place.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
    mode = _PRIVATE if private or not place.exists() else place.stat().st_mode & 0o777
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content.encode())
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        draft.replace(place)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
