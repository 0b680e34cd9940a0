"""Every kind of damage to rows and tables is seen and named, costs others nothing, and everything else is salvaged."""

import asyncio
import gc
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from palaver.db.tables import copy_order
from palaver.model.errors import StoreError
from palaver.model.key import SessionKey
from palaver.store.archive.collector import collect_all
from palaver.store.archive.exporter import ExportFormat, export_session, write_archive
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.checks import find_damage
from palaver.store.damage.salvage import Files, salvage
from palaver.store.opening import open_store, sqlite_path
from palaver.store.privacy.person_export import export_person
from palaver.store.queue.outbox import NOBODY
from palaver.store.records import USAGE_COLUMNS
from palaver.store.status import overview, session_list
from palaver.store.store import Store
from tests.damage.conftest import failing
from tests.damage.kinds import ENTRIES, SCHEMA, Kind, run
from tests.damage.queue_kinds import MESSAGES, SENDS, TURNS
from tests.damage.structure_kinds import JOBS, PEOPLE, SESSIONS
from tests.damage.template import ANN, BEN_ALONE, ZOE, build, deliver_all, exchange
from tests.store.conftest import fresh_database, fresh_store
from tests.store.world import OPERATOR, World, key_of

KINDS = (*SCHEMA, *ENTRIES, *MESSAGES, *TURNS, *SENDS, *SESSIONS, *PEOPLE, *JOBS)
_numbers = count(1)


async def try_kinds(kinds: Sequence[Kind], url: str, new: str, files: Path) -> None:
    """Damage a store in several ways that do not disturb each other, and salvage it."""
    names = [kind.seen for kind in kinds]
    is_usable = all(kind.usable for kind in kinds)
    async with await open_store(url) as store:
        for kind in kinds:
            for statement in kind.damage:
                await store.transact(run(statement))
        found = [check async for check in find_damage(store, BlobStore(files)) if not check.ok]
        for kind in kinds:
            named = [check for check in found if kind.seen in f"{check.name} {check.found}"]
            assert named, (kind.seen, [(check.name, check.found) for check in found])
            assert "palaver doctor --salvage NEW_STORE" in named[0].fix, kind.seen
        if is_usable and sqlite_path(url):
            await others_go_on(store, names)
        before = await rows_of(store)
    done = await salvage(url, new, "damaged", datetime.now(UTC), files=Files(BlobStore(files), None))
    async with await open_store(new, exclusive=True) as store:
        assert await failing(store, files) == {}, names
        compare(before, await rows_of(store), {(each.table, each.row) for each in done.left})
        await others_go_on(store, names)
        await a_conversation_goes_on(store, names)


Rows = dict[str, dict[str, dict[str, object]]]
"""The columns of each row by the name of its table and its own."""


async def rows_of(store: Store) -> Rows:
    found: Rows = {}
    for table in copy_order():
        try:
            rows = await store.read(run(f"SELECT {', '.join(table.columns)} FROM {table.name}"))  # noqa: S608
        except StoreError:  # a column or the table is missing
            continue
        columns = [dict(zip(table.columns, row, strict=True)) for row in rows]
        found[table.name] = {" ".join(str(row[name]) for name in table.key): row for row in columns}
    return found


MADE_ANEW = {"meta", "journal", "ready_queue", "set_aside"}
COUNTED = {"next_seq", "shown_from", *USAGE_COLUMNS}
LEFT_OUT = {
    "entries": {"hidden_by"},
    "inbox": {"state", "turn_no", "reason", "key", "place"},
    "outbox": {"cause_kind", "cause_id", "cause_detail", "part"},
    "sessions": {"ended", "end_reason"},
}
"""Relations that are left out of rows, which are named."""


def compare(before: Rows, after: Rows, named: set[tuple[str, str]], unread: Collection[str] = ()) -> None:
    """Whatever is not in the new store is named, and nothing is in it that was not there before."""
    for table in before.keys() - MADE_ANEW - {*unread}:
        lost = {(table, row) for row in before[table].keys() - after[table].keys()}
        assert lost <= named
        for name, row in after[table].items():
            if row.get("account") == NOBODY or row.get("key") == SessionKey("main", person=NOBODY).text:
                assert (table, name) in named or name not in before[table]
                continue  # it only keeps a number that was given before
            was = before[table][name]
            changed = {column for column in row if row[column] != was[column]} - COUNTED
            assert not changed or (table, name if table != "sessions" else row["id"]) in named, (table, name, changed)
            assert changed <= LEFT_OUT.get(table, set())


