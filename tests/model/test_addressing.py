"""Whether words in a group are for the agent."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.addressing import Addressing, AddressingRules, AnswerMode, calls_by_name, classify_addressing
from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.reset import Cause
from palaver.model.source import CHANNEL, DM, GROUP, THREAD, Source
from palaver.model.turn import Inbound

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
STRICT = AddressingRules(answers=AnswerMode.ADDRESSED, wake_words=frozenset({"Palaver", "hey bot"}))


def said(text: str = "hello", kind: str = GROUP, **more: object) -> Inbound:
    source = Source(platform="telegram", chat_kind=kind, chat_id="-100", user_id="7")
    return replace(Inbound(source=source, text=text, at=NOON), **more)


def heard(
    inbound: Inbound, attention: AddressingRules = STRICT, *, has_mentions: bool = True, commands: bool = False
) -> Addressing:
    return classify_addressing(inbound, attention, has_mentions=has_mentions, commands=commands)


@pytest.mark.parametrize("kind", [GROUP, CHANNEL, THREAD])
def test_among_people_only_what_is_addressed_is_answered(kind: str) -> None:
    assert heard(said(kind=kind)) is Addressing.IGNORED
    assert heard(said(kind=kind), replace(STRICT, observes=True)) is Addressing.OVERHEARD
    assert heard(said(kind=kind, mentions_us=True)) is Addressing.ADDRESSED
    assert heard(said("palaver: hello", kind)) is Addressing.ADDRESSED
    assert heard(said("/status", kind), commands=True) is Addressing.ADDRESSED
    assert heard(said(kind=kind), AddressingRules(answers=AnswerMode.EVERYTHING)) is Addressing.ADDRESSED


def test_by_default_it_depends_on_whether_the_platform_has_mentions() -> None:
    assert heard(said(), AddressingRules()) is Addressing.IGNORED
    assert heard(said(), AddressingRules(), has_mentions=False) is Addressing.ADDRESSED


def test_a_direct_chat_and_what_no_person_said_are_always_for_the_agent() -> None:
    assert heard(said(kind=DM)) is Addressing.ADDRESSED
    assert heard(said(cause=Cause.SCHEDULE)) is Addressing.ADDRESSED
    assert heard(said(kind=DM, observed=True)) is Addressing.OVERHEARD


@pytest.mark.parametrize(
    ("text", "is_called"),
    [
        ("Palaver, what time is it?", True),
        ("PALAVER", True),
        ("\u200b\u202e@palaver?", True),
        ("  hey\tbot what", True),
        ("palaverous things", False),
        ("I like palaver", False),
        ("hey", False),
        ("", False),
        ("palaver" + "\u0301" * 1_000_000, True),
        ("x" * 1_000_000, False),
    ],
)
def test_a_name_is_called_at_the_beginning(text: str, *, is_called: bool) -> None:
    assert calls_by_name(text, STRICT.wake_words) is is_called


def test_where_words_are_not_spaced_a_name_may_be_followed_by_anything() -> None:
    assert calls_by_name("小助手你好", ["小助手"])


@given(st.text(), st.sets(st.text(max_size=5)))
def test_a_name_without_visible_letters_calls_nobody(text: str, names: set[str]) -> None:
    calls_by_name(text, names)
    assert not calls_by_name(text, ["", " ", "\u200b"])


@pytest.mark.parametrize("kind", [DM, GROUP])
def test_who_says_nothing_is_not_answered(kind: str) -> None:
    assert heard(said(" \n", kind, mentions_us=True)) is Addressing.IGNORED
    file = Attachment(name=Label("cat.png"), handle="1")
    assert heard(said("", kind, mentions_us=True, files=(file,))) is Addressing.ADDRESSED
