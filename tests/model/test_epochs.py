"""Ids of messages and sends name the epoch that their number belongs to."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.epochs import DOUBT_LASTS, NO_EPOCHS, REPLIES, Epoch, Epochs, HighWater

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def epoch(check: str, after: HighWater, *, in_doubt: bool = False) -> Epoch:
    return Epoch(check=check, began=NOON, after=after, had=after, in_doubt=in_doubt)


FIRST = epoch("aaaaaa", HighWater(messages=10, notices=10, turns=10))
SECOND = epoch("bbbbbb", HighWater(messages=1000, notices=1000, turns=1000))
BEFORE, AFTER = Epochs((FIRST,)), Epochs((FIRST, SECOND))
NUMBERS = st.integers(1, 1 << 40)


@pytest.mark.parametrize(
    ("kind", "number", "id_"),
    [
        ("in", 10, "in:10"),
        ("in", 11, "in:11-aaaaaa"),
        ("in", 1001, "in:1001-bbbbbb"),
        ("out", 10 * REPLIES + 3, "out:10.3"),
        ("out", 11 * REPLIES, "out:11.0-aaaaaa"),
        ("out", -10, "out:0.10"),
        ("out", -1001, "out:0.1001-bbbbbb"),
        ("turn", 7, "turn:7"),
    ],
)
def test_an_id_has_the_check_of_the_epoch_of_its_number(kind: str, number: int, id_: str) -> None:
    assert AFTER.name(kind, number) == id_
    if kind != "turn":
        assert AFTER.find(id_, bare=False) == (kind, number)


@given(kind=st.sampled_from(["in", "out"]), number=NUMBERS, is_notice=st.booleans())
def test_an_id_means_one_number_and_in_another_epoch_nothing(*, kind: str, number: int, is_notice: bool) -> None:
    number = -number if kind == "out" and is_notice else number if kind == "in" else number + REPLIES
    id_ = AFTER.name(kind, number)
    assert AFTER.find(id_, bare=False) == AFTER.find(id_, bare=True) == (kind, number)
    earlier = BEFORE.name(kind, number)  # given before commits were lost, perhaps as far as the new epoch reaches
    assert AFTER.find(earlier, bare=False) == ((kind, number) if earlier == id_ else None)
    assert (earlier == id_) == id_.endswith(("-aaaaaa", NO_EPOCHS.name(kind, number)))


@pytest.mark.parametrize("name", ["in:17", "out:17.0", "out:0.17", f"out:{17 * REPLIES}", "out:-17"])
def test_a_person_need_not_type_the_check(name: str) -> None:
    assert AFTER.find(name, bare=False) is None
    found = AFTER.find(name, bare=True)
    assert found
    assert found[1] in {17, 17 * REPLIES, -17}


@pytest.mark.parametrize("name", ["in:-1", "in:1.1", "out:1.1024", "out:-1.1", f"out:{1 << 53}.0", "in:11-bbbbbb", "x"])
def test_what_can_be_no_id(name: str) -> None:
    assert AFTER.find(name, bare=True) is None


def test_doubt_ends() -> None:
    doubted = Epochs((FIRST, epoch("bbbbbb", SECOND.after, in_doubt=True)))
    assert AFTER.doubt(NOON) is None
    assert doubted.doubt(NOON + timedelta(minutes=1)) == NOON
    assert doubted.doubt(NOON + DOUBT_LASTS) is None