async def others_go_on(store: Store, kinds: Sequence[str]) -> None:
    """Somebody new is answered, and what others have can be listed, searched and exported."""
    world = World(store)
    world.later(days=next(_numbers))
    await exchange(world, ZOE, f"hello after {kinds[0]} {next(_numbers)}", "good day")
    assert await deliver_all(world), kinds
    assert len((await store.read(session_list.list_sessions(OPERATOR))).previews) >= 4, kinds
    assert await store.read(overview.list_inbound(OPERATOR)), kinds
    assert await store.read(overview.list_outbound(OPERATOR)), kinds
    assert {hit.entry.text for hit in await store.search.find("boats", BEN_ALONE) if hit.entry} >= {"boats"}, kinds
    archive = [piece async for piece in write_archive(collect_all(store.database, OPERATOR), ExportFormat.JSONL)]
    assert b"fast boats" in b"".join(archive), kinds
    theirs = (await store.read(session_list.list_sessions(BEN_ALONE))).previews[-1].session.id
    exported = await store.read(export_session(theirs, ExportFormat.MARKDOWN, BEN_ALONE))
    assert b"slow rafts" in exported.content, kinds
    person = [line async for line in export_person(store.database, "telegram:8")]
    assert b"slow rafts" in b"".join(person), kinds


async def a_conversation_goes_on(store: Store, kinds: Sequence[str]) -> None:
    """Ann is answered, after what she said last."""
    world = World(store)
    world.later(days=next(_numbers))
    while (begun := await world.begin(ANN)) is not None:
        await store.transact(store.turns.settle(begun.turn, [], [], world.now))
    number = await exchange(world, ANN, f"go on {next(_numbers)}", "I do")
    found = await store.read(store.trace.find_traces(f"turn:{number}", OPERATOR))
    assert found[0].turn, kinds
    assert found[0].turn.turn.key == key_of(ANN), kinds
    await deliver_all(world)


def together(kinds: Sequence[Kind]) -> list[Sequence[Kind]]:
    """Return the kinds that are made in one store."""
    stores: dict[object, list[Kind]] = {}
    for kind in kinds:
        stores.setdefault(kind.store or kind.seen, []).append(kind)
    return list(stores.values())


@pytest.mark.parametrize("kinds", together(KINDS), ids=lambda kinds: kinds[0].seen)
async def test_every_kind_is_seen_and_the_rest_is_salvaged(folder: Path, kinds: Sequence[Kind]) -> None:
    await try_kinds(kinds, str(folder / "palaver.db"), str(folder / "new" / "palaver.db"), folder / "files")


_built: dict[str, str] = {}
"""The name of a database with the store that is damaged, by its server."""


@pytest.mark.parametrize("kinds", together([each for each in KINDS if each.postgres]), ids=lambda kinds: kinds[0].seen)
async def test_what_can_happen_to_postgres_is_seen_and_the_rest_is_salvaged(
    postgres_server: str, template: Path, kinds: Sequence[Kind]
) -> None:
    if postgres_server not in _built:
        url = await fresh_store(postgres_server)
        async with await open_store(url) as store:
            await build(store, template / "files")
        _built[postgres_server] = url.partition("?")[0].rpartition("/")[2]
    damaged, new = await fresh_database(postgres_server, _built[postgres_server]), await fresh_store(postgres_server)
    await try_kinds(kinds, damaged, new, template / "files")


async def test_text_that_is_not_utf8_keeps_no_reader_in_the_past(folder: Path) -> None:
    gc.disable()  # what failed halfway is not collected meanwhile
    try:
        async with await open_store(str(folder / "palaver.db")) as store:
            await store.transact(run("UPDATE sessions SET title = CAST(x'ff41' AS TEXT) WHERE no = 1"))
            for title in ("one", "two"):
                await asyncio.gather(*(store.read(run("SELECT title FROM sessions")) for _ in range(20)))
                await store.transact(run(("UPDATE sessions SET title = ? WHERE no = 2", (title,))))
                query = run("SELECT title FROM sessions WHERE no = 2")
                found = await asyncio.gather(*(store.read(query) for _ in range(20)))
                assert [rows[0][0] for rows in found] == [title] * 20
    finally:
        gc.enable()


def test_there_are_enough_kinds() -> None:
    assert len({repr(kind.damage) for kind in KINDS}) == len(KINDS) >= 100
