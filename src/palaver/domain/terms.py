"""Terms: any script cut into words that can be searched for, and queries cut by the same knife.

A text becomes a line of words: lower case, without accents, `getUserName` and `snake_case` in their parts. Scripts
that put no spaces between words, and emoji, become runs: strings in which every character counts. What is indexed is
each word, each character and each pair of neighbours in a run, and the wholes: identifiers with their parts joined.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from palaver.domain.errors import BadArgument

__all__ = ["VERSION", "Clause", "Line", "Query", "Span", "cut", "index_terms", "pages", "parse_query"]

VERSION = f"1/{unicodedata.unidata_version}"
"""Changes when the same text would be cut differently: an index of another version is of no use."""

Span = tuple[int, int]

_LONGEST = 64
_MOST_PARTS = 8
_PAGE = 20_000
_OVERLAP = 400

# Every character has a class: u upper case, l other letters, d digits, m what belongs to the character before it,
# t ties words together, c stands for itself in a run; a space is everything else.
_UPPER, _LETTER, _DIGIT, _MARK, _TIE, _RUN, _NOTHING = "uldmtc "
_TIES = frozenset("_.-'\u2019")
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaa7f"
    "\u1100-\u115f\u3130-\u318f\ua960-\ua97f\uac00-\ud7a3\uffa0-\uffdc"  # Hangul
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3098\u309b-\u31ff\u3200-\u4dbf\u4e00-\ua4cf\uf900-\ufaff\uff66-\uff9d"
    "\U0001aff0-\U0001b16f\U0001f200-\U0001f2ff\U00020000-\U0003ffff]"
)
_TAIL = re.compile("[\u1160-\u11ff\ud7b0-\ud7fb\uff9e\uff9f\U0001f3fb-\U0001f3ff]")  # of syllables; voicing, skin tones
_DRAWN = re.compile("[\u2500-\u259f\u2800-\u28ff]")  # box drawing, blocks, braille: pictures, not words
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]"
)
_LETTERS = str.maketrans(
    {"ø": "o", "đ": "d", "ð": "d", "ł": "l", "ħ": "h", "ŧ": "t", "\u0131": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)


def _class_of(char: str) -> str:
    category = unicodedata.category(char)
    if char in _TIES:
        return _TIE
    if category == "Cf" or _TAIL.match(char):
        return _MARK
    if category[0] in "LNM" and category != "Nd" and _SPACELESS.match(char):
        return _RUN
    if category == "So":
        return _NOTHING if _DRAWN.match(char) else _RUN
    if category in {"Lu", "Lt"}:
        return _UPPER
    return {"L": _LETTER, "N": _DIGIT, "M": _MARK}.get(category[0], _NOTHING)


class _Classes(dict[int, str]):
    """For `str.translate`: a text into the classes of its characters, one for one."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _class_of(chr(code))
        return found


_classes = _Classes()
_CHUNK = re.compile(r"\S+")
_WORD = re.compile("[uld][uldm]*(?:t[uld][uldm]*){0,7}|c[cm]*")
_TIED = re.compile("[uldm]+")
_PART = re.compile("u[um]*(?![lm])|u?m*l[lm]*|d[dm]*")
_UNIT = re.compile("cm*")


def _is_run(word: str) -> bool:
    return _classes[ord(word[0])] == _RUN


@lru_cache(maxsize=16384)
def _fold(raw: str) -> str:
    """Lower case, compatible forms made one, accents gone; nothing but letters, digits, signs and marks that spell."""
    if raw.isascii():
        return raw.lower()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", raw[: 2 * _LONGEST]).casefold().translate(_LETTERS))
    whole = unicodedata.normalize("NFC", plain)
    return "".join(char for char in whole if _is_kept(char))[:_LONGEST]


