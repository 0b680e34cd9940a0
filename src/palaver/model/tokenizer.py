"""The search tokenizer: cut text of any script into terms for the index.

A text becomes a line of words: lower case, without accents, `getUserName` and `snake_case` split into parts. Scripts
without spaces between words, and emoji, become runs. The index holds each word, each character and each pair of
neighbours in a run, and the wholes: identifiers with their parts joined.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

TOKENIZER_VERSION = f"1/{unicodedata.unidata_version}"
"""Changes when the same text is tokenized differently. An index of another version must be rebuilt."""

Span = tuple[int, int]

MAX_TERM_LENGTH = 64
_MAX_PARTS = 8
_PAGE_LENGTH = 20_000
_PAGE_OVERLAP = 400

# Every character has a class: u upper case, l other letters, d digits, m marks that belong to the character before,
# t ties that join words, c characters of a run; a space is everything else.
_UPPER, _LETTER, _DIGIT, _MARK, _TIE, _RUN, _NOTHING = "uldmtc "
_TIES = frozenset("_.-'\u2019")
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaa7f"
    "\u1100-\u115f\u3130-\u318f\ua960-\ua97f\uac00-\ud7a3\uffa0-\uffdc"  # Hangul
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3098\u309b-\u31ff\u3200-\u4dbf\u4e00-\ua4cf\uf900-\ufaff\uff66-\uff9d"
    "\U0001aff0-\U0001b16f\U0001f200-\U0001f2ff\U00020000-\U0003ffff]"
)
_TAIL = re.compile(
    "[\u1160-\u11ff\ud7b0-\ud7fb\uff9e\uff9f\U0001f3fb-\U0001f3ff]"
)  # syllable ends, voicing, skin tones
_DRAWING = re.compile("[\u2500-\u259f\u2800-\u28ff]")  # box drawing, blocks, braille: pictures, not words
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
        return _NOTHING if _DRAWING.match(char) else _RUN
    if category in {"Lu", "Lt"}:
        return _UPPER
    return {"L": _LETTER, "N": _DIGIT, "M": _MARK}.get(category[0], _NOTHING)


class _Classes(dict[int, str]):
    """A table for `str.translate` that maps each character to its class."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _class_of(chr(code))
        return found


_classes = _Classes()
_WORD = re.compile("[uld][uldm]*(?:t[uld][uldm]*){0,7}|c[cm]*")
_TIED = re.compile("[uldm]+")
_PART = re.compile("u[um]*(?![lm])|u?m*l[lm]*|d[dm]*")
_UNIT = re.compile("cm*")


def is_run(word: str) -> bool:
    return _classes[ord(word[0])] == _RUN


@lru_cache(maxsize=16384)
def _fold(raw: str) -> str:
    """Normalise to lower case without accents or compatibility forms; keep only letters, digits, symbols and marks."""
    if raw.isascii():
        return raw.lower()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", raw[: 2 * MAX_TERM_LENGTH]).casefold().translate(_LETTERS))
    whole = unicodedata.normalize("NFC", plain)
    return "".join(char for char in whole if _is_kept(char))[:MAX_TERM_LENGTH]


