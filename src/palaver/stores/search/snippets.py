"""Snippets: one line of a text around what was found in it."""

from collections.abc import Sequence

from palaver.domain.grapheme import can_cut
from palaver.domain.terms import Span
from palaver.domain.text import one_line

__all__ = ["snippet_of"]

_LENGTH = 160
_BEFORE = 50
_REACH = 20
_ELLIPSIS = "…"


def snippet_of(text: str, marks: Sequence[Span]) -> tuple[str, tuple[Span, ...]]:
    """The line, and where in it the marked words stand."""
    first = marks[0][0] if marks else 0
    start = _edge(text, max(first - _BEFORE, 0), first, 1)
    end = _edge(text, min(start + _LENGTH, len(text)), first, -1)
    opening, closing = _ELLIPSIS if start > 0 else "", _ELLIPSIS if end < len(text) else ""
    line, places = _folded(text[start:end])
    shown = tuple(
        (len(opening) + places[low - start], len(opening) + places[high - start - 1] + 1)
        for low, high in ((max(low, start), min(high, end)) for low, high in marks)
        if low < high and line
    )
    return f"{opening}{line}{closing}", shown


def _edge(text: str, index: int, keep: int, step: int) -> int:
    """The nearest white space, or at least a place where no character is cut; `keep` stays inside."""
    if index in {0, len(text)}:
        return index
    for near in range(index, index + step * _REACH, step):
        if text[near].isspace() and (near < keep) == (step > 0):
            return near + (step > 0)
    while 0 < index < len(text) and not can_cut(text, index) and index != keep:
        index += step
    return index


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """In one line without what cannot be seen; and for each character, where it is now."""
    if one_line(text, len(text) + 1) == text:
        return text, range(len(text))
    line: list[str] = []
    places: list[int] = []
    for char in text:
        shown = one_line(char, 2)
        if not shown and char.isspace() and line and line[-1] != " ":
            shown = " "
        places.append(len(line) if shown else max(len(line) - 1, 0))
        line += shown
    return "".join(line), places