def _is_kept(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LNM" or category == "So"


class _Piece(NamedTuple):
    """A word, or one character of a run, and where it stands."""

    text: str
    start: int
    end: int


class _Cut(NamedTuple):
    """A stretch of text without spaces or punctuation, taken apart."""

    line: str
    pieces: tuple[_Piece, ...]
    """In the order of `line`."""
    wholes: tuple[_Piece, ...] = ()


class _Stretch(NamedTuple):
    line: str
    wholes: tuple[str, ...]
    start: int
    end: int


class Line(NamedTuple):
    """A text as words and runs in their order, and the wholes of its identifiers."""

    text: str
    """` word word run `: phrases are looked up in it."""
    wholes: list[str]


def cut(text: str) -> Line:
    chunks = [_known(chunk) if len(chunk) <= _LONGEST else _chunk(chunk) for chunk in text.split()]
    wholes = [whole for _, wholes, _ in chunks if wholes for whole in wholes]
    return Line(f" {' '.join([line for line, _, _ in chunks if line])} ", wholes)


def _stretches(text: str) -> list[_Stretch]:
    """The same, with the place of everything."""
    return [
        _Stretch(each.line, each.wholes, found.start() + each.start, found.start() + each.end)
        for found in _CHUNK.finditer(text)
        for each in (_known(found[0]) if len(found[0]) <= _LONGEST else _chunk(found[0]))[2]
    ]


def _chunk(chunk: str) -> tuple[str, tuple[str, ...], tuple[_Stretch, ...]]:
    spans = [found.span() for found in _WORD.finditer(chunk.translate(_classes))]
    stretches = [_Stretch(*_words(chunk[start:end]), start, end) for start, end in spans]
    kept = tuple(each for each in stretches if each.line)
    return " ".join(each.line for each in kept), tuple(whole for each in kept for whole in each.wholes), kept


_known = lru_cache(maxsize=32768)(_chunk)
"""The same chunks come again and again."""


def _words(raw: str) -> tuple[str, tuple[str, ...]]:
    classes = raw.translate(_classes)
    if classes[0] == _RUN and len(plain := raw.translate(_plain_runs)) == len(raw):
        return plain, ()
    found = _pieces(raw, classes)
    return found.line, tuple(whole.text for whole in found.wholes)


class _PlainRuns(dict[int, str]):
    """For `str.translate`: what stands for one character of a run; nothing for what must be looked at more closely."""

    def __missing__(self, code: int) -> str:
        folded = _fold(chr(code))
        plain = len(folded) == 1 and _is_run(folded) and _classes[code] == _RUN
        self[code] = folded if plain else ""
        return self[code]


_plain_runs = _PlainRuns()


def _pieces(raw: str, classes: str) -> _Cut:
    return _pieces_of_run(raw, classes) if classes[0] == _RUN else _pieces_of_word(raw, classes)


def _pieces_of_word(raw: str, classes: str) -> _Cut:
    pieces: list[_Piece] = []
    wholes: list[_Piece] = []
    ties = [tied.span() for tied in _TIED.finditer(classes)]
    for span in ties:
        parts = _parts(raw, classes, span)
        pieces += parts
        wholes += _whole(parts)
    if len(ties) > 1:
        wholes += _whole(pieces)
    return _Cut(" ".join(piece.text for piece in pieces), tuple(pieces), tuple(wholes))


def _parts(raw: str, classes: str, span: Span) -> list[_Piece]:
    """The parts of an identifier; what falls into too many is a number or a hash, and stays in one."""
    spans = [part.span() for part in _PART.finditer(classes, *span)]
    if len(spans) > _MOST_PARTS:
        spans = [span]
    pieces = (_Piece(_fold(raw[start:end])[:_LONGEST], start, end) for start, end in spans)
    return [piece for piece in pieces if piece.text and not _is_run(piece.text)]


def _whole(parts: list[_Piece]) -> list[_Piece]:
    if not 1 < len(parts) <= _MOST_PARTS:
        return []
    text = "".join(part.text for part in parts)
    return [_Piece(text, parts[0].start, parts[-1].end)] if len(text) <= _LONGEST else []


def _pieces_of_run(raw: str, classes: str) -> _Cut:
    plain = raw.translate(_plain_runs)
    if len(plain) == len(raw):
        return _Cut(plain, tuple(_Piece(char, at, at + 1) for at, char in enumerate(plain)))
    pieces: list[_Piece] = []
    line: list[str] = []
    for unit in _UNIT.finditer(classes):
        start, end = unit.span()
        folded = _fold(raw[start:end])
        spelled = "".join(char for char in folded if not _is_run(char))
        if spelled.isalnum():  # a sign that stands for letters: ℃, ㎏
            line += (" ", spelled, " ")
            pieces.append(_Piece(spelled, start, end))
        else:
            signs = [char for char in folded if _is_run(char)]
            line += signs
            pieces += (_Piece(char, start, end) for char in signs)
    return _Cut(" ".join("".join(line).split()), tuple(pieces))


def index_terms(line: str) -> Iterator[str]:
    """The terms of a `Line.text`: words, and the characters and pairs of runs."""
    for word in line.split():
        if _is_run(word):
            yield from word
            yield from _pairs(word)
        else:
            yield word


def _pairs(run: str) -> Iterator[str]:
    return map("".join, pairwise(run))


def pages(text: str) -> list[Span]:
    """A long text in overlapping pages, so that what one entry costs has a bound; all words are sought on one page."""
    found: list[Span] = []
    start = 0
    while len(text) - start > _PAGE:
        end = _gap_before(text, start + _PAGE)
        found.append((start, end))
        start = _gap_before(text, end - _OVERLAP)
    return [*found, (start, len(text))]


def _gap_before(text: str, index: int) -> int:
    """The last white space just before `index`, or `index` itself where there is none."""
    return max((at for at in range(index - _OVERLAP, index) if text[at].isspace()), default=index)


# Queries

_LONGEST_QUERY = 2000
_MOST_CLAUSES = 16
_MOST_MARKS = 200
_QUOTES = '"\u201c\u201d\u201e\u00ab\u00bb'
_ASKED = re.compile(rf"[{_QUOTES}]([^{_QUOTES}]*)(?:[{_QUOTES}]|$)|([^\s{_QUOTES}]+)")


@dataclass(frozen=True, slots=True)
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
        return _pairs(word) if _is_run(word) and len(word) > 1 else iter((word,))

    @property
    def phrase(self) -> str:
        """What a `Line.text` must contain; empty if the terms alone decide."""
        alone = len(self.words) == 1 and (not _is_run(self.words[0]) or len(self.words[0]) <= len("二字"))
        return "" if alone else self.needle

    @property
    def needle(self) -> str:
        opening = "" if _is_run(self.words[0]) else " "
        closing = "" if self.prefix or _is_run(self.words[-1]) else " "
        return f"{opening}{' '.join(self.words)}{closing}"


@dataclass(frozen=True, slots=True)
class Query:
    """Every clause must be found."""

    clauses: tuple[Clause, ...]

    def marks(self, text: str) -> list[Span]:
        """Where in the text its words stand; nothing if not all of them do."""
        seen = _Seen(text)
        found = [seen.places_of(clause) for clause in self.clauses]
        return _merged(sorted(span for places in found for span in places)) if all(found) else []


class _Seen:
    """A text in which clauses are looked up."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._stretches = _stretches(text)
        self._line = f" {' '.join([each.line for each in self._stretches])} "
        self._begins = list(accumulate((len(each.line) + 1 for each in self._stretches), initial=1))
        self._opened: dict[int, tuple[list[int], list[Span]]] = {}

    def places_of(self, clause: Clause) -> list[Span]:
        spans = self._spans_of(clause.needle)
        single = clause.whole or (clause.words[0] if len(clause.words) == 1 else "")
        if clause.whole:
            spans += self._spans_of(Clause((single,), clause.prefix).needle)
        return [*spans, *(self._wholes_of(single, clause) if single else ())]

    def _spans_of(self, needle: str) -> list[Span]:
        """The first places of it; a snippet shows no more."""
        spans: list[Span] = []
        at = self._line.find(needle)
        while at >= 0 and len(spans) < _MOST_MARKS:
            spans += self._pieces_between(at, at + len(needle))
            at = self._line.find(needle, at + 1)
        return spans

    def _pieces_between(self, first: int, last: int) -> Iterator[Span]:
        """Where the pieces come from that lie in this part of the line."""
        index = max(bisect_right(self._begins, first) - 1, 0)
        while index < len(self._stretches) and self._begins[index] < last:
            starts, spans = self._open(index)
            yield from spans[bisect_left(starts, first) : bisect_left(starts, last)]
            index += 1

    def _open(self, index: int) -> tuple[list[int], list[Span]]:
        """The pieces of one stretch: where each begins in the line, and its span in the original."""
        if index not in self._opened:
            stretch, begin = self._stretches[index], self._begins[index]
            raw = self._text[stretch.start : stretch.end]
            starts: list[int] = []
            at = 0
            pieces = _pieces(raw, raw.translate(_classes)).pieces
            for piece in pieces:
                at = stretch.line.index(piece.text, at)
                starts.append(begin + at)
                at += len(piece.text)
            spans = [(stretch.start + piece.start, stretch.start + piece.end) for piece in pieces]
            self._opened[index] = starts, spans
        return self._opened[index]

    def _wholes_of(self, wanted: str, clause: Clause) -> Iterator[Span]:
        for stretch in self._stretches:
            if stretch.wholes and any(_fits(whole, wanted, clause) for whole in stretch.wholes):
                raw = self._text[stretch.start : stretch.end]
                for whole in _pieces(raw, raw.translate(_classes)).wholes:
                    if _fits(whole.text, wanted, clause):
                        yield stretch.start + whole.start, stretch.start + whole.end


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
    stretches = _stretches(asked)
    words = tuple(word for each in stretches for word in each.line.split())
    if not words:
        return None
    end = stretches[-1].end
    whole = "".join(words) if len(stretches) == 1 and "".join(words) in stretches[0].wholes else ""
    return Clause(words[:_LONGEST], asked[end : end + 1] == "*" and not _is_run(words[-1]), whole)
