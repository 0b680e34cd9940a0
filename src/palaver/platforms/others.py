"""Adapters of others: found by their Python entry points, loaded only when they are asked for."""

from importlib.metadata import entry_points

from palaver.domain.errors import UnknownPlatform

__all__ = ["GROUP", "load_adapter", "names"]

GROUP = "palaver.platforms"
"""A distribution adds `name = "module:Adapter"` to the entry points of this group."""


def names() -> list[str]:
    """What is installed; nothing of it is imported for that."""
    return sorted({each.name for each in entry_points(group=GROUP)})


def load_adapter(name: str) -> object:
    """What the entry point of this name leads to."""
    for found in entry_points(group=GROUP, name=name):
        return found.load()
    known = ", ".join(names()) or "none is installed"
    raise UnknownPlatform("No installed adapter is called", found=name, allowed=known, example="pip install NAME")
