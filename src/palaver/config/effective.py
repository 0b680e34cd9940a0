"""List the settings in effect, each with its source and without secrets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from palaver.config.loader import Loaded
from palaver.config.nodes import Position, dotted_path
from palaver.config.secrets import SET, is_secret_option, mask_secrets
from palaver.model.value import FieldPath
from palaver.settings.types import Section

_ROLE_CAP = len(("caps", "member", "person_day", "tokens"))


class Setting(NamedTuple):
    field: str
    value: str | int
    """As written in a file; numbers and booleans keep their type."""
    position: Position


def effective_settings(loaded: Loaded) -> Iterator[Setting]:
    before: str | int = ""
    leaves = dict(_leaves(loaded.config, (), with_defaults=True))
    for path in leaves:
        source = path
        if path[0] == "caps" and len(path) == _ROLE_CAP and loaded.sources.at(path) is None:
            # A role without a limit of its own has the one for everybody.
            source = ("caps", *path[2:])
        node, value = loaded.sources.at(source), leaves[source]
        position = node.position if node else Position()
        # Show the reference, not the value that was filled in.
        text = node.raw if node and position.secret else value
        follows = isinstance(path[-1], int) and path[-1] > 0 and is_secret_option(str(before))
        shown = mask_secrets(text) if isinstance(text, str) else text
        if node and node.unset:
            shown = f"not set: {node.unset.mistake.found}"
        yield Setting(dotted_path(path), SET if follows else shown, position)
        before = text


def _leaves(part: Section, path: FieldPath, *, with_defaults: bool) -> Iterator[tuple[FieldPath, str | int]]:
    """Yield all fields, or only those that were set."""
    dumped = part.model_dump(mode="json")
    for name in type(part).model_fields:
        if not with_defaults and name not in part.model_fields_set:
            continue
        inner = getattr(part, name)
        if isinstance(inner, Section):
            yield from _leaves(inner, (*path, name), with_defaults=with_defaults)
        elif isinstance(dumped[name], dict | list):
            for step, item in _items(inner):
                inside = (*path, name, step)
                # Any option of an adapter can be a secret.
                plain = [(inside, dumped[name][step] if isinstance(item, str | Enum) else SET)]
                yield from _leaves(item, inside, with_defaults=False) if isinstance(item, Section) else plain
        elif dumped[name] is not None:  # without a value there is nothing to show
            yield (*path, name), dumped[name]


def _items(items: Mapping[str, object] | Sequence[object]) -> Iterable[tuple[str | int, object]]:
    return items.items() if isinstance(items, Mapping) else enumerate(items)
