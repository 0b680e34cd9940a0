"""Field types: durations, money, time zones, roles and paths as they are written in a file."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr
from pydantic_core import PydanticCustomError

from palaver.config.paths import expand_home
from palaver.model.access import AccessRole
from palaver.model.errors import InvalidInput
from palaver.model.local_time import parse_zone
from palaver.model.text import one_line
from palaver.model.value import value

T = TypeVar("T")


def reveal(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


class Section(BaseModel):
    """A section of the configuration: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@value(kw_only=False)
class Syntax:
    """The values that a field accepts, in words, and an example."""

    allowed: str
    example: str


def as_pydantic_error(refusal: InvalidInput) -> PydanticCustomError:
    """Pass the facts of a model error through pydantic."""
    facts = {name: getattr(refusal, name) for name in ("problem", "found", "allowed", "example", "fix")}
    return PydanticCustomError("refused", "refused", facts)


def _text(parse: Callable[[str], T]) -> BeforeValidator:
    """Parse text only. A ValueError is reported with the field's syntax."""

    def parsed(value: object) -> object:
        try:
            return parse(value) if isinstance(value, str) else value
        except InvalidInput as refusal:
            raise as_pydantic_error(refusal) from refusal

    return BeforeValidator(parsed)


_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>[0-9]{{1,9}})\s*{unit})?" for unit in _UNITS), re.ASCII)
_A_TIME = Syntax("a time such as 30s or 1h30m", "30s")


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if not found or not found.lastgroup:
        raise ValueError(text)
    return timedelta(milliseconds=sum(int(found[unit] or 0) * size for unit, size in _UNITS.items()))


def duration_text(length: timedelta) -> str:
    """Return for example `1h30m`."""
    rest, parts = length // timedelta(milliseconds=1), ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"


_FOREVER, _OFF = "forever", "off"


def _duration_or_forever(text: str) -> timedelta | None:
    return None if text == _FOREVER else _duration(text)


def _forever_text(length: timedelta | None) -> str:
    return _FOREVER if length is None else duration_text(length)


def _or_off(text: str) -> str | None:
    return None if text == _OFF else text


def _duration_or_off(text: str) -> timedelta | None:
    return None if text == _OFF else _duration(text)


def _duration_off_text(length: timedelta | None) -> str:
    return _OFF if length is None else duration_text(length)


def _off_text(number: int | None) -> int | str:
    return _OFF if number is None else number


_MONEY = re.compile(r"(?P<whole>[0-9]{1,9})(?:[.](?P<part>[0-9]{1,6}))?", re.ASCII)
_MILLION = 1_000_000


def _money(text: str) -> int | None:
    """Return the amount in millionths."""
    if text == _OFF:
        return None
    found = _MONEY.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    return int(found["whole"]) * _MILLION + int((found["part"] or "0").ljust(6, "0"))


def _money_text(millionths: int | None) -> str:
    if millionths is None:
        return _OFF
    whole, part = divmod(millionths, _MILLION)
    return f"{whole}.{part:06}".rstrip("0").rstrip(".")


_SIZES = {"GB": 10**9, "MB": 10**6, "kB": 10**3, "": 1}
_SIZE = re.compile(r"(?P<number>[0-9]{1,15})\s*(?P<unit>[GMk]?B)?", re.ASCII)


def _size(text: str) -> int | None:
    """Return a number of bytes."""
    if text == _OFF:
        return None
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    return int(found["number"]) * _SIZES.get(found["unit"] or "", 1)


def _size_text(size: int | None) -> str:
    if size is None:
        return _OFF
    unit = next(unit for unit, factor in _SIZES.items() if size % factor == 0)
    return f"{size // _SIZES[unit]}{unit}"


def _words(text: str) -> frozenset[str]:
    """Split into names, each on one line and without invisible characters."""
    if text == _OFF:
        return frozenset()
    words = frozenset(one_line(word, _LONGEST_WORD) for word in text.split(","))
    if not all(any(map(str.isalnum, word)) for word in words):
        raise ValueError(text)
    return words


_LONGEST_WORD = 100


def words_text(words: frozenset[str]) -> str:
    return ", ".join(sorted(words)) or _OFF


