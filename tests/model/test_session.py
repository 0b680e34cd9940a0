import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.errors import BadArgument
from palaver.model.session import TITLE_LIMIT, clean_title, lineage, newest_of_lineage, next_in_lineage
from tests.strategies import BRIEF, THOROUGH, texts

bases = st.sampled_from(("x", "y", "x #draft", "x #1", "x #02", "#2", "z" * 95, "z" * 100))
titles = st.one_of(bases, st.builds("{} #{}".format, st.sampled_from(("x", "y")), st.integers(0, 12)))


@THOROUGH
@given(texts)
def test_a_clean_title_is_short_visible_and_stays_as_it_is(text: str) -> None:
    try:
        title = clean_title(text)
    except BadArgument:
        return
    assert 0 < len(title) <= TITLE_LIMIT == 100
    assert not {unicodedata.category(c) for c in title} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert clean_title(title) == title


@pytest.mark.parametrize("empty", ["", " ", "\n\t", "\u200b\u202e", "\0", "\u3164", "\ufe0f"])
def test_a_title_nobody_can_see_is_refused(empty: str) -> None:
    with pytest.raises(BadArgument, match="visible characters"):
        clean_title(empty)


def test_hidden_characters_leave_a_title() -> None:
    assert clean_title(" Ho\u200bli\u202eday\n plans\0 ") == "Holiday plans"


def test_a_title_is_normal_and_cut_between_what_people_see_as_characters() -> None:
    assert clean_title("Caf" + "e" + "\u200b\u0301") == "Caf\u00e9"
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for before in range(90, 101):
        cut = clean_title("x" * before + family * 3)
        assert cut.removesuffix("…").lstrip("x").replace(family, "") == "", before
        following = next_in_lineage(cut, [cut])
        assert following.removesuffix(" #2").removesuffix("…").lstrip("x").replace(family, "") == "", before
    assert len(clean_title("e" + "\u0300\u0323" * 90)) == 100, "one endless character is cut nevertheless"


@pytest.mark.parametrize(
    ("title", "parts"),
    [
        ("x", ("x", 1)),
        ("x #2", ("x", 2)),
        ("x #10", ("x", 10)),
        ("x #2 #3", ("x #2", 3)),
        ("x #draft", ("x #draft", 1)),
        ("x #0", ("x #0", 1)),
        ("x #1", ("x #1", 1)),
        ("x #02", ("x #02", 1)),
        ("x #2b", ("x #2b", 1)),
        ("x#2", ("x#2", 1)),
        ("#2", ("#2", 1)),
        ("x #²", ("x #²", 1)),
        ("x #٣", ("x #٣", 1)),
    ],
)
def test_the_lineage_of_a_title(title: str, parts: tuple[str, int]) -> None:
    assert lineage(title) == parts


def test_a_name_that_is_taken_gets_the_next_number() -> None:
    assert next_in_lineage("x", ()) == "x"
    assert next_in_lineage("x", ["x"]) == "x #2"
    assert next_in_lineage("x", ["x", "x #2"]) == "x #3"
    assert next_in_lineage("x", ["x", "x #7", "x #draft", "y #9"]) == "x #8"
    assert next_in_lineage("x #2", ["x", "x #2"]) == "x #3"
    assert next_in_lineage("x #2", ["x"]) == "x #2"
    assert next_in_lineage("x #draft", ["x #draft"]) == "x #draft #2"
    assert next_in_lineage("x", ["x #4", "x #draft"]) == "x #5", "x means the newest, so a second x would not be found"


@THOROUGH
@given(titles, st.sets(titles))
def test_the_next_title_is_free_and_a_title(title: str, taken: set[str]) -> None:
    following = next_in_lineage(title, taken)
    assert following not in taken
    assert clean_title(following) == following


@BRIEF
@given(bases)
def test_a_lineage_can_grow_for_ever(title: str) -> None:
    taken: list[str] = []
    for _ in range(30):
        taken.append(next_in_lineage(title, taken))
    assert len(set(taken)) == 30


def test_asking_for_a_title_means_the_newest_of_exactly_that_lineage() -> None:
    taken = ["x", "x #2", "x #10", "x #9", "x #draft", "x y #11", "xx #12"]
    assert newest_of_lineage("x", taken) == "x #10"
    assert newest_of_lineage("x #2", taken) == "x #2"
    assert newest_of_lineage("x #3", taken) is None
    assert newest_of_lineage("x #draft", taken) == "x #draft"
    assert newest_of_lineage("z", taken) is None
    assert newest_of_lineage("x", ["x #4"]) == "x #4"


@BRIEF
@given(st.text("xyz ", min_size=1, max_size=90).map(str.strip).filter(bool), st.integers(1, 20))
def test_the_newest_is_the_one_named_last(title: str, count: int) -> None:
    taken: list[str] = []
    for _ in range(count):
        taken.append(next_in_lineage(title, taken))
    assert newest_of_lineage(title, reversed(taken)) == taken[-1]


@BRIEF
@given(st.integers(0, 100), st.text("ab", max_size=8), st.text("ab", max_size=8), st.integers(1, 12))
def test_titles_that_differ_are_of_different_lineages(same: int, one: str, other: str, times: int) -> None:
    first, second = ("x" * min(same, TITLE_LIMIT - len(end)) + end or "x" for end in (one, other))
    taken: set[str] = set()
    for title in (first, second) * times:
        taken.add(next_in_lineage(title, taken))
    if first != second:
        newest = {newest_of_lineage(title, taken) for title in (first, second)}
        assert len(newest) == 2


def test_the_newest_of_a_long_title_is_found() -> None:
    title = "x" * TITLE_LIMIT
    second = next_in_lineage(title, [title])
    assert newest_of_lineage(title, [title, second]) == second
    assert newest_of_lineage("x" * 99 + "y", [title]) is None


@BRIEF
@given(st.text("xyz #2", min_size=1, max_size=100).map(str.strip).filter(bool), st.sets(titles), st.integers(1, 20))
def test_the_next_title_is_found_no_matter_what_it_is(title: str, others: set[str], count: int) -> None:
    for _ in range(count):
        following = next_in_lineage(title, others)
        others.add(following)
        if lineage(title)[1] == 1 and following != title:
            assert newest_of_lineage(title, others) == following


def test_the_newest_after_the_largest_number_is_found() -> None:
    taken = ["x", "x #999999999"]
    following = next_in_lineage("x", taken)
    assert newest_of_lineage("x", [*taken, following]) == following
