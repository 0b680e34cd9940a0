"""Whether words in a group are for the agent."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.addressing import (
    Addressing,
    AddressingRules,
    AnswerMode,
    Batch,
    ConversationRules,
    address_whole_bursts,
    calls_by_name,
    choose_batch,
    classify_addressing,
)
from palaver.model.attachment import Attachment
from palaver.model.key import Scope, ScopedSetting, derive_key
from palaver.model.label import Label
from palaver.model.source import CHANNEL, DM, GROUP, THREAD, Source, account_text
from palaver.model.split import ReplyAccount, ReplyRoutes
from palaver.model.turn import BusyMode, Cause, Inbound, InboxState, Received

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
STRICT = AddressingRules(
    answers=AnswerMode.ADDRESSED, wake_words=frozenset({"Palaver", "hey bot", "Ren\u00e9", "\u0930\u093e\u092e"})
)


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
    assert heard(said(kind=kind, burst="a")) is Addressing.OVERHEARD, "another part can name us"
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
        ("palaver\u0301, hello", False),
        ("palaver" + "\u0301" * 1_000_000, False),
        ("Rene\u0301: hello", True),
        ("Ren\u00e9: hello", True),
        ("Rene: hello", False),
        ("\u0930\u093e\u092e hello", True),
        ("\u0930\u093e\u092e\u094b hello", False),
        ("x" * 1_000_000, False),
    ],
)
def test_a_name_is_called_at_the_beginning(text: str, *, is_called: bool) -> None:
    assert calls_by_name(text, STRICT.wake_words) is is_called


def test_where_words_are_not_spaced_a_name_can_be_followed_by_anything() -> None:
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


# What becomes of messages that arrive together, or while a turn runs.


WINDOW = timedelta(seconds=1)
FULL = "x" * 100
ROUTES = ReplyRoutes(accounts={account_text("telegram", None): ReplyAccount(limit=100)})


def waits(text: str, *, at: float = 0.0, user: str = "7", burst: str | None = None, observed: bool = False) -> Received:
    source = Source(platform="telegram", chat_id="1", user_id=user)
    moment = NOON + timedelta(seconds=at)
    inbound = Inbound(source=source, text=text, at=moment, burst=burst, observed=observed)
    return Received(
        number=1, key=derive_key(source, Scope()), inbound=inbound, state=InboxState.WAITING, received=moment
    )


def choose(*waiting: Received, mode: BusyMode = BusyMode.QUEUE, now: float = 10.0) -> Batch:
    rules = ConversationRules(busy=ScopedSetting(default=mode), burst_window=WINDOW)
    return choose_batch(waiting, rules, ROUTES, NOON + timedelta(seconds=now))


def test_queue_takes_one_at_a_time() -> None:
    assert choose(waits("one"), waits("two")) == Batch(take=1)


@pytest.mark.parametrize("mode", [BusyMode.COLLECT, BusyMode.INTERRUPT, BusyMode.STEER])
def test_other_modes_take_everything_up_to_a_command(mode: BusyMode) -> None:
    assert choose(waits("one"), waits("two"), waits("/new"), waits("three"), mode=mode) == Batch(take=2)
    for name in ("account", "scope_id", "thread_id"):  # a turn answers in one place
        other = waits("two")
        there = replace(other.inbound, source=replace(other.inbound.source, **{name: "5"}))
        assert choose(waits("one"), replace(other, inbound=there), mode=mode) == Batch(take=1), name


@pytest.mark.parametrize("mode", BusyMode)
def test_a_command_at_the_head_is_never_taken(mode: BusyMode) -> None:
    assert choose(waits("/new"), waits("one"), mode=mode) == Batch()


def test_nothing_waits() -> None:
    assert choose() == Batch()


def test_an_album_is_said_to_us_if_one_part_is_by_the_same_sender() -> None:
    album = [waits("", burst="a", observed=True), waits("look", burst="a"), waits("", burst="a", observed=True)]
    others = [
        waits("", burst="b", observed=True),
        waits("", burst="a", user="8", observed=True),
        waits("chatter", observed=True),
    ]
    assert [each.inbound.observed for each in address_whole_bursts([*album, *others])] == [False] * 3 + [True] * 3


def test_an_album_waits_for_its_parts_and_is_taken_whole() -> None:
    first, second = waits("one", burst="a"), waits("two", at=0.5, burst="a")
    assert choose(first, now=0.2) == Batch(until=NOON + WINDOW)
    assert choose(first, second, now=1.2) == Batch(until=NOON + timedelta(seconds=1.5))
    assert choose(first, second, now=1.5) == Batch(take=2)


def test_an_album_waits_no_longer_once_something_else_follows() -> None:
    first, second = waits("one", burst="a"), waits("two", burst="a")
    assert choose(first, second, waits("and?"), now=0.1) == Batch(take=2)
    assert choose(first, second, waits("three", burst="b"), now=0.1) == Batch(take=2)


def test_albums_of_two_people_are_two() -> None:
    assert choose(waits("one", burst="a"), waits("two", burst="a", user="8")) == Batch(take=1)


def test_a_text_that_was_cut_is_taken_with_its_rest() -> None:
    assert choose(waits(FULL), now=0.5) == Batch(until=NOON + WINDOW)
    assert choose(waits(FULL), waits("rest", at=0.3), now=0.4) == Batch(take=2)
    assert choose(waits(FULL), waits(FULL, at=0.3), waits("rest", at=0.6), now=0.7) == Batch(take=3)


def test_what_comes_later_or_from_somebody_else_is_no_rest() -> None:
    assert choose(waits(FULL), waits("much later", at=5)) == Batch(take=1)
    assert choose(waits(FULL), waits("mine", at=0.1, user="8")) == Batch(take=1)


messages = st.builds(
    waits,
    st.sampled_from(["one", "/new", FULL]),
    at=st.floats(0, 5),
    user=st.sampled_from(["7", "8"]),
    burst=st.sampled_from([None, "a", "b"]),
)


@given(waiting=st.lists(messages, max_size=6), mode=st.sampled_from(BusyMode), now=st.floats(0, 10))
def test_the_line_gets_on_no_matter_what_waits(waiting: list[Received], mode: BusyMode, now: float) -> None:
    """Something is taken, or a command stands at the head, or there is a time to look again, within the window."""
    waiting.sort(key=lambda each: each.received)
    choice = choose(*waiting, mode=mode, now=now)
    taken = waiting[: choice.take]
    assert not any(each.inbound.text.startswith("/") for each in taken)
    if choice.until is not None:
        assert choice.take == 0
        assert NOON + timedelta(seconds=now) < choice.until <= waiting[-1].received + WINDOW
    elif waiting and not taken:
        assert waiting[0].inbound.text.startswith("/")
