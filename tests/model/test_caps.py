"""Caps: which is reached, and when it is free again."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import AccessRole
from palaver.model.quotas import NO_CAP, Cap, CapRules, Measure, Spent, beginning, decide_cap, free_again

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def test_nothing_is_reached_where_nothing_is_capped() -> None:
    used = {measure: Spent(input_tokens=10**9) for measure in Measure}
    assert decide_cap({}, used, NOON, BERLIN) is None
    assert decide_cap(dict.fromkeys(Measure, NO_CAP), used, NOON, BERLIN) is None


@pytest.mark.parametrize(
    ("cap", "spent", "reached"),
    [
        (Cap(tokens=10), Spent(input_tokens=4, output_tokens=5), False),
        (Cap(tokens=10), Spent(input_tokens=5, output_tokens=5), True),
        (Cap(cost_micros=3), Spent(input_tokens=99, cost_micros=2), False),
        (Cap(cost_micros=3), Spent(cost_micros=3), True),
        (Cap(tokens=0), Spent(), True),
    ],
)
def test_a_cap_is_reached_when_so_much_is_used(cap: Cap, spent: Spent, *, reached: bool) -> None:
    found = decide_cap({Measure.PERSON_DAY: cap}, {Measure.PERSON_DAY: spent}, NOON, BERLIN)
    assert bool(found) is reached


def test_of_several_the_one_that_holds_longest_is_told() -> None:
    caps = {measure: Cap(tokens=1) for measure in Measure}
    used = {measure: Spent(input_tokens=1) for measure in Measure}
    assert (found := decide_cap(caps, used, NOON, BERLIN)) is not None
    assert (found.measure, found.free) == (Measure.SESSION, None)
    del caps[Measure.SESSION]
    assert (found := decide_cap(caps, used, NOON, BERLIN)) is not None
    assert found.measure is Measure.PERSON_MONTH
    assert found.free == datetime(2026, 3, 31, 22, tzinfo=UTC)


def test_a_role_has_caps_of_its_own_and_may_have_none() -> None:
    rules = CapRules(
        caps={Measure.PERSON_DAY: Cap(tokens=100), Measure.SESSION: Cap(tokens=500)},
        roles={AccessRole.GUEST: {Measure.PERSON_DAY: Cap(tokens=5)}, AccessRole.OWNER: {Measure.PERSON_DAY: NO_CAP}},
    )
    assert rules.of(AccessRole.MEMBER) == rules.of(None) == dict(rules.caps)
    assert rules.of(AccessRole.GUEST)[Measure.PERSON_DAY] == Cap(tokens=5)
    assert rules.of(AccessRole.OWNER) == {Measure.SESSION: Cap(tokens=500)}


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo"]),
    st.sampled_from([Measure.PERSON_DAY, Measure.PERSON_MONTH, Measure.DAY]),
)
def test_now_lies_in_its_day_or_month_and_the_next_begins_where_it_ends(
    now: datetime, zone: str, measure: Measure
) -> None:
    where = ZoneInfo(zone)
    first, after = beginning(measure, now, where), free_again(measure, now, where)
    assert after is not None
    assert first <= now < after
    assert beginning(measure, after, where) == after
    assert after - first < timedelta(days=33)
