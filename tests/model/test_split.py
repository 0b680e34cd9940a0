import re
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from palaver.model.errors import BadArgument
from palaver.model.split import Piece, Unit, split
from palaver.model.text import can_cut
from palaver.protocols.markdown.tree import Block as MarkdownBlock
from palaver.protocols.markdown.tree import (
    Code,
    CodeBlock,
    Heading,
    Inline,
    Link,
    List,
    Paragraph,
    Quote,
    Styled,
    Table,
    Text,
    parse_markdown,
)

UNITS = st.sampled_from(Unit)
MARKS = ["\n", "\n\n", "\r\n", "```", "```py\n", "~~~\n", "````", "|", "| a | b |\n", "|---|---|\n", "-", " ", "    "]
TEXTS = [
    "word ",
    "two words. ",
    "`x y`",
    "[a b](c)",
    "👩‍👩‍👧",
    "e\u0301",
    "\U0001f1ea",
    "漢字。",
    "\ud83d",
    "longword" * 7,
]
SCRAPS = st.sampled_from([*MARKS, *TEXTS])
HOSTILE = st.lists(st.one_of(SCRAPS, st.text(max_size=5)), max_size=60).map("".join)
WORDS = st.text(alphabet="abcdefgé漢", min_size=1, max_size=12)
PROSE = st.lists(st.tuples(WORDS, st.sampled_from([" ", "  ", ". ", "\n", "\n\n"])).map("".join)).map("".join)
CHARACTERS = st.lists(st.sampled_from(["a", "e\u0301", "👩‍👩‍👧", "👍🏽", "\U0001f1ea\U0001f1f8"])).map("".join)
CODE = st.lists(st.sampled_from(["x = 1", "", "def f():", "    return 2", "| no | table |", "~~", "``"]), max_size=30)


def bodies(pieces: tuple[Piece, ...]) -> list[str]:
    return [piece.body for piece in pieces]


def check_joined(pieces: tuple[Piece, ...], text: str) -> None:
    """Check that the bodies join to the text, apart from blank pieces that were left out."""
    for body in bodies(pieces):
        gap, found, text = text.partition(body)
        assert found
        assert not gap.strip()
    assert not text.strip()


def open_fence(text: str) -> str:
    """The fence left open at the end of `text`, read line by line."""
    fence = ""
    for line in text.split("\n"):
        found = re.fullmatch(r" {0,3}(`{3,}|~{3,})(.*)", line.rstrip("\r"), re.DOTALL)
        if found and not fence and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
        elif found and fence and found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return fence


@given(HOSTILE, st.integers(4, 120), UNITS)
def test_bodies_join_to_the_text_and_no_piece_is_empty_or_over_the_limit(text: str, limit: int, unit: Unit) -> None:
    pieces = split(text, limit, unit)
    check_joined(pieces, text)
    assert all(piece.body and unit.measure(piece.text) <= limit for piece in pieces)


@given(HOSTILE, PROSE, st.sampled_from(["", " ", "\n\n", "    \n" * 20]), st.integers(4, 60), UNITS)
def test_no_piece_is_blank(text: str, prose: str, gap: str, limit: int, unit: Unit) -> None:
    text = f"{gap}{text}x{gap}{prose}{gap}{prose}{gap}"
    assert not any(piece.text.isspace() for piece in split(text, limit, unit))


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two\n\n", 7, ["one ", "two\n\n"]),
        ("incomprehensible\n\n", 16, ["incomprehensible"]),
        ("\n\nincomprehensible", 16, ["incomprehensible"]),
        ("a" + "\n" * 20 + "b", 4, ["a\n\n\n", "\nb"]),
        ("        ", 4, ["    "]),
    ],
)
def test_blank_pieces_are_left_out(text: str, limit: int, expected: list[str]) -> None:
    assert bodies(split(text, limit)) == expected


@given(st.text(), UNITS)
def test_units_count_what_platforms_count(text: str, unit: Unit) -> None:
    encoded = {Unit.CODE_POINTS: ("utf-32-le", 4), Unit.UTF16: ("utf-16-le", 2), Unit.UTF8: ("utf-8", 1)}
    codec, size = encoded[unit]
    assert unit.measure(text) == len(text.encode(codec)) // size


@given(PROSE, st.integers(14, 60))
def test_a_word_that_fits_is_never_cut(text: str, limit: int) -> None:
    pieces = bodies(split(text, limit))
    for before, after in pairwise(pieces):
        assert before[-1].isspace() or after[0].isspace()


@given(CHARACTERS, st.integers(20, 60), UNITS)
def test_a_character_that_fits_is_never_cut(text: str, limit: int, unit: Unit) -> None:
    cut = 0
    for body in bodies(split(text, limit, unit)):
        cut += len(body)
        assert can_cut(text, cut)


@given(PROSE, CODE, st.sampled_from(["```", "~~~", "   `````"]), st.booleans(), st.integers(60, 200))
def test_every_piece_closes_the_fence_that_it_opens(
    prose: str, code: list[str], fence: str, closed: bool, limit: int
) -> None:
    block = "\n".join([f"{fence} python", *code, *([fence, prose] if closed else [])])
    for piece in split(f"{prose}\n{block}", limit):
        assert not open_fence(piece.text), piece


