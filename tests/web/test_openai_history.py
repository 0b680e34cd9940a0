"""How a client's history is matched with a transcript, and how a growing answer is streamed."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.transcript import Entry, Role, ToolCall
from palaver.web.errors import OpenAIError
from palaver.web.openai.conversations import (
    HistoryMatch,
    conversation_name,
    fold_history,
    match_history,
    match_last_messages,
)
from palaver.web.openai.outcome import StreamedText
from palaver.web.openai.schema import ChatMessage

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORDS = st.text(min_size=1, max_size=20).filter(str.strip)


def entries(*texts: str) -> list[Entry]:
    roles = (Role.USER, Role.ASSISTANT)
    return [Entry(seq, roles[(seq + 1) % 2], NOON, text) for seq, text in enumerate(texts, 1)]


def history(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(place % 2 == 0, text) for place, text in enumerate(texts)]


@given(st.lists(WORDS, min_size=2, max_size=8), st.data())
def test_what_was_said_matches_to_where_it_was_said(texts: list[str], data: st.DataObject) -> None:
    length = data.draw(st.integers(1, len(texts)))
    found = match_history("", history(*texts[:length]), entries(*texts))
    assert found == HistoryMatch(length, length == len(texts), has_same_system=True)
    changed = [*texts[: length - 1], texts[length - 1] + "!"]
    other = match_history("", history(*changed), entries(*texts))
    assert other is None


@given(st.lists(WORDS, min_size=2, max_size=4).map(lambda each: each[: len(each) // 2 * 2]), WORDS, WORDS)
def test_what_began_elsewhere_is_known_by_its_first_message(before: list[str], now: str, answer: str) -> None:
    begun = fold_history("be brief", history(*before), now)
    told = match_history("be brief", history(*before, now, answer), entries(begun, answer))
    assert told == HistoryMatch(2, is_end=True, has_same_system=True)
    other = match_history("the time is 10:01", history(*before, now, answer + "\n"), entries(begun + " ", answer))
    assert other == HistoryMatch(2, is_end=True), "instructions and blanks identify nothing"


def test_tools_and_notes_are_passed_over_and_summaries_stand_for_what_they_cover() -> None:
    said = [
        Entry(1, Role.NOTE, NOON, "first contact"),
        Entry(2, Role.USER, NOON, "one", hidden_by="7"),
        Entry(3, Role.ASSISTANT, NOON, "let me see", calls=(ToolCall("c", "look"),), hidden_by="7"),
        Entry(4, Role.TOOL, NOON, "found", answers="c", hidden_by="7"),
        Entry(5, Role.ASSISTANT, NOON, "yes", hidden_by="7"),
        Entry(6, Role.SUMMARY, NOON, "they agreed", covers=(2, 5)),
        Entry(7, Role.USER, NOON, "taken back", hidden_by="8"),
    ]
    assert match_history("", history("one", "let me see\n\nyes"), said) == HistoryMatch(
        5, is_end=True, has_same_system=True
    )
    assert match_history("", history("one", "let me see\n\nyes", "taken back"), said) is None


def test_the_last_messages_are_found_where_they_were_said() -> None:
    said = entries("Be brief.\n\none", "yes", "two", "no ", "three", "yes", "two", "no")
    for last, seq in ((["two", "no"], 8), (["three", "yes "], 6), (["two", "no", "three", "yes"], 6)):
        found = match_last_messages("", history(*last), said)
        assert found == HistoryMatch(seq, is_end=seq == 8, has_same_system=True)
    for other in (["one", "no"], ["yes", "two"], ["two", "no", "four", "yes"]):
        assert match_last_messages("", history(*other), said) is None


def test_the_name_of_a_conversation_is_that_of_its_first_message() -> None:
    assert conversation_name("hello") == conversation_name(" hello\n") != conversation_name("ello")
    assert conversation_name("\ud800")


@given(st.lists(WORDS, min_size=1, max_size=4), st.data())
def test_pieces_of_an_answer_are_the_answer(segments: list[str], data: st.DataObject) -> None:
    content, grown, told = "\n\n".join(segments), StreamedText(), ""
    for count in range(1, len(segments) + 1):
        cut = data.draw(st.integers(0, len(segments[count - 1])))
        heard = [*segments[: count - 1], segments[count - 1][:cut]]
        told += grown.more(heard)
    assert told + grown.rest(content) == content


def test_what_is_streamed_is_the_beginning_of_the_answer() -> None:
    grown = StreamedText()
    assert [grown.more([text]) for text in ("Hel", "H", "Hello")] == ["Hel", "", "lo"], "an agent that repeats itself"
    assert grown.rest("Hello there") == " there"
    grown = StreamedText()
    assert [grown.more([text]) for text in ("Hel", "G", "Good day")] == ["Hel", "", ""]
    with pytest.raises(OpenAIError, match="started its answer over"):
        grown.rest("Good day")
    trimmed = StreamedText()
    assert (trimmed.more(["Hello\n"]), trimmed.rest("Hello")) == ("Hello\n", "")


def test_json_is_streamed_without_what_was_said_before_it() -> None:
    grown, said = StreamedText(is_json=True), "Let me check"
    grows = [[said], [said, '{"days"'], [said, '{"days": 3}']]
    assert [grown.more(segments) for segments in grows] == ["", '{"days"', ": 3}"]
    assert not grown.rest('{"days": 3}')
