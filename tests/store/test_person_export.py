"""Everything of a person in one file: the same bytes each time, whole, and nothing of others."""

import json

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument, NotFound
from palaver.store.people import usage
from palaver.store.privacy.person_export import check_export, export_person
from palaver.store.store import Store
from tests.store.test_forgetting import ANN, ID, OTHERS, SECRET, live


async def _export(store: Store, name: str = ANN) -> list[bytes]:
    return [line async for line in export_person(store.database, name)]


@transaction
def _note(identity: str, text: str) -> Statements[None]:
    yield "INSERT INTO memory_notes (profile, identity, text, created) VALUES ('main', ?, ?, 1)", (identity, text)


async def test_everything_of_a_person_and_nothing_of_others(store: Store) -> None:
    await live(store)
    for identity, text in ((ANN, SECRET), ("telegram:8", OTHERS)):
        await store.transact(_note(identity, text))
    lines = await _export(store)
    text = b"".join(lines).decode()
    kinds = [next(iter(json.loads(line))) for line in lines]
    assert kinds[0] == "format"
    assert kinds[-1] == "whole"
    assert {kind: kinds.count(kind) for kind in ("session", "entry", "said", "message", "send")} == {
        "session": 1,
        "entry": 2,
        "said": 1,
        "message": 4,
        "send": 3,
    }
    tables = {json.loads(line)["row"]["table"] for line in lines if line.startswith(b'{"row"')}
    assert {
        "participants",
        "identities",
        "people",
        "grants",
        "home_channels",
        "usage",
        "schedules",
        "firings",
        "memory_notes",
    } <= tables
    assert text.count(SECRET) > 6
    assert ID in text
    assert OTHERS not in text


async def test_the_same_bytes_each_time(store: Store) -> None:
    await live(store)
    before = await _export(store)
    assert await _export(store) == before
    assert await store.transact(
        usage.sum_ended_turns()
    )  # So an export has written nothing: it needs a store only to read.
    assert await _export(store) == before


async def test_a_file_that_was_changed_or_cut_is_found_out(store: Store) -> None:
    await live(store)
    lines = await _export(store)
    assert check_export(lines) == len(lines) - 1
    for broken in ([], lines[:-1], lines[1:], [*lines[:3], *lines[4:]], [lines[0].replace(b"7", b"8"), *lines[1:]]):
        with pytest.raises(BadArgument):
            check_export(broken)


async def test_nobody_of_that_name(store: Store) -> None:
    with pytest.raises(NotFound):
        await _export(store, "nobody")
