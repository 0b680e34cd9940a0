"""Graphemes: where a text may be cut without breaking what a person sees as one character.

Stands on Unicode's rules for extended grapheme clusters, told from two neighbours. Where two neighbours do not tell
enough (emoji joiners, Indic conjuncts, Hangul) it errs towards keeping characters together.
"""

import re
import unicodedata
from functools import lru_cache

__all__ = ["can_cut", "last_cut"]

_REGIONAL = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_JOINER = "\u200d"
_VIRAMA = 9
_SYMBOLS = frozenset({"So", "Sm", "Sk", "Cn"})
_MARKS = frozenset({"Mn", "Me", "Mc"})
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_PREPENDED = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3"
    "\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02]"
)
# What extends a character without being a mark: (non-)joiners, Thai and Lao am, halfwidth voicing, skin tones, tags.
_EXTENDING = re.compile("[\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_PAIRED = re.compile(
    "\r\n"
    "|[\ud800-\udbff][\udc00-\udfff]"
    "|[\u1100-\u115f\ua960-\ua97c][\u1100-\u11a7\ua960-\ua97c\uac00-\ud7c6]"  # leading jamo and what follows it
    "|[\u1160-\u11a7\uac00-\ud7c6][\u1160-\u11ff\ud7b0-\ud7fb]"  # vowel or syllable and vowel or trailing jamo
    "|[\u11a8-\u11ff\ud7cb-\ud7fb][\u11a8-\u11ff\ud7cb-\ud7fb]"
)


def can_cut(text: str, index: int, start: int = 0) -> bool:
    """Whether `index` lies between two characters; `start` is an earlier cut from which flags are paired."""
    if not start < index < len(text):
        return True
    before, after = text[index - 1], text[index]
    if before.isascii() and after.isascii():
        return before + after != "\r\n"
    if before in _REGIONAL and after in _REGIONAL:
        return _trailing_regionals(text[start:index]) % 2 == 0
    return not _joins(before, after)


def last_cut(text: str, start: int, stop: int) -> int:
    """The last place in `start..stop` where `text` may be cut, `start` if there is no other; linear in the distance."""
    # Within a run of regional indicators every second place is a cut, so the run is counted at most twice.
    while stop > start and not can_cut(text, stop, start):
        stop -= 1
    return stop


def _trailing_regionals(text: str) -> int:
    return len(text) - len(text.rstrip(_REGIONAL))


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
    """An emoji or an Indic consonant tied to the one before by a joiner or a virama."""
    tied = before == _JOINER or unicodedata.combining(before) == _VIRAMA
    return tied and (unicodedata.category(after) in _SYMBOLS or unicodedata.category(after) == "Lo")
