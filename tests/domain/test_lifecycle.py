from itertools import product
from typing import Any

import pytest

from palaver.domain.errors import IllegalTransition
from palaver.domain.lifecycle import (
    InboxState,
    OutboxState,
    SessionState,
    TurnState,
    advance,
    is_final,
    next_states,
)

# Any: one test asks all four lives the same questions, which their types keep apart.
LIVES: tuple[tuple[Any, ...], ...] = tuple(map(tuple, (SessionState, InboxState, TurnState, OutboxState)))
STATES: list[Any] = [state for life in LIVES for state in life]


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_every_state_has_its_steps_and_none_leads_out_of_its_life(state: Any) -> None:
    following: list[Any] = list(next_states(state))
    assert all(type(step) is type(state) for step in following)
    assert state not in following


@pytest.mark.parametrize("life", LIVES, ids=lambda life: type(life[0]).__name__)
def test_a_step_is_legal_exactly_when_it_is_listed(life: tuple[Any, ...]) -> None:
    for state, wanted in product(life, life):
        if wanted in next_states(state):
            assert advance(state, wanted) is wanted
        else:
            with pytest.raises(IllegalTransition):
                advance(state, wanted)


def test_what_is_final() -> None:
    assert {repr(state) for state in STATES if is_final(state)} == {
        repr(state)
        for state in (
            InboxState.DONE,
            InboxState.REFUSED,
            InboxState.FAILED,
            TurnState.DONE,
            TurnState.FAILED,
            OutboxState.DELIVERED,
            OutboxState.DEAD,
        )
    }


@pytest.mark.parametrize("state", [state for life in LIVES[1:] for state in life], ids=repr)
def test_whatever_lives_can_come_to_an_end(state: Any) -> None:
    reached: set[Any] = {state}
    while new := {following for known in reached for following in next_states(known)} - reached:
        reached |= new
    assert any(is_final(known) for known in reached)


def test_a_session_that_ended_can_be_opened_again() -> None:
    assert next_states(SessionState.ENDED) == {SessionState.OPEN}


def test_an_unclear_send_is_never_claimed_again_blindly() -> None:
    assert OutboxState.CLAIMED not in next_states(OutboxState.UNCLEAR)


def test_an_illegal_step_names_the_legal_ones() -> None:
    with pytest.raises(IllegalTransition) as caught:
        advance(OutboxState.UNCLEAR, OutboxState.CLAIMED)
    assert str(caught.value) == "OutboxState unclear cannot become claimed; it can become: delivered, due"
    with pytest.raises(IllegalTransition, match="nothing, it is final"):
        advance(TurnState.DONE, TurnState.RUNNING)


def test_no_state_of_another_life_can_be_reached() -> None:
    foreign: Any = InboxState.DONE
    assert foreign not in next_states(TurnState.RUNNING)
    with pytest.raises(IllegalTransition):
        advance(TurnState.RUNNING, foreign)
