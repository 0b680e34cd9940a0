"""Every version of the schema since the first opens, with a backup first, and has what was said in it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from palaver.db.schema import POSTGRES, SQLITE, known_migrations, run_migration, translate
from palaver.db.schema_check import compare_sqlite, expected_sqlite, read_sqlite
from palaver.db.sqlite import run_statements
from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.turn import Inbound, Outbound
from palaver.store import opening
from palaver.store.conversations import transcript
from palaver.store.opening import open_store
from palaver.store.records import SEQS, inbound_body, outbound_body, source_text
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.conftest import DRIVER, fresh_database
from tests.store.world import NOON, World, dm, key_of

VERSIONS = [migration.number for migration in known_migrations()]
BY_THIS = {VERSIONS[0], VERSIONS[len(VERSIONS) // 2], *VERSIONS[-5:]}
KEY, SOURCE = key_of(dm()).text, dm(message_id="m1")
AT = 1_772_366_400_000_000
SAID = ["hello", "hello, Ann"]
ROWS: list[tuple[str, dict[str, Any]]] = [
    ("meta", {"name": "schema", "value": "1"}),
    ("people", {"id": "p1", "name": "Ann", "created": AT}),
    ("identities", {"identity": "telegram:7", "person": "p1", "name": "Ann", "created": AT}),
    (
        "sessions",
        {
            "id": "s1",
            "key": KEY,
            "profile": "main",
            "platform": "telegram",
            "owner": "telegram:7",
            "origin": source_text(dm()),
            "started": AT,
            "last_human": AT,
            "last_active": AT,
            "next_seq": 3,
            "turns": 1,
            "input_tokens": 10,
            "output_tokens": 5,
            "cost_micros": 3,
        },
    ),
    ("participants", {"identity": "telegram:7", "session_no": 1}),
    ("routes", {"key": KEY, "session_no": 1, "address": source_text(dm())}),
    (
        "turns",
        {
            "key": KEY,
            "session_no": 1,
            "state": "done",
            "worker": "w",
            "lease_until": AT,
            "started": AT,
            "ended": AT,
            "identity": "telegram:7",
            "input_tokens": 10,
            "output_tokens": 5,
            "cost_micros": 3,
        },
    ),
    (
        "entries",
        {"id": SEQS + 1, "role": "user", "turn_no": 1, "body": b'[1,"user","2026-03-01T12:00:00Z","hello","1"]'},
    ),
    (
        "entries",
        {
            "id": SEQS + 2,
            "role": "assistant",
            "turn_no": 1,
            "body": b'[2,"assistant","2026-03-01T12:00:01Z","hello, Ann","1"]',
        },
    ),
    ("journal", {"session_no": 1, "kind": "append", "first_seq": 1, "last_seq": 2}),
    (
        "inbox",
        {
            "dedup": "telegram::7:m1",
            "key": KEY,
            "state": "in-turn",
            "received": AT,
            "turn_no": 1,
            "body": inbound_body(Inbound(source=SOURCE, text="hello", at=NOON), None, None),
        },
    ),
    (
        "outbox",
        {
            "id": 1024,
            "account": "telegram:",
            "chat": "7",
            "state": "delivered",
            "due": AT,
            "created": AT,
            "body": outbound_body(Outbound(platform="telegram", chat_id="7", text="hello, Ann")),
        },
    ),
]
"""What the first version stored of one exchange."""


@transaction
def plant() -> Statements[None]:
    for table, row in ROWS:
        places = ", ".join("?" * len(row))
        yield f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())  # noqa: S608


@transaction
def record_version(number: int) -> Statements[None]:
    yield "UPDATE meta SET value = ? WHERE name = 'schema'", (str(number),)


def old_stores() -> Iterator[tuple[int, bytes]]:
    """A store of each version, with what was said while it was of the first."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for migration in known_migrations():
            run_statements(db, iter(run_migration(migration, SQLITE)), set())
            run_statements(db, iter(plant() if migration.number == 1 else record_version(migration.number)), set())
            yield migration.number, db.serialize()


async def check(store: Store) -> None:
    assert [entry.text for entry in await store.read(transcript.load_visible("s1", Principal.operator()))] == SAID
    assert await store.read(violations()) == []
    world = World(store, _ids=count(2))
    assert await world.say("hello", source=dm(), id_="m1") is None, "it is known"
    begun = await world.exchange("still here?")
    assert begun.turn.session == "s1"


async def test_every_version_opens_with_a_backup_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is opened by the Palaver that came next, and some by this one."""
    for number, content in old_stores():
        path = tmp_path / f"{number}" / "palaver.db"
        path.parent.mkdir()
        path.write_bytes(content)
        known = known_migrations()
        if number not in BY_THIS:
            known = known[: VERSIONS.index(number) + 2]
        with monkeypatch.context() as patch:
            patch.setattr(opening, "known_migrations", partial(tuple, known))
            async with await open_store(str(path), exclusive=True) as store:
                if known[-1].number == VERSIONS[-1]:
                    await check(store)
                    assert compare_sqlite(await store.read(read_sqlite()), expected_sqlite(known)) == []
        backup = path.with_name(f"palaver.db.schema-{number}")
        assert backup.exists() == (number < VERSIONS[-1])
        if backup.exists():
            with closing(sqlite3.connect(backup)) as db:
                assert db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() == (str(number),)
                assert db.execute("SELECT count(*) FROM entries").fetchone() == (2,)


async def test_the_first_version_opens_on_a_server(postgres_server: str) -> None:
    url = await fresh_database(postgres_server)
    connection = await DRIVER.connect(url)
    try:
        for statement in translate(known_migrations()[0].sql, POSTGRES):
            await connection.execute(statement)
        for table, row in ROWS:
            places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
            await connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", *row.values())  # noqa: S608
    finally:
        await connection.close()
    async with await open_store(url) as store:
        await check(store)


def test_versions_are_numbered_upwards_from_one() -> None:
    assert sorted(set(VERSIONS)) == VERSIONS
    assert VERSIONS[0] == 1
