"""Nodes: what was written, each value with the place where it was written."""

from collections.abc import Sequence
from pathlib import Path

from palaver.model.text import escape_invisible
from palaver.model.value import value

__all__ = [
    "Node",
    "Plain",
    "Spot",
    "Way",
    "dotted",
    "merged",
]

Way = tuple[str | int, ...]
Plain = str | dict[str, "Plain"] | list["Plain"]


@value
class Spot:
    file: Path | None = None
    line: int | None = None
    """None where it is about the file as a whole."""
    variable: str = ""
    """The environment variable that said it instead of a file."""
    secret: bool = False
    """Something of it came out of the environment."""

    def __str__(self) -> str:
        if self.file is None:
            return self.variable or "default"
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@value
class Node:
    spot: Spot
    value: "str | dict[str, Node] | list[Node]"
    written: str = ""
    """A text as it stands in the file, before anything out of the environment is put into it."""

    @property
    def kind(self) -> str:
        match self.value:
            case dict():
                return "a section"
            case list():
                return "a list"
            case _:
                return "a text"

    def plain(self) -> Plain:
        match self.value:
            case dict(value):
                return {name: node.plain() for name, node in value.items()}
            case list(value):
                return [node.plain() for node in value]
            case text:
                return text

    def at(self, way: Sequence[str | int]) -> "Node | None":
        if not way:
            return self
        step, *rest = way
        match self.value, step:
            case dict(value), str(name) if name in value:
                return value[name].at(rest)
            case list(value), int(index) if index < len(value):
                return value[index].at(rest)
            case _:
                return None

    def nearest(self, way: Sequence[str | int]) -> "Node":
        """What stands there, or else what it would stand in."""
        return self.at(way) or self.nearest(way[:-1])


def merged(lower: Node, upper: Node) -> Node:
    """Field by field. A list is one value: where both give it, the upper one counts."""
    if not isinstance(lower.value, dict) or not isinstance(upper.value, dict):
        return upper
    below = lower.value
    both = {name: merged(below[name], node) if name in below else node for name, node in upper.value.items()}
    return Node(spot=upper.spot, value={**below, **both})


def dotted(way: Sequence[str | int]) -> str:
    """`grants[0].role`, safe to print."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{escape_invisible(step)}" for step in way).removeprefix(
        "."
    )
