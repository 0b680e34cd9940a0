"""Titles: what people call a conversation, and the lineage `x`, `x #2`, `x #3` of those that share a name."""

import re
from collections.abc import Iterable

from palaver.domain.errors import EmptyTitle
from palaver.domain.text import one_line

__all__ = ["TITLE_LIMIT", "clean_title", "lineage", "newest_of_lineage", "next_in_lineage"]

TITLE_LIMIT = 100
_NUMBERED = re.compile(r"(?P<base>.*\S) #(?P<number>[2-9]|[1-9][0-9]{1,8})", re.DOTALL)


def clean_title(text: str) -> str:
    """A title fit to keep: one line, nothing invisible, at most 100 characters."""
    title = one_line(text, TITLE_LIMIT)
    if not title:
        raise EmptyTitle(
            "A title needs visible characters, not",
            found=text,
            allowed="1 to 100 characters",
            example="/title Holiday",
        )
    return title


def lineage(title: str) -> tuple[str, int]:
    """Base and number: `x` is the first of its lineage, `x #3` the third, `x #draft` the first of its own."""
    numbered = _NUMBERED.fullmatch(title)
    return (numbered["base"], int(numbered["number"])) if numbered else (title, 1)


def next_in_lineage(title: str, taken: Iterable[str]) -> str:
    """The title itself while it is free, else the next number of its lineage."""
    taken = set(taken)
    if title not in taken:
        return title
    base, _ = lineage(title)
    number = max(number for taken_base, number in map(lineage, taken | {title}) if taken_base == base) + 1
    while (numbered := _numbered(base, number)) in taken:
        number += 1
    return numbered


def _numbered(base: str, number: int) -> str:
    suffix = f" #{number}"
    return base[: TITLE_LIMIT - len(suffix)].rstrip() + suffix


def newest_of_lineage(title: str, taken: Iterable[str]) -> str | None:
    """What somebody means who asks for `title`: exactly `x #2`, or for `x` the highest number of exactly `x`."""
    base, number = lineage(title)
    if number > 1:
        return title if title in set(taken) else None
    numbers = ((number, taken_title) for taken_title in taken for b, number in [lineage(taken_title)] if b == base)
    return max(numbers, default=(0, None))[1]
