"""A million conversations with ten million entries on PostgreSQL beside a hundredth of them, and a day of traffic."""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg

from bench.engine import flood
from bench.gateway import Gateway, gateway
from bench.measure import Bare, Figure, Sides, at_most, p95_of, ratio_at_most, side_by_side
from bench.populate import Rows
from bench.reads import Router
from bench.searches import SEARCHES, searches
from bench.workshop import Workshop, say
from palaver.cli.loop import run
from palaver.model.session import Principal
from palaver.store.opening import open_store
from palaver.store.records import SEQS
from palaver.store.status import session_list

__all__ = ["million"]

_asyncpg: Any = asyncpg
_FEW, _LENGTH = 10_000, 10
_TIMES = int(os.environ.get("BENCH_MILLION_TIMES", "100"))
"""How many times as many the large store has. A smaller number tries the measurement itself."""
_PEOPLE, _FLOOD, _DAY = 1000, 2000, 200 * _TIMES
_AT_A_TIME = 10_000
_QUEUES = ("inbox", "outbox", "turns", "ready_queue")
_FLAT = ratio_at_most(1.3)
_VACUUM = ("autovacuum_naptime = '1s'", "maintenance_work_mem = '1GB'", "max_wal_size = '8GB'")
"""A day of traffic in two minutes: autovacuum looks as much more often."""


def million(workshop: Workshop) -> Iterator[Figure]:
    few, many = (workshop.copy_on_postgres(workshop.conversations(_FEW, length=_LENGTH)) for _ in range(2))
    yield from run(_compare(few, many))


async def _compare(few: str, many: str) -> list[Figure]:
    for url in (few, many):
        say("indexing")
        async with await open_store(url) as store:
            await store.search.catch_up()
    async with _connected(many) as connection:
        for setting in _VACUUM:
            await connection.execute(f"ALTER SYSTEM SET {setting}")
        await connection.execute("SELECT pg_reload_conf()")
        await _multiply(connection)
    found = await _measure(few, many)
    async with gateway(many, _PEOPLE) as large:
        async with gateway(few, _PEOPLE) as small:
            found["message"] = await _message_seconds(small, large)
        day = await _churn(large, many)
    figures = [
        Figure(
            name=f"pg.million_{name}",
            value=sides.ours,
            bare=Bare(name=f"among {_FEW:,}", value=sides.other),
            limit=None if name.startswith(("search", "route_cold")) else _FLAT,
        )
        for name, sides in found.items()
    ]
    return [*figures, *day]


async def _measure(few: str, many: str) -> dict[str, Sides]:
    """Seconds to route, to list and to search: among many and among few, in turns."""
    async with AsyncExitStack() as stack:
        small, large = [await stack.enter_async_context(await open_store(url)) for url in (few, many)]
        newest = session_list.list_sessions(Principal.operator(), limit=50)
        found = {
            # The same keys twice: the first time a conversation comes from the disk, later from memory.
            name: await side_by_side(Router(large, _FEW * _TIMES), Router(small, _FEW), rounds=400)
            for name in ("route_cold", "route")
        } | {
            "list": await side_by_side(lambda _: large.read(newest), lambda _: small.read(newest), rounds=100),
        }
        for (kind, ours), other in zip(searches(large).items(), searches(small).values(), strict=True):
            found[f"search ({kind})"] = await side_by_side(
                lambda _, ours=ours: ours(), lambda _, other=other: other(), rounds=SEARCHES, of=p95_of
            )
    return found


async def _message_seconds(small: Gateway, large: Gateway) -> Sides:
    """Of a whole message, with its claims. The first round also opens the conversations."""
    sides = await side_by_side(lambda _: flood(large, _FLOOD), lambda _: flood(small, _FLOOD), rounds=4)
    return Sides(ours=sides.ours / _FLOOD, other=sides.other / _FLOOD)


# Growing


async def _multiply(connection: Any) -> None:  # noqa: ANN401 - asyncpg has no types of its own
    """Write the conversations, and let the server copy the entries and their index, which it does fastest."""
    rows, done = Rows(), _FEW
    while done < _FEW * _TIMES:
        for number in range(done, done + _AT_A_TIME):
            rows.add(number, iter(()), _LENGTH)
        for table, columns, values in rows.take():
            await connection.copy_records_to_table(table, records=values, columns=columns)
        done += _AT_A_TIME
        say(f"{done:,} conversations")
    await connection.execute("SELECT setval(pg_get_serial_sequence('sessions', 'no'), max(no)) FROM sessions")
    await connection.execute("DROP INDEX search_documents_by_term")
    limit = (_FEW + 1) * SEQS
    for turn in range(1, _TIMES):
        ids, seconds = turn * _FEW * SEQS, turn * _FEW * 1_000_000
        await connection.execute(
            "INSERT INTO entries (id, role, observed, body)"  # noqa: S608 - our own numbers
            f" SELECT id + {ids}, role, observed, body FROM entries WHERE id < {limit}"
        )
        await connection.execute(
            "INSERT INTO search_documents (session, entry, page, at, body, terms) SELECT"  # noqa: S608
            f" session + {turn * _FEW}, entry + {ids}, page, at + {seconds}, body, terms FROM search_documents"
            f" WHERE entry < {limit}"
        )
        say(f"{(turn + 1) * _FEW * _LENGTH:,} entries")
    await connection.execute(
        "CREATE INDEX search_documents_by_term ON search_documents USING gin (terms)"
        " WITH (gin_pending_list_limit = 128)",
        timeout=3600,
    )
    await connection.execute(
        "UPDATE search_mark SET (xid, pos) = (SELECT xid, pos FROM journal ORDER BY 1 DESC, 2 DESC LIMIT 1)"
    )
    await connection.execute("VACUUM ANALYZE", timeout=3600)


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[Any]:
    connection = await _asyncpg.connect(url, command_timeout=3600)
    try:
        yield connection
    finally:
        await connection.close()


# A day


async def _churn(measured: Gateway, url: str) -> list[Figure]:
    """What the indexes of the queues take after two days, beside what they take when they are made anew."""
    sizes = list[float]()
    for day in range(2):
        for _ in range(0, _DAY, _FLOOD):
            await flood(measured, _FLOOD)
        say(f"day {day + 1}")
        async with _connected(url) as connection:
            sizes.append(await _index_bytes(connection))
    async with _connected(url) as connection:
        dead = await connection.fetchval(
            "SELECT max(n_dead_tup::float / greatest(n_live_tup, 1000)) FROM pg_stat_user_tables"
        )
        for table in _QUEUES:
            await connection.execute(f"REINDEX TABLE {table}")
        fresh = await _index_bytes(connection)
    note = f"indexes of the queues after two days of {_DAY:,} messages; {sizes[0] / 1e6:.1f} MB after one"
    anew = Bare(name="made anew", value=fresh)
    return [
        Figure(name="pg.day_index_bytes", value=sizes[-1], unit="B", bare=anew, limit=ratio_at_most(3), note=note),
        Figure(name="pg.day_dead_rows", value=dead, unit="", limit=at_most(0.5), note="share of the worst table"),
    ]


async def _index_bytes(connection: Any) -> float:  # noqa: ANN401
    sql = "SELECT sum(pg_indexes_size(name::regclass)) FROM unnest($1::text[]) AS name"
    return float(await connection.fetchval(sql, list(_QUEUES)))
