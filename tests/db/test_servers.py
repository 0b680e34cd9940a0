"""Behind a pooler in transaction mode, and with a replica: which server gets which connection."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from palaver.db.postgres_servers import hosts_of, parse_servers
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from tests.db.pooler import pooling
from tests.db.test_in_step import insert, names
from tests.needs import program
from tests.ports import free_port
from tests.store.conftest import fresh_store
from tests.store.test_in_step import all_at_once, talk


def test_options_name_other_servers_of_the_same_database() -> None:
    found = parse_servers("postgresql://me:pw@pooler:6432/talk?direct=db:5432&sslmode=require&replica=db-2")
    assert found.url == "postgresql://me:pw@pooler:6432/talk?sslmode=require"
    assert found.direct == "postgresql://me:pw@db:5432/talk?sslmode=require"
    assert found.replica == "postgresql://me:pw@db-2/talk?sslmode=require"
    assert found.is_pooled
    assert not parse_servers("postgresql:///talk?host=/run/pg").is_pooled
    assert parse_servers("postgresql://me@pooler/talk?direct=/run/pg").direct == "postgresql://me@/talk?host=/run/pg"


def test_each_option_names_several_servers_of_any_kind() -> None:
    url = "postgresql://me@a,b:1/talk?target_session_attrs=primary&sslmode=require"
    found = parse_servers(f"{url}&direct=[::1]:5433,d&replica=[::1],e:2")
    same = "postgresql://me@/talk?sslmode=require"
    assert hosts_of(found.direct) == [
        f"postgresql://me@/talk?target_session_attrs=primary&sslmode=require&host={host}"
        for host in ("[::1]:5433", "d")
    ]
    assert hosts_of(found.replica or "") == [
        f"{same}&target_session_attrs={kind}&host={host}" for kind in ("standby", "any") for host in ("[::1]", "e:2")
    ]
    only = parse_servers("postgresql://me@a/talk?direct=[::1]:5433")
    assert only.direct == "postgresql://me@[::1]:5433/talk"
    one = parse_servers("postgresql://me@a/talk?target_session_attrs=primary&replica=b")
    assert one.replica == "postgresql://me@b/talk"  # it is no primary


def test_of_several_servers_the_one_is_wanted_that_can_be_written() -> None:
    assert hosts_of("postgresql://a,b:1/talk") == [
        "postgresql://a/talk?target_session_attrs=read-write",
        "postgresql://b:1/talk?target_session_attrs=read-write",
    ]
    assert hosts_of("postgresql://me@/talk?host=/x,/y&port=1,2") == [
        "postgresql://me@/talk?host=/x&port=1&target_session_attrs=read-write",
        "postgresql://me@/talk?host=/y&port=2&target_session_attrs=read-write",
    ]
    assert hosts_of("postgresql:///talk") == ["postgresql:///talk"]


@pytest.mark.parametrize("server", ["", ":5432", "db:port", "db,", "[::1:5433"])
def test_an_option_without_a_server_is_refused(server: str) -> None:
    with pytest.raises(BadArgument, match="direct"):
        parse_servers(f"postgresql://db/talk?direct={server}")


async def check_a_gateway(url: str) -> None:
    """Conversations at once, notifications, a held schema: on one of two stores, and heard on the other."""
    async with await open_store(url, exclusive=True) as store, await open_store(url) as other:
        with other.listen("inbox") as heard:
            heard.clear()
            await talk(store, all_at_once)
            async with asyncio.timeout(60):
                await heard.wait()
        assert await other.read(violations()) == []


async def test_a_pooler_that_lends_a_server_for_each_transaction(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    folder = parse_qs(urlsplit(url).query)["host"][0]
    async with pooling(url, per_transaction=True) as pooled:
        await check_a_gateway(f"{pooled}?direct={folder}")


@pytest.mark.needs("pgbouncer")
async def test_pgbouncer_in_transaction_mode(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    folder = parse_qs(urlsplit(url).query)["host"][0]
    async with pgbouncer(url) as pooled:
        await check_a_gateway(f"{pooled}?direct={folder}")


def _pgbouncer_command(folder: Path, url: str, port: int) -> list[str]:
    """Write the settings; return what starts it, under the user of the server, since it refuses to run as root."""
    parts = urlsplit(url)
    host, name = parse_qs(parts.query)["host"][0], parts.path.removeprefix("/")
    (folder / "users").write_text(f'"{parts.username}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={host} user={parts.username}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = any\nauth_file = {folder}/users\npool_mode = transaction\n"
        "default_pool_size = 3\nunix_socket_dir =\n"
    )
    folder.chmod(0o755)
    user = ("-u", Path(f"{host}/.s.PGSQL.5432").owner()) if os.getuid() == 0 else ()
    return [program("pgbouncer"), *user, str(folder / "pgbouncer.ini")]


@asynccontextmanager
async def pgbouncer(url: str) -> AsyncGenerator[str]:
    """PgBouncer itself, with fewer connections than the gateway has."""
    parts = urlsplit(url)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="palaver-pgbouncer-") as folder:
        command = _pgbouncer_command(Path(folder), url, port)
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(60):
                while not await _answers(port):
                    assert process.returncode is None, "pgbouncer has ended"
                    await asyncio.sleep(0.02)
            yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_browsing_reads_from_the_replica_while_there_is_one(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with pooling(url, per_transaction=False) as replica:
        server = urlsplit(replica).netloc.rpartition("@")[2]
        async with await open_store(f"{url}&replica={server}") as store:
            await store.transact(insert("row"))
            assert await store.browse(names("row")) == ["row"]
            assert await store.browse(process()) == await store.browse(process()) != await store.read(process())
    async with await open_store(f"{url}&replica={server}") as store:  # it is gone
        assert await store.browse(names("row")) == ["row"]


@transaction
def process() -> Statements[int]:
    """Who serves this connection."""
    rows = yield "SELECT pg_backend_pid()", ()
    return rows[0][0]
