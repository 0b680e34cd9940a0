"""What Markdown becomes on Signal."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palaver.model.split import Unit
from palaver.model.turn import Outbound
from palaver.platforms.signal.parse import is_person, render
from tests.platforms.signal.server import GROUP_ID, UUID


def rendered(text: str, chat: str = UUID) -> tuple[str, list[str]]:
    found: Any = render(Outbound(platform="signal", chat_id=chat, text=text))
    return found["message"], found.get("textStyle", [])


def test_styles_are_ranges_of_the_text() -> None:
    cases: dict[str, tuple[str, list[str]]] = {
        "plain": ("plain", []),
        "a **b** _c_ ~~d~~ `e`": ("a b c d e", ["2:1:BOLD", "4:1:ITALIC", "6:1:STRIKETHROUGH", "8:1:MONOSPACE"]),
        "👩‍👩‍👧 **b**": ("👩‍👩‍👧 b", ["9:1:BOLD"]),
        "# Tea\n\n```py\nx = 1\n```": ("Tea\n\nx = 1", ["0:3:BOLD", "5:5:MONOSPACE"]),
        "[here](https://example.org)": ("here (https://example.org)", []),
        "> said\n\n- one\n- two": ("> said\n\n• one\n• two", []),
        "**bold _both_**": ("bold both", ["0:9:BOLD", "5:4:ITALIC"]),
    }
    for text, wanted in cases.items():
        assert rendered(text) == wanted


def test_a_text_of_which_nothing_is_left_is_sent_as_written() -> None:
    assert rendered("[]: x") == ("[]: x", [])
    assert rendered("") == ("", [])


@given(st.text(alphabet="*_~`[]()>#-|\n ab👍\ud800", max_size=60))
def test_ranges_stay_within_the_text(text: str) -> None:
    shown, styles = rendered(text, GROUP_ID)
    for each in styles:
        start, length, _ = each.split(":")
        assert 0 < int(length) <= Unit.UTF16.measure(shown) - int(start)


def test_people_and_groups_are_told_apart() -> None:
    assert all(map(is_person, ("+15550100300", UUID)))
    assert not any(map(is_person, (GROUP_ID, "", "alice", "+1555x", f"{UUID}\n", UUID.upper())))
