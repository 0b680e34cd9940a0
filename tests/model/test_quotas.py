"""Caps: which is reached, and when it is free again."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.access import AccessRole
from palaver.model.quotas import UNLIMITED, Quota, QuotaKind, QuotaRules, check_quotas, period_end, period_start
from palaver.model.session import UsageTotal

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def test_nothing_is_reached_where_nothing_is_capped() -> None:
    used = {measure: UsageTotal(input_tokens=10**9) for measure in QuotaKind}
    assert check_quotas({}, used, NOON, BERLIN) is None
    assert check_quotas(dict.fromkeys(QuotaKind, UNLIMITED), used, NOON, BERLIN) is None


@pytest.mark.parametrize(
    ("cap", "spent", "reached"),
    [
        (Quota(tokens=10), UsageTotal(input_tokens=4, output_tokens=5), False),
        (Quota(tokens=10), UsageTotal(input_tokens=5, output_tokens=5), True),
        (Quota(cost_micros=3), UsageTotal(input_tokens=99, cost_micros=2), False),
        (Quota(cost_micros=3), UsageTotal(cost_micros=3), True),
        (Quota(tokens=0), UsageTotal(), True),
    ],
)
def test_a_cap_is_reached_when_so_much_is_used(cap: Quota, spent: UsageTotal, *, reached: bool) -> None:
    found = check_quotas({QuotaKind.PERSON_DAY: cap}, {QuotaKind.PERSON_DAY: spent}, NOON, BERLIN)
    assert bool(found) is reached


def test_of_several_the_one_that_holds_longest_is_reported() -> None:
    caps = {measure: Quota(tokens=1) for measure in QuotaKind}
    used = {measure: UsageTotal(input_tokens=1) for measure in QuotaKind}
    assert (found := check_quotas(caps, used, NOON, BERLIN)) is not None
    assert found.measure is QuotaKind.PERSON_MONTH
    assert found.free == datetime(2026, 3, 31, 22, tzinfo=UTC)
    # A new conversation does not help against a limit of zero, nor a new month.
    zero = {**caps, QuotaKind.DAY: Quota(tokens=0)}
    assert (found := check_quotas(zero, used, NOON, BERLIN)) is not None
    assert found.measure is QuotaKind.DAY
    alone = {QuotaKind.SESSION: caps[QuotaKind.SESSION]}
    assert (found := check_quotas(alone, used, NOON, BERLIN)) is not None
    assert (found.measure, found.free) == (QuotaKind.SESSION, None)


def test_a_role_has_caps_of_its_own_and_may_have_none() -> None:
    rules = QuotaRules(
        caps={QuotaKind.PERSON_DAY: Quota(tokens=100), QuotaKind.SESSION: Quota(tokens=500)},
        roles={
            AccessRole.GUEST: {QuotaKind.PERSON_DAY: Quota(tokens=5)},
            AccessRole.OWNER: {QuotaKind.PERSON_DAY: UNLIMITED},
        },
    )
    assert rules.of(AccessRole.MEMBER) == rules.of(None) == dict(rules.caps)
    assert rules.of(AccessRole.GUEST)[QuotaKind.PERSON_DAY] == Quota(tokens=5)
    assert rules.of(AccessRole.OWNER) == {QuotaKind.SESSION: Quota(tokens=500)}


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo"]),
    st.sampled_from([QuotaKind.PERSON_DAY, QuotaKind.PERSON_MONTH, QuotaKind.DAY]),
)
def test_now_lies_in_its_day_or_month_and_the_next_begins_where_it_ends(
    now: datetime, zone: str, measure: QuotaKind
) -> None:
    where = ZoneInfo(zone)
    first, after = period_start(measure, now, where), period_end(measure, now, where)
    assert after is not None
    assert first <= now < after
    assert period_start(measure, after, where) == after
    assert after - first < timedelta(days=33)
