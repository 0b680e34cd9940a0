"""Search queries: parse words, phrases, prefixes, OR and NOT, and find where they match in a text."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain

from palaver.model.errors import BadArgument
from palaver.model.stemming import Stem, guess_languages, stem_words
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

_CHUNK = re.compile(r"\S+")
_NO_LETTERS = re.compile(r"[\W_]+")
_MAX_QUERY_LENGTH = 2000
MAX_CLAUSES = 64
_MAX_MATCHES = 200
_STEM_BEGINNING = 3
_LONG_RUN = 4
"""What is longer, in a script without spaces, is a question."""
_SHOWN_QUERY = 80
_QUOTES = '"\u201c\u201d\u201e\u00ab\u00bb'
_CLAUSE = re.compile(
    rf"(?P<minus>(?<!\S)-(?=[^\s-]))?(?:[{_QUOTES}](?P<phrase>[^{_QUOTES}]*)(?:[{_QUOTES}]|$)|(?P<word>[^\s{_QUOTES}]+))"
)
_AND, _OR, _NOT = "AND", "OR", "NOT"


@value(kw_only=False)
class Clause:
    """Words that must follow each other; for a query like `foo.bar`, also their whole."""

    words: tuple[str, ...]
    prefix: bool = False
    """The last word is a prefix."""
    whole: str = ""
    stems: tuple[Stem, ...] = ()
    """What other forms of a word end in; nothing for a phrase, which is exact."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Its terms in the index; the last one is a prefix if the clause is."""
        pairs = (bigrams(word) if is_run(word) and len(word) > 1 else (word,) for word in self.words)
        return tuple(chain.from_iterable(pairs))

    @property
    def single(self) -> str:
        """The one word that it is; nothing for several."""
        return self.whole or (self.words[0] if len(self.words) == 1 else "")

    @property
    def phrase(self) -> str:
        """What a `TokenizedText.text` must contain; empty if the terms alone decide."""
        alone = len(self.words) == 1 and (not is_run(self.words[0]) or len(self.words[0]) <= len("二字"))
        return "" if alone else self.needle

    @property
    def needle(self) -> str:
        opening = "" if is_run(self.words[0]) else " "
        closing = "" if self.prefix or is_run(self.words[-1]) else " "
        return f"{opening}{' '.join(self.words)}{closing}"


@value(kw_only=False)
class Query:
    """One clause of every group must be found, and none of the excluded ones."""

    groups: tuple[tuple[Clause, ...], ...]
    excluded: tuple[Clause, ...] = ()
    is_question: bool = False
    """Several plain words: the more of them an entry has, and the rarer they are, the better it fits."""

    def any_clause(self) -> "Query":
        """Return the query that one of the clauses is enough for, or one pair of a script without spaces."""
        return Query((tuple(dict.fromkeys(chain.from_iterable(map(_alternatives, self.clauses)))),), self.excluded)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """All clauses that can be found."""
        return tuple(chain.from_iterable(self.groups))

    def find_spans(self, text: str) -> list[Span]:
        """Return where the query's words match in the text; nothing unless one clause of every group does."""
        searched = _SearchedText(text)
        found = [[span for clause in group for span in searched.find_clause(clause)] for group in self.groups]
        return _merge_spans(sorted(span for spans in found for span in spans)) if all(found) else []

    def may_match(self, text: str) -> bool:
        """Tell quickly whether an ASCII text can match at all."""
        letters = _NO_LETTERS.sub("", text.lower())
        return not text.isascii() or all(
            any("".join(clause.words) in letters or _may_have_stem(clause, letters) for clause in group)
            for group in self.groups
        )

    def excludes(self, text: str) -> bool:
        if not self.excluded:
            return False
        searched = _SearchedText(text)
        return any(searched.find_clause(clause) for clause in self.excluded)


def _alternatives(clause: Clause) -> Iterator[Clause]:
    for word in clause.words:
        if is_run(word) and len(word) > len("二字"):
            yield from (Clause((pair,)) for pair in bigrams(word))
            return
    yield clause


def _may_have_stem(clause: Clause, letters: str) -> bool:
    return any(stem.text[:_STEM_BEGINNING] in letters for stem in clause.stems)


