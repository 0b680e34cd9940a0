"""Queries: words, phrases and beginnings of words, and where in a text they stand."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from palaver.model.errors import BadArgument
from palaver.model.tokenizer import (
    MAX_TERM_LENGTH,
    Span,
    TokenizedWord,
    bigrams,
    is_run,
    join_chunks,
    split_word,
    tokenize_chunk,
)
from palaver.model.value import value

__all__ = [
    "Clause",
    "Query",
    "parse_query",
]

_CHUNK = re.compile(r"\S+")
_LONGEST_QUERY = 2000
_MOST_CLAUSES = 16
_MOST_MARKS = 200
_QUOTES = '"\u201c\u201d\u201e\u00ab\u00bb'
_ASKED = re.compile(rf"[{_QUOTES}]([^{_QUOTES}]*)(?:[{_QUOTES}]|$)|([^\s{_QUOTES}]+)")


@value(kw_only=False)
class Clause:
    """Words that must stand one behind the other; or, for a query like `foo.bar`, their whole."""

    words: tuple[str, ...]
    prefix: bool = False
    """The last word may go on."""
    whole: str = ""

    @property
    def terms(self) -> tuple[str, ...]:
        """What of it is in the index, the last one being a prefix if the clause is."""
        return tuple(term for word in self.words for term in self._terms_of(word))

    def _terms_of(self, word: str) -> Iterator[str]:
        return bigrams(word) if is_run(word) and len(word) > 1 else iter((word,))

    @property
    def phrase(self) -> str:
        """What a `Line.text` must contain; empty if the terms alone decide."""
        alone = len(self.words) == 1 and (not is_run(self.words[0]) or len(self.words[0]) <= len("二字"))
        return "" if alone else self.needle

    @property
    def needle(self) -> str:
        opening = "" if is_run(self.words[0]) else " "
        closing = "" if self.prefix or is_run(self.words[-1]) else " "
        return f"{opening}{' '.join(self.words)}{closing}"


@value(kw_only=False)
class Query:
    """Every clause must be found."""

    clauses: tuple[Clause, ...]

    def find_spans(self, text: str) -> list[Span]:
        """Where in the text its words stand; nothing if not all of them do."""
        seen = _Seen(text)
        found = [seen.places_of(clause) for clause in self.clauses]
        return _merged(sorted(span for places in found for span in places)) if all(found) else []


class _Seen:
    """A text in which clauses are looked up."""

    def __init__(self, text: str) -> None:
        found = [(chunk, each.start()) for each in _CHUNK.finditer(text) if (chunk := tokenize_chunk(each[0])).line]
        self._text = text
        self._chunks = [chunk for chunk, _ in found]
        self._starts = [start for _, start in found]
        self._line = join_chunks(self._chunks)
        self._begins = list(accumulate((len(chunk.line) + 1 for chunk in self._chunks), initial=1))
        self._opened: dict[int, list[tuple[int, Span]]] = {}

    def places_of(self, clause: Clause) -> list[Span]:
        spans = self._spans_of(clause.needle)
        single = clause.whole or (clause.words[0] if len(clause.words) == 1 else "")
        if clause.whole:
            spans += self._spans_of(Clause((single,), clause.prefix).needle)
        if single and any(_fits(whole, single, clause) for whole in self._line.wholes):
            spans += self._wholes_of(single, clause)
        return spans

    def _spans_of(self, needle: str) -> list[Span]:
        """The first places of it; a snippet shows no more."""
        spans: list[Span] = []
        at = self._line.text.find(needle)
        while at >= 0 and len(spans) < _MOST_MARKS:
            spans += self._pieces_between(at, at + len(needle))
            at = self._line.text.find(needle, at + 1)
        return spans

    def _pieces_between(self, first: int, last: int) -> Iterator[Span]:
        """Where the pieces come from that lie in this part of the line."""
        index = max(bisect_right(self._begins, first) - 1, 0)
        while index < len(self._chunks) and self._begins[index] < last:
            pieces = self._open(index)
            for _, span in pieces[bisect_left(pieces, (first,)) : bisect_left(pieces, (last,))]:
                yield span
            index += 1

    def _open(self, index: int) -> list[tuple[int, Span]]:
        """The pieces of one chunk: where each begins in the line, and its span in the original."""
        if index not in self._opened:
            self._opened[index] = []
            at = 0
            for start, cut_ in self._cuts(index):
                for piece in cut_.pieces:
                    at = self._chunks[index].line.index(piece.text, at)
                    self._opened[index].append((self._begins[index] + at, (start + piece.start, start + piece.end)))
                    at += len(piece.text)
        return self._opened[index]

    def _cuts(self, index: int) -> Iterator[tuple[int, TokenizedWord]]:
        for low, high in self._chunks[index].spans:
            start, end = self._starts[index] + low, self._starts[index] + high
            yield start, split_word(self._text[start:end])

    def _wholes_of(self, wanted: str, clause: Clause) -> Iterator[Span]:
        for index, chunk in enumerate(self._chunks):
            if any(_fits(whole, wanted, clause) for whole in chunk.wholes):
                for start, found in self._cuts(index):
                    wholes = (whole for whole in found.wholes if _fits(whole.text, wanted, clause))
                    yield from ((start + whole.start, start + whole.end) for whole in wholes)


def _fits(term: str, wanted: str, clause: Clause) -> bool:
    return term.startswith(wanted) if clause.prefix else term == wanted


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def parse_query(text: str) -> Query:
    """Words that must all be there, "phrases" in quotes, and a star at the end of a word for any ending."""
    asked = _ASKED.finditer(text[:_LONGEST_QUERY])
    clauses = [clause for found in asked if (clause := _clause(found[1] or found[2] or ""))]
    if not clauses:
        raise BadArgument(
            "A search needs at least one word, not",
            found=text[:_LONGEST_QUERY],
            allowed='words, "phrases in quotes", and a star for any ending',
            example='invoice "second reminder" pay*',
        )
    return Query(tuple(clauses[:_MOST_CLAUSES]))


def _clause(asked: str) -> Clause | None:
    chunks = [(found.start(), tokenize_chunk(found[0])) for found in _CHUNK.finditer(asked)]
    ends = [start + span[1] for start, chunk in chunks for span in chunk.spans]
    line = join_chunks([chunk for _, chunk in chunks])
    words = tuple(line.text.split())
    if not words:
        return None
    whole = "".join(words) if len(ends) == 1 and "".join(words) in line.wholes else ""
    return Clause(words[:MAX_TERM_LENGTH], asked[ends[-1] : ends[-1] + 1] == "*" and not is_run(words[-1]), whole)
