"""What encryption costs: a turn, and a search, each beside the same on a plain file."""

import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from bench.measure import Bare, Figure, Sides, set_aside, side_by_side
from bench.populate import COMMON, answer_of, running_turns
from bench.turns import ALONE
from bench.workshop import Workshop
from palaver.cli.loop import run
from palaver.model.session import Principal
from palaver.store.encryption.conversion import convert_store
from palaver.store.encryption.vault import DataKey
from palaver.store.opening import open_store

__all__ = ["encrypted_search", "encrypted_turn"]

_CONVERSATIONS, _SEARCHES = 2_000, 60


def encrypted_turn(workshop: Workshop) -> Iterator[Figure]:
    path = workshop.running(ALONE)
    sides = run(_turns(*_both(workshop, path), path))
    yield _figure("store.encrypted_turn", sides)


def encrypted_search(workshop: Workshop) -> Iterator[Figure]:
    sides = run(_searches(*_both(workshop, workshop.conversations(_CONVERSATIONS))))
    yield _figure("store.encrypted_search", sides)


def _figure(name: str, sides: Sides) -> Figure:
    return Figure(name=name, value=sides.ours, bare=Bare(name="not encrypted", value=sides.other))


def _both(workshop: Workshop, path: Path) -> tuple[Path, DataKey, Path]:
    """Return an encrypted copy, its key, and a plain copy."""
    encrypted, key = workshop.copy(path), DataKey(os.urandom(32))
    convert_store(encrypted, encrypted.parent / "files", [None], key)
    return encrypted, key, workshop.copy(path)


async def _turns(encrypted: Path, key: DataKey, plain: Path, path: Path) -> Sides:
    turns = running_turns(path)
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(await open_store(str(encrypted), key=key.database))
        other = await stack.enter_async_context(await open_store(str(plain)))
        set_aside()
        return await side_by_side(
            lambda number: ours.transact(answer_of(turns[number])),
            lambda number: other.transact(answer_of(turns[number])),
            rounds=len(turns) - 1,
        )


async def _searches(encrypted: Path, key: DataKey, plain: Path) -> Sides:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(await open_store(str(encrypted), key=key.database))
        other = await stack.enter_async_context(await open_store(str(plain)))
        for store in (ours, other):
            await store.search.catch_up()
        set_aside()
        return await side_by_side(
            lambda _: ours.search.find(COMMON, Principal.operator()),
            lambda _: other.search.find(COMMON, Principal.operator()),
            rounds=_SEARCHES,
        )