class _SearchedText:
    def __init__(self, text: str) -> None:
        found = [(chunk, match.start()) for match in _CHUNK.finditer(text) if (chunk := tokenize_chunk(match[0])).line]
        self._text = text
        self._chunks = [chunk for chunk, _ in found]
        self._starts = [start for _, start in found]
        self._line = join_chunks(self._chunks)
        self._begins = list(accumulate((len(chunk.line) + 1 for chunk in self._chunks), initial=1))
        self._tokens: dict[int, list[tuple[int, Span]]] = {}

    def find_clause(self, clause: Clause) -> list[Span]:
        spans = self._find(clause.needle)
        single = clause.single
        if clause.whole:
            spans += self._find(Clause((single,), clause.prefix).needle)
        if clause.stems:
            words = dict.fromkeys(self._line.text.split())
            fitting = (word for word in words if word != single and any(stem.fits(word) for stem in clause.stems))
            spans += [span for word in fitting for span in self._find(f" {word} ")]
        if single and any(_matches(whole, single, clause) for whole in self._line.wholes):
            spans += self._find_wholes(single, clause)
        return spans

    def _find(self, needle: str) -> list[Span]:
        """Return the first matches; a snippet shows no more."""
        spans: list[Span] = []
        at = self._line.text.find(needle)
        while at >= 0 and len(spans) < _MAX_MATCHES:
            spans += self._spans_between(at, at + len(needle))
            at = self._line.text.find(needle, at + 1)
        return spans

    def _spans_between(self, first: int, last: int) -> Iterator[Span]:
        """Yield the spans in the original text of the tokens in this part of the line."""
        index = max(bisect_right(self._begins, first) - 1, 0)
        while index < len(self._chunks) and self._begins[index] < last:
            tokens = self._tokens_of(index)
            for _, span in tokens[bisect_left(tokens, (first,)) : bisect_left(tokens, (last,))]:
                yield span
            index += 1

    def _tokens_of(self, index: int) -> list[tuple[int, Span]]:
        """Return the tokens of one chunk: where each begins in the line, and its span in the original text."""
        if index not in self._tokens:
            self._tokens[index] = []
            at = 0
            for start, word in self._words_of(index):
                for token in word.pieces:
                    at = self._chunks[index].line.index(token.text, at)
                    self._tokens[index].append((self._begins[index] + at, (start + token.start, start + token.end)))
                    at += len(token.text)
        return self._tokens[index]

    def _words_of(self, index: int) -> Iterator[tuple[int, TokenizedWord]]:
        for low, high in self._chunks[index].spans:
            start, end = self._starts[index] + low, self._starts[index] + high
            yield start, split_word(self._text[start:end])

    def _find_wholes(self, wanted: str, clause: Clause) -> Iterator[Span]:
        for index, chunk in enumerate(self._chunks):
            if any(_matches(whole, wanted, clause) for whole in chunk.wholes):
                for start, word in self._words_of(index):
                    wholes = (whole for whole in word.wholes if _matches(whole.text, wanted, clause))
                    yield from ((start + whole.start, start + whole.end) for whole in wholes)


def _matches(term: str, wanted: str, clause: Clause) -> bool:
    return term.startswith(wanted) if clause.prefix else term == wanted


def _merge_spans(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def parse_query(text: str) -> Query:
    """Parse words that must all match, "phrases" in quotes, words that end in a star as prefixes, OR and NOT."""
    parts = _parts(text)
    groups: list[tuple[Clause, ...]] = []
    excluded: list[Clause] = []
    operators: set[str] = set()
    is_plain = True
    for part, clause in parts:
        # Without words on both sides, an operator is a word.
        if (word := part["word"]) in {_AND, _OR, _NOT} and (groups or word == _NOT) and part is not parts[-1][0]:
            operators.add(word)
            is_plain = False
            continue
        is_plain = is_plain and bool(word) and not part["minus"] and not clause.prefix
        if part["minus"] or _NOT in operators:
            excluded.append(replace(clause, stems=()))
        elif _OR in operators and groups:
            groups[-1] = (*groups[-1], clause)
        else:
            groups.append((clause,))
        operators.clear()
    found = Query(tuple(groups), tuple(excluded))
    _refuse_what_cannot_be_searched(found, text)
    has_long_run = any(is_run(word) and len(word) > _LONG_RUN for clause in found.clauses for word in clause.words)
    return replace(found, is_question=is_plain and (len(groups) > 1 or has_long_run))


def _parts(text: str) -> list[tuple[re.Match[str], Clause]]:
    """Return what is written between blanks and quotes. Words that are not quoted have stems."""
    parts = [
        (part, clause)
        for part in _CLAUSE.finditer(text[:_MAX_QUERY_LENGTH])
        if (clause := _parse_clause(part["phrase"] or part["word"] or ""))
    ]
    languages = guess_languages({word for part, clause in parts if part["word"] for word in clause.words})
    return [(part, _with_stems(clause, languages) if part["word"] else clause) for part, clause in parts]


def _with_stems(clause: Clause, languages: Sequence[str]) -> Clause:
    if clause.prefix or len(clause.words) != 1 or is_run(clause.words[0]):
        return clause
    return replace(clause, stems=stem_words(clause.words, languages)[0])


def _refuse_what_cannot_be_searched(query: Query, text: str) -> None:
    if not query.groups:
        raise BadArgument(
            "There is no word to search for in {found}",
            found=text[:_MAX_QUERY_LENGTH],
            allowed='words, "phrases in quotes", pre* for any ending, a OR b, and -word to leave out',
            example='invoice OR bill "second reminder" pay* -draft',
        )
    if len(query.clauses) + len(query.excluded) > MAX_CLAUSES or len(text) > _MAX_QUERY_LENGTH:
        raise BadArgument(
            "The query {found} is too long",
            found=text[:_SHOWN_QUERY] + "…",
            allowed=f"{MAX_CLAUSES} words and phrases in {_MAX_QUERY_LENGTH:,} characters",
            example="the words that matter",
        )


def _parse_clause(text: str) -> Clause | None:
    chunks = [(match.start(), tokenize_chunk(match[0])) for match in _CHUNK.finditer(text)]
    ends = [start + span[1] for start, chunk in chunks for span in chunk.spans]
    line = join_chunks([chunk for _, chunk in chunks])
    words = tuple(line.text.split())
    if not words:
        return None
    whole = "".join(words) if len(ends) == 1 and "".join(words) in line.wholes else ""
    return Clause(words[:MAX_TERM_LENGTH], text[ends[-1] : ends[-1] + 1] == "*" and not is_run(words[-1]), whole)
