"""When a conversation starts fresh, checked against somebody who sits there and watches the clock on the wall."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palaver.model.errors import BadArgument, MalformedTime
from palaver.model.reset import ResetDecision, ResetMode, ResetPolicy, decide_reset, next_daily_boundary
from palaver.model.session import EndReason
from palaver.model.source import Source
from palaver.model.turn import Cause, Inbound
from tests.strategies import BRIEF, THOROUGH, ZONES, instants, moments, policies, zones

BERLIN = ZoneInfo("Europe/Berlin")
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
TICK = timedelta(microseconds=1)
spans = st.one_of(st.timedeltas(timedelta(0), timedelta(days=4)), st.timedeltas(timedelta(0), timedelta(days=4000)))
hours = st.integers(0, 23)


def at(text: str, zone: tzinfo = UTC) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def due(policy: ResetPolicy, last: datetime, now: datetime, zone: ZoneInfo) -> EndReason | None:
    return decide_reset(policy, last, now, zone).reason


# The watcher: a boundary is each minute at which the clock shows, for the first time ever, that a day's hour has come.


def watched(start: datetime, stop: datetime, hour: int, zone: ZoneInfo) -> list[datetime]:
    """Every boundary after `start`. He looks each hour, and where something happened in between, each minute."""
    boundaries: list[datetime] = []
    now = start.replace(second=0, microsecond=0)
    furthest = wall(now, zone)
    while now < stop:
        later = now + HOUR
        quiet = later.astimezone(zone).utcoffset() == now.astimezone(zone).utcoffset()
        step = HOUR if quiet and days_begun(wall(later, zone), hour) <= days_begun(furthest, hour) else MINUTE
        now += step
        shown = max(furthest, wall(now, zone))
        if days_begun(shown, hour) > days_begun(furthest, hour):
            boundaries.append(now)
        furthest = shown
    return boundaries


def days_begun(shown: datetime, hour: int) -> int:
    return (shown - timedelta(hours=hour)).toordinal()


LOOKS = [datetime(1990, 1, 1, tzinfo=UTC) + timedelta(days=45 * step) for step in range(413)]


def clocks() -> dict[tuple[timedelta | None, ...], ZoneInfo]:
    """Every zone once, by how far its clock is ahead at each look: many have several names."""
    named = map(ZoneInfo, reversed(ZONES))
    return {tuple(look.astimezone(zone).utcoffset() for look in LOOKS): zone for zone in named}


def a_clock_change(zone: ZoneInfo, offsets: Sequence[timedelta | None], chance: Random) -> datetime:
    changed = [step for step, (before, after) in enumerate(pairwise(offsets)) if before != after]
    step = chance.choice(changed or [0])
    return change_between(LOOKS[step], LOOKS[step + 1], zone)


def change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    old = before.astimezone(zone).utcoffset()
    while after - before > MINUTE:
        middle = before + (after - before) // MINUTE // 2 * MINUTE
        before, after = (middle, after) if middle.astimezone(zone).utcoffset() == old else (before, middle)
    return after


def check_around(instant: datetime, hour: int, zone: ZoneInfo) -> None:
    # He comes a day early, so that he knows a clock that was put back.
    boundaries = watched(instant - 25 * HOUR, instant + 30 * HOUR, hour, zone)
    for moment in (instant - HOUR, instant - TICK, instant, instant + HOUR):
        expected = next(boundary for boundary in boundaries if boundary > moment)
        assert next_daily_boundary(moment, hour, zone) == expected, (zone.key, hour, moment)


def test_the_daily_boundary_is_right_around_a_clock_change_of_every_zone() -> None:
    chance = Random(7)  # noqa: S311
    for offsets, zone in clocks().items():
        change = a_clock_change(zone, offsets, chance)
        before, after = wall(change - TICK, zone), wall(change, zone)
        check_around(change, chance.choice((before.hour, after.hour, min(before, after).hour, 0, 4)), zone)


@BRIEF
@given(instants, hours, zones)
def test_the_daily_boundary_is_right_on_any_day(moment: datetime, hour: int, zone: ZoneInfo) -> None:
    check_around(moment.replace(second=0, microsecond=0), hour, zone)


@pytest.mark.parametrize(
    ("name", "hour", "day"),
    [
        *(("Europe/Berlin", hour, day) for hour in (1, 2, 3, 4) for day in ("2026-03-29", "2026-10-25")),
        *(("Australia/Lord_Howe", hour, day) for hour in (1, 2, 3) for day in ("2026-04-05", "2026-10-04")),
        *(("America/Sao_Paulo", hour, day) for hour in (0, 1, 23) for day in ("2017-10-15", "2018-02-18")),
        *(("America/St_Johns", hour, day) for hour in (0, 1, 23) for day in ("2010-03-14", "2010-11-07")),
        *(("Pacific/Apia", hour, "2011-12-30") for hour in (0, 4, 23)),
        *(("Pacific/Kiritimati", hour, "1994-12-31") for hour in (0, 4, 23)),
        *(("Pacific/Kwajalein", hour, "1993-08-21") for hour in (0, 4, 23)),
        *(("America/Nuuk", hour, "2025-03-29") for hour in (22, 23, 0)),
        *(("Antarctica/Troll", hour, day) for hour in (1, 2, 3) for day in ("2026-03-29", "2026-10-25")),
        *(("Antarctica/Casey", hour, day) for hour in (0, 1, 2, 23) for day in ("2010-03-05", "2009-10-18")),
        *(("Asia/Gaza", hour, day) for hour in (0, 1, 2) for day in ("2015-03-28", "2026-03-28")),
        *(("Africa/Casablanca", hour, day) for hour in (2, 3) for day in ("2026-02-15", "2026-03-22")),
    ],
)
def test_the_daily_boundary_is_right_where_clocks_do_strange_things(name: str, hour: int, day: str) -> None:
    noon = datetime.combine(date.fromisoformat(day), time(12), UTC)
    zone = ZoneInfo(name)
    check_around(change_between(noon - 48 * HOUR, noon + 36 * HOUR, zone), hour, zone)


@settings(BRIEF, max_examples=40)
@given(zones, st.integers(1990, 2039), hours)
@example(ZoneInfo("Pacific/Kwajalein"), 1993, 0)
def test_each_day_reaches_its_hour_exactly_once(zone: ZoneInfo, year: int, hour: int) -> None:
    boundary = next_daily_boundary(datetime(year, 1, 1, tzinfo=UTC), hour, zone)
    wanted = datetime.combine(wall(boundary, zone).date(), time(hour))
    for _ in range(370):
        assert wall(boundary - TICK, zone) < wanted <= wall(boundary, zone)
        following = next_daily_boundary(boundary, hour, zone)
        assert following == next_daily_boundary(following - TICK, hour, zone)
        while wanted + DAY <= wall(boundary, zone):  # a day that was left out begins together with the next one
            wanted += DAY
        boundary, wanted = following, wanted + DAY


# By name, for people


def test_an_hour_that_does_not_exist_comes_with_the_jump() -> None:
    """Berlin, 29 March 2026: 01:59:59 is followed by 03:00:00."""
    jump = at("2026-03-29T01:00")
    assert next_daily_boundary(at("2026-03-28T12:00"), 2, BERLIN) == jump
    assert next_daily_boundary(jump, 2, BERLIN) == at("2026-03-30T00:00")


def test_an_hour_that_exists_twice_counts_once() -> None:
    """Berlin, 25 October 2026: 02:59:59 is followed by 02:00:00."""
    first, second = at("2026-10-25T00:00"), at("2026-10-25T01:00")
    assert wall(first, BERLIN) == wall(second, BERLIN)
    assert next_daily_boundary(at("2026-10-24T12:00"), 2, BERLIN) == first
    assert next_daily_boundary(second - TICK, 2, BERLIN) == next_daily_boundary(second, 2, BERLIN)
    assert next_daily_boundary(first, 2, BERLIN) == at("2026-10-26T01:00")


def test_a_midnight_that_does_not_exist() -> None:
    """São Paulo, 15 October 2017: 23:59:59 is followed by 01:00:00."""
    assert next_daily_boundary(at("2017-10-14T12:00"), 0, ZoneInfo("America/Sao_Paulo")) == at("2017-10-15T03:00")


def test_half_an_hour_of_summer_time() -> None:
    """Lord Howe, 4 October 2026: 02:00 becomes 02:30."""
    island = ZoneInfo("Australia/Lord_Howe")
    boundary = next_daily_boundary(at("2026-10-03T00:00"), 2, island)
    assert (boundary, wall(boundary, island)) == (at("2026-10-03T15:30"), at("2026-10-04T02:30").replace(tzinfo=None))


def test_a_day_that_was_left_out() -> None:
    """Apia had no 30 December 2011: the 29th was followed by the 31st."""
    apia = ZoneInfo("Pacific/Apia")
    morning = at("2011-12-29T04:00", apia)
    assert next_daily_boundary(morning, 4, apia) == at("2011-12-30T10:00")
    assert next_daily_boundary(at("2011-12-30T10:00"), 4, apia) == at("2011-12-31T04:00", apia)


# Decisions


@THOROUGH
@given(policies, moments, spans, spans, zones)
def test_what_is_due_stays_due(
    policy: ResetPolicy, last: datetime, early: timedelta, more: timedelta, zone: ZoneInfo
) -> None:
    now = last.astimezone(UTC) + early
    reason = due(policy, last, now, zone)
    assert reason is None or due(policy, last, now + more, zone) is reason


@THOROUGH
@given(policies, instants, spans, zones, zones)
def test_the_decision_does_not_depend_on_how_times_are_written(
    policy: ResetPolicy, last: datetime, span: timedelta, zone: ZoneInfo, other: ZoneInfo
) -> None:
    now = last + span
    plain = decide_reset(policy, last, now, zone)
    for one, two in ((zone, zone), (zone, other), (other, zone), (other, other)):
        assert decide_reset(policy, last.astimezone(one), now.astimezone(two), zone) == plain


@THOROUGH
@given(st.integers(1, 5_256_000), moments, zones)
def test_idle_is_exact(minutes: int, last: datetime, zone: ZoneInfo) -> None:
    policy = ResetPolicy(mode=ResetMode.IDLE, idle_minutes=minutes)
    end = last.astimezone(UTC) + timedelta(seconds=60 * minutes)
    assert due(policy, last, end - TICK, zone) is None
    assert due(policy, last, end, zone) is EndReason.IDLE


@THOROUGH
@given(hours, moments, zones)
def test_a_message_at_the_boundary_belongs_to_the_new_day(hour: int, last: datetime, zone: ZoneInfo) -> None:
    policy = ResetPolicy(mode=ResetMode.DAILY, at_hour=hour)
    boundary = next_daily_boundary(last, hour, zone)
    assert due(policy, last, boundary - TICK, zone) is None
    assert due(policy, last, boundary, zone) is EndReason.DAILY
    assert due(policy, boundary, boundary, zone) is None
    assert due(policy, boundary, boundary + HOUR, zone) is None


@THOROUGH
@given(policies, moments, spans, zones)
def test_both_means_the_first_to_come(policy: ResetPolicy, last: datetime, span: timedelta, zone: ZoneInfo) -> None:
    idle, daily, both = (
        decide_reset(
            ResetPolicy(mode=mode, idle_minutes=policy.idle_minutes, at_hour=policy.at_hour),
            last,
            last.astimezone(UTC) + span,
            zone,
        )
        for mode in (ResetMode.IDLE, ResetMode.DAILY, ResetMode.BOTH)
    )
    assert (both.reason is None) == (idle.reason is None and daily.reason is None)
    crossed = [one for one in (idle, daily) if one.boundary is not None]
    assert both.boundary == min((one.boundary for one in crossed if one.boundary), default=None)
    assert both.reason in {None, *(one.reason for one in crossed if one.boundary == both.boundary)}


@BRIEF
@given(policies, moments, spans, zones)
@example(
    ResetPolicy(mode=ResetMode.BOTH, idle_minutes=60), datetime(2026, 3, 1, 5, tzinfo=UTC), timedelta(hours=2), BERLIN
)
def test_only_what_the_policy_reaches_is_due(
    policy: ResetPolicy, last: datetime, span: timedelta, zone: ZoneInfo
) -> None:
    now = last + span
    reach = policy.latest_expired(now, zone)
    if due(policy, last, now, zone):
        assert reach is not None
        assert last <= reach
    if reach is not None:
        assert due(policy, reach - timedelta(microseconds=1), now, zone)


@given(moments, spans, zones)
def test_never_is_never_and_the_default(last: datetime, span: timedelta, zone: ZoneInfo) -> None:
    assert ResetPolicy().mode is ResetMode.NEVER
    assert decide_reset(ResetPolicy(), last, last.astimezone(UTC) + span, zone) == ResetDecision()


@BRIEF
@given(policies.filter(lambda policy: policy.mode is not ResetMode.NEVER), moments, zones)
def test_the_next_deadline_is_reported_and_is_true(policy: ResetPolicy, last: datetime, zone: ZoneInfo) -> None:
    decision = decide_reset(policy, last, last, zone)
    assert decision.reason is None
    assert decision.next is not None
    assert due(policy, last, decision.next - TICK, zone) is None
    assert due(policy, last, decision.next, zone) is not None


def test_a_message_before_the_last_one_resets_nothing() -> None:
    """Clocks of machines differ: `now` may lie before the last activity."""
    policy = ResetPolicy(mode=ResetMode.BOTH, idle_minutes=1, at_hour=0)
    assert due(policy, at("2026-01-02T00:00"), at("2026-01-01T00:00"), BERLIN) is None


@pytest.mark.parametrize("mode", [mode for mode in ResetMode if mode is not ResetMode.NEVER])
def test_a_time_without_offset_is_refused(mode: ResetMode) -> None:
    last, now = at("2026-01-01T00:00"), at("2026-02-01T00:00")
    for naive_last, naive_now in ((last.replace(tzinfo=None), now), (last, now.replace(tzinfo=None))):
        with pytest.raises(MalformedTime, match="offset"):
            decide_reset(ResetPolicy(mode=mode), naive_last, naive_now, BERLIN)


def test_a_process_that_started_without_offset_is_refused() -> None:
    with pytest.raises(MalformedTime, match="offset"):
        decide(NOW.replace(tzinfo=None))


# RST-4: background processes

IDLE = ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60)
LAST, NOW = at("2026-03-01T00:00"), at("2026-03-10T00:00")


HELD = ResetDecision(boundary=LAST + HOUR)


def decide(*started: datetime, now: datetime = NOW, limit: timedelta = DAY) -> ResetDecision:
    return decide_reset(IDLE, LAST, now, BERLIN, processes=started, process_limit=limit)


def test_a_young_process_holds_the_conversation() -> None:
    assert decide(NOW - 24 * HOUR + TICK) == HELD
    assert decide(NOW - 90 * DAY, NOW - HOUR) == HELD


def test_an_old_process_does_not_hold_it() -> None:
    assert decide(NOW - 24 * HOUR).reason is EndReason.IDLE
    assert decide().reason is EndReason.IDLE


def test_the_limit_can_be_set() -> None:
    assert decide(NOW - 2 * HOUR, limit=3 * HOUR) == HELD
    assert decide(NOW - 2 * HOUR, limit=HOUR).reason is EndReason.IDLE


def test_the_age_of_a_process_is_real_time() -> None:
    """From noon to noon Berlin counts 23 hours when summer time begins."""
    started, now = at("2026-03-28T12:00", BERLIN), at("2026-03-29T12:00", BERLIN)
    assert decide(started, now=now.astimezone(UTC)) == decide(started, now=now) == HELD


# RST-1 and 3


def test_the_defaults() -> None:
    assert (ResetPolicy().idle_minutes, ResetPolicy().at_hour) == (1440, 4)


@pytest.mark.parametrize("minutes", [0, -1, 5_256_001, 10**12])
def test_impossible_idle_minutes_are_refused(minutes: int) -> None:
    with pytest.raises(BadArgument, match=f"{minutes}.*Use 1 to"):
        ResetPolicy(idle_minutes=minutes)


@pytest.mark.parametrize("hour", [-1, 24, 400])
def test_impossible_hours_are_refused(hour: int) -> None:
    with pytest.raises(BadArgument, match=f"{hour}.*Use 0 to 23"):
        ResetPolicy(at_hour=hour)


def said(cause: Cause) -> Inbound:
    return Inbound(source=Source(platform="telegram"), text="hi", at=NOW, cause=cause)


def test_only_people_extend_idle_time() -> None:
    assert [cause for cause in Cause if said(cause).counts_as_activity] == [Cause.HUMAN]
