"""Wrong input: what is left of a payload when each of its values is missing or something else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from palaver.protocols import Inbound, MalformedSource, parse_or_skip

__all__ = ["Json", "check_parsed", "mutants"]

Json = dict[str, Any]
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**40,
    1e308,
    "",
    "\x00\ud800\u202e <@U1>\n/new",
    "9" * 100_000,
    [],
    [None],
    {},
    {"id": {}},
)


def mutants(payload: Json) -> Iterator[Json]:
    """Yield the payload with each value, at any depth, left out or replaced."""
    for path in _paths(payload):
        *inner, last = path
        for other in (*_OTHERS, _Missing):
            mutant = deepcopy(payload)
            place: Any = mutant
            for step in inner:
                place = place[step]
            if other is _Missing:
                del place[last]
            else:
                place[last] = other
            yield mutant


class _Missing: ...


def _paths(value: object) -> Iterator[tuple[Any, ...]]:
    items: Sequence[tuple[Any, object]] = ()
    if isinstance(value, Mapping):
        items = list(value.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    elif isinstance(value, list):
        items = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for name, inside in items:
        yield (name,)
        yield from ((name, *rest) for rest in _paths(inside))


def check_parsed(platform: str, parse: Callable[[], Sequence[Inbound]]) -> Sequence[Inbound]:
    """Parse as an adapter does: nothing but what it skips is raised, and what is found can be stored."""
    found = parse_or_skip(platform, parse) or ()
    for inbound in found:
        ids = inbound.source.to_json()
        assert all(isinstance(each, str) for each in ids.values()), ids
        labels = inbound.labels
        texts = [inbound.text, *(each.handle for each in inbound.files), *(inbound.reply_to,)]
        assert all(each is None or isinstance(each, str) for each in texts), texts
        assert all(each is None or isinstance(each.plain(), str) for each in (labels.user, labels.chat, labels.topic))
        assert all(isinstance(each.media_type, str) and isinstance(each.size, int | None) for each in inbound.files)
        assert inbound.at.tzinfo
        if inbound.revision:
            assert isinstance(inbound.revision.version, str)
        if inbound.quote:
            assert isinstance(inbound.quote.text, str)
        with suppress(MalformedSource):  # The gateway refuses it and goes on.
            inbound.check_ids()
    return found
