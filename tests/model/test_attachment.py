"""What is believed about a file, and what the agent learns of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.attachment import UNKNOWN_TYPE, Attachment, describe_attachment, detect_media_type, format_size
from palaver.model.label import Label

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("head", "claimed", "kind"),
    [
        (PNG, "text/plain", "image/png"),
        (b"plain words", "text/plain; charset=utf-8", "text/plain"),
        (b"plain words", "image/png", UNKNOWN_TYPE),
        (b"plain words", "TEXT/Markdown", "text/markdown"),
        (b"MZ\x90", "image/jpeg", "application/x-msdownload"),
        (b"RIFF0000WEBPxx", "", "image/webp"),
        (b"RIFF0000WAVExx", "audio/x-wav", "audio/wav"),
        (b"\0\0\0 ftypisom", "application/octet-stream", "video/mp4"),
        (b"\0\0\0 ftypM4A ", "audio/mp4", "audio/mp4"),
        (b"\0\0\0 ftypM4A ", "application/octet-stream", "audio/mp4"),
        (b"\0\0\0 ftypM4B ", "", "audio/mp4"),
        (b"\0\0\0 ftypisom", "audio/mp4", "audio/mp4"),
        (b"\0\0\0 ftypheic", "application/octet-stream", "image/heic"),
        (b"\x1aE\xdf\xa3", "audio/webm;codecs=opus", "audio/webm"),
        (b"\x1aE\xdf\xa3", "Audio/WebM", "audio/webm"),
        (b"\x1aE\xdf\xa3", "application/octet-stream", "video/webm"),
        (b"\x1aE\xdf\xa3", "image/png", "video/webm"),
        (b"", "nonsense", UNKNOWN_TYPE),
    ],
)
def test_a_file_is_what_it_begins_with(head: bytes, claimed: str, kind: str) -> None:
    assert detect_media_type(head, claimed) == kind


@given(st.binary(max_size=64), st.text(max_size=80))
def test_no_matter_what_is_claimed_the_type_is_one_plain_word(head: bytes, claimed: str) -> None:
    kind = detect_media_type(head, claimed)
    assert kind.isascii()
    assert kind.isprintable()
    assert kind.count("/") == 1


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_description_is_one_line_and_quotes_the_name(name: str, kind: str) -> None:
    told = describe_attachment(Attachment(Label(name), kind, 5, "ab" * 32))
    assert told.startswith("file " + "ab" * 8 + ': "')
    assert len(told.splitlines()) == 1


def test_sizes_are_reported_in_round_figures() -> None:
    assert [format_size(size) for size in (0, 1, 999, 1000, 20_000_000, 1_500_000_000, None)] == [
        "0 bytes",
        "1 byte",
        "999 bytes",
        "1 kB",
        "20 MB",
        "1.5 GB",
        "of unknown size",
    ]
