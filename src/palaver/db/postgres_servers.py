"""Which server a connection goes to: the one of the URL, and those that its options `direct` and `replica` name.

    postgresql://palaver@pooler.example:6432/palaver?direct=db.example:5432&replica=db-2.example

`direct` says that the URL is that of a pooler in transaction mode, and where PostgreSQL itself is: what needs a
connection of its own goes there. `replica` is where reads go that can be a moment old. Each can name several hosts,
separated by commas: of these the one is used that can be written, and for reading preferably a standby.
"""

import re
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from palaver.model.errors import BadArgument, StoreError
from palaver.model.value import value

# asyncpg has no types of its own.
Connection = Any
_TIMEOUT_SECONDS = 5.0
ATTRIBUTES = "target_session_attrs"
_PREFER_STANDBY = "prefer-standby"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]@/]+|/[^:,]*)(?::([0-9]+))?")


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


def _at(url: str, option: str, servers: str) -> str:
    """Return the URL of the same database on other servers, with the same options, such as `sslmode`."""
    found = [_HOST.fullmatch(server) for server in servers.split(",")]
    if not all(found):
        allowed = "host, host:port, [address]:port or the folder of a socket, or several of them with commas"
        raise BadArgument(
            f"The store option {option} names no server:", found=servers, allowed=allowed, example="db:5432"
        )
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    # What the main server has to be, its replica is not.
    replaced = {"host", "port", *([ATTRIBUTES] if option == "replica" else [])}
    options = [(name, text) for name, text in parse_qsl(parts.query) if name not in replaced]
    if option == "replica" and len(found) > 1:
        options.append((ATTRIBUTES, _PREFER_STANDBY))
    if "," in servers or servers.startswith("/"):  # no URL can have several addresses in brackets before its path
        folder = found[0] if servers.startswith("/") and len(found) == 1 else None
        options.append(("host", folder[1] if folder else servers))
        options += [("port", folder[2])] if folder and folder[2] else []
        servers = ""
    return urlunsplit(parts._replace(netloc=f"{login}{at}{servers}", query=urlencode(options, safe="/,:[]")))


def hosts_of(url: str) -> list[str]:
    """Return a URL for each host of a URL, in the order in which to try them.

    Of several hosts, the one is wanted that can be written, unless the URL says something else.
    """
    parts = urlsplit(url)
    login, at, listed = parts.netloc.rpartition("@")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    hosts, ports = (listed or options.get("host", "")).split(","), options.get("port", "").split(",")
    if len(hosts) == 1:
        return [url]
    wanted = options.get(ATTRIBUTES, "read-write")
    urls: list[str] = []
    for attributes in ["standby", "any"] if wanted == _PREFER_STANDBY else [wanted]:
        for host, port in zip(hosts, cycle(ports), strict=False):
            own = {**options, ATTRIBUTES: attributes, **({} if listed else {"host": host}), "port": port}
            query = urlencode({name: text for name, text in own.items() if name != "port" or text}, safe="/:[]")
            urls.append(urlunsplit(parts._replace(netloc=f"{login}{at}{host if listed else ''}", query=query)))
    return urls


async def refuse_transaction_pooler(connect: Callable[..., Awaitable[Connection]]) -> None:
    """Raise StoreError if a pooler lends us a server process for each transaction: then nothing can listen.

    A pooler does not know the server process when we log in. Whether it lends the one that was used last or first, some
    of these transactions get another process than ours, or ours serves another connection.
    """
    first: Connection = await connect(statement_cache_size=0)
    try:
        process = await _serving_process(first)
        if process == first.get_server_pid():
            return
        second: Connection = await connect(statement_cache_size=0)
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
