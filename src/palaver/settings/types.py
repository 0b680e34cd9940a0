"""Field types: durations, money, time zones, roles and paths as they are written in a file."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr
from pydantic_core import PydanticCustomError

from palaver.model.access import AccessRole
from palaver.model.errors import InvalidInput
from palaver.model.local_time import parse_zone
from palaver.model.text import one_line
from palaver.model.value import value

Secret = Annotated[SecretStr, PlainSerializer(str, when_used="json")]
"""Unlike a plain SecretStr, it is written as stars without being read: its variable can be missing here."""


def reveal(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


class Section(BaseModel):
    """A section of the configuration: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@value(kw_only=False)
class Syntax:
    """The values that a field accepts, in words, and an example."""

    allowed: str
    example: str


def as_pydantic_error(refusal: InvalidInput) -> PydanticCustomError:
    """Pass the facts of a model error through pydantic."""
    facts = {name: getattr(refusal, name) for name in ("problem", "found", "allowed", "example", "fix")}
    return PydanticCustomError("refused", "refused", facts)


_FOREVER, OFF = "forever", "off"


def from_text(parse: Callable[[str], object], nothing: str = "", empty: object = None) -> BeforeValidator:
    """Parse text only; the word `nothing` stands for `empty`. A ValueError is reported with the field's syntax."""
    return BeforeValidator(_text_parser(parse, nothing, empty))


def _text_parser(parse: Callable[[str], object], nothing: str = "", empty: object = None) -> Callable[[object], object]:
    def parsed(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return empty if nothing and value == nothing else parse(value)
        except InvalidInput as refusal:
            raise as_pydantic_error(refusal) from refusal

    return parsed


def from_names(parse: Callable[[str], str]) -> BeforeValidator:
    """Parse names separated by commas, or a list of them; `off` stands for none."""
    read = _text_parser(lambda text: frozenset(parse(name.strip()) for name in text.split(",")), OFF, frozenset[str]())

    def parsed(value: object) -> object:
        names = cast("list[object]", value) if isinstance(value, list) else []
        texts = [name for name in names if isinstance(name, str)]
        is_list = names and len(texts) == len(names)
        return read(",".join(texts) if is_list else cast("object", value))

    return BeforeValidator(parsed)


def to_text(write: Callable[[Any], object], nothing: str = OFF) -> PlainSerializer:
    return PlainSerializer(lambda value: nothing if value is None else write(value))


_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>[0-9]{{1,9}})\s*{unit})?" for unit in _UNITS), re.ASCII)
_A_TIME = Syntax("a time such as 30s or 1h30m", "30s")


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if not found or not found.lastgroup:
        raise ValueError(text)
    return timedelta(milliseconds=sum(int(found[unit] or 0) * size for unit, size in _UNITS.items()))


def _window(text: str) -> timedelta | None:
    return None if text.strip() == "0" else _duration(text) or None


def duration_text(length: timedelta) -> str:
    """Return for example `1h30m`."""
    rest, parts = length // timedelta(milliseconds=1), ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"


_MONEY = re.compile(r"(?P<whole>[0-9]{1,9})(?:[.](?P<part>[0-9]{1,6}))?", re.ASCII)
_MILLION = 1_000_000


def _money(text: str) -> int:
    """Return the amount in millionths."""
    found = _MONEY.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    return int(found["whole"]) * _MILLION + int((found["part"] or "0").ljust(6, "0"))


def _money_text(millionths: int) -> str:
    whole, part = divmod(millionths, _MILLION)
    return f"{whole}.{part:06}".rstrip("0").rstrip(".")


_SIZES = {"GB": 10**9, "MB": 10**6, "kB": 10**3, "": 1}
_SIZE = re.compile(r"(?P<number>[0-9]{1,15})\s*(?P<unit>[GMk]?B)?", re.ASCII)


