"""Every kind of damage to rows and tables is seen, named, and mended or set aside, and others notice nothing of it."""

import asyncio
import gc
import shutil
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from palaver.store.archive.collector import collect_all
from palaver.store.archive.exporter import ExportFormat, export_session, write_archive
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.repair import find_damage, repair
from palaver.store.opening import open_store
from palaver.store.privacy.person_export import export_person
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


async def try_kinds(kinds: Sequence[Kind], url: str, files: Path) -> None:
    """Damage a store in several ways that do not disturb each other."""
    names = [kind.name for kind in kinds]
    async with await open_store(url) as store:
        for kind in kinds:
            for statement in kind.damage:
                await store.transact(run(statement))
    async with await open_store(url, exclusive=True, repairs=True) as store:
        found = [check async for check in find_damage(store, BlobStore(files)) if not check.ok]
        for kind in kinds:
            named = [check for check in found if kind.seen in f"{check.name} {check.found}"]
            assert named, (kind.name, [(check.name, check.found) for check in found])
            assert "palaver doctor --repair" in named[0].fix, kind.name
        if all(kind.usable for kind in kinds):
            await others_go_on(store, names)
        done = await repair(store, World(store).now, BlobStore(files))
        assert await failing(store, files) == {}, (names, done)
        assert done.mended, names
        assert done.failed == (), names
        for kind in kinds:
            rows = [tuple(row) for row in await store.read(run(kind.after))]
            assert _gives(rows, kind.gives), (kind.name, rows, done.mended)
        await others_go_on(store, names)
        await a_conversation_goes_on(store, names)


def _gives(rows: list[tuple[object, ...]], expected: object) -> bool:
    if isinstance(expected, list):
        return rows == expected
    value = rows[0][0]
    if isinstance(value, bytes):
        return str(expected).encode() in value
    return value == expected


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


async def test_every_kind_is_seen_and_mended(template: Path, tmp_path: Path) -> None:
    for number, kinds in enumerate(together(KINDS)):
        folder = tmp_path / str(number)
        shutil.copytree(template, folder)
        await try_kinds(kinds, str(folder / "palaver.db"), folder / "files")
        shutil.rmtree(folder)


def together(kinds: Sequence[Kind]) -> Iterable[Sequence[Kind]]:
    """Return the kinds that are made in one store."""
    stores: dict[object, list[Kind]] = {}
    for kind in kinds:
        stores.setdefault(kind.store or kind.name, []).append(kind)
    return stores.values()


async def test_what_can_happen_to_postgres_is_seen_and_mended(postgres_server: str, tmp_path: Path) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as store:
        await build(store, tmp_path / "files")
    name = url.partition("?")[0].rpartition("/")[2]
    for kinds in together([kind for kind in KINDS if kind.postgres]):
        await try_kinds(kinds, await fresh_database(postgres_server, name), tmp_path / "files")


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
    names = [kind.name for kind in KINDS]
    assert len(names) == len(set(names))
    assert len(names) >= 60
