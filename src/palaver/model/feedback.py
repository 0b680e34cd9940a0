"""Feedback: what a reaction to an answer, or to a question, means."""

import re
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum

from palaver.model.turn import Choice
from palaver.model.value import value


class Rating(IntEnum):
    DOWN = -1
    NONE = 0
    """It was taken back."""
    UP = 1

    @property
    def sign(self) -> str:
        return {Rating.UP: "👍", Rating.DOWN: "👎"}.get(self, "")


@value
class Feedback:
    turn: int
    identity: str
    rating: Rating
    at: datetime


# Platforms write them as characters, or by names such as `+1::skin-tone-2`, `thumbsup_light_skin_tone`, `ThumbsDown`.
_UP = frozenset({"👍", "+1", "thumbsup", "thumbs_up"})
_DOWN = frozenset({"👎", "-1", "thumbsdown", "thumbs_down"})
_VARIANT = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]|::.*|_(?:light|medium|dark)[a-z_]*_tone$|_skin_tone_\\d$")
_RULINGS = {Rating.UP: "/approve ", Rating.DOWN: "/deny "}


def rating_of(emoji: str) -> Rating | None:
    """Return what an emoji says about an answer; None for any other than thumbs up and thumbs down.

    An empty one is NONE: the platform does not say what was taken back.
    """
    if not emoji:
        return Rating.NONE
    name = _VARIANT.sub("", emoji.strip().strip(":").lower())
    return Rating.UP if name in _UP else Rating.DOWN if name in _DOWN else None


def ruling_of(rating: Rating, choices: Sequence[Choice]) -> str | None:
    """Return what a reaction to an approval question says, of what the question offers."""
    command = _RULINGS.get(rating)
    return next((choice.says for choice in choices if command and choice.says.startswith(command)), None)


def format_ratings(ratings: Sequence[int]) -> str:
    """Return `👍 2, 👎`, or nothing."""
    counts = [(rating.sign, sum(each == rating for each in ratings)) for rating in (Rating.UP, Rating.DOWN)]
    return ", ".join(sign if count == 1 else f"{sign} {count}" for sign, count in counts if count)
