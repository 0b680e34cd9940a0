"""Every pattern means the same on every Python that we support."""

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import palaver
from palaver.model import redact

_codes: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")


def test_no_group_is_possessive() -> None:
    """Python 3.11.2, which Debian 12 has, does not go back to where the last repetition of the group began."""
    assert list(_possessive_groups(r"(?:a[bc]*+d)*+")), "the check finds one"
    found = {pattern.pattern for pattern in _patterns() if list(_possessive_groups(pattern.pattern, pattern.flags))}
    assert not found


def _patterns() -> Iterator[re.Pattern[str]]:
    for module in _modules():
        for each in vars(module).values():
            yield from (item for item in _items(each) if isinstance(item, re.Pattern))
    for kind in (*redact._FORMATS, *redact._NAMED):  # pyright: ignore[reportPrivateUsage]
        yield kind.pattern


def _items(each: object) -> Iterator[object]:
    yield each
    if isinstance(each, Mapping):
        each = tuple(each.values())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(each, tuple | list):
        for item in each:  # pyright: ignore[reportUnknownVariableType]
            yield from _items(item)  # pyright: ignore[reportUnknownArgumentType]


def _modules() -> Iterator[ModuleType]:
    sources = Path(palaver.__file__).parent
    for path in sources.rglob("*.py"):
        if "re.compile(" in path.read_text():
            yield importlib.import_module(".".join(path.relative_to(sources.parent).with_suffix("").parts))


def _possessive_groups(pattern: str | bytes, flags: int = 0) -> Iterator[object]:
    tree = _parser.parse(pattern, flags & ~re.UNICODE if isinstance(pattern, bytes) else flags)
    return _in_tree(tree)


def _in_tree(node: Any) -> Iterator[object]:
    if isinstance(node, _parser.SubPattern | list):
        yield from _in_trees(node)
    elif isinstance(node, tuple):
        values: Any = node  # pyright: ignore[reportUnknownVariableType]
        if values and values[0] is _codes.POSSESSIVE_REPEAT and _is_group(*values[1]):
            yield values
        yield from _in_trees(node)


def _in_trees(nodes: Any) -> Iterator[object]:
    for each in nodes:
        yield from _in_tree(each)


def _is_group(_least: int, _most: int, item: Any) -> bool:
    return len(item) != 1 or item[0][0] not in {_codes.IN, _codes.LITERAL, _codes.NOT_LITERAL, _codes.ANY}
