"""Markdown becomes the marks of a platform: next to words, closed on each line, and nothing is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.split import Unit
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks, to_plain, to_spans
from tests.platforms.markdown_texts import MARKUP

PLAIN = Marks()
STARS = Marks(bold="*", italic="_", struck="~", code="`", code_block="```")
LINKS = Marks(
    bold="**",
    code_block="```",
    has_languages=True,
    link=lambda url: (f"<{url}|", ">"),
    escape=lambda text: text.replace("*", "\\*"),
    layout=Layout(is_linked=is_web_link, bullet="- "),
)


@pytest.mark.parametrize(
    ("marks", "text", "shown"),
    [
        (STARS, "**bold**, *it*, ~~no~~ and `x*y`", "*bold*, _it_, ~no~ and `x*y`"),
        (STARS, "**all *both* all**", "*all _both_ all*"),
        (STARS, "**one\ntwo**", "*one*\n*two*"),
        (STARS, "**see `x` there**", "*see* `x` *there*"),
        (STARS, "# Tea\n\n- a\n- **b**", "*Tea*\n\n• a\n• *b*"),
        (STARS, "> a\n> b", "> a\n> b"),
        (STARS, "`` a`b ``", "a`b"),
        (STARS, "```py\nx = 1\n```", "```\nx = 1\n```"),
        (STARS, "[x](https://e.org)", "x (https://e.org)"),
        (STARS, "| a | b |\n|---|---|\n| 1 | 22 |", "```\na | b\n--+---\n1 | 22\n```"),
        (LINKS, "[**x** y](https://e.org) 2 \\* 3", "<https://e.org|**x** y> 2 \\* 3"),
        (LINKS, "```py\n2 * 3\n```", "```py\n2 * 3\n```"),
        (LINKS, "- *a*", "- a"),
        (PLAIN, "**bold** `x`\n\n```\ny\n```", "bold x\n\ny"),
    ],
)
def test_each_platform_brings_its_marks(marks: Marks, text: str, shown: str) -> None:
    assert to_marks(text, marks) == shown


UNUSUAL = Marks(bold="\ue000", italic="\ue001", struck="\ue002", code="\ue003", code_block="\ue004")


@given(st.lists(MARKUP, max_size=30).map("".join))
def test_without_its_marks_it_is_the_plain_text(text: str) -> None:
    """Where code begins and ends there are line breaks besides."""
    marked = to_marks(text, UNUSUAL)
    assert "".join(re.sub(r"[\ue000-\ue004]", "", marked).split()) == "".join(to_spans(text, Layout()).text.split())


@given(st.lists(MARKUP, max_size=30).map("".join))
def test_marks_stand_in_pairs_on_their_line_next_to_words(text: str) -> None:
    for line in re.sub("\ue004[^\ue004]*\ue004", "", to_marks(text, UNUSUAL)).split("\n"):
        for mark in "\ue000\ue001\ue002":
            parts = line.split(mark)
            assert len(parts) % 2
            assert all(part.strip() == part for part in parts[1::2])


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
    assert to_plain(text) == to_plain(text, len(shown)) == shown


def test_what_would_get_too_long_stays_as_written() -> None:
    assert to_plain("- 👍\n" * 5, 24, Unit.UTF16) == to_plain("- 👍\n" * 5).strip()
    assert to_plain("- 👍\n" * 5, 23, Unit.UTF16) == "- 👍\n" * 5
