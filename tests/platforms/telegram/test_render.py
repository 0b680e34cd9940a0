"""Our Markdown as Telegram shows it: well-formed no matter what comes, and no word lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.engine import texts
from palaver.model.label import Label
from palaver.model.source import named_identity
from palaver.model.split import Unit
from palaver.platforms.telegram.send import MAX_ENTITIES, Rendered, render
from tests.platforms.markdown_texts import MARKUP

ROOM = 4096


def marked(text: str) -> tuple[str, list[tuple[str, ...]]]:
    """The text, and what is marked in it, each with its kind and detail."""
    shown = render(text, ROOM)
    return shown.text, [
        tuple(filter(None, (mark.kind, _part(shown, mark.offset, mark.length), mark.detail))) for mark in shown.spans
    ]


def _part(shown: Rendered, offset: int, length: int) -> str:
    return shown.text.encode("utf-16-le")[2 * offset : 2 * (offset + length)].decode("utf-16-le")


def test_the_name_of_a_stranger_stays_text() -> None:
    for name in (
        "**bold** [Approve](https://x.org)",
        "`](https://x.org)`",
        "_a_",
        "https://x.org",
        "a\\`*b*",
        "/stop @all",
    ):
        asked = texts.access_asked(named_identity("telegram:5", Label(name)), "telegram", "telegram:5")
        shown, marks = marked(asked)
        assert [kind for kind, *_ in marks] == ["code"]
        assert shown == asked.replace("`", "")
    assert marked(named_identity("telegram:5", Label("Ann Lee 🐦"))) == ('telegram:5 ("Ann Lee 🐦")', [])


@pytest.mark.parametrize(
    ("text", "shown", "marks"),
    [
        ("plain\ntext", "plain\ntext", []),
        ("*a* _b_ **c** ~~d~~", "a b c d", [("italic", "a"), ("italic", "b"), ("bold", "c"), ("strikethrough", "d")]),
        ("👩‍👧 **b**", "👩‍👧 b", [("bold", "b")]),
        ("**a *b***", "a b", [("bold", "a b"), ("italic", "b")]),
        ("**a `c` b**", "a c b", [("bold", "a "), ("code", "c"), ("bold", " b")]),
        ("# Head", "Head", [("bold", "Head")]),
        ("a\n***\nb", "a\n\n———\n\nb", []),
        ("[a](https://x.org)", "a", [("text_link", "a", "https://x.org")]),
        ("[a `b`](https://x.org 't')", "a b (t)", [("text_link", "a b", "https://x.org")]),
        ("![chart](https://x.org/a.png)", "chart", [("text_link", "chart", "https://x.org/a.png")]),
        ("![](https://x.org 't')", "https://x.org (t)", []),
        ("[a](javascript:x) [b](mailto:m@x.org) [c](../d)", "[a](javascript:x) b (mailto:m@x.org) c (../d)", []),
        ("[a](http://localhost:80/)", "a (http://localhost:80/)", []),
        ("```py\nx = 1\n```", "x = 1", [("pre", "x = 1", "py")]),
        ("- a\n- b\n  1. c\n  2. d", "• a\n• b\n   1. c\n   2. d", []),
        ("- a\n\n- b\n  c", "• a\n\n• b\n   c", []),
        ("- \n- x", "•\n• x", []),
        ("- ```\n  x\n  ```", "•\nx", [("pre", "x")]),
        ("> a\n> **b**\n> > c", "a\nb\n\n> c", [("blockquote", "a\nb\n\n> c"), ("bold", "b")]),
        ("> `a`", "a", [("blockquote", "a"), ("code", "a")]),
        ("|a|b|\n|-|-|\n|1|[x](http://y)|", (t := "a | b\n--+-------------\n1 | x (http://y)"), [("pre", t)]),
        ("|a|b|\n|-|-|\n|你好|1|", (t := "a    | b\n-----+--\n你好 | 1"), [("pre", t)]),
        ("*unbalanced **text", "*unbalanced **text", []),
        ("<b>x</b> &amp; ||no spoiler||", "<b>x</b> &amp; ||no spoiler||", []),
    ],
)  # fmt: skip
def test_every_part_of_markdown_has_its_form(text: str, shown: str, marks: list[tuple[str, ...]]) -> None:
    assert marked(text) == (shown, marks)


@pytest.mark.parametrize("text", ["```\n\n```", "[](<>)", ""])
def test_what_would_show_nothing_stays_as_it_was_written(text: str) -> None:
    assert render(text, ROOM) == Rendered(text)


def test_a_table_that_would_be_too_long_is_not_padded_and_what_is_longer_still_stays_as_it_is() -> None:
    table = "|a|b|\n|-|-|\n" + f"|1|{'x' * 40}|\n" + "|1|2|\n" * 5
    even, tight = render(table, ROOM), render(table, 100)
    assert even.text.splitlines()[1].startswith("--+--")
    assert tight.text.splitlines()[2:4] == ["1|2", "1|2"]
    assert render("- a\n" * 5, 10) == Rendered("- a\n" * 5)


def test_more_marks_than_telegram_looks_at_are_left_as_they_were_written() -> None:
    assert len(render("**b** " * MAX_ENTITIES, ROOM).spans) == MAX_ENTITIES
    assert render("**b** " * (MAX_ENTITIES + 1), ROOM) == Rendered("**b** " * (MAX_ENTITIES + 1))


@given(st.lists(MARKUP | st.text(max_size=5), max_size=40))
def test_anything_that_comes_is_well_formed_and_no_word_is_lost(parts: list[str]) -> None:
    text = "".join(parts)
    shown = render(text, ROOM)
    size = Unit.UTF16.measure(shown.text)
    spans = [(mark.offset, mark.offset + mark.length, mark.kind) for mark in shown.spans]
    assert all(0 <= start < end <= size for start, end, _ in spans)
    assert not [(a, b) for a in spans for b in spans if a[0] < b[0] < a[1] < b[1]], (
        "what has something in common is within the other"
    )
    code = [span for span in spans if span[2] in {"code", "pre"}]
    styles = [span for span in spans if span[2] in {"bold", "italic", "strikethrough"}]
    assert not [(a, b) for a in code for b in styles if a[0] < b[1] and b[0] < a[1]], "code has no style"
    left = shown.text + " ".join(mark.detail for mark in shown.spans)
    assert not [word for word in re.findall(r"[^\W\d_]{2,}", text) if word not in left]


@pytest.mark.parametrize("text", ["a " * 500_000, "*" * 4000, "> " * 2000 + "x", "|" * 4000, "[" * 4000, "`" * 3999])
def test_hostile_texts_are_shown(text: str) -> None:
    assert render(text, ROOM).text.strip()
