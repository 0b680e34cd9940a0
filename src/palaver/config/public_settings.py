"""The settings in effect as a bug report can show them: numbers and choices, but no word of yours."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import cast

from palaver.config.model import Config
from palaver.config.secrets import SET
from palaver.settings.types import Section, duration_text

_CHOICES = frozenset({"guide", "echo", "model", "local", "program", "acp", "http", "dm", "group", "channel", "thread"})
"""Words of ours that are no enumeration: kinds of agents and of chats."""


def public_settings(config: Config, platforms: Collection[str]) -> dict[str, str | int | float | None]:
    """Return settings by their path. Names that you chose are numbered, and texts are only said to be set."""
    known = _CHOICES.union(platforms)
    return dict(_section(config, "", known))


def public_path(field: str, platforms: Collection[str]) -> str:
    """Return the path of a setting without the names that you chose."""
    known = _CHOICES.union(platforms, *(section.model_fields for section in _sections(Section)))
    return ".".join(part if part in known else "#" for part in field.split(".")) if field else ""


def _sections(base: type[Section]) -> Iterator[type[Section]]:
    for section in base.__subclasses__():
        yield section
        yield from _sections(section)


def _section(part: Section, path: str, known: Collection[str]) -> Iterator[tuple[str, str | int | float | None]]:
    for name in type(part).model_fields:
        yield from _value(getattr(part, name), f"{path}.{name}" if path else name, known)
    # Fields of a plugin have names of its own.
    yield from ((f"{path}.#{number}", SET) for number, _ in enumerate(part.model_extra or ()))


def _value(found: object, path: str, known: Collection[str]) -> Iterator[tuple[str, str | int | float | None]]:
    if isinstance(found, Section):
        yield from _section(found, path, known)
    elif isinstance(found, Mapping):
        for number, (name, each) in enumerate(cast("Mapping[str, object]", found).items()):
            yield from _value(each, f"{path}.{name if name in known else f'#{number}'}", known)
    elif isinstance(found, tuple | list):
        for number, each in enumerate(cast("Sequence[object]", found)):
            yield from _value(each, f"{path}.{number}", known)
    else:
        yield path, _plain(found, known)


def _plain(found: object, known: Collection[str]) -> str | int | float | None:
    if isinstance(found, timedelta):
        return duration_text(found)
    if isinstance(found, Enum):
        return str(found.value)
    if found is None or isinstance(found, int | float) or (isinstance(found, str) and found in known):
        return found
    return SET
