"""Terms: every script is cut so that what people type finds what was written."""

import re
import string
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.errors import BadArgument
from palaver.model.query import Clause, parse_query
from palaver.model.tokenizer import index_terms, split_pages, tokenize

ANY = st.text(st.characters(), max_size=200)
MIXED = st.text(
    st.sampled_from("aB1_.-'é\u0301ßあアｶ\uff9eが\u3099中文ก้ำ한\u1112\u1161👍🏽\u200d🇩🇪 \n\x00*\"“") | st.characters()
)


@pytest.mark.parametrize(
    ("text", "line", "wholes"),
    [
        ("Hello, World!", "hello world", []),
        ("École E\u0301COLE école", "ecole ecole ecole", []),
        ("Straße Øl Łódź İstanbul ﬁx", "strasse ol lodz istanbul fix", []),
        ("Ａｂｃ ① ⅳ", "abc 1 iv", []),
        ("שָׁלוֹם مُحَمَّد", "שלום محمد", []),
        ("नमस्ते दुनिया", "नमस्ते दुनिया", []),
        ("getUserName", "get user name", ["getusername"]),
        ("HTTPServer2", "http server 2", ["httpserver2"]),
        ("snake_case foo.bar", "snake case foo bar", ["snakecase", "foobar"]),
        ("a.getX", "a get x", ["getx", "agetx"]),
        ("don't e-mail", "don t e mail", ["dont", "email"]),
        ("std::vector foo/bar", "std vector foo bar", []),
        ("v1.2.3 10:30", "v 1 2 3 10 30", ["v1", "v123"]),
        ("da39a3ee5e6b4b0d3255bfef", "da39a3ee5e6b4b0d3255bfef", []),
        ("今天天气。很好", "今天天气 很好", []),
        ("Python入門 ガ ｶ\uff9e カ\u3099", "python 入門 ガ ガ ガ", []),
        ("한국어 \u1112\u1161\u11ab", "한국어 한", []),
        ("ภาษาไทย", "ภาษาไทย", []),
        ("㍿ ℃ 5㎏", "株式会社 c 5 kg", []),
        ("👍🏽 👨\u200d👩\u200d👧 ❤\ufe0f 🇩🇪", "👍 👨👩👧 ❤ 🇩🇪", []),
        ("co\u00adoperate zero\u200bwidth", "cooperate zerowidth", []),
        ("\x00 \ud800 ─── ⠋ ... __ '", "", []),
    ],
)
def test_a_text_becomes_a_line(text: str, line: str, wholes: list[str]) -> None:
    found = tokenize(text)
    assert found.text.strip() == line
    assert found.wholes == wholes


def test_runs_are_indexed_as_characters_and_pairs() -> None:
    assert list(index_terms(tokenize("ab 中文字").text)) == ["ab", "中", "文", "字", "中文", "文字"]


@pytest.mark.parametrize(
    ("query", "clauses"),
    [
        ("Hello world", [Clause(("hello",)), Clause(("world",))]),
        ('"Hello, world"', [Clause(("hello", "world"))]),
        ('say "hello wor*"', [Clause(("say",)), Clause(("hello", "wor"), prefix=True)]),
        ("„hello world“ now", [Clause(("hello", "world")), Clause(("now",))]),
        ("pay*", [Clause(("pay",), prefix=True)]),
        ("foo.bar", [Clause(("foo", "bar"), whole="foobar")]),
        ("utf-8*", [Clause(("utf", "8"), prefix=True, whole="utf8")]),
        ("foo/bar", [Clause(("foo", "bar"))]),
        ("天气 字*", [Clause(("天气",)), Clause(("字",))]),
        ('a "unclosed phrase', [Clause(("a",)), Clause(("unclosed", "phrase"))]),
        ('x AND NOT "" ( ^ : -', [Clause(("x",)), Clause(("not",))]),
        ("OR x OR", [Clause(("or",)), Clause(("x",)), Clause(("or",))]),
        ('"x" "OR" y', [Clause(("x",)), Clause(("or",)), Clause(("y",))]),
    ],
)
def test_queries(query: str, clauses: list[Clause]) -> None:
    parsed = parse_query(query)
    assert [replace(clause, stems=()) for clause in parsed.clauses] == clauses
    assert not parsed.excluded


@pytest.mark.parametrize(
    ("query", "groups", "excluded"),
    [
        ("cats OR dogs", [["cats", "dogs"]], []),
        ("red cats OR dogs OR 天气 AND now", [["red"], ["cats", "dogs", "天气"], ["now"]], []),
        ("cats -dogs", [["cats"]], ["dogs"]),
        ('NOT dogs cats -"big birds" utf-8', [["cats"], ["utf 8"]], ["dogs", "big birds"]),
    ],
)
def test_or_and_not_are_parsed(query: str, groups: list[list[str]], excluded: list[str]) -> None:
    parsed = parse_query(query)
    assert [[" ".join(clause.words) for clause in group] for group in parsed.groups] == groups
    assert [" ".join(clause.words) for clause in parsed.excluded] == excluded


