"""Find installed plugins by their entry points, and read the metadata of all packages only when one was installed."""

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

__all__ = ["find_plugins"]


def find_plugins(group: str, name: str | None = None) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, or those with this name."""
    found = _read(group, tuple((folder, _changed_at(folder)) for folder in sys.path))
    return tuple(each for each in found if name in {None, each.name})


@lru_cache(maxsize=16)
def _read(group: str, _folders: tuple[tuple[str, int | None], ...]) -> EntryPoints:
    """Read the metadata of every package: 200 packages take 10 ms. Installing one changes the time of its folder."""
    return entry_points(group=group)


def _changed_at(folder: str) -> int | None:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return None
