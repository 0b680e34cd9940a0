"""Forms of values: how times, zones, roles and names are written in a configuration file."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, PlainSerializer, StringConstraints
from pydantic_core import PydanticCustomError

from palaver.domain.access import AccessRole
from palaver.domain.errors import BadArgument, InvalidInput
from palaver.domain.wall import zone

__all__ = ["Duration", "Folder", "Form", "Name", "Role", "Url", "Zone", "duration_text", "told"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """What may be written, in words, and something that can be written."""

    allowed: str
    example: str


def told(parse: Callable[[str], T]) -> Callable[[object], object]:
    """Only text is parsed; a refusal keeps its own words."""

    def parsed(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except InvalidInput as refusal:
            facts = {"allowed": refusal.allowed, "example": refusal.example}
            raise PydanticCustomError("refused", "refused", facts) from refusal

    return parsed


_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>[0-9]{{1,9}})\s*{unit})?" for unit in _UNITS), re.ASCII)
_A_TIME = Form("a time such as 500ms, 30s, 5m, 1h30m or 7d", "30s")


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if not found or not found.lastgroup:
        raise BadArgument("Not a time:", found=text, allowed=_A_TIME.allowed, example=_A_TIME.example)
    return timedelta(milliseconds=sum(int(found[unit] or 0) * size for unit, size in _UNITS.items()))


def duration_text(length: timedelta) -> str:
    """As it is written in a file."""
    rest, parts = length // timedelta(milliseconds=1), ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"


_ROLES = ", ".join(role.name.lower() for role in AccessRole)


def _role(text: str) -> AccessRole:
    for role in AccessRole:
        if role.name.lower() == text:
            return role
    raise BadArgument("Unknown role", found=text, allowed=_ROLES, example="member")


def _role_text(role: AccessRole) -> str:
    return role.name.lower()


def _zone_text(found: ZoneInfo) -> str:
    return found.key


_STORES = ("sqlite", "postgresql", "postgres")
_A_STORE = Form("sqlite:///path, a path, or postgresql://user@host/database", "sqlite:///palaver.db")


def _store(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    if not text.strip() or (separator and scheme.lower() not in _STORES):
        raise BadArgument("Unknown store", found=scheme, allowed=_A_STORE.allowed, example=_A_STORE.example)
    return text


Duration = Annotated[timedelta, BeforeValidator(told(_duration)), PlainSerializer(duration_text), _A_TIME]
Zone = Annotated[
    ZoneInfo,
    BeforeValidator(told(zone)),
    PlainSerializer(_zone_text),
    Form("a name of the IANA time zone database", "Europe/Berlin"),
]
Role = Annotated[AccessRole, BeforeValidator(told(_role)), PlainSerializer(_role_text), Form(_ROLES, "member")]
Url = Annotated[str, BeforeValidator(told(_store)), _A_STORE]
Folder = Annotated[Path, Form("a folder; where it is not absolute, from the folder of this file on", "~/palaver")]
Name = Annotated[str, StringConstraints(min_length=1), Form("any text", '"42"')]
