"""Text that is shown: fold it into one line, escape invisible characters, cut it between characters, count things."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_BREAKS = re.compile(r"[\n\r\t\v\f\x1c-\x1f\x85\u2028\u2029]+")
# Cc control, Cf format (zero-width, bidi, tags), Cs half surrogates, Co private use, Cn unassigned.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# Invisible characters of other categories: the rest of Unicode's Default_Ignorable_Code_Point (the grapheme joiner,
# Hangul fillers, the Khmer inherent vowels, variation selectors) and the braille blank.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    chr(c) for c in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
_NON_JOINER = "\u200c"
_JOINER = "\u200d"
_JOINERS = frozenset({_NON_JOINER, _JOINER})
_ELLIPSIS = "…"
_QUOTED_LENGTH = 80
_Y = re.compile(r"(?<![aeiou])y$")


def one_line(text: str, limit: int) -> str:
    """Fold `text` into one visible line of at most `limit` characters."""
    if not _is_plain(text):
        text = without_invisible(_BREAKS.sub(" ", text))
    return cut_line(" ".join(text.split()), limit)


def whole_characters(text: str) -> str:
    """Join the halves of characters that were written apart, and replace a half that is alone: it has no UTF-8."""
    if text.isascii() or text.isprintable():  # no half is printable
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def join_halves(text: str) -> str:
    """Join the halves of characters that were written apart. A half that is alone stays."""
    if text.isascii() or text.isprintable():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def without_half(text: str) -> tuple[str, str]:
    """Return the text without the first half of a character at its end, and that half."""
    end = len(text) - 1 if "\ud800" <= text[-1:] <= "\udbff" else len(text)
    return text[:end], text[end:]


def cut_line(line: str, limit: int) -> str:
    """Cut a line to at most `limit` characters, the ellipsis included."""
    return line if len(line) <= limit else cut_off(line, limit - 1) + _ELLIPSIS


def cut_off(line: str, limit: int) -> str:
    """Return the beginning of a line of at most `limit` characters. It ends between graphemes, unless it is one."""
    end = min(limit, len(line))
    return line[: last_cut(line, 0, end) or end].rstrip(f" {_NON_JOINER}{_JOINER}")


_LINK = re.compile(r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{0,500}\)")
_FENCE = re.compile(r"^[ ]{0,3}(?:`{3,}|~{3,})[^`\n]*$", re.MULTILINE)
_LINE_START = re.compile(r"^[ ]{0,3}(?:#{1,6}|>|[-*+])[ ]+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|~~|`+)(?=\S)(.{1,200}?)(?<=\S)\1(?!\w)")


def strip_markdown(text: str) -> str:
    """Return `text` as a name: on one line, without the signs of Markdown."""
    emphasis = (_EMPHASIS, r"\2")
    for pattern, kept in ((_LINK, r"\1"), (_FENCE, ""), (_LINE_START, ""), emphasis, emphasis):  # `**_x_**`
        text = pattern.sub(kept, text)
    return " ".join(text.split())


def without_invisible(text: str) -> str:
    """Return `text` with its line breaks and without invisible characters. A joiner that changes what is seen stays."""
    if _is_plain(text):
        return text
    seen = "".join(c for c in text if c == "\n" or c in _JOINERS or not _is_invisible(c))
    if _JOINERS.isdisjoint(seen):
        return seen
    return "".join(c for index, c in enumerate(seen) if c == "\n" or _is_seen(seen, index))


def escape_invisible(text: str) -> str:
    """Write invisible characters and unusual spaces as escapes, on one line, so that different texts look different."""
    if _is_plain(text):
        return text
    return "".join(
        c if _is_seen(text, index) and (c == " " or not c.isspace()) else c.encode("unicode_escape").decode()
        for index, c in enumerate(text)
    )


# Control characters, bidirectional overrides and lone surrogates. Line ends and tabs stay.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def legible(text: str) -> str:
    """Write characters that are invisible or change the direction of text as their code point."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def counted(count: int, one: str, several: str = "") -> str:
    """Return `1 session`, `2 sessions`, `0 entries`, or with the words for several: `2 rows are`."""
    return f"{count} {one if count == 1 else several or _Y.sub('ie', one) + 's'}"


def listed(names: Iterable[str], most: int = 20, separator: str = ", ") -> str:
    """Return `a, b, c`, or the first ones and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{separator.join(every[:most])}{more}"


def quoted(text: str) -> str:
    """Return the text in single quotes, shortened and safe for a terminal or a log line."""
    line = escape_invisible(text[: _QUOTED_LENGTH + 1])
    return f"'{line}'" if len(line) <= _QUOTED_LENGTH else f"'{line[: _QUOTED_LENGTH - 1]}{_ELLIPSIS}'"


_ACTIVE = re.compile(r"[\\`*_~|\[\]<>#&@/.:!$]")


def inert(line: str) -> str:
    """Return a line that no chat turns into markup, links, mentions or commands: as code if it could be any of them."""
    return as_code(line) if _ACTIVE.search(line) else line


def as_code(line: str) -> str:
    """Return a line as Markdown code that it cannot close."""
    return "`" + line.replace("`", "'") + "`"


def as_code_block(text: str) -> str:
    """Return a text as a Markdown block of code that it cannot close, unchanged."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in _INVISIBLE or character in _BLANK


