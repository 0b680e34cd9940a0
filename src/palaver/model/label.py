"""Labels and markers: how untrusted text reaches a prompt, and the gateway's own words, which it cannot imitate."""

import re
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import NoReturn, final
from zoneinfo import ZoneInfo

from palaver.model.text import one_line

LABEL_LIMIT = 240


@final
class Label:
    """Untrusted text. It cannot be formatted or joined into other text by accident."""

    __slots__ = ("_raw",)

    def __init__(self, raw: str) -> None:
        self._raw = raw

    @classmethod
    def of(cls, name: object) -> "Label | None":
        """Return the label of a name that a platform tells; None if it tells none."""
        return cls(str(name)) if name else None

    def quoted(self) -> str:
        """Return the only form for prompts: one line, at most 240 characters, in quotes it cannot close."""
        return _quoted(self._raw)

    def plain(self) -> str:
        """Return the form for people: one line without invisible characters."""
        return one_line(self._raw, LABEL_LIMIT)

    def stored(self) -> str:
        """Return the form for the store and the wire: exactly what the platform sent."""
        return self._raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash((Label, self._raw))

    def __repr__(self) -> str:
        return f"Label(<{len(self._raw)} characters>)"

    def __str__(self) -> NoReturn:
        raise TypeError("a label is untrusted: use quoted() in a prompt, plain() for people, stored() for the store")

    def __format__(self, spec: str) -> NoReturn:
        str(self)
        raise AssertionError


def write_label(value: object) -> object:
    """Write a label as text: a hook of msgspec."""
    if isinstance(value, Label):
        return value.stored()
    raise NotImplementedError(type(value))


def read_label(wanted: type, value: object) -> object:
    """Read a label from text: a hook of msgspec."""
    if wanted is Label:
        return Label(str(value))
    raise NotImplementedError(wanted)


def _in_quotes(line: str) -> str:
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


@lru_cache(1 << 12)
def _quoted(raw: str) -> str:
    """Cached: every turn quotes the names and ids of its chat."""
    return _in_quotes(one_line(raw, LABEL_LIMIT))


OPEN = "⟦"
CLOSE = "⟧"


def marker(words: str) -> str:
    return f"{OPEN}{words}{CLOSE}"


def strip_markers(text: str) -> str:
    """Replace marker brackets in text from people, tools and models."""
    return text if text.isascii() else text.replace(OPEN, "[[").replace(CLOSE, "]]")


def quote_label(label: Label) -> str:
    """Quote a label for use inside a marker."""
    return strip_markers(label.quoted())


def quote_text(text: str, limit: int) -> str:
    """Quote somebody's words for use inside a marker, like a label but with another limit."""
    return strip_markers(_in_quotes(one_line(text, limit)))


OUTPUT_END = marker("end of output")


def note_marker(text: str) -> str:
    """Return a note: its first line is the gateway's; what follows is the output of a program, outside the marker."""
    told, _, output = strip_markers(text.strip()).partition("\n")
    note = marker(f"note: {told}")
    return f"{note}\n{output}\n{OUTPUT_END}" if output else note


def gap_marker(seconds: float) -> str:
    """Return a marker such as `3 days later`: the largest unit that fits, rounded down."""
    for unit, size in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600)):
        if count := int(seconds // size):
            return marker(f"{count} {unit}{'s' if count > 1 else ''} later")
    return marker("minutes later")


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def time_marker(at: datetime, zone: ZoneInfo) -> str:
    """Return a marker with weekday, date and time on the clock of a zone: `Sunday 2026-03-29 09:30+02:00`."""
    return _minute_marker(at.replace(second=0, microsecond=0), zone)


# Cached: a conversation shows the same times in every turn, and many speak in the same minute.
@lru_cache(1 << 14)
def _minute_marker(at: datetime, zone: ZoneInfo) -> str:
    with suppress(OverflowError):  # at the end of the calendar it stays in UTC
        at = at.astimezone(zone)
    return marker(f"{_WEEKDAYS[at.weekday()]} {at.isoformat(' ', 'minutes')}")


_TIMES = re.compile(f"{OPEN}(?:(?:{'|'.join(_WEEKDAYS)}) [^{CLOSE}]*|(?:[0-9]+ [a-z]+|minutes) later){CLOSE} ?")


def without_times(text: str) -> str:
    """Return a text without its markers of times and gaps."""
    return _TIMES.sub("", text)
