from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.text import can_cut, last_cut

FLAG_ES, FLAG_FR = "\U0001f1ea\U0001f1f8", "\U0001f1eb\U0001f1f7"

WHOLE = [
    "e\u0301",
    "e\u0301\u0323\u0302",
    "\r\n",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "❤️‍🔥",
    "1️⃣",
    FLAG_ES,
    "\u1112\u1161\u11ab",
    "\uac00\u11a8",
    "क्षि",
    "नि",
    "ทำ",
    "\u0600١",
    "\ud83d\ude00",
]
APART = ["ab", "a b", "\n\r", "\n\u0301", "漢字", "한글", "👍👍", "\u200b\u0301", "é" + "e", "\ude00\ud83d", "가나"]


def graphemes(text: str) -> list[str]:
    cuts = [i for i in range(len(text) + 1) if can_cut(text, i)]
    return [text[a:b] for a, b in pairwise(cuts)]


@pytest.mark.parametrize("whole", WHOLE, ids=ascii)
def test_one_character_is_never_cut(whole: str) -> None:
    assert graphemes("a" + whole + "b") in (["a", whole, "b"], ["a", whole + "b"])
    assert graphemes(whole) == [whole]


@pytest.mark.parametrize("two", APART, ids=ascii)
def test_two_characters_come_apart(two: str) -> None:
    assert graphemes(two) == list(two)


@given(st.lists(st.sampled_from([*WHOLE[:8], *WHOLE[9:12], "a", "漢", " "])))
def test_a_text_falls_into_the_characters_it_was_made_of(characters: list[str]) -> None:
    assert graphemes("".join(characters)) == characters


def test_flags_are_paired_from_the_start_of_their_run() -> None:
    assert graphemes("x" + FLAG_ES + FLAG_FR + "\U0001f1ea") == ["x", FLAG_ES, FLAG_FR, "\U0001f1ea"]


def test_flags_are_paired_from_a_known_cut() -> None:
    run = "\U0001f1ea" * 5
    assert [i for i in range(1, 6) if can_cut(run, i, 1)] == [1, 3, 5]


@given(st.text(alphabet=[*"ab \r\n\u0301\u200d👍🏽क्", *FLAG_ES]), st.data())
def test_the_last_cut_is_the_last_of_all_cuts(text: str, data: st.DataObject) -> None:
    stop = data.draw(st.integers(0, len(text)))
    assert last_cut(text, 0, stop) == max(i for i in range(stop + 1) if can_cut(text, i))


@pytest.mark.parametrize("char", ["\u0301", "\U0001f1ea", "\u200d"])
def test_a_long_run_of_the_same_is_no_burden(char: str) -> None:
    assert last_cut(char * 300_000, 0, 299_999) in (0, 299_998)