_ROLES = ", ".join(role.name.lower() for role in AccessRole)


def _role(text: str) -> AccessRole:
    for role in AccessRole:
        if role.text == text:
            return role
    raise ValueError(text)


def _role_text(role: AccessRole) -> str:
    return role.text


_STORES = ("sqlite", "postgresql", "postgres")
_A_STORE = Syntax("sqlite:///path, a path, or postgresql://user@host/database", "sqlite:///palaver.db")


def _store(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    if not text.strip() or (separator and scheme.lower() not in _STORES):
        raise ValueError(scheme)
    return text


def _folder(text: str) -> Path:
    if not text.strip():
        raise ValueError(text)
    return expand_home(text)


Duration = Annotated[timedelta, _text(_duration), PlainSerializer(duration_text), _A_TIME]
DurationOrOff = Annotated[
    timedelta | None,
    _text(_duration_or_off),
    PlainSerializer(_duration_off_text),
    Syntax(f"a time such as 1d, or {_OFF}", "1d"),
]
Forever = Annotated[
    Annotated[timedelta, Field(ge=timedelta(seconds=1))] | None,
    _text(_duration_or_forever),
    PlainSerializer(_forever_text),
    Syntax(f"{_A_TIME.allowed}, from 1s up, or {_FOREVER}", _FOREVER),
]
DaysOrForever = Annotated[
    Annotated[timedelta, Field(ge=timedelta(days=1), le=timedelta(days=36_500))] | None,
    _text(_duration_or_forever),
    PlainSerializer(_forever_text),
    Syntax(f"a time such as 90d, from 1d to 36500d, or {_FOREVER}", "90d"),
]
Size = Annotated[
    Annotated[int, Field(ge=0, le=10**15)] | None,
    _text(_size),
    PlainSerializer(_size_text),
    Syntax(f"a size such as 500MB or 2GB, or {_OFF}", "2GB"),
]
Count = Annotated[
    Annotated[int, Field(ge=0, le=10**9)] | None,
    _text(_or_off),
    PlainSerializer(_off_text),
    Syntax(f"a whole number, from 0 to 1000000000, or {_OFF}", "10000"),
]
Port = Annotated[
    Annotated[int, Field(ge=1, le=65535)] | None,
    _text(_or_off),
    PlainSerializer(_off_text),
    Syntax(f"a whole number, from 1 to 65535, or {_OFF}", "9464"),
]
Tokens = Annotated[
    Annotated[int, Field(ge=0, le=10**15)] | None,
    _text(_or_off),
    PlainSerializer(_off_text),
    Syntax(f"a whole number, from 0 up, or {_OFF}", "200000"),
]
Money = Annotated[
    int | None, _text(_money), PlainSerializer(_money_text), Syntax(f"an amount of money, or {_OFF}", "2.50")
]
Zone = Annotated[
    ZoneInfo,
    _text(parse_zone),
    PlainSerializer(str),
    Syntax("an IANA time zone name", "Europe/Berlin"),
]


def _roles(text: str) -> frozenset[AccessRole]:
    return frozenset(_role(name.strip()) for name in text.split(","))


def _roles_text(roles: frozenset[AccessRole] | None) -> str | None:
    return ", ".join(role.text for role in sorted(roles)) if roles else None


Roles = Annotated[
    frozenset[AccessRole] | None,
    _text(_roles),
    PlainSerializer(_roles_text),
    Syntax(f"{_ROLES}, separated by commas", "member, admin"),
]
Variables = Annotated[Mapping[str, SecretStr], Syntax("a section of variables and values", "{TOKEN: '${AGENT_TOKEN}'}")]
Role = Annotated[AccessRole, _text(_role), PlainSerializer(_role_text), Syntax(_ROLES, "member")]
WakeWords = Annotated[
    frozenset[str],
    _text(_words),
    PlainSerializer(words_text),
    Syntax(f"names with letters or digits, separated by commas, or {_OFF}", "palaver, hey palaver"),
]
Url = Annotated[str, _text(_store), _A_STORE]
Folder = Annotated[Path, _text(_folder), Syntax("a folder, absolute or relative to this file", "~/palaver")]
MaybeName = Annotated[str | None, Field(min_length=1), Syntax("any text", '"42"')]
