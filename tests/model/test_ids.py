import pytest
from hypothesis import given

from palaver.model.errors import MalformedSource
from palaver.model.source import MAX_IDS_BYTES, check_ids, decode_id, encode_id
from tests.strategies import THOROUGH, ids, texts


@THOROUGH
@given(ids)
def test_an_id_survives_its_encoding(value: str) -> None:
    assert decode_id(encode_id(value)) == value


@THOROUGH
@given(ids)
def test_an_encoded_id_holds_no_separator(value: str) -> None:
    encoded = encode_id(value)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert not set(encoded) & set(":,/ \\")


def test_plain_ids_stay_readable() -> None:
    for plain in ("-100123", "alice", "+4917012345", "a.b_c-d", "!room", "$event", "user@host"):
        assert encode_id(plain) == plain


def test_what_looks_encoded_is_encoded_again() -> None:
    assert encode_id("%3A") == "%253A"
    assert encode_id(":") == "%3A"
    assert decode_id("%253A") == "%3A"


@THOROUGH
@given(texts)
def test_any_text_can_be_decoded(text: str) -> None:
    assert isinstance(decode_id(text), str)


def test_text_that_is_no_valid_encoding_stands_for_itself() -> None:
    for broken in ("%", "%FF", "100%", "%zz", "%C3"):
        assert decode_id(broken) == broken


@pytest.mark.parametrize("width", ["a", ":", "é", "長", "\U0001f600", "\ud800"], ids=ascii)
def test_ids_are_as_long_as_they_are_written(width: str) -> None:
    most = MAX_IDS_BYTES // len(encode_id(width))
    check_ids("message", width * (most // 2), None, width * (most - most // 2))
    with pytest.raises(
        MalformedSource, match=r"ids of a message are too long: \d+ bytes\. Use at most \d+ bytes together"
    ):
        check_ids("message", width * most, "", width)
