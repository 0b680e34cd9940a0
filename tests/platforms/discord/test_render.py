"""Markdown as Discord shows it: its own marks, and nothing else that looks like one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaver.platforms.discord.adapter import MAX_TEXT, render
from tests.platforms.discord.fakes import seen


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** *italic* __strong__ ~~gone~~ `x_y`", "**bold** *italic* **strong** ~~gone~~ `x_y`"),
        ("# Tea\n\n- green\n- black\n  - strong", "**Tea**\n\n- green\n- black\n   - strong"),
        ("> said\n> so", "> said\n> so"),
        ("[here](https://example.org/a_(b))", "[here](https://example.org/a_(b%29)"),
        ("see https://example.org/a_b_c?x=*y*", "see https://example.org/a_b_c?x=*y*"),
        ("<@7> <@!7> <@&8> <#9> <:smile_x:1> <t:5:R>", "<@7> <@!7> <@&8> <#9> <:smile_x:1> <t:5:R>"),
        ("```py\nx = 1\n```", "```py\nx = 1\n```"),
        ("a_b_c and 2 * 3 * 4 ||no spoiler||", r"a\_b\_c and 2 \* 3 \* 4 \|\|no spoiler\|\|"),
        (r"\# no heading", r"\# no heading"),
        (r"\- no list", r"\- no list"),
        ("-# not small", r"\-# not small"),
        (r"\[no\](https://example.org)", r"\[no](https://example.org)"),
        ("a \\\\ b", r"a \\ b"),
    ],
)
def test_marks(text: str, shown: str) -> None:
    assert render(text) == shown


def test_a_table_is_a_code_block() -> None:
    assert render("| a | b |\n|---|---|\n| 1 | 2 |").startswith("```\na | b\n")


def test_a_text_that_gets_too_long_stays_as_written() -> None:
    text = "*" * 1500
    assert render(f"x {text}") == f"x {text}"


@settings(max_examples=40)
@given(st.text(st.sampled_from("ab *_~`|[](){}#>-+.!\\\\\"'é🎉1"), max_size=60))
def test_a_line_of_plain_text_is_seen_as_it_is(text: str) -> None:
    """Escaped, so that Markdown takes nothing in it for a mark."""
    plain = " ".join(text.split())
    escaped = "".join(f"\\{each}" if each.isascii() and not each.isalnum() and each != " " else each for each in plain)
    if plain and "://" not in plain and "<" not in plain:
        assert seen(render(escaped)) == plain


@settings(max_examples=30)
@given(st.text(max_size=100).map(lambda text: text * 25))
def test_it_is_never_too_long_or_empty(text: str) -> None:
    shown = render(text)
    assert len(shown) <= max(MAX_TEXT, len(text))
    assert bool(shown.strip()) or not text.strip() or shown == text
