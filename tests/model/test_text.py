import unicodedata
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from palaver.model.text import escape_invisible, one_line, quoted
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
hostile = st.one_of(texts, ids, st.text(st.sampled_from(("a", " ", "\n", "\u2028", "\x85", *IGNORABLE))))
limits = st.integers(1, 60)


@THOROUGH
@given(hostile, limits)
def test_the_result_is_one_visible_bounded_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert not {unicodedata.category(c) for c in line} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not set(line) & set(IGNORABLE)
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


def test_shown_is_quoted_and_short() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted(" 4 ") == "' 4 '"
    assert len(quoted("x" * 10_000)) == len(quoted("\u200b" * 10_000)) == 82


@THOROUGH
@given(hostile)
def test_whatever_cannot_be_seen_is_written(text: str) -> None:
    line = escape_invisible(text)
    assert not {unicodedata.category(c) for c in line} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not set(line) & set(IGNORABLE)
    assert escape_invisible(line) == line


def test_every_invisible_character_tells_two_texts_apart() -> None:
    unseen = ("", " ", "\u00a0", "\u3000", "\n", "\ud800", *IGNORABLE)
    assert len({escape_invisible(f"a{each}b") for each in unseen}) == len(unseen)
    assert escape_invisible("a\u200bb") == r"a\u200bb"
    assert escape_invisible("日本語 Grüße") == "日本語 Grüße"
