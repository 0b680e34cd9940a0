"""Busy conversations: which waiting messages the next turn takes together."""

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
    """How many waiting messages the next turn takes. With `until` set, take none yet and decide again then."""

    take: int = 0
    until: datetime | None = None


def in_same_burst(one: Received, other: Received) -> bool:
    """Return whether both messages belong to one burst, such as an album."""
    first, second = one.inbound, other.inbound
    is_same_place = first.source.address == second.source.address
    is_same_sender = first.source.participant == second.source.participant
    return first.burst is not None and first.burst == second.burst and is_same_place and is_same_sender


def address_whole_bursts(waiting: Sequence[Received]) -> list[Received]:
    """Treat every part of a burst as addressed to us if one part is."""
    addressed = [received for received in waiting if received.inbound.burst and not received.inbound.observed]
    return [
        replace(received, inbound=replace(received.inbound, observed=False))
        if received.inbound.observed and any(in_same_burst(received, other) for other in addressed)
        else received
        for received in waiting
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
    """Choose the messages at the head of the queue that belong in one turn.

    All of them come from one place, because a turn answers in one place. A message that stands alone (a command) ends
    the batch and is never part of one. A burst (an album, or a pasted text that the platform cut) stays together in
    every mode: while `more_follows`, the turn waits for the rest, at most one window after the last part.
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
