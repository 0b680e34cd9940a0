from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.errors import IllegalTransition
from palaver.model.turn import AnswerForm, Outbound, OutboxState, TurnState, advance

# Any: one test asks both lives the same questions, which their types keep apart.
LIVES: tuple[tuple[Any, ...], ...] = tuple(map(tuple, (TurnState, OutboxState)))
STATES: list[Any] = [state for life in LIVES for state in life]


def may(state: Any, wanted: Any) -> bool:
    try:
        return advance(state, wanted) is wanted
    except IllegalTransition:
        return False


def following(state: Any) -> set[Any]:
    return {wanted for wanted in STATES if may(state, wanted)}


def is_final(state: Any) -> bool:
    return not following(state)


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_no_step_leads_out_of_a_life_or_nowhere(state: Any) -> None:
    assert all(type(step) is type(state) for step in following(state))
    assert state not in following(state)


def test_what_is_final() -> None:
    assert {state for state in STATES if is_final(state)} == {
        TurnState.DONE,
        TurnState.FAILED,
        OutboxState.DELIVERED,
    }


@pytest.mark.parametrize("state", [state for life in LIVES for state in life], ids=repr)
def test_anything_that_lives_can_come_to_an_end(state: Any) -> None:
    reached: set[Any] = {state}
    while new := {step for known in reached for step in following(known)} - reached:
        reached |= new
    assert any(is_final(known) for known in reached)


def test_an_unclear_send_is_never_claimed_again_blindly() -> None:
    assert OutboxState.CLAIMED not in following(OutboxState.UNCLEAR)


def test_an_illegal_step_names_the_legal_ones() -> None:
    with pytest.raises(IllegalTransition) as caught:
        advance(OutboxState.UNCLEAR, OutboxState.CLAIMED)
    assert str(caught.value) == "OutboxState unclear cannot become claimed, only delivered, due."
    with pytest.raises(IllegalTransition, match=": it is final"):
        advance(TurnState.DONE, TurnState.RUNNING)


WORDS = st.text("ab", max_size=12)


@given(WORDS, st.lists(st.text("ab", min_size=1, max_size=3), max_size=4))
def test_an_answer_grows_towards_where_it_is_cut(text: str, stops: list[str]) -> None:
    form = AnswerForm(stop=tuple(stops))
    whole, shown = form.cut(text), ""
    assert text.startswith(whole)
    assert not any(stop in whole for stop in stops)
    assert whole == text or any(text[len(whole) :].startswith(stop) for stop in stops)
    for end in range(len(text) + 1):
        grown = form.cut(text[:end], is_growing=True)
        assert grown.startswith(shown)
        shown = grown
    assert whole.startswith(shown)


def test_a_message_to_send_has_nothing_that_no_platform_could_take() -> None:
    message = Outbound(platform="pigeon", chat_id="loft", text="half \ud800, whole \N{DOVE OF PEACE}")
    assert message.text == "half \ufffd, whole \N{DOVE OF PEACE}"
    assert replace(message, text="\udfff").text == "\ufffd"