@example("\n    \n\n-````\n| a | b |\n| a | b |\n`x y````", 40)
@given(HOSTILE, st.integers(40, 200))
def test_no_cut_makes_or_unmakes_a_fence(text: str, limit: int) -> None:
    text = text.replace("\r", "")
    assume(all(len(line) < limit // 2 for line in text.split("\n") if re.match(r" {0,3}(```|~~~)", line)))
    assume(not re.search(r"`{5}|~{5}", text))
    assert not any(open_fence(piece.text) for piece in split(text, limit))


@given(st.lists(st.lists(WORDS, min_size=2, max_size=2), min_size=1, max_size=40), PROSE, st.integers(70, 300))
def test_tables_are_whole_or_cut_between_rows_under_their_header(
    rows: list[list[str]], before: str, limit: int
) -> None:
    head = "| Name | Value |\n|:-----|------:|\n"
    table = head + "".join(f"| {a} | {b} |\n" for a, b in rows)
    pieces = split(f"{before}\n\n{table}\nThe end.", limit)
    if len(table) <= limit:
        assert any(table in piece.text for piece in pieces)
    for piece in pieces:
        lines = piece.text.split("\n")
        if any(line.startswith("| ") for line in lines):
            assert head in piece.text
            assert all(re.fullmatch(r"\|.*\|", line) for line in lines if "|" in line)


Shown = list[tuple[str, frozenset[str]]]


def inline(inside: tuple[Inline, ...], styles: frozenset[str]) -> Shown:
    shown: Shown = []
    for each in inside:
        match each:
            case Text():
                shown += [(char, styles) for char in each.text if not char.isspace()]
            case Code():
                shown += [(char, styles | {"code"}) for char in each.text if not char.isspace()]
            case Styled():
                shown += inline(each.inside, styles | {each.style.value})
            case Link():
                shown += inline(each.inside, styles | {each.url})
    return shown


def rendered(blocks: tuple[MarkdownBlock, ...], styles: frozenset[str] = frozenset()) -> Shown:
    """Every character that people see, with its styles."""
    shown: Shown = []
    for block in blocks:
        match block:
            case CodeBlock():
                shown += [(char, styles | {"block"}) for char in block.text if not char.isspace()]
            case Quote():
                shown += rendered(block.blocks, styles | {"quote"})
            case List():
                for item in block.items:
                    shown += rendered(item, styles)
            case Paragraph() | Heading():
                shown += inline(block.inside, styles)
            case Table():
                shown += [each for row in block.rows for cell in row for each in inline(cell, styles)]
            case _:
                pass
    return shown


PLAIN = st.lists(st.sampled_from(["word", "two", "漢字", "done.", "a.b", "(so)", "x" * 30]), min_size=1, max_size=12)
LINES = PLAIN.map(" ".join)
SPACED = st.tuples(PLAIN, st.sampled_from([" ", " ", "\n"])).map(lambda pair: pair[1].join(pair[0]))


def wrap(inner: st.SearchStrategy[str], *marks: str) -> st.SearchStrategy[str]:
    return st.tuples(SPACED, st.sampled_from(marks), inner, SPACED).map(
        lambda each: f"{each[1]}{each[0]} {each[2]} {each[3]}{each[1]}"
    )


OUTER = ("**", "_", "~~")
TICKED = st.tuples(st.sampled_from(["`", "``"]), LINES).map(lambda each: each[0] + each[1] + each[0])
RUNNING = st.lists(
    st.one_of(SPACED, TICKED, wrap(TICKED, *OUTER), wrap(wrap(SPACED, "*", "__"), *OUTER)), min_size=1, max_size=4
).map(" ".join)
FENCED = st.tuples(st.sampled_from(["```", "```py", "~~~"]), st.lists(LINES, max_size=12)).map(
    lambda each: "\n".join([each[0], *each[1], each[0][:3]])
)


def indent(text: str, first: str, rest: str) -> str:
    return first + text.replace("\n", f"\n{rest}")


IN_ITEM = st.tuples(
    SPACED, FENCED, st.sampled_from([("- ", 2), ("1. ", 3), ("-   ", 4), ("10. ", 4), ("1.   ", 5)]), st.booleans()
).map(
    lambda each: (
        each[2][0]
        + indent(each[0] + ("\n\n" if each[3] else "\n") + each[1], "", " " * each[2][1])
        + "\n"
        + indent(each[0], each[2][0], " " * each[2][1])
    )
)
NESTED = IN_ITEM.map(lambda text: "- outer\n\n" + indent(text, "  ", "  "))
QUOTED = st.one_of(FENCED, RUNNING, IN_ITEM).map(lambda text: indent(text, "> ", "> "))
MARKDOWN = st.lists(st.one_of(RUNNING, FENCED, IN_ITEM, NESTED, QUOTED), min_size=1, max_size=4).map("\n\n".join)


@example("> **" + "word " * 20 + "\n> word**", 106)
@given(MARKDOWN, st.integers(100, 400))
def test_pieces_look_like_the_whole(text: str, limit: int) -> None:
    pieces = split(text, limit)
    check_joined(pieces, text)
    assert all(len(piece.text) <= limit for piece in pieces)
    assert [each for piece in pieces for each in rendered(parse_markdown(piece.text))] == rendered(parse_markdown(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**one two three four five six**", ["**one two three four** ", "**five six**"]),
        ("_one **two three four five six**_", ["_one **two three four**_", " _**five six**_"]),
        ("`one two three four five six`", ["`one two three four` ", "`five six`"]),
        ("> one two three four five six", ["> one two three four ", "> five six"]),
    ],
)
def test_emphasis_code_and_quotes_are_closed_and_reopened(text: str, expected: list[str]) -> None:
    assert [piece.text for piece in split(text, 24)] == expected


def test_nothing_to_say_is_no_piece() -> None:
    assert split("", 10) == ()


def test_what_fits_is_one_piece() -> None:
    assert split("hello **world**", 15) == (Piece(body="hello **world**", text="hello **world**"),)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (22, ["one two. three\nfour\n\n", "five six seven"]),
        (20, ["one two. three four\n", "five six seven"]),
        (20, ["one two three. ", "four five six seven"]),
        (20, ["one two three four ", "five six"]),
        (20, ["a\n\nb c d e f g h i ", "j k l m n"]),
        (20, ["漢字漢字漢字漢字漢字漢。", "字漢字漢字漢字漢字漢字"]),
        (15, ["say hi to ", "`a b c d` now"]),
        (15, ["look here: ", "[a b c d](u)"]),
        (15, ["short ", "incomprehensibl"]),
        (15, ["short incompreh", "ensibilities"]),
    ],
)
def test_the_best_boundary_near_the_end_wins(limit: int, expected: list[str]) -> None:
    assert bodies(split("".join(expected), limit)) == expected


