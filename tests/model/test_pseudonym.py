import re

from hypothesis import given
from hypothesis import strategies as st

from palaver.model.naming import Pseudonyms
from tests.strategies import BRIEF, ids

HERE, ELSEWHERE = Pseudonyms(b"k" * 32), Pseudonyms(b"other" * 8)
kinds = st.sampled_from(("user", "chat", "server_user", "thread"))
platforms = st.sampled_from(("telegram", "signal"))
facts = st.tuples(kinds, platforms, ids)


@BRIEF
@given(kinds, platforms, ids)
def test_a_pseudonym_tells_its_kind_and_nothing_else(kind: str, platform: str, identity: str) -> None:
    pseudonym = HERE.of(kind, platform, identity)
    assert re.fullmatch(rf"{kind}_[0-9a-f]{{16}}", pseudonym)
    assert pseudonym == HERE.of(kind, platform, identity)
    assert pseudonym != ELSEWHERE.of(kind, platform, identity)


@BRIEF
@given(facts, facts)
def test_different_ids_have_different_pseudonyms(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (HERE.of(*one) == HERE.of(*other)) == (one == other)


def test_ids_cannot_reach_into_the_platform() -> None:
    assert HERE.of("user", "a", "b:c").removeprefix("user_") != HERE.of("user", "a:b", "c").removeprefix("user_")


@BRIEF
@given(kinds, platforms, st.lists(ids, min_size=1))
def test_the_operator_can_resolve_a_pseudonym(kind: str, platform: str, known: list[str]) -> None:
    assert HERE.resolve(HERE.of(kind, platform, known[-1]), platform, known) == known[-1]


def test_what_is_not_known_is_not_resolved() -> None:
    pseudonym = HERE.of("user", "telegram", "7")
    assert HERE.resolve(pseudonym, "telegram", ["8"]) is None
    assert HERE.resolve(pseudonym, "signal", ["7"]) is None
    assert ELSEWHERE.resolve(pseudonym, "telegram", ["7"]) is None
    assert HERE.resolve("", "telegram", ["7"]) is None
    assert HERE.resolve("no pseudonym", "telegram", ["7"]) is None


def test_the_secret_is_not_shown() -> None:
    assert "kkkk" not in repr(HERE)
