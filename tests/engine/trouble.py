"""A store that once refuses a step, or does it and does not say so."""

from collections.abc import Callable
from typing import Literal, TypeVar

import pytest

from palaver.db.transaction import Statements, Transaction
from palaver.model.errors import StoreError
from palaver.store.store import Store

__all__ = ["trouble"]

T = TypeVar("T")


def trouble(
    patch: pytest.MonkeyPatch,
    store: Store,
    how: Literal["transact", "read"],
    phrase: str,
    error: StoreError,
    *,
    done: bool = False,
) -> Callable[[], bool]:
    """The first work in which a statement has this phrase meets the error, before or after it is done.

    Gives a function that says whether it has come to that.
    """
    real, errors = getattr(store, how), [error]

    async def meet(work: Transaction[T]) -> T:
        seen: list[object] = []

        def start(work: Transaction[T]) -> Statements[T]:
            steps = iter(work)
            try:
                statement = next(steps)
                while True:
                    if errors and phrase in str(statement):
                        seen.append(statement)
                        if not done:
                            raise error
                    statement = steps.send((yield statement))
            except StopIteration as stop:
                return stop.value

        # A store may start work again by itself, so that it has met the error only when the store is through with it.
        try:
            result = await real(Transaction(start, work))
        finally:
            if seen:
                errors.clear()
        if seen:
            raise error
        return result

    patch.setattr(store, how, meet)
    return lambda: not errors
