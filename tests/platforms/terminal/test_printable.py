"""Nothing that is shown can play tricks on a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from palaver.platforms.terminal.client import printable

TURNING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(st.text(st.characters()))
def test_no_control_character_is_left(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t"]
    assert not TURNING & set(shown)
    shown.encode()


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_words_are_left_alone(text: str) -> None:
    assert printable(text) == text


def test_what_is_taken_out_is_written_as_a_number() -> None:
    assert printable("a\x1b[31mred\x07\r\nnext\ttab") == "a\\x1b[31mred\\x07\nnext\ttab"
    assert printable("👩‍👩‍👧 ❤️") == "👩‍👩‍👧 ❤️"
