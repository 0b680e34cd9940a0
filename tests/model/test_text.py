import re
import unicodedata
from itertools import accumulate, chain, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from palaver.model.label import Label
from palaver.model.session import clean_title
from palaver.model.text import (
    can_cut,
    counted,
    escape_invisible,
    last_cut,
    listed,
    one_line,
    quoted,
    strip_markdown,
    without_invisible,
)
from tests.strategies import THOROUGH, ids, texts

# Unicode's Default_Ignorable_Code_Point, assigned characters only: what shows as nothing at all.
IGNORABLE = tuple(
    map(
        chr,
        chain(
            (0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
            range(0x180B, 0x1810),
            range(0x200B, 0x2010),
            range(0x202A, 0x202F),
            range(0x2060, 0x2070),
            range(0xFE00, 0xFE10),
            range(0x1D173, 0x1D17B),
            range(0xE0000, 0xE1000),
        ),
    )
)
JOINED = ("👨‍👩‍👧‍👦", "❤‍🔥", "👩🏽‍🚀", "می‌خواهم", "ക്‌ഷ", "ක්‍ෂ", "র‍্যাব", "അവന്‍")
"""What looks different without its joiners."""
SIGNS = ("a", " ", "\n", "\u2028", "\x85", "👨", "ی", "ا", "്", "ന", "\u200c", "\u200d", *IGNORABLE)
hostile = st.one_of(texts, ids, st.text(st.sampled_from(SIGNS)), st.lists(st.sampled_from(JOINED)).map("".join))
limits = st.integers(1, 60)


def assert_visible(line: str) -> None:
    """A joiner is next to something that it changes; nothing else is invisible."""
    rest = re.sub("(?<=[^\\x00-\\x7f\u200c\u200d])[\u200c\u200d]", "", line)
    assert not {unicodedata.category(c) for c in rest} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not set(rest) & set(IGNORABLE)


@THOROUGH
@given(hostile, limits)
def test_the_result_is_one_visible_bounded_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert_visible(line)
    assert line == line.strip()


@THOROUGH
@given(hostile, limits)
def test_folding_twice_changes_nothing(text: str, limit: int) -> None:
    assert one_line(one_line(text, limit), limit) == one_line(text, limit)


def test_no_invisible_character_tells_two_lines_apart() -> None:
    assert {one_line(f"a{unseen}b", 10) for unseen in IGNORABLE} == {"ab"}


def test_words_stay_apart_where_lines_were_joined() -> None:
    for gap in ("\n", "\r\n", "\t", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\u00a0", "\u3000", " \n "):
        assert one_line(f"a{gap}b", 10) == "a b"


def test_what_is_cut_ends_in_an_ellipsis() -> None:
    assert one_line("abcdef", 6) == "abcdef"
    assert one_line("abcdefg", 6) == "abcde…"
    assert one_line("abcd efg", 6) == "abcd…"


def test_letters_of_every_script_stay() -> None:
    for text in ("Grüße", "日本語", "שלום", "नमस्ते", "😀", "e\u0301"):
        assert one_line(text, 20) == text


@pytest.mark.parametrize("text", JOINED, ids=ascii)
def test_joiners_stay_where_they_change_what_is_seen(text: str) -> None:
    assert text in one_line(f"{text} a", 30)
    assert text in quoted(f"{text} a")
    assert without_invisible(f"{text}\n") == f"{text}\n"
    assert clean_title(text) == Label(text).plain() == text


@pytest.mark.parametrize("joiner", ["\u200c", "\u200d"])
def test_joiners_that_nobody_sees_go(joiner: str) -> None:
    for text in ("ab", "👨a", "a👩", "👨", "", "日本", "دا", "+=", " "):
        assert one_line(f"x{joiner.join(text)}{joiner}x", 20) == one_line(f"x{text}x", 20)
    assert one_line(f"👨{joiner}{joiner}👩", 20) == "👨👩"
    assert one_line(f"{joiner}👨{joiner}", 20) == "👨"


def test_a_cut_leaves_no_joiner_behind() -> None:
    assert one_line("👨‍👩‍👧‍👦", 3) == "👨…"


def test_one_and_many() -> None:
    assert [counted(number, "turn") for number in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]
    assert [counted(number, "entry") for number in (1, 2)] == ["1 entry", "2 entries"]
    assert [counted(number, "row is", "rows are") for number in (1, 2)] == ["1 row is", "2 rows are"]
    assert counted(3, "day") == "3 days"


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, ""), (1, "0"), (2, "0, 1"), (20, ", 18, 19"), (21, ", 18, 19 and 1 more"), (500, ", 18, 19 and 480 more")],
)
def test_a_long_list_says_how_many_more_there_are(count: int, told: str) -> None:
    assert listed(map(str, range(count))).endswith(told)


def test_shown_is_quoted_and_short() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted(" 4 ") == "' 4 '"
    assert len(quoted("x" * 10_000)) == len(quoted("\u200b" * 10_000)) == 82


@THOROUGH
@given(hostile)
def test_anything_that_cannot_be_seen_is_written(text: str) -> None:
    line = escape_invisible(text)
    assert_visible(line)
    assert escape_invisible(line) == line


def test_every_invisible_character_tells_two_texts_apart() -> None:
    unseen = ("", " ", "\u00a0", "\u3000", "\n", "\ud800", *IGNORABLE)
    assert len({escape_invisible(f"a{each}b") for each in unseen}) == len(unseen)
    assert escape_invisible("a\u200bb") == r"a\u200bb"
    assert escape_invisible("日本語 Grüße") == "日本語 Grüße"


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


@given(
    st.lists(
        st.sampled_from([*WHOLE, *APART, "\u094d", "\u093c", "\u0301", "\u200d", "\ufe0f", "\u17d2", "\u1780", "\r"])
    )
    .map("".join)
    .filter(lambda text: not re.search("[\ud800-\udfff]", text))
)
@example("क\u094d\u093cक")
@example("\u1780\u17d2\u0301\u1780")
def test_no_cut_lies_inside_a_grapheme_of_the_standard(text: str) -> None:
    """UAX 29, as wcwidth implements it."""
    assert {0, *accumulate(map(len, iter_graphemes(text)))} >= {i for i in range(len(text) + 1) if can_cut(text, i)}


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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("# Plan a **trip** to `Lisbon`", "Plan a trip to Lisbon"),
        ("See [the timetable](https://example.org)", "See the timetable"),
        ("- one\n> **_two_**", "one two"),
        ("Why?\n```python\nprint(1)\n```", "Why? print(1)"),
        ("2 * 3 * 4, snake_case_name, C# or F#", "2 * 3 * 4, snake_case_name, C# or F#"),
    ],
)
def test_a_name_has_no_signs_of_markdown(text: str, name: str) -> None:
    assert strip_markdown(text) == name
