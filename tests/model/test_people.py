"""How often and how long a stranger may ask, and how many wrong codes are too many."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.errors import BadArgument
from palaver.model.people import (
    CODE_ALPHABET,
    CODE_LENGTH,
    CODE_LIFETIME,
    LOCKOUT,
    MAX_FAILURES,
    MAX_KEPT_MESSAGES,
    MAX_NEW_STRANGERS,
    REQUEST_INTERVAL,
    Link,
    PairingRequest,
    Reception,
    code_hash,
    group_identities,
    locked_until,
    make_code,
    parse_code,
    receive_stranger,
    replacement_links,
)
from tests.strategies import BRIEF

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def asked(
    identity: str, ago: timedelta = timedelta(), *, first: timedelta | None = None, kept: int = 1
) -> PairingRequest:
    at = NOON - ago
    begun = at if first is None else NOON - first
    return PairingRequest(identity=identity, first=begun, at=at, expires=at + CODE_LIFETIME, kept=kept)


def test_the_numbers_are_those_of_the_specification() -> None:
    assert CODE_LIFETIME == LOCKOUT == timedelta(hours=1)
    assert timedelta(minutes=10) == REQUEST_INTERVAL
    assert MAX_FAILURES == 5


def test_the_first_message_gets_a_code_and_what_follows_waits_with_it() -> None:
    assert receive_stranger("a", [], NOON) is Reception.CODE
    assert receive_stranger("a", [asked("a", SECOND)], NOON) is Reception.WAITS
    assert receive_stranger("a", [asked("a", SECOND, kept=MAX_KEPT_MESSAGES)], NOON) is Reception.TOO_OFTEN


def test_one_request_per_person_in_ten_minutes() -> None:
    assert receive_stranger("a", [asked("a", REQUEST_INTERVAL - SECOND)], NOON) is Reception.WAITS
    assert receive_stranger("a", [asked("a", REQUEST_INTERVAL)], NOON) is Reception.CODE
    denied = PairingRequest(identity="a", first=NOON - SECOND, at=NOON - SECOND, expires=NOON)
    assert receive_stranger("a", [denied], NOON) is Reception.TOO_OFTEN


MANY = [str(number) for number in range(MAX_NEW_STRANGERS)]


def test_many_new_strangers_hold_up_others_for_ten_minutes_and_not_for_good() -> None:
    others = [asked(name, REQUEST_INTERVAL - SECOND) for name in MANY]
    assert receive_stranger("honest", others[1:], NOON) is Reception.CODE
    assert receive_stranger("honest", others, NOON) is Reception.TOO_MANY
    assert receive_stranger("honest", others, NOON + SECOND) is Reception.CODE
    again = [asked(name, SECOND, first=REQUEST_INTERVAL) for name in MANY]
    assert receive_stranger("honest", again, NOON) is Reception.CODE, "those who ask again do not count"
    fresh = [asked(name, SECOND) for name in MANY]
    for before, told in ((REQUEST_INTERVAL - SECOND, Reception.TOO_MANY), (REQUEST_INTERVAL, Reception.CODE)):
        assert receive_stranger("honest", fresh, NOON, turned_away=NOON - before) is told


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    yesterday = NOON - timedelta(days=1)
    others = [asked(name) for name in MANY]
    assert receive_stranger("d", others, yesterday) is Reception.CODE
    assert receive_stranger("1", others, yesterday) is Reception.CODE
    assert receive_stranger("d", others, NOON - SECOND) is Reception.TOO_MANY
    assert receive_stranger("1", others, NOON - SECOND) is Reception.WAITS


def test_five_wrong_codes_lock_out_for_an_hour() -> None:
    wrong = [NOON - minutes * timedelta(minutes=10) for minutes in range(5)]
    assert locked_until(wrong[:4]) is None
    assert locked_until(wrong) == NOON + LOCKOUT
    assert locked_until([NOON, *(NOON - timedelta(hours=2) for _ in range(4))]) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=200))
def test_no_matter_what_strangers_do_codes_are_few_and_come_slowly(said: list[tuple[int, int]]) -> None:
    requests: dict[str, PairingRequest] = {}
    given_to: dict[str, list[datetime]] = {}
    now = NOON
    for number, pause in said:
        now, who = now + timedelta(seconds=pause), str(number)
        if receive_stranger(who, requests.values(), now) is Reception.CODE:
            given_to.setdefault(who, []).append(now)
            first = requests[who].first if who in requests else now
            requests[who] = PairingRequest(identity=who, first=first, at=now, expires=now + CODE_LIFETIME)
        new = [each for each in requests.values() if now - each.first < REQUEST_INTERVAL]
        assert len(new) <= MAX_NEW_STRANGERS
    for times in given_to.values():
        assert all(later - earlier >= REQUEST_INTERVAL for earlier, later in pairwise(times))


# Codes that people read to each other.


@given(st.binary(min_size=16, max_size=16))
def test_a_code_has_eight_characters_without_look_alikes_and_is_read_back(chance: bytes) -> None:
    code = make_code(chance)
    assert len(code) == CODE_LENGTH == 8
    assert not set(code) & set("0O1IL2Z5S8B")
    assert set(code) <= set(CODE_ALPHABET)
    assert parse_code(f" {code[:4].lower()}-{code[4:]}") == code


@pytest.mark.parametrize("text", ["", "K7QM3XP", "K7QM3XPRR", "K7QM3XP0", "K7QM3XPß", "\x00" * 8, "A" * 1_000_000])
def test_what_is_no_code_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadArgument, match="8 of the characters") as refused:
        parse_code(text)
    assert len(str(refused.value)) < 300


def test_chance_makes_different_codes_and_salt_different_hashes() -> None:
    assert make_code(b"\x01" * 16) != make_code(b"\x02" * 16)
    assert code_hash("K7QM3XPR", "telegram:7") != code_hash("K7QM3XPR", "telegram:8")
    assert code_hash("K7QM3XPR", "a\ud800") == code_hash("K7QM3XPR", "a\ud800")


# Identities that a chain of links joins are one person; who goes leaves the others together.


NAMES = "abcdef"
pairs = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1]))


def links_of(pairs: list[tuple[str, str]]) -> list[Link]:
    return [Link(number, *pair) for number, pair in enumerate(pairs)]


@BRIEF
@given(pairs)
def test_everybody_is_in_one_circle_and_with_whom_they_are_linked(pairs: list[tuple[str, str]]) -> None:
    found = group_identities(NAMES, links_of(pairs))
    assert sorted(name for circle in found for name in circle) == list(NAMES)
    assert all(any({one, other} <= circle for circle in found) for one, other in pairs)


@BRIEF
@given(pairs)
def test_nobody_is_with_people_whom_no_chain_reaches(pairs: list[tuple[str, str]]) -> None:
    for circle in group_identities(NAMES, links_of(pairs)):
        reached = {min(circle)}
        for _ in NAMES:
            reached |= {name for pair in pairs if reached & set(pair) for name in pair}
        assert reached == circle


@BRIEF
@given(pairs, st.sampled_from(NAMES))
def test_who_goes_goes_alone_and_the_others_stay_together(pairs: list[tuple[str, str]], gone: str) -> None:
    links = links_of(pairs)
    before = group_identities(NAMES, links)
    kept = [link for link in links if gone not in link[1:]]
    after = group_identities(
        NAMES, [*kept, *(Link(0, *pair) for pair in replacement_links(gone, links) if gone not in pair)]
    )
    assert set(after) == {frozenset({gone}), *(circle - {gone} for circle in before if circle != {gone})}


def test_taking_back_the_last_link_gives_the_people_before_it() -> None:
    links = links_of([("a", "b"), ("c", "d"), ("b", "c")])
    assert group_identities("abcd", links) == [frozenset("abcd")]
    assert group_identities("abcd", links[:-1]) == [frozenset("ab"), frozenset("cd")]