def _size(text: str) -> int:
    """Return a number of bytes."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    return int(found["number"]) * _SIZES.get(found["unit"] or "", 1)


def _size_text(size: int) -> str:
    unit = next(unit for unit, factor in _SIZES.items() if size % factor == 0)
    return f"{size // _SIZES[unit]}{unit}"


_LONGEST_WORD = 100


def _wake_word(text: str) -> str:
    """Return a name on one line and without invisible characters."""
    word = one_line(text, _LONGEST_WORD)
    if not any(map(str.isalnum, word)):
        raise ValueError(text)
    return word


def words_text(words: frozenset[str]) -> str:
    return ", ".join(sorted(words)) or OFF


_ROLES = ", ".join(role.name.lower() for role in AccessRole)


def _role(text: str) -> AccessRole:
    for role in AccessRole:
        if role.text == text:
            return role
    raise ValueError(text)


_STORES = ("sqlite", "postgresql", "postgres")
_A_STORE = Syntax("sqlite:///path, a path, or postgresql://user@host/database", "sqlite:///palaver.db")


def _store(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    if not text.strip() or (separator and scheme.lower() not in _STORES):
        raise ValueError(scheme)
    return text


Duration = Annotated[timedelta, from_text(_duration), PlainSerializer(duration_text), _A_TIME]
DurationOrOff = Annotated[
    timedelta | None,
    from_text(_duration, OFF),
    to_text(duration_text),
    Syntax(f"a time such as 1d, or {OFF}", "1d"),
]
Forever = Annotated[
    Annotated[timedelta, Field(ge=timedelta(seconds=1))] | None,
    from_text(_window, _FOREVER),
    to_text(duration_text, _FOREVER),
    Syntax(f"{_A_TIME.allowed}, from 1s up, or 0 or {_FOREVER} for no limit", _FOREVER),
]
DaysOrForever = Annotated[
    Annotated[timedelta, Field(ge=timedelta(days=1), le=timedelta(days=36_500))] | None,
    from_text(_duration, _FOREVER),
    to_text(duration_text, _FOREVER),
    Syntax(f"a time such as 90d, from 1d to 36500d, or {_FOREVER}", "90d"),
]
Size = Annotated[
    Annotated[int, Field(ge=0, le=10**15)] | None,
    from_text(_size, OFF),
    to_text(_size_text),
    Syntax(f"a size such as 500MB or 2GB, or {OFF}", "2GB"),
]
Count = Annotated[
    Annotated[int, Field(ge=0, le=10**9)] | None,
    from_text(str, OFF),
    to_text(int),
    Syntax(f"a whole number, from 0 to 1000000000, or {OFF}", "10000"),
]
Port = Annotated[
    Annotated[int, Field(ge=1, le=65535)] | None,
    from_text(str, OFF),
    to_text(int),
    Syntax(f"a whole number, from 1 to 65535, or {OFF}", "9464"),
]
Tokens = Annotated[
    Annotated[int, Field(ge=0, le=10**15)] | None,
    from_text(str, OFF),
    to_text(int),
    Syntax(f"a whole number, from 0 up, or {OFF}", "200000"),
]
Money = Annotated[
    int | None, from_text(_money, OFF), to_text(_money_text), Syntax(f"an amount of money, or {OFF}", "2.50")
]
Zone = Annotated[
    ZoneInfo,
    from_text(parse_zone),
    PlainSerializer(str),
    Syntax("an IANA time zone name", "Europe/Berlin"),
]


def _roles(text: str) -> frozenset[AccessRole]:
    return frozenset(_role(name.strip()) for name in text.split(","))


def _roles_text(roles: frozenset[AccessRole] | None) -> str | None:
    return ", ".join(role.text for role in sorted(roles)) if roles else None


Roles = Annotated[
    frozenset[AccessRole] | None,
    from_text(_roles),
    PlainSerializer(_roles_text),
    Syntax(f"{_ROLES}, separated by commas", "member, admin"),
]
Variables = Annotated[Mapping[str, Secret], Syntax("a section of variables and values", "{TOKEN: '${AGENT_TOKEN}'}")]
Role = Annotated[AccessRole, from_text(_role), PlainSerializer(lambda role: role.text), Syntax(_ROLES, "member")]
WakeWords = Annotated[
    frozenset[str],
    from_names(_wake_word),
    PlainSerializer(words_text),
    Syntax(f"names with letters or digits, separated by commas, or {OFF}", "palaver, hey palaver"),
]
Url = Annotated[str, from_text(_store), _A_STORE]
Headers = Annotated[
    Mapping[str, Secret], Syntax("a section of headers and values", "{Authorization: 'Bearer ${AGENT_TOKEN}'}")
]
MaybeKey = Annotated[Secret | None, Syntax("the key, from an environment variable", "${OPENAI_API_KEY}")]
MaybeName = Annotated[str | None, Field(min_length=1), Syntax("any text", '"42"')]
