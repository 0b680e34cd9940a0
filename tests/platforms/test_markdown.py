"""Markdown is read into a tree, and anything that is not Markdown stays text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocols.markdown.tree import (
    MAX_LENGTH,
    Block,
    Code,
    CodeBlock,
    Heading,
    Inline,
    Link,
    List,
    Paragraph,
    Quote,
    Rule,
    Style,
    Styled,
    Table,
    Text,
    parse_markdown,
    text_of,
)
from tests.platforms.markdown_texts import MARKUP


def words(text: str) -> tuple[Text]:
    return (Text(text=text),)


def paragraph(text: str) -> Paragraph:
    return Paragraph(inside=words(text))


BOLD = Styled(style=Style.BOLD, inside=words("b"))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", ()),
        ("two\nlines", (Paragraph(inside=(Text(text="two"), Text(text="\n"), Text(text="lines"))),)),
        ("# **b**", (Heading(level=1, inside=(BOLD,)),)),
        ("***", (Rule(),)),
        ("**b** `a*b*`", (Paragraph(inside=(BOLD, Text(text=" "), Code(text="a*b*"))),)),
        ("~~x~~", (Paragraph(inside=(Styled(style=Style.STRUCK, inside=words("x")),)),)),
        ("```py x\n1\n\n```", (CodeBlock(text="1\n", info="py x"),)),
        ("> a\n> > b", (Quote(blocks=(paragraph("a"), Quote(blocks=(paragraph("b"),)))),)),
        ("- a\n- b", (List(items=((paragraph("a"),), (paragraph("b"),))),)),
        ("3. a\n\n4. b", (List(items=((paragraph("a"),), (paragraph("b"),)), start=3, tight=False),)),
        ("-", (List(items=((),)),)),
        ("|a|b|\n|-|-|\n|1|", (Table(rows=((words("a"), words("b")), (words("1"), ()))),)),
        ("> |a|\n> |-|\n> |1|", (Quote(blocks=(Table(rows=((words("a"),), (words("1"),))),)),)),
        ("[b](http://x 't')", (Paragraph(inside=(Link(url="http://x", inside=words("b"), title="t"),)),)),
        ("![b](http://x)", (Paragraph(inside=(Link(url="http://x", inside=words("b")),)),)),
    ],
)  # fmt: skip
def test_markdown_becomes_a_tree(text: str, tree: tuple[Block, ...]) -> None:
    assert parse_markdown(text) == tree


@pytest.mark.parametrize(
    "text",
    [
        "snake_case_name and 2*3*4 = 24",
        "an *unbalanced **text",
        "<b>no</b> <!-- html --> &amp; &lt;",
        "[foo]: http://example.org",
        "[run](javascript:alert(1))",
        "a ` tick",
    ],
)
def test_what_is_no_markup_stays_as_it_is(text: str) -> None:
    (block,) = parse_markdown(text)
    assert isinstance(block, Paragraph)
    assert text_of(block.inside) == text.replace("2*3*4", "234")


def test_a_row_with_more_cells_than_columns_leaves_the_lines_as_they_are() -> None:
    assert parse_markdown("|a|\n|-|\n|1|lost?|") == (CodeBlock(text="|a|\n|-|\n|1|lost?|"),)
    assert parse_markdown("|a|\n|-|\n||lost?|") == (CodeBlock(text="|a|\n|-|\n||lost?|"),)


@pytest.mark.parametrize("text", ["> " * 2000 + "deep", "- " * 900 + "deep", "x" * (MAX_LENGTH + 1), "x " * 500_000])
def test_what_is_too_deep_or_too_long_is_one_paragraph(text: str) -> None:
    assert parse_markdown(text) == (paragraph(text),)


def test_styles_in_styles_end_somewhere_and_the_words_stay() -> None:
    (block,) = parse_markdown("*" * 1000 + "deep" + "*" * 1000)
    assert isinstance(block, Paragraph)
    assert text_of(block.inside) == "deep"
    assert _depth(block.inside) < 20


@given(st.lists(MARKUP | st.text(max_size=5), max_size=40))
def test_no_word_is_lost(parts: list[str]) -> None:
    text = "".join(parts)
    left = " ".join(map(_all_of, parse_markdown(text)))
    lost = [word for word in re.findall(r"[^\W\d_]{2,}", text) if word not in left]
    assert not lost


def _all_of(block: Block) -> str:
    match block:
        case Paragraph() | Heading():
            return _words(block.inside)
        case CodeBlock():
            return f"{block.text} {block.info}"
        case Quote():
            return " ".join(map(_all_of, block.blocks))
        case List():
            return " ".join(_all_of(each) for item in block.items for each in item)
        case Table():
            return " ".join(_words(cell) for row in block.rows for cell in row)
        case Rule():
            return ""


def _words(inside: tuple[Inline, ...]) -> str:
    links = [f" {each.url} {each.title} " for each in _links(inside)]
    return text_of(inside) + "".join(links)


def _links(inside: tuple[Inline, ...]) -> list[Link]:
    nested = [each for each in inside if isinstance(each, Link | Styled)]
    return [each for each in nested if isinstance(each, Link)] + [each for n in nested for each in _links(n.inside)]


def _depth(inside: tuple[Inline, ...]) -> int:
    return 1 + max((_depth(each.inside) for each in inside if isinstance(each, Link | Styled)), default=0)
