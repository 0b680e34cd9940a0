"""Where people write short messages, each paragraph of an answer is one."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.model.source import Source
from palaver.model.split import MAX_PARTS, ReplyAccount, paragraphs
from palaver.model.turn import Choice
from tests.model.test_split import HOSTILE, PROSE

ANN = Source(platform="imessage", account="mac", chat_id="iMessage;-;+15551234567", message_id="m1")
BUBBLES = ReplyAccount(one_paragraph=True).place(ANN)


def texts(answer: str) -> list[str]:
    return [message.text for message in BUBBLES.messages(answer)]


def test_an_answer_is_split_at_blank_lines() -> None:
    answer = "\nSure.\n\nThe train leaves at 9.\nBring a coat.\n \t\n\n\nSee you!\n"
    assert texts(answer) == ["Sure.", "The train leaves at 9.\nBring a coat.", "See you!"]
    assert texts("one line") == ["one line"]
    assert texts(" \n\n ") == []
    assert [message.text for message in ReplyAccount().place(ANN).messages("a\n\nb")] == ["a\n\nb"]


def test_code_and_tables_stay_whole() -> None:
    code = "```py\na = 1\n\n\nb = 2\n```"
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert texts(f"Try this:\n\n{code}\n\nor this:\n\n{table}") == ["Try this:", code, "or this:", table]
    assert texts("```\nopen\n\nto the end") == ["```\nopen\n\nto the end\n```"]


def test_only_the_first_replies_and_only_the_last_asks() -> None:
    messages = BUBBLES.messages("a\n\nb\n\nc", choices=(Choice("Yes", "/yes"),))
    assert [message.reply_to for message in messages] == ["m1", None, None]
    assert [len(message.choices) for message in messages] == [0, 0, 1]


def test_a_long_paragraph_is_split_further_and_too_many_are_joined() -> None:
    assert list(map(len, texts("short\n\n" + "word " * 1000))) == [5, 4000, 1000]
    many = "\n\n".join(f"line {number}" for number in range(MAX_PARTS + 1))
    assert texts(many) == [many]
    assert len(texts("\n\n".join("x" for _ in range(MAX_PARTS)))) == MAX_PARTS


@given(st.one_of(HOSTILE, PROSE))
def test_nothing_but_blank_lines_is_lost(text: str) -> None:
    parts = paragraphs(text)
    assert all(part.strip() for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