def _is_kept(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LNM" or category == "So"


class Token(NamedTuple):
    """A word, or one character of a run, and its position."""

    text: str
    start: int
    end: int


class TokenizedWord(NamedTuple):
    """A stretch of letters split into tokens."""

    line: str
    pieces: tuple[Token, ...]
    """In the order of `line`."""
    wholes: tuple[Token, ...] = ()


class Chunk(NamedTuple):
    """A stretch of text without white space."""

    line: str
    wholes: tuple[str, ...]
    spans: tuple[Span, ...]
    """Its stretches of letters."""


class TokenizedText(NamedTuple):
    """A text as words and runs in order, and the wholes of its identifiers."""

    text: str
    """` word word run `, in which phrases are searched."""
    wholes: list[str]


def tokenize(text: str) -> TokenizedText:
    return join_chunks(list(map(tokenize_chunk, text.split())))


def join_chunks(chunks: list[Chunk]) -> TokenizedText:
    wholes = [whole for chunk in chunks if chunk.wholes for whole in chunk.wholes]
    return TokenizedText(f" {' '.join([chunk.line for chunk in chunks if chunk.line])} ", wholes)


def tokenize_chunk(chunk: str) -> Chunk:
    return _cached_chunk(chunk) if len(chunk) <= MAX_TERM_LENGTH else _tokenize_chunk(chunk)


def _tokenize_chunk(chunk: str) -> Chunk:
    bare = chunk.strip(_PUNCTUATION)
    if bare.isascii() and bare.isalpha() and len(bare) <= MAX_TERM_LENGTH and (bare[1:].islower() or len(bare) == 1):
        start = chunk.index(bare)
        return Chunk(bare.lower(), (), ((start, start + len(bare)),))
    spans = [found.span() for found in _WORD.finditer(chunk.translate(_classes))]
    words = [_words(chunk[start:end]) for start, end in spans]
    return Chunk(
        " ".join(line for line, _ in words if line),
        tuple(whole for _, wholes in words for whole in wholes),
        tuple(span for (line, _), span in zip(words, spans, strict=True) if line),
    )


_cached_chunk = lru_cache(maxsize=32768)(_tokenize_chunk)


def _words(raw: str) -> tuple[str, tuple[str, ...]]:
    classes = raw.translate(_classes)
    if classes[0] == _RUN and len(plain := raw.translate(_plain_runs)) == len(raw):
        return plain, ()
    found = split_word(raw)
    return found.line, tuple(whole.text for whole in found.wholes)


class _PlainRuns(dict[int, str]):
    """A table for `str.translate`: the folded form of a run's character, or nothing if it needs `split_word`."""

    def __missing__(self, code: int) -> str:
        folded = _fold(chr(code))
        plain = len(folded) == 1 and is_run(folded) and _classes[code] == _RUN
        self[code] = folded if plain else ""
        return self[code]


_plain_runs = _PlainRuns()


def split_word(raw: str) -> TokenizedWord:
    """Split a stretch of letters into tokens with their positions."""
    classes = raw.translate(_classes)
    return _pieces_of_run(raw, classes) if classes[0] == _RUN else _pieces_of_word(raw, classes)


def _pieces_of_word(raw: str, classes: str) -> TokenizedWord:
    pieces: list[Token] = []
    wholes: list[Token] = []
    ties = [tied.span() for tied in _TIED.finditer(classes)]
    for span in ties:
        parts = _parts(raw, classes, span)
        pieces += parts
        wholes += _whole(parts)
    if len(ties) > 1:
        wholes += _whole(pieces)
    return TokenizedWord(" ".join(piece.text for piece in pieces), tuple(pieces), tuple(wholes))


def _parts(raw: str, classes: str, span: Span) -> list[Token]:
    """Split an identifier into parts. One with too many parts is a number or a hash and stays whole."""
    spans = [part.span() for part in _PART.finditer(classes, *span)]
    if len(spans) > _MAX_PARTS:
        spans = [span]
    pieces = (Token(_fold(raw[start:end])[:MAX_TERM_LENGTH], start, end) for start, end in spans)
    return [piece for piece in pieces if piece.text and not is_run(piece.text)]


def _whole(parts: list[Token]) -> list[Token]:
    if not 1 < len(parts) <= _MAX_PARTS:
        return []
    text = "".join(part.text for part in parts)
    return [Token(text, parts[0].start, parts[-1].end)] if len(text) <= MAX_TERM_LENGTH else []


def _pieces_of_run(raw: str, classes: str) -> TokenizedWord:
    plain = raw.translate(_plain_runs)
    if len(plain) == len(raw):
        return TokenizedWord(plain, tuple(Token(char, at, at + 1) for at, char in enumerate(plain)))
    pieces: list[Token] = []
    line: list[str] = []
    for unit in _UNIT.finditer(classes):
        start, end = unit.span()
        folded = _fold(raw[start:end])
        spelled = "".join(char for char in folded if not is_run(char))
        if spelled.isalnum():  # a symbol for letters: ℃, ㎏
            line += (" ", spelled, " ")
            pieces.append(Token(spelled, start, end))
        else:
            signs = [char for char in folded if is_run(char)]
            line += signs
            pieces += (Token(char, start, end) for char in signs)
    return TokenizedWord(" ".join("".join(line).split()), tuple(pieces))


def index_terms(line: str) -> list[str]:
    """Return the terms of a `TokenizedText.text`: words, and the characters and pairs of runs."""
    words = line.split()
    if line.isascii():
        return words
    return [term for word in words for term in ((*word, *bigrams(word)) if is_run(word) else (word,))]


def bigrams(run: str) -> Iterator[str]:
    return map("".join, pairwise(run))


def split_pages(text: str) -> list[Span]:
    """Split a long text into overlapping pages, to bound the cost of one entry. A query must match within one page."""
    found: list[Span] = []
    start = 0
    while len(text) - start > _PAGE_LENGTH:
        end = _space_before(text, start + _PAGE_LENGTH)
        found.append((start, end))
        start = _space_before(text, end - _PAGE_OVERLAP)
    return [*found, (start, len(text))]


def _space_before(text: str, index: int) -> int:
    """Return the last white space just before `index`, or `index` if there is none nearby."""
    return max((at for at in range(index - _PAGE_OVERLAP, index) if text[at].isspace()), default=index)
