"""Which server a connection goes to: the one of the URL, and those that its options `direct` and `replica` name.

    postgresql://palaver@pooler.example:6432/palaver?direct=db.example:5432&replica=db-2.example

`direct` says that the URL is that of a pooler in transaction mode, and where PostgreSQL itself is: what needs a
connection of its own goes there. `replica` is where reads go that can be a moment old.
"""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from palaver.model.errors import BadArgument, StoreError
from palaver.model.value import value

# asyncpg has no types of its own.
Connection = Any
_asyncpg: Any = asyncpg
_TIMEOUT_SECONDS = 5.0


@value
class Servers:
    url: str
    """Where transactions go."""
    direct: str
    """Where connections go that listen, hold the schema, migrate or vacuum. The same, if there is no pooler."""
    replica: str | None = None

    @property
    def is_pooled(self) -> bool:
        """Nothing may stay in a connection from one transaction to the next, prepared statements included."""
        return self.direct != self.url


def parse_servers(url: str) -> Servers:
    """Raise BadArgument for an option that names no server."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, text) for name, text in options if name not in {"direct", "replica"}]
    plain = urlunsplit(parts._replace(query=urlencode(kept, safe="/"))) if kept != options else url
    named = {name: _at(plain, name, text) for name, text in options if name in {"direct", "replica"}}
    return Servers(url=plain, direct=named.get("direct", plain), replica=named.get("replica"))


def _at(url: str, option: str, server: str) -> str:
    """Return the URL of the same database on another server, with the same options, such as `sslmode`."""
    parts = urlsplit(url)
    host, _, port = server.partition(":")
    if not host or (port and not port.isdecimal()):
        allowed = "host or host:port, or the folder of a socket"
        raise BadArgument(
            f"The store option {option} names no server:", found=server, allowed=allowed, example="db:5432"
        )
    login, at, _ = parts.netloc.rpartition("@")
    options = [(name, text) for name, text in parse_qsl(parts.query) if name not in {"host", "port"}]
    if host.startswith("/"):
        options += [("host", host), *([("port", port)] if port else [])]
        server = ""
    return urlunsplit(parts._replace(netloc=f"{login}{at}{server}", query=urlencode(options, safe="/")))


async def refuse_transaction_pooler(url: str) -> None:
    """Raise StoreError if a pooler lends us a server process for each transaction: then nothing can listen.

    A pooler does not know the server process when we log in. Whether it lends the one that was used last or first, some
    of these transactions get another process than ours, or ours serves another connection.
    """
    first: Connection = await _asyncpg.connect(url, timeout=10, statement_cache_size=0)
    try:
        process = await _serving_process(first)
        if process == first.get_server_pid():
            return
        second: Connection = await _asyncpg.connect(url, timeout=10, statement_cache_size=0)
        try:
            ours = {await _serving_process(first)}
            other = await _serving_process(second)
            ours.add(await _serving_process(first))
        finally:
            second.terminate()
    finally:
        first.terminate()
    if ours != {process} or other == process:
        raise StoreError(
            "PostgreSQL is behind a connection pooler in transaction mode, and Palaver also needs connections of its"
            " own: add ?direct=host:port of PostgreSQL itself to the URL, or set pool_mode = session in the pooler"
        )


async def _serving_process(connection: Connection) -> int:
    """Return the process that serves a transaction of this connection."""
    await connection.execute("BEGIN", timeout=_TIMEOUT_SECONDS)
    process = await connection.fetchval("SELECT pg_backend_pid()", timeout=_TIMEOUT_SECONDS)
    await connection.execute("COMMIT", timeout=_TIMEOUT_SECONDS)
    return process
