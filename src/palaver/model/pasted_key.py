"""A key of a model provider in a message: what it is, and the message without it."""

import re
from collections.abc import Iterator
from enum import Enum
from functools import cache

from palaver.model.providers import KEYED_PROVIDERS, PROVIDERS
from palaver.model.value import value

_MAX_WORDS_AROUND = 200
"""A message with more characters besides its key is about something else."""
_MAX_LINES = 6
_MAX_AROUND_A_PART = 40
_VARIABLES = {variable: each.name for each in PROVIDERS.values() for variable in each.key_variables}
_PREFIXES = tuple(sorted({each.key_prefix for each in KEYED_PROVIDERS}))


class Pasted(Enum):
    """What a message with a key brings."""

    KEY = "one key, with few words around it"
    SEVERAL = "several keys"
    PART = "a part of a key"
    INSIDE = "a key inside a longer text"


@value
class PastedKey:
    kind: Pasted
    provider: str
    """The name of the provider in the table; of the first one, if there are several keys."""
    rest: str
    """The message with a marker for each key."""
    key: str = ""
    """Only if it is to be used."""

    def __repr__(self) -> str:
        return f"PastedKey({self.kind}, {self.provider})"


@value(kw_only=False)
class _Found:
    start: int
    end: int
    provider: str


def find_pasted_key(text: str) -> PastedKey | None:
    """Recognise the keys in a message by their form, or by the name of a variable before them."""
    if not any(each in text for each in (*_PREFIXES, "_API_KEY")):
        return None
    found = list(_find(text))
    rest = _masked(text, found)
    if not found:
        part = _part().search(text)
        is_alone = part is not None and len(text) - len(part[0]) <= _MAX_AROUND_A_PART
        return PastedKey(kind=Pasted.PART, provider=_provider_of(part[0]), rest=text) if part and is_alone else None
    keys = {text[each.start : each.end] for each in found}
    around = len(text) - sum(each.end - each.start for each in found)
    kind = Pasted.KEY if len(keys) == 1 else Pasted.SEVERAL
    if around > _MAX_WORDS_AROUND or text.strip().count("\n") >= _MAX_LINES:
        kind = Pasted.INSIDE
    key = keys.pop() if kind is Pasted.KEY else ""
    return PastedKey(kind=kind, provider=found[0].provider, rest=rest, key=key)


def mask_keys(text: str) -> str:
    """Return a message with a marker for each key of a model provider."""
    found = find_pasted_key(text)
    return found.rest if found else text


def hide_keys(text: str) -> str:
    """Return a text of the same length, with a dot for each character of a key."""
    found = find_pasted_key(text)
    if found is None or found.rest == text:
        return text
    for each in list(_find(text)):
        text = text[: each.start] + "•" * (each.end - each.start) + text[each.end :]
    return text


@cache
def browser_pattern() -> str:
    """Return a pattern for what can be a key or a part of one, in JavaScript's words too."""
    starts, names = "|".join(map(re.escape, _PREFIXES)), "|".join(_VARIABLES)
    return rf"(?:{starts})[\w\-]{{8,}}|(?:{names})[ \t]*[=:][ \t]*[\"'`]?[\w\-]{{8,}}"


def _find(text: str) -> Iterator[_Found]:
    """Yield keys from left to right. The name of a variable says better whose key it is than its form."""
    end = 0
    for match in _keys().finditer(text):
        named = match["variable"]
        place = "value" if named else next(each.name for each in KEYED_PROVIDERS if match[each.name])
        start, stop = match.span(place)
        if start >= end:
            yield _Found(start, stop, _VARIABLES[named] if named else place)
            end = stop


@cache
def _keys() -> re.Pattern[str]:
    assigned = rf"(?P<variable>{'|'.join(_VARIABLES)})[ \t]{{0,4}}[=:][ \t]{{0,4}}[\"'`]?(?P<value>[\w-]{{20,256}}+)"
    forms = "|".join(f"(?P<{each.name}>{each.key_form})" for each in KEYED_PROVIDERS)
    return re.compile(f"{assigned}|{forms}", re.ASCII)


@cache
def _part() -> re.Pattern[str]:
    """Match how a key begins and goes on, with digits, as no word does."""
    starts = "|".join(map(re.escape, sorted(_PREFIXES, key=len, reverse=True)))
    return re.compile(rf"(?<![\w-])(?:{starts})(?=(?:[A-Za-z_-]{{0,64}}\d){{2}})[\w-]{{6,}}+", re.ASCII)


def _provider_of(part: str) -> str:
    return next((each.name for each in KEYED_PROVIDERS[::-1] if part.startswith(each.key_prefix)), "")


def _masked(text: str, found: list[_Found]) -> str:
    pieces, end = list[str](), 0
    for each in found:
        pieces += text[end : each.start], f"[redacted: {each.provider} key]"
        end = each.end
    return "".join((*pieces, text[end:]))
