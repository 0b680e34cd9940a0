"""Rank candidates of a search, and cut the snippet that is shown of each."""

from collections.abc import Iterable, Mapping, Sequence
from math import log

from palaver.model.query import Clause, Query
from palaver.model.text import can_cut, one_line
from palaver.model.tokenizer import Span
from palaver.model.value import value
from palaver.store.search.index import Candidate, Tag, options_of

# The constants k1 and b of BM25.
_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
_ADJACENT_BOOST = 1.5


@value
class Frequencies:
    """In how many documents of the index terms are."""

    documents: int
    by_term: Mapping[str, int]

    def of(self, clause: Clause) -> int | None:
        """Return in how many documents the clause is at most; None for a prefix, which has no frequency."""
        if clause.prefix:
            return None
        return sum(min(self.by_term.get(term, 0) for term in option.terms) for option in options_of(clause))

    def weight(self, clause: Clause, share: float) -> float:
        """Return the inverse document frequency; of a prefix by its share of the candidates."""
        known = self.of(clause)
        frequency = min(self.documents * share if known is None else known, self.documents)
        return log(1 + (self.documents - frequency + 0.5) / (frequency + 0.5))


def rank(query: Query, found: Sequence[Candidate], frequencies: Frequencies) -> list[Candidate]:
    """Return the best first, by BM25; among equals the newest."""
    if not found:
        return []
    average = sum(len(each.body) for each in found) / len(found)
    clauses = query.clauses
    counts = [_count(clause, found) for clause in clauses]
    weights = [
        frequencies.weight(clause, sum(map(bool, count)) / len(found))
        for clause, count in zip(clauses, counts, strict=True)
    ]
    phrase = " ".join(word for clause in clauses for word in clause.words) if len(clauses) > 1 else None

    def score(index: int) -> float:
        body = found[index].body
        norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(body) / average)
        total = sum(
            weight * count[index] / (count[index] + norm) for weight, count in zip(weights, counts, strict=True)
        )
        return total * (_ADJACENT_BOOST if phrase is not None and phrase in body else 1)

    order = sorted(range(len(found)), key=lambda index: (-score(index), -found[index].at))
    return [found[index] for index in order]


def terms_to_count(clauses: Iterable[Clause]) -> list[str]:
    options = (option for clause in clauses if not clause.prefix for option in options_of(clause))
    return list(dict.fromkeys(term for option in options for term in option.terms))


def _count(clause: Clause, found: Sequence[Candidate]) -> list[int]:
    ending = "" if clause.prefix else "|"
    needles = [clause.needle, *([f"|{clause.single}{ending}"] if clause.single else [])]
    for stem in dict.fromkeys(stem.text for stem in clause.stems):
        needles += [f"|{Tag.STEM.term(stem)}|", *([f" {stem} "] if stem != clause.single else [])]
    return [sum(map(each.body.count, needles)) for each in found]


_SNIPPET_CHARS = 160
_CHARS_BEFORE_MATCH = 50
_EDGE_REACH = 20
_ELLIPSIS = "…"


def make_snippet(text: str, marks: Sequence[Span]) -> tuple[str, tuple[Span, ...]]:
    """Return one line around the first match, and the positions of the matches in it."""
    first = marks[0][0] if marks else 0
    start = _edge(text, max(first - _CHARS_BEFORE_MATCH, 0), first, 1)
    end = _edge(text, min(start + _SNIPPET_CHARS, len(text)), first, -1)
    opening, closing = _ELLIPSIS if start > 0 else "", _ELLIPSIS if end < len(text) else ""
    line, places = _fold_to_line(text[start:end])
    shown = tuple(
        (len(opening) + places[low - start], len(opening) + places[high - start - 1] + 1)
        for low, high in ((max(low, start), min(high, end)) for low, high in marks)
        if low < high and line
    )
    return f"{opening}{line}{closing}", shown


def _edge(text: str, index: int, keep: int, step: int) -> int:
    """Return the nearest whitespace, or at least a position that cuts no character. `keep` stays inside."""
    if index in {0, len(text)}:
        return index
    for near in range(index, index + step * _EDGE_REACH, step):
        if text[near].isspace() and (near < keep) == (step > 0):
            return near + (step > 0)
    while 0 < index < len(text) and not can_cut(text, index) and index != keep:
        index += step
    return index


def _fold_to_line(text: str) -> tuple[str, Sequence[int]]:
    """Return the text as one visible line, and the new position of each character."""
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