def _is_seen(text: str, index: int) -> bool:
    """Return whether a character is visible, or a joiner that changes what is seen around it."""
    if text[index] not in _JOINERS:
        return not _is_invisible(text[index])
    before, after = text[max(index - 1, 0) : index], text[index + 1 : index + 2]
    if _is_virama(before):
        return True
    if text[index] == _NON_JOINER:
        return _CONNECTING.match(before) is not None and _ARABIC.match(after) is not None
    return (_is_symbol(before) and _is_symbol(after)) or (before.isalpha() and _is_virama(after))


# Arabic letters that connect to the next one, and the marks on them.
_CONNECTING = re.compile(
    "[\u0620\u0626\u0628\u062a-\u062e\u0633-\u0647\u0649-\u065f\u066e\u066f\u0670\u0678-\u0687\u069a-\u06bf\u06c1\u06c2\u06cc"
    "\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff]"
)
_ARABIC = re.compile("[\u0620-\u064a\u066e-\u06d3\u06d5\u06ee\u06ef\u06fa-\u06ff]")
_VIRAMA = 9


def _is_virama(character: str) -> bool:
    """Return whether it takes the vowel from an Indic consonant, so that a joiner next to it chooses a form."""
    return character != "" and unicodedata.combining(character) == _VIRAMA


def _is_symbol(character: str) -> bool:
    """Return whether emoji are made of it: symbols, arrows and skin tones."""
    return character != "" and not character.isascii() and unicodedata.category(character) in {"So", "Sm", "Sk"}


_REGIONAL = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_SYMBOLS = frozenset({"So", "Sm", "Sk", "Cn"})
_MARKS = frozenset({"Mn", "Me", "Mc"})
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_PREPENDED = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3"
    "\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02]"
)
# Extend the character before without being marks: joiners, Thai and Lao am, halfwidth voicing, skin tones, tags.
_EXTENDING = re.compile("[\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_PAIRED = re.compile(
    "\r\n"
    "|[\ud800-\udbff][\udc00-\udfff]"
    "|[\u1100-\u115f\ua960-\ua97c][\u1100-\u11a7\ua960-\ua97c\uac00-\ud7c6]"  # leading jamo and what follows it
    "|[\u1160-\u11a7\uac00-\ud7c6][\u1160-\u11ff\ud7b0-\ud7fb]"  # vowel or syllable and vowel or trailing jamo
    "|[\u11a8-\u11ff\ud7cb-\ud7fb][\u11a8-\u11ff\ud7cb-\ud7fb]"
)


def can_cut(text: str, index: int, start: int = 0) -> bool:
    """Return whether `index` lies between two graphemes; `start` is an earlier cut from which flags are paired."""
    if not start < index < len(text):
        return True
    before, after = text[index - 1], text[index]
    if before.isascii() and after.isascii():
        return before + after != "\r\n"
    if before in _REGIONAL and after in _REGIONAL:
        return (index - start - len(text[start:index].rstrip(_REGIONAL))) % 2 == 0
    if unicodedata.category(after) == "Lo" and _extends(before):
        before = _virama_or_last(text, start, index)
    return not _joins(before, after)


def _virama_or_last(text: str, start: int, index: int) -> str:
    """Return the virama before `index`, which other marks can follow, or else the character there."""
    place = index
    while place > start and _extends(text[place - 1]) and text[place - 1] != _NON_JOINER:
        place -= 1
        if _is_virama(text[place]):
            return text[place]
    return text[index - 1]


def last_cut(text: str, start: int, stop: int) -> int:
    """Return the last cut between graphemes in `start..stop`, or `start`, in time linear in the distance."""
    # Within a run of regional indicators every second place is a cut, so the run is counted at most twice.
    while stop > start and not can_cut(text, stop, start):
        stop -= 1
    return stop


@lru_cache(maxsize=4096)
def _joins(before: str, after: str) -> bool:
    if _PAIRED.match(before + after):
        return True
    if _is_control(before) or _is_control(after):
        return False
    return _extends(after) or _PREPENDED.match(before) is not None or _is_conjunct(before, after)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in _CONTROLS and not (_EXTENDING.match(char) or _PREPENDED.match(char))


def _extends(char: str) -> bool:
    return unicodedata.category(char) in _MARKS or _EXTENDING.match(char) is not None


def _is_conjunct(before: str, after: str) -> bool:
    """Return whether a joiner or a virama ties an emoji or an Indic consonant to the one before."""
    tied = before == _JOINER or _is_virama(before)
    return tied and (unicodedata.category(after) in _SYMBOLS or unicodedata.category(after) == "Lo")
