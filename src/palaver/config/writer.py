"""Replace fields in a YAML file and keep every other byte of it."""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import yaml

from palaver.db.private_files import PRIVATE_FILE, make_private_folder, naming, open_private
from palaver.model.errors import BadArgument

_COMPOSE: Any = getattr(yaml, "compose")  # noqa: B009 - the types are not ours


def yaml_scalar(value: str) -> str:
    """Return `value` plain if possible, else as JSON, which is valid YAML."""
    is_plain = value.isascii() and value.replace("_", "").replace("/", "").replace("-", "").isalnum()
    return value if is_plain else json.dumps(value, ensure_ascii=False)


Written = str | Sequence["Written"] | Mapping[str, "Written"]
"""A value, a list, or a section of them."""


def replace_value(text: str, path: Sequence[str], value: Written) -> str:
    """Set the field at `path` to a value, a list or a section; keep everything beside it.

    A section in braces on the way is written as lines, unless it has comments inside.
    """
    return _replace(_without_braces(text, path), path, value)


def _replace(text: str, path: Sequence[str], value: Written) -> str:
    ending = "\r\n" if "\r\n" in text else "\n"
    rows = text.splitlines(keepends=True)
    if rows and not rows[-1].endswith(("\n", "\r")):
        rows[-1] += ending
    (first, end), depth, indent = _room(text, path, len(rows))
    *above, name = path[depth:]
    new = [f"{'  ' * step}{yaml_scalar(each)}:" for step, each in enumerate(above)]
    new += [f"{'  ' * len(above)}{line}" for line in _lines(name, value)]
    if end - first == 1 and not above:
        new[0] += _comment(text, path)
    return "".join([*rows[:first], *(f"{indent}{line}".rstrip() + ending for line in new), *rows[end:]])


def _without_braces(text: str, path: Sequence[str]) -> str:
    node: Any = _root(text)
    for depth, name in enumerate(path[:-1], 1):
        if name not in (inner := _fields(node)):
            break
        _, node = inner[name]
        if isinstance(node, yaml.MappingNode) and node.flow_style and node.value:
            if "#" in text[node.start_mark.index : node.end_mark.index]:
                raise _unwritable("in braces")
            return _without_braces(_replace(text, path[:depth], _written(node)), path)
    return text


def _written(node: Any) -> Written:  # noqa: ANN401 - the types are not ours
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _written(value) for key, value in cast("list[tuple[Any, Any]]", node.value)}
    if isinstance(node, yaml.SequenceNode):
        return [_written(each) for each in cast("list[Any]", node.value)]
    return str(node.value)


def _comment(text: str, path: Sequence[str]) -> str:
    """Return the comment behind a value on its own line, with the space before it."""
    node: Any = _root(text)
    for name in path:
        _, node = _fields(node)[name]
    line, column = int(node.end_mark.line), int(node.end_mark.column)
    rest = text.splitlines()[line][column:] if column else ""
    return rest if rest.lstrip().startswith("#") else ""


def remove_value(text: str, path: Sequence[str]) -> str:
    """Remove the field at `path`, and sections that would be empty without it; keep everything else."""
    if not has_value(text, path):
        return text
    text = _without_braces(text, path)
    node, last = _root(text), 0
    for depth, name in enumerate(path):
        if len(node.value) > 1 and depth:
            last = depth
        _, node = _fields(node)[name]
    rows = text.splitlines(keepends=True)
    (first, end), _, _ = _room(text, path[: last + 1], len(rows))
    return "".join([*rows[:first], *rows[end:]])


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line where the field at `path` stands."""
    node, line = _root(text), None
    for name in path:
        if name not in (inner := _fields(node)):
            return None
        key, node = inner[name]
        line = int(key.start_mark.line) + 1
    return line


def _lines(name: str, value: Written) -> list[str]:
    """Write a field: a value beside its name, prose and sections below it."""
    label = f"{yaml_scalar(name)}:"
    if isinstance(value, Mapping):
        if not value:
            return [f"{label} {{}}"]
        return [label, *(f"  {line}" for inner, each in value.items() for line in _lines(inner, each))]
    if not isinstance(value, str):
        return [f"{label} {json.dumps(list(value), ensure_ascii=False)}"]
    if _is_prose(value):
        return [f"{label} |-", *(f"  {line}" for line in value.split("\n"))]
    return [f"{label} {yaml_scalar(value)}"]


def _is_prose(value: str) -> bool:
    """Whether a block of lines says the same as `value`: everything else is written in quotes."""
    lines = value.split("\n")
    shown = all(char == "\n" or char.isprintable() for char in value) and "\ufeff" not in value
    return (
        len(lines) > 1
        and shown
        and not value[:1].isspace()
        and all(line == line.rstrip() for line in lines)
        and bool(lines[-1])
    )


def has_value(text: str, path: Sequence[str]) -> bool:
    return line_of(text, path) is not None


def _fields(node: Any) -> dict[str, tuple[Any, Any]]:  # noqa: ANN401 - the types are not ours
    """Return the name and the value of each field of a section; none if it is something else."""
    return {key.value: (key, value) for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _room(text: str, path: Sequence[str], last: int) -> tuple[tuple[int, int], int, str]:
    """Return the lines for the rest of `path`, how much of it exists, and its indentation."""
    node = _root(text)
    indent = " " * node.start_mark.column if node else ""
    room, depth = (last, last), 0
    for depth, name in enumerate(path):
        if name not in (inner := _fields(node)):
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
    make_private_folder(place.parent)
    mode = PRIVATE_FILE if private or not place.exists() else place.stat().st_mode & 0o777
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with naming(place), os.fdopen(open_private(draft, os.O_WRONLY | os.O_EXCL, mode, like=place), "wb") as stream:
            stream.write(content.encode())
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        draft.replace(place)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
