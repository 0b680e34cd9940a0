"""Busy conversations: what becomes of messages that arrive together, or while a turn runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from palaver.model.turn import BusyMode, Received
from palaver.model.value import value

__all__ = [
    "Batch",
    "BusyMode",
    "address_whole_bursts",
    "choose_batch",
    "in_same_burst",
]


@value
class Batch:
    """How many of the waiting messages the next turn takes. None yet: look again at `until`."""

    take: int = 0
    until: datetime | None = None


def in_same_burst(one: Received, other: Received) -> bool:
    """Whether both were sent as one, as an album is."""
    first, second = one.inbound, other.inbound
    is_same_place = first.source.address == second.source.address
    is_same_sender = first.source.participant == second.source.participant
    return first.burst is not None and first.burst == second.burst and is_same_place and is_same_sender


def address_whole_bursts(waiting: Sequence[Received]) -> list[Received]:
    """Whoever speaks to us with one part of what was sent as one, speaks to us with all of it."""
    spoken = [each for each in waiting if each.inbound.burst and not each.inbound.observed]
    return [
        replace(each, inbound=replace(each.inbound, observed=False))
        if each.inbound.observed and any(in_same_burst(each, other) for other in spoken)
        else each
        for each in waiting
    ]


def choose_batch(
    waiting: Sequence[Received],
    mode: BusyMode,
    now: datetime,
    window: timedelta,
    *,
    stands_alone: Callable[[Received], bool],
    more_follows: Callable[[Received], bool],
) -> Batch:
    """The messages at the head of the line that belong into one turn.

    One turn gives one answer, so what came from elsewhere is for another: each is answered where it was asked.
    A message that stands alone, a command, ends what came before it and is never taken. Messages sent as one, an album
    or a pasted text that the platform cut, are taken together in every mode: as long as `more_follows`, the turn waits
    for the rest, though never longer than the window after the last of them.
    """
    count = _run_length(waiting, mode, window, stands_alone, more_follows)
    if not count:
        return Batch()
    last = waiting[count - 1]
    until = last.received + window
    if more_follows(last) and count == len(waiting) and now < until:
        return Batch(until=until)
    return Batch(take=count)


def _run_length(
    waiting: Sequence[Received],
    mode: BusyMode,
    window: timedelta,
    stands_alone: Callable[[Received], bool],
    more_follows: Callable[[Received], bool],
) -> int:
    count = 0
    for received in waiting:
        if stands_alone(received) or received.inbound.source.address != waiting[0].inbound.source.address:
            break
        alone = BusyMode.QUEUE in {mode, received.inbound.busy}
        if count and alone and not _same_burst(waiting[count - 1], received, window, more_follows):
            break
        count += 1
    return count


def _same_burst(
    earlier: Received, later: Received, window: timedelta, more_follows: Callable[[Received], bool]
) -> bool:
    first, second = earlier.inbound, later.inbound
    if first.source.participant != second.source.participant:
        return False
    if first.burst or second.burst:
        return first.burst == second.burst
    return more_follows(earlier) and later.received - earlier.received <= window
