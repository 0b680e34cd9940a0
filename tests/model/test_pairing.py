"""How often and how long a stranger may ask, and how many wrong codes are too many."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from palaver.model.pairing import (
    CODE_LIFETIME,
    LOCKOUT,
    MAX_FAILURES,
    MAX_KEPT_MESSAGES,
    MAX_PENDING,
    REQUEST_INTERVAL,
    PairingRequest,
    Reception,
    locked_until,
    receive_stranger,
)

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def asked(identity: str, ago: timedelta = timedelta(), *, kept: int = 1) -> PairingRequest:
    return PairingRequest(identity=identity, at=NOON - ago, expires=NOON - ago + CODE_LIFETIME, kept=kept)


def test_the_numbers_are_those_of_the_specification() -> None:
    assert CODE_LIFETIME == LOCKOUT == timedelta(hours=1)
    assert timedelta(minutes=10) == REQUEST_INTERVAL
    assert (MAX_PENDING, MAX_FAILURES) == (3, 5)


def test_the_first_message_gets_a_code_and_what_follows_waits_with_it() -> None:
    assert receive_stranger("a", [], NOON) is Reception.CODE
    assert receive_stranger("a", [asked("a", SECOND)], NOON) is Reception.WAITS
    assert receive_stranger("a", [asked("a", SECOND, kept=MAX_KEPT_MESSAGES)], NOON) is Reception.TOO_OFTEN


def test_one_request_per_person_in_ten_minutes() -> None:
    assert receive_stranger("a", [asked("a", REQUEST_INTERVAL - SECOND)], NOON) is Reception.WAITS
    assert receive_stranger("a", [asked("a", REQUEST_INTERVAL)], NOON) is Reception.CODE
    denied = PairingRequest(identity="a", at=NOON - SECOND, expires=NOON)
    assert receive_stranger("a", [denied], NOON) is Reception.TOO_OFTEN


def test_three_wait_at_once_and_a_fourth_does_not_until_a_code_runs_out() -> None:
    others = [asked(name, CODE_LIFETIME - SECOND) for name in "abc"]
    assert receive_stranger("d", others[:2], NOON) is Reception.CODE
    assert receive_stranger("d", others, NOON) is Reception.TOO_MANY
    assert receive_stranger("d", others, NOON + SECOND) is Reception.CODE
    assert receive_stranger("a", others, NOON) is Reception.CODE


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    yesterday = NOON - timedelta(days=1)
    others = [asked(name) for name in "abc"]
    assert receive_stranger("d", others, yesterday) is Reception.CODE
    assert receive_stranger("a", others, yesterday) is Reception.CODE
    assert receive_stranger("d", others, NOON - SECOND) is Reception.TOO_MANY
    assert receive_stranger("a", others, NOON - SECOND) is Reception.WAITS


def test_five_wrong_codes_lock_out_for_an_hour() -> None:
    wrong = [NOON - minutes * timedelta(minutes=10) for minutes in range(5)]
    assert locked_until(wrong[:4]) is None
    assert locked_until(wrong) == NOON + LOCKOUT
    assert locked_until([NOON, *(NOON - timedelta(hours=2) for _ in range(4))]) is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 7200)), max_size=60))
def test_whatever_strangers_do_few_codes_are_out(said: list[tuple[str, int]]) -> None:
    requests: dict[str, PairingRequest] = {}
    given_to: dict[str, list[datetime]] = {}
    now = NOON
    for who, pause in said:
        now += timedelta(seconds=pause)
        if receive_stranger(who, requests.values(), now) is Reception.CODE:
            given_to.setdefault(who, []).append(now)
            requests[who] = PairingRequest(identity=who, at=now, expires=now + CODE_LIFETIME)
        assert sum(now < each.expires for each in requests.values()) <= MAX_PENDING
    for times in given_to.values():
        assert all(later - earlier >= REQUEST_INTERVAL for earlier, later in pairwise(times))
