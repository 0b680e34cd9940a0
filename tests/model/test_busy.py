"""What becomes of messages that arrive together, or while a turn runs."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.addressing import Batch, BusyMode, address_whole_bursts, choose_batch
from palaver.model.key import Scope, derive_key
from palaver.model.source import Source
from palaver.model.turn import Inbound, InboxState, Received

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=1)
FULL = "x" * 100


def said(text: str, *, at: float = 0.0, user: str = "7", burst: str | None = None, observed: bool = False) -> Received:
    source = Source(platform="telegram", chat_id="1", user_id=user)
    moment = NOON + timedelta(seconds=at)
    inbound = Inbound(source=source, text=text, at=moment, burst=burst, observed=observed)
    return Received(
        number=1, key=derive_key(source, Scope()), inbound=inbound, state=InboxState.WAITING, received=moment
    )


def choose(*waiting: Received, mode: BusyMode = BusyMode.QUEUE, now: float = 10.0) -> Batch:
    return choose_batch(
        waiting,
        mode,
        NOON + timedelta(seconds=now),
        WINDOW,
        stands_alone=lambda each: each.inbound.text.startswith("/"),
        more_follows=lambda each: bool(each.inbound.burst) or len(each.inbound.text) >= len(FULL),
    )


def test_queue_takes_one_at_a_time() -> None:
    assert choose(said("one"), said("two")) == Batch(take=1)


@pytest.mark.parametrize("mode", [BusyMode.COLLECT, BusyMode.INTERRUPT, BusyMode.STEER])
def test_other_modes_take_everything_up_to_a_command(mode: BusyMode) -> None:
    assert choose(said("one"), said("two"), said("/new"), said("three"), mode=mode) == Batch(take=2)


@pytest.mark.parametrize("mode", BusyMode)
def test_a_command_at_the_head_is_never_taken(mode: BusyMode) -> None:
    assert choose(said("/new"), said("one"), mode=mode) == Batch()


def test_nothing_waits() -> None:
    assert choose() == Batch()


def test_an_album_is_said_to_us_if_one_part_is_by_the_same_sender() -> None:
    album = [said("", burst="a", observed=True), said("look", burst="a"), said("", burst="a", observed=True)]
    others = [
        said("", burst="b", observed=True),
        said("", burst="a", user="8", observed=True),
        said("chatter", observed=True),
    ]
    assert [each.inbound.observed for each in address_whole_bursts([*album, *others])] == [False] * 3 + [True] * 3


def test_an_album_waits_for_its_parts_and_is_taken_whole() -> None:
    first, second = said("one", burst="a"), said("two", at=0.5, burst="a")
    assert choose(first, now=0.2) == Batch(until=NOON + WINDOW)
    assert choose(first, second, now=1.2) == Batch(until=NOON + timedelta(seconds=1.5))
    assert choose(first, second, now=1.5) == Batch(take=2)


def test_an_album_waits_no_longer_once_something_else_follows() -> None:
    first, second = said("one", burst="a"), said("two", burst="a")
    assert choose(first, second, said("and?"), now=0.1) == Batch(take=2)
    assert choose(first, second, said("three", burst="b"), now=0.1) == Batch(take=2)


def test_albums_of_two_people_are_two() -> None:
    assert choose(said("one", burst="a"), said("two", burst="a", user="8")) == Batch(take=1)


def test_a_text_that_was_cut_is_taken_with_its_rest() -> None:
    assert choose(said(FULL), now=0.5) == Batch(until=NOON + WINDOW)
    assert choose(said(FULL), said("rest", at=0.3), now=0.4) == Batch(take=2)
    assert choose(said(FULL), said(FULL, at=0.3), said("rest", at=0.6), now=0.7) == Batch(take=3)


def test_what_comes_later_or_from_somebody_else_is_no_rest() -> None:
    assert choose(said(FULL), said("much later", at=5)) == Batch(take=1)
    assert choose(said(FULL), said("mine", at=0.1, user="8")) == Batch(take=1)


messages = st.builds(
    said,
    st.sampled_from(["one", "/new", FULL]),
    at=st.floats(0, 5),
    user=st.sampled_from(["7", "8"]),
    burst=st.sampled_from([None, "a", "b"]),
)


@given(waiting=st.lists(messages, max_size=6), mode=st.sampled_from(BusyMode), now=st.floats(0, 10))
def test_whatever_waits_the_line_gets_on(waiting: list[Received], mode: BusyMode, now: float) -> None:
    """Something is taken, or a command stands at the head, or there is a time to look again, within the window."""
    waiting.sort(key=lambda each: each.received)
    choice = choose(*waiting, mode=mode, now=now)
    taken = waiting[: choice.take]
    assert not any(each.inbound.text.startswith("/") for each in taken)
    if choice.until is not None:
        assert choice.take == 0
        assert NOON + timedelta(seconds=now) < choice.until <= waiting[-1].received + WINDOW
    elif waiting and not taken:
        assert waiting[0].inbound.text.startswith("/")
