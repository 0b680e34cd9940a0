"""Text from outside made fit for one line: without what cannot be seen, or with it written as numbers."""

import re
import unicodedata

__all__ = ["one_line", "shown", "visible"]

_BREAKS = re.compile(r"[\n\r\t\v\f\x1c-\x1f\x85\u2028\u2029]+")
# Cc control, Cf format (zero-width, bidi, tags), Cs half surrogates, Co private use, Cn unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# What shows as nothing in other categories: the rest of Unicode's Default_Ignorable_Code_Point (the grapheme joiner,
# Hangul fillers, the Khmer inherent vowels, variation selectors) and the braille blank.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    chr(c) for c in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
_ELLIPSIS = "…"


def one_line(text: str, limit: int) -> str:
    """Fold `text` into one visible line of at most `limit` characters."""
    if not _is_plain(text):
        text = _BREAKS.sub(" ", text)
        text = "".join(c for c in text if not _is_unseen(c))
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + _ELLIPSIS


def visible(text: str) -> str:
    """`text` on one line, whatever cannot be seen in it written as its number: what differs looks different."""
    if _is_plain(text):
        return text
    return "".join(c.encode("unicode_escape").decode() if _is_unseen(c) or _is_odd_space(c) else c for c in text)


def shown(text: str, limit: int = 80) -> str:
    """`text` in single quotes, safe to print into a terminal or a log line."""
    line = visible(text[: limit + 1])
    return f"'{line}'" if len(line) <= limit else f"'{line[: limit - 1]}{_ELLIPSIS}'"


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN or character in _BLANK


def _is_odd_space(character: str) -> bool:
    return character != " " and character.isspace()
