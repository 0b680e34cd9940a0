"""Titles of conversations, and the lineage `x`, `x #2`, `x #3` of those that share a name."""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import count

from palaver.model.errors import EmptyTitle
from palaver.model.text import one_line

TITLE_LIMIT = 100
_BASE_LIMIT = 80
"""Characters of a title that name its lineage, so that every number fits behind them."""
_NUMBERED = re.compile(r"(?P<base>.*\S) #(?P<number>[2-9]|[1-9][0-9]{1,11})", re.DOTALL)


def clean_title(text: str) -> str:
    """Reduce a title to one line without invisible characters, cut at the limit."""
    title = one_line(text, TITLE_LIMIT)
    if not title:
        raise EmptyTitle(
            "A title needs visible characters:",
            found=text,
            allowed="1 to 100 characters",
            example="/title Holiday",
        )
    return title


def lineage(title: str) -> tuple[str, int]:
    """Return base and number: `x` is the first of its lineage, `x #3` the third, `x #draft` the first of its own."""
    numbered = _NUMBERED.fullmatch(title)
    base, number = (numbered["base"], int(numbered["number"])) if numbered else (title, 1)
    return base[:_BASE_LIMIT].rstrip(), number


def next_in_lineage(title: str, taken: Iterable[str]) -> str:
    """Return the title if it is free, else the next number of its lineage."""
    taken = set(taken)
    if title not in taken:
        return title
    base, _ = lineage(title)
    following = (f"{base} #{number}" for number in count(max(_numbers(base, taken), default=1) + 1))
    return next(numbered for numbered in following if numbered not in taken)


def newest_of_lineage(title: str, taken: Iterable[str]) -> str | None:
    """Return what a person means by `title`: exactly `x #2`, or for `x` the highest number of its lineage."""
    taken = set(taken)
    base, number = lineage(title)
    numbers = _numbers(base, taken) if number == 1 else []
    newest = f"{base} #{max(numbers)}" if numbers else title
    return newest if newest in taken else None


def _numbers(base: str, taken: AbstractSet[str]) -> list[int]:
    """Return the numbers in use behind exactly `base`."""
    numbers = ((title, lineage(title)[1]) for title in taken)
    return [number for title, number in numbers if number > 1 and title == f"{base} #{number}"]
