"""Answers are plain text, and files have names that are no paths."""

import pytest

from palaver.platforms.imessage.render import file_name, render
from palaver.protocols import Label


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**Yes**, at *nine*.", "Yes, at nine."),
        ("# Plan\n- tea\n- cake", "Plan\n\n• tea\n• cake"),
        ("See [the map](https://example.org/map).", "See the map (https://example.org/map)."),
        ("```py\nprint(1)\n```", "print(1)"),
        ("`x` ~~no~~", "x no"),
        ("2 * 3 * 4, a_b_c <b>", "2 * 3 * 4, a_b_c <b>"),
        ("---", "———"),
        ("[](x)", "x"),
    ],
)
def test_markdown_becomes_plain_text(text: str, shown: str) -> None:
    assert render(text) == shown


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("notes.txt", "notes.txt"),
        ("../../etc/passwd", "..:..:etc:passwd"),
        ("..", "file"),
        ("", "file"),
    ],
)
def test_a_file_name_is_no_path(name: str, given: str) -> None:
    assert file_name(Label(name)) == given
