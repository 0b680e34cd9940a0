"""Identities that a chain of links joins are one person; who goes leaves the others together."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.model.links import Link, group_identities, replacement_links
from tests.strategies import BRIEF

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
def test_nobody_is_with_whom_no_chain_leads_to(pairs: list[tuple[str, str]]) -> None:
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
