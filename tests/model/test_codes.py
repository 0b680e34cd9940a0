"""Codes that people read to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.codes import CODE_ALPHABET, CODE_LENGTH, code_hash, make_code, parse_code
from palaver.model.errors import BadArgument


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
