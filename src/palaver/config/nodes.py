"""Configuration values, each with the position where it was written."""

from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from palaver.model.text import escape_invisible
from palaver.model.value import FieldPath, value

if TYPE_CHECKING:
    from palaver.config.errors import UnsetSecret

PlainValue = str | SecretStr | dict[str, "PlainValue"] | list["PlainValue"]


@value
class Position:
    file: Path | None = None
    line: int | None = None
    """None for the file as a whole."""
    variable: str = ""
    """The environment variable that set the value, if no file did."""
    secret: bool = False
    """Part of the value comes from the environment or a secret file."""

    def __str__(self) -> str:
        if self.file is None:
            return self.variable or "default"
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@value
class Node:
    position: Position
    value: "str | dict[str, Node] | list[Node]"
    raw: str = ""
    """The text as written, before environment variables are filled in."""
    unset: "UnsetSecret | None" = field(default=None, compare=False)
    """What stands for the text if it refers to an environment variable that is not set."""

    @property
    def kind(self) -> str:
        match self.value:
            case dict():
                return "a section"
            case list():
                return "a list"
            case _:
                return "a text"

    def plain(self) -> PlainValue:
        match self.value:
            case dict(value):
                return {name: node.plain() for name, node in value.items()}
            case list(value):
                return [node.plain() for node in value]
            case text:
                return self.unset or text

    def find_unset(self) -> "Iterator[UnsetSecret]":
        """Yield what refers to environment variables that are not set."""
        if self.unset:
            yield self.unset
        inner = self.value.values() if isinstance(self.value, dict) else self.value
        for node in inner if not isinstance(inner, str) else ():
            yield from node.find_unset()

    def at(self, path: Sequence[str | int]) -> "Node | None":
        if not path:
            return self
        step, *rest = path
        match self.value, step:
            case dict(value), str(name) if name in value:
                return value[name].at(rest)
            case list(value), int(index) if index < len(value):
                return value[index].at(rest)
            case _:
                return None

    def names(self, path: Sequence[str | int] = ()) -> list[str]:
        """Return the names of the fields of the section at `path`; none if there is no section."""
        node = self.at(path)
        return list(node.value) if node and isinstance(node.value, dict) else []

    def nearest(self, path: Sequence[str | int]) -> "Node":
        """Return the node at `path`, or its closest existing parent."""
        return self.at(path) or self.nearest(path[:-1])


@value(kw_only=False)
class Positions:
    """Where settings were written. All are equal: a position changes no setting."""

    root: Node | None = field(default=None, compare=False)

    def find(self, path: FieldPath) -> str:
        """Return file and line, or the variable; nothing if the setting has its default."""
        node = self.root.at(path) if self.root else None
        return str(node.position) if node and (node.position.file or node.position.variable) else ""

    def find_unset(self) -> "Iterator[UnsetSecret]":
        return self.root.find_unset() if self.root else iter(())


def merge(lower: Node, upper: Node) -> Node:
    """Merge field by field; `upper` wins. A list is one value and is replaced as a whole."""
    if not isinstance(lower.value, dict) or not isinstance(upper.value, dict):
        return upper
    below = lower.value
    both = {name: merge(below[name], node) if name in below else node for name, node in upper.value.items()}
    return Node(position=upper.position, value={**below, **both})


def dotted_path(path: Sequence[str | int]) -> str:
    """Return for example `grants[0].role`, safe to print."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{escape_invisible(step)}" for step in path
    ).removeprefix(".")
