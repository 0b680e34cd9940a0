"""What counts in the end: every value with the place that it came from, and without secrets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from palaver.config.loader import Loaded
from palaver.config.nodes import Spot, Way, dotted
from palaver.config.secrets import SET, hidden
from palaver.config.types import Part

__all__ = ["Setting", "effective"]


class Setting(NamedTuple):
    field: str
    value: str | int
    """As it stands in a file; numbers, and true and false, as what they are."""
    spot: Spot


def effective(loaded: Loaded) -> Iterator[Setting]:
    for way, value in _leaves(loaded.config, (), has_all_files=True):
        node = loaded.said.at(way)
        spot = node.spot if node else Spot()
        # What a reference was filled with is not shown; what it stood in is.
        text = node.written if node and spot.secret else value
        yield Setting(dotted(way), hidden(text) if isinstance(text, str) else text, spot)


def _leaves(part: Part, way: Way, *, has_all_files: bool) -> Iterator[tuple[Way, str | int]]:
    """Of a part that is not whole, what was said of it: the rest is as outside."""
    dumped = part.model_dump(mode="json")
    for name in type(part).model_fields:
        if not has_all_files and name not in part.model_fields_set:
            continue
        inner = getattr(part, name)
        if isinstance(inner, Part):
            yield from _leaves(inner, (*way, name), has_all_files=has_all_files)
        elif isinstance(dumped[name], dict | list):
            for step, item in _items(inner):
                inside = (*way, name, step)
                # What an adapter takes is its own affair: any of it may be a secret.
                plain = [(inside, dumped[name][step] if isinstance(item, str | Enum) else SET)]
                yield from _leaves(item, inside, has_all_files=False) if isinstance(item, Part) else plain
        else:
            yield (*way, name), dumped[name]


def _items(items: Mapping[str, object] | Sequence[object]) -> Iterable[tuple[str | int, object]]:
    return items.items() if isinstance(items, Mapping) else enumerate(items)
