"""Epochs of a store, and the ids that programs get of its messages and sends: `in:42-3fa94c`, `out:7.0-3fa94c`.

A database can lack what was committed last: after a promotion, a restore or a salvage. Without epochs it would give the
same numbers again. An epoch begins with higher numbers than anybody has seen, and an id contains the check of the epoch
that its number belongs to. So the id of something that was lost never names anything else.
"""

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from palaver.model.value import value

REPLIES = 1024
"""Numbers of replies are turn number * REPLIES + ordinal, so no turn has more."""
DOUBT_LASTS = timedelta(days=1)
"""How long after its beginning an epoch can explain a duplicate."""


class HighWater(NamedTuple):
    """The highest number of each kind that was given. Deletions do not lower them."""

    messages: int = 0
    changes: int = 0
    """Positions of the journal."""
    notices: int = 0
    """Sends that are no replies, which are numbered downwards."""
    turns: int = 0

    def raised_to(self, other: "HighWater") -> "HighWater":
        return HighWater(*map(max, self, other))

    def beyond(self, other: "HighWater") -> dict[str, int]:
        """Return by how much it is beyond another, by name."""
        return {
            name: mine - theirs for name, mine, theirs in zip(self._fields, self, other, strict=True) if mine > theirs
        }


@value
class Epoch:
    """All higher numbers than `after` belong to it, up to those of the next epoch."""

    check: str
    began: datetime
    after: HighWater
    had: HighWater
    """What the database had when the epoch began. What was given beyond that is lost."""
    in_doubt: bool = False
    """Commits can be missing that somebody has seen: what was sent before can be sent again."""


_NAMED = re.compile(r"(in|out):(-?[0-9]{1,18})(?:\.([0-9]{1,18}))?(?:-([0-9a-f]{6}))?", re.ASCII)


@value(kw_only=False)
class Epochs:
    """The epochs of a store, the newest last. Numbers from before the first one have ids without a check."""

    known: tuple[Epoch, ...] = ()

    @property
    def newest(self) -> Epoch | None:
        return self.known[-1] if self.known else None

    def since(self, check: str) -> tuple[Epoch, ...]:
        """Return the epochs that began after the one with this check; the newest if that one is lost, too."""
        checks = [each.check for each in self.known]
        return self.known[checks.index(check) + 1 if check in checks else -1 :]

    def doubt(self, now: datetime) -> datetime | None:
        """Return until when something was done that can be done again; None if there is no doubt, or no longer."""
        newest = max((each.began for each in self.known if each.in_doubt), default=None)
        return newest if newest and now - newest < DOUBT_LASTS else None

    def message(self, number: int) -> str:
        """Return the id of a message."""
        return f"in:{number}{self._suffix('in', number)}"

    def send(self, number: int) -> str:
        """Return the id of a send. One that is no reply belongs to turn 0."""
        turn, part = divmod(number, REPLIES) if number > 0 else (0, -number)
        return f"out:{turn}.{part}{self._suffix('out', number)}"

    def name(self, kind: str, number: int) -> str:
        """Return the id of what a trace begins with: `in`, `out` or `turn`."""
        names = {"in": self.message, "out": self.send}
        return names[kind](number) if kind in names else f"{kind}:{number}"

    def find(self, name: str, *, bare: bool) -> tuple[str, int] | None:
        """Return the kind and number of an id; None if it is none, or its number was given again in another epoch.

        What a person types can be `bare`: without the check. Then a send can also have the number of its row.
        """
        named = _NAMED.fullmatch(name)
        if named is None:
            return None
        kind, first, part, check = named.groups()
        number = _number(kind, int(first), part)
        if number is None or (part is None and kind == "out" and not bare):
            return None
        is_right = self._suffix(kind, number) == (f"-{check}" if check else "")
        return (kind, number) if is_right or (bare and not check) else None

    def find_message(self, id_: str) -> int | None:
        """Return the number of the message with this id."""
        found = self.find(id_, bare=False)
        return found[1] if found and found[0] == "in" else None

    def _suffix(self, kind: str, number: int) -> str:
        field = "messages" if kind == "in" else "turns" if number > 0 else "notices"
        place = number // REPLIES if field == "turns" else abs(number)
        epoch = next((each for each in reversed(self.known) if place > getattr(each.after, field)), None)
        return f"-{epoch.check}" if epoch else ""


NO_EPOCHS = Epochs()
"""For ids as a person types them: without a check."""
_MAX_TURN = 1 << 53


def _number(kind: str, first: int, part: str | None) -> int | None:
    """Return the number of a row; None if no row has it."""
    if part is None:
        return None if kind == "in" and first < 0 else first
    if kind == "in" or not 0 <= first < _MAX_TURN or (first and int(part) >= REPLIES):
        return None
    return first * REPLIES + int(part) if first else -int(part)
