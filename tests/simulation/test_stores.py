"""Stores side by side keep the promises, and the verdict sees when one of the rules is left out."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.simulation import store_model
from tests.simulation.store_model import Rows, State, Store
from tests.simulation.stores import perform


@pytest.mark.parametrize("seed", range(2))
def test_no_promise_is_broken_while_conversations_move_and_a_store_is_lost(seed: int) -> None:
    end = perform(seed, people=150)
    assert not end.problems
    assert min(end.moves, end.links, end.refused, end.marked) > 0  # else nothing was tried
    assert end.digest == perform(seed, people=150).digest


def use_an_old_directory(store: Store, home: int, version: int) -> Rows:
    """A store that accepts any version."""
    return store.homes.setdefault(home, Rows(version))


def copy_an_open_turn(store: Store, home: int, version: int, _now: float) -> Rows | None:
    return deepcopy(store.find(home, version))


def leave_the_inbox_behind(store: Store, home: int, version: int, rows: Rows) -> None:
    store.homes[home] = replace(rows, version=version, state=State.SEALED, inbox={})


def run_what_moves(store: Store, home: int, version: int, rows: Rows) -> None:
    """A copy that is used before the directory names its store."""
    store.homes[home] = replace(rows, version=version, state=State.OPEN)
    store.look(home)


def give_old_numbers_again(lost: Store) -> Store:
    """A copy that continues under the name and the numbers of an older one."""
    return Store(lost.check, max(1, lost.number - 20))


@pytest.mark.parametrize(
    ("owner", "rule", "fault", "seen"),
    [
        (Store, "find", use_an_old_directory, "has two ids"),
        (Store, "seal", copy_an_open_turn, "answered without a mark"),
        (Store, "take", leave_the_inbox_behind, "has two ids"),
        (Store, "take", run_what_moves, "two turns at a time"),
        (store_model, "succeed", give_old_numbers_again, "names another"),
    ],
)
def test_a_rule_left_out_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: object, rule: str, fault: Callable[..., object], seen: str
) -> None:
    monkeypatch.setattr(owner, rule, fault)
    assert any(seen in problem for seed in range(4) for problem in perform(seed, people=150).problems)
