"""What a compaction may cover."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.compaction import check_gain, plan_compaction
from palaver.model.errors import NothingToCompact
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.view import estimate_tokens

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def entry(seq: int, role: Role, text: str = "some words to say", **more: object) -> Entry:
    return Entry(seq=seq, role=role, text=text, at=NOON, **more)  # pyright: ignore[reportArgumentType]


def chat(exchanges: int) -> list[Entry]:
    return [
        entry(2 * number + side, role)
        for number in range(exchanges)
        for side, role in enumerate((Role.USER, Role.ASSISTANT))
    ]


@st.composite
def working_logs(draw: st.DrawFn) -> list[Entry]:
    """Turns with tool calls whose results come at once, late or never; ids repeat from turn to turn."""
    log: list[Entry] = []
    late: list[str] = []
    for number in range(draw(st.integers(1, 8))):
        turn = str(number + 1)
        log.append(entry(len(log), Role.USER, turn=turn))
        for name in draw(st.lists(st.sampled_from("abc"), max_size=3)):
            log.append(entry(len(log), Role.ASSISTANT, calls=(ToolCall(id=name, name="t"),), turn=turn))
            late.append(name)
            while late and draw(st.booleans()):
                log.append(entry(len(log), Role.TOOL, answers=late.pop(0), turn=turn))
        if draw(st.booleans()):
            log.append(entry(len(log), Role.USER))  # said while the turn runs
    return log


def open_calls(log: Sequence[Entry]) -> list[int]:
    """Calls of the latest turn that nothing behind them answers."""
    latest = max(int(each.turn) for each in log if each.turn)
    return [
        each.seq
        for each in log
        for call in each.calls
        if each.turn == str(latest) and call.id not in {later.answers for later in log[each.seq + 1 :]}
    ]


def split_calls(log: Sequence[Entry], covered: set[int]) -> list[tuple[int, int]]:
    made: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for each in log:
        made |= {call.id: each.seq for call in each.calls}
        if each.answers in made and (made[each.answers] in covered) != (each.seq in covered):
            found.append((made[each.answers], each.seq))
    return found


@given(working_logs(), st.integers(0, 4))
def test_no_call_is_parted_from_its_result(log: list[Entry], keep: int) -> None:
    try:
        plan = plan_compaction(log, keep_exchanges=keep)
    except NothingToCompact:
        return
    covered = {each.seq for each in plan.covered}
    assert split_calls(log, covered) == []
    assert covered == set(range(len(covered)))
    kept = [each for each in log if each.seq not in covered]
    assert sum(each.role is Role.USER for each in kept) >= keep


@given(working_logs(), st.integers(0, 4))
def test_no_open_call_is_covered(log: list[Entry], keep: int) -> None:
    try:
        plan = plan_compaction(log, keep_exchanges=keep)
    except NothingToCompact:
        return
    last_of_each_id = {call.id: each.seq for each in log for call in each.calls}
    still_open = {seq for seq in open_calls(log) if seq in last_of_each_id.values()}
    assert not still_open & {each.seq for each in plan.covered}


def test_a_call_is_covered_only_with_its_result() -> None:
    log = [*chat(3), entry(6, Role.ASSISTANT, calls=(ToolCall(id="a", name="t"),), turn="3")]
    assert plan_compaction(log, keep_exchanges=0).covers == (0, 5)
    assert plan_compaction([*log, entry(7, Role.TOOL, answers="a")], keep_exchanges=0).covers == (0, 7)


def test_a_call_that_an_earlier_turn_left_unanswered_holds_nothing_up() -> None:
    log = [entry(0, Role.USER), entry(1, Role.ASSISTANT, calls=(ToolCall(id="a", name="t"),), turn="1")]
    log += [entry(2, Role.USER, turn="2"), entry(3, Role.ASSISTANT, turn="2"), entry(4, Role.USER, turn="3")]
    assert plan_compaction(log, keep_exchanges=1).covers == (0, 3)


def test_the_most_recent_exchanges_are_kept() -> None:
    assert plan_compaction(chat(5), keep_exchanges=2).covers == (0, 5)


def test_a_short_conversation_is_refused() -> None:
    with pytest.raises(NothingToCompact, match="most recent exchanges"):
        plan_compaction(chat(2), keep_exchanges=2)


def test_a_summary_alone_is_not_summarised_again() -> None:
    log = [entry(9, Role.SUMMARY, covers=(0, 3)), *(each for each in chat(4) if each.seq > 3)]
    with pytest.raises(NothingToCompact):
        plan_compaction(log, keep_exchanges=2)


def test_a_summary_and_what_followed_it_are() -> None:
    log = [entry(19, Role.SUMMARY, covers=(0, 3)), *(each for each in chat(6) if each.seq > 3)]
    assert plan_compaction(log, keep_exchanges=2).covers == (0, 7)


def test_hidden_entries_are_not_covered() -> None:
    log = [entry(0, Role.USER, hidden_by="undo"), *(each for each in chat(5) if each.seq > 1)]
    assert plan_compaction(log, keep_exchanges=2).covers == (2, 5)


def test_a_summary_as_long_as_what_it_replaces_is_refused() -> None:
    plan = plan_compaction(chat(5))
    check_gain(plan, entry(10, Role.SUMMARY, "short"))
    with pytest.raises(NothingToCompact, match=r"would take \d+ tokens, and what it replaces takes"):
        check_gain(plan, entry(10, Role.SUMMARY, "words " * 500))


def test_a_script_that_takes_more_bytes_weighs_more() -> None:
    plain, chinese = entry(0, Role.USER, "word" * 100), entry(1, Role.USER, "\u6c49\u5b57\u6c49\u5b57" * 100)
    assert estimate_tokens(plain) == 101
    assert estimate_tokens(chinese) == 301


def test_what_the_agent_thought_and_called_weighs_too() -> None:
    thought = entry(
        0, Role.ASSISTANT, "", reasoning="word" * 10, calls=(ToolCall(id="a", name="look", arguments="{}" * 8),)
    )
    assert estimate_tokens(thought) == 16


def test_an_empty_summary_is_refused() -> None:
    with pytest.raises(NothingToCompact, match="would be empty"):
        check_gain(plan_compaction(chat(5)), entry(10, Role.SUMMARY, " \n"))