def test_a_query_that_only_leaves_out_is_refused() -> None:
    with pytest.raises(BadArgument, match="no word to search for"):
        parse_query("-dogs NOT cats")


@pytest.mark.parametrize("query", ["", "  ", '""', "*", "!?", "\x00", "\ud800", "─", '"' * 100_000])
def test_a_query_without_words_is_refused(query: str) -> None:
    with pytest.raises(BadArgument, match="no word to search for"):
        parse_query(query)


def test_a_query_has_bounds() -> None:
    assert len(parse_query(" OR ".join(["word"] * 64)).clauses) == 64, "operators are no words"
    for query in (" OR ".join(["word"] * 65), "中" * 2001):
        with pytest.raises(BadArgument, match=r"is too long.*64 words and phrases in 2,000 characters"):
            parse_query(query)


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("world", "Hello, WÖRLD!", ["WÖRLD"]),
        ("username", "call getUserName", []),
        ("getusername", "call getUserName", ["getUserName"]),
        ("getuser*", "call getUserName", ["getUserName"]),
        ("user", "call getUserName", ["User"]),
        ("user_name", "call getUserName", ["UserName"]),
        ("e-mail", "email, e-mail, e mail", ["email", "e-mail", "e", "mail"]),
        ("天", "今天天气", ["天天"]),
        ("天气", "今天天气", ["天气"]),
        ("天天气好", "今天天气。好", []),
        ('"天气 好"', "今天天气。好", ["天气", "好"]),
        ('"quick brown"', "brown quick, quick brown", ["quick", "brown"]),
        ("quick fox", "quick brown", []),
        ("が", "か\u3099く", ["か\u3099"]),
        ("会社", "㍿です", ["㍿"]),
        ("pay*", "Repay or payment", ["payment"]),
        ("👨\u200d👩", "👨🏽\u200d👩\u200d👧", ["👨🏽\u200d👩\u200d"]),
    ],
)
def test_marks(query: str, text: str, marked: list[str]) -> None:
    spans = parse_query(query).find_spans(text)
    assert [text[start:end] for start, end in spans] == marked


@given(ANY | MIXED)
def test_terms_are_safe_for_any_index(text: str) -> None:
    line = tokenize(text)
    allowed = frozenset(string.ascii_lowercase + string.digits)
    for term in (*index_terms(line.text), *line.wholes):
        assert 0 < len(term) <= 64
        assert all(char in allowed for char in term if char.isascii())
        term.encode()


@given(ANY | MIXED)
def test_every_stretch_finds_the_text_it_stands_in(text: str) -> None:
    for chunk in re.finditer(r"[^\s\"\u201c\u201d\u201e\u00ab\u00bb]+", text):
        if not tokenize(chunk[0]).text.isspace():
            spans = parse_query(f'"{chunk[0]}"').find_spans(text)
            assert any(start < chunk.end() and chunk.start() < end for start, end in spans)


@given(ANY | MIXED, ANY | MIXED)
def test_any_query_on_any_text(query: str, text: str) -> None:
    try:
        spans = parse_query(query).find_spans(text)
    except BadArgument:
        return
    assert spans == sorted(spans)
    assert all(0 <= start < end <= len(text) for start, end in spans)


@given(st.integers(0, 90_000), st.integers(1, 3000))
def test_pages_cover_a_text(length: int, every: int) -> None:
    text = "".join(" " if index % every == 0 else "x" for index in range(length))
    found = split_pages(text)
    assert found[0][0] == 0
    assert found[-1][1] == length
    assert all(end - start <= 20_000 for start, end in found)
    assert all(start < after < end for (start, end), (after, _) in pairwise(found))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "a" + "\u0301" * 200_000,
        "A" + "\u0301" * 200_000 + "b",
        "A\u0301" * 100_000,
        "aB" * 100_000,
        "a.b." * 50_000,
        "中" + "\u0301" * 200_000,
        "中文" * 100_000,
        "\ufdfa" * 200_000,
        "\u1100\u1161" * 100_000,
        "\x00" * 200_000,
    ],
    ids=lambda text: ascii(text[:6]),
)
def test_very_much_of_anything(text: str) -> None:
    tokenize(text)
    for start, end in split_pages(text)[:2]:
        assert len(tokenize(text[start:end]).text) <= 3 * 20_000
        parse_query("a 中").find_spans(text[start:end])