def test_a_cut_fence_is_closed_and_reopened_with_its_info_string() -> None:
    code = "".join(f"line {n}\n" for n in range(10))
    first, *_, last = split(f"Look:\n\n```python title=x\n{code}```\nDone.", 60)
    assert first.text.startswith("Look:\n\n```python title=x\nline 0\n")
    assert first.text == f"{first.body}```"
    assert last.text == f"```python title=x\n{last.body}"
    assert last.body.endswith("line 9\n```\nDone.")


def test_a_fence_that_fits_is_moved_rather_than_cut() -> None:
    fence = "```\n" + "x = 1\n" * 5 + "```\n"
    assert bodies(split("A few words of introduction.\n" + fence, 50)) == ["A few words of introduction.\n", fence]


def test_an_unclosed_fence_is_closed_in_the_last_piece() -> None:
    assert [piece.text for piece in split("```sh\nls", 50)] == ["```sh\nls\n```"]
    assert [piece.text for piece in split("Look:\n```sh\nls", 50)] == ["Look:\n```sh\nls\n```"]


def test_a_long_line_of_code_is_cut_inside_the_fence() -> None:
    pieces = split("```\n" + "x" * 100 + "\n```", 40)
    assert all(piece.text.startswith("```\n") and piece.text.endswith("\n```") for piece in pieces)


def test_a_header_too_large_to_repeat_is_not_repeated() -> None:
    assert all(piece.text == piece.body for piece in split(f"|{'a' * 40}|\n|---|\n" + "|b|\n" * 20, 50))


def test_an_info_string_too_long_to_repeat_is_dropped() -> None:
    assert split(f"```{'a' * 30}\n" + "b\n" * 40, 50)[-1].text.startswith("```\nb")


def test_surrogate_pairs_stay_whole_in_utf16() -> None:
    assert bodies(split("😀😀😀", 5, Unit.UTF16)) == ["😀😀", "😀"]


def test_a_character_longer_than_the_limit_is_cut_between_code_points() -> None:
    assert bodies(split("e" + "\u0301" * 7, 4)) == ["e" + "\u0301" * 3, "\u0301" * 4]


@pytest.mark.parametrize(("unit", "least"), [(Unit.CODE_POINTS, 1), (Unit.UTF16, 2), (Unit.UTF8, 4)])
def test_a_limit_that_cannot_hold_any_character_is_refused(unit: Unit, least: int) -> None:
    assert "".join(bodies(split("a😀b", least, unit))) == "a😀b"
    with pytest.raises(BadArgument, match="is too small"):
        split("a", least - 1, unit)


@pytest.mark.parametrize(
    "scrap",
    [
        "`",
        "\n",
        "a",
        "```\n~~~\n",
        "\u0301",
        "\U0001f1ea",
        "|",
        "|a|\n|-|\n",
        " ",
        "👩‍👧",
        "**a *b_ `",
        "> ```\n",
        "- ",
    ],
)
def test_very_much_hostile_text_is_split(scrap: str) -> None:
    text = scrap * (300_000 // len(scrap.encode()))
    check_joined(split(text, 4096, Unit.UTF16), text)


def test_marks_nested_without_end_are_split() -> None:
    text = "*a " * 20_000 + "a* " * 20_000
    check_joined(split(text, 4096, Unit.UTF16), text)
