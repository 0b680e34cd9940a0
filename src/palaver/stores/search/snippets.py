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
    line = _Line(_ELLIPSIS if start > 0 else "")
    for index in range(start, end):
        line.take(index, text[index])
    shown = tuple(
        (line.places[low], line.places[high - 1] + 1)
        for low, high in ((max(low, start), min(high, end)) for low, high in marks)
        if low < high and line.places[low] <= line.places[high - 1]
    )
    return line.text + (_ELLIPSIS if end < len(text) else ""), shown


def _edge(text: str, index: int, keep: int, step: int) -> int:
    """The nearest white space, or at least a place where no character is cut; `keep` stays inside."""
    if index in {0, len(text)}:
        return index
    for near in range(index, index + step * _REACH, step):
        if text[near].isspace() and (near < keep) == (step > 0):
            return near
    while 0 < index < len(text) and not can_cut(text, index) and index != keep:
        index += step
    return index


class _Line:
    """A line as it grows: white space is folded, what cannot be seen is left out."""

    def __init__(self, opening: str) -> None:
        self.text = opening
        self.places: dict[int, int] = {}
        self._opening = opening

    def take(self, index: int, char: str) -> None:
        if char.isspace():
            char = " " if self.text != self._opening and not self.text.endswith(" ") else ""
        else:
            char = one_line(char, 2)
        self.places[index] = len(self.text) if char else max(len(self.text) - 1, 0)
        self.text += char
