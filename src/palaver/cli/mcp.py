"""`palaver mcp`: serve MCP on standard input and output, for agents that start it themselves."""

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Annotated, Any

import typer

from palaver.cli import shared_options
from palaver.cli.shared_options import StoreOption, ask
from palaver.cli.up import configuration
from palaver.cli.web import Identity, rights_named
from palaver.model.errors import BadArgument
from palaver.store.people import api_tokens
from palaver.store.store import Store
from palaver.web.mcp.remote_client import RemoteClient
from palaver.web.tokens import issue_token

EXAMPLES = {"mcp": "palaver mcp --scopes read"}
_TOKEN = "PALAVER_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_LIFETIME = timedelta(days=30)

app = typer.Typer(rich_markup_mode=None)


@app.command(
    help="Serve conversations as MCP tools on standard input and output, through the running gateway.\n\n"
    f"{EXAMPLES['mcp']}"
)
def serve(
    *,
    scopes: Annotated[str, typer.Option(help="What it can do: read, chat.")] = "read,chat",
    identity: Identity = None,
    url: Annotated[str | None, typer.Option(help=f"Use a gateway elsewhere, with its token in {_TOKEN}.")] = None,
    store: StoreOption = None,
) -> None:
    stdio, make_server = _library()
    if url is not None:
        asyncio.run(_serve(stdio, make_server, RemoteClient(url=url.rstrip("/"), token=os.environ.get(_TOKEN, ""))))
        return
    rights, now = rights_named(scopes), shared_options.now()
    token, key = ask(
        store,
        lambda opened: issue_token(
            opened, now, name="palaver mcp", rights=rights, identity=identity, expires=now + _TOKEN_LIFETIME
        ),
        make=True,
    )
    try:
        asyncio.run(_serve(stdio, make_server, RemoteClient(url=configuration(store).web.url, token=token)))
    finally:
        _revoke(store, key.number)


def _revoke(store: str | None, number: int) -> None:
    async def revoke(opened: Store) -> None:
        await opened.transact(api_tokens.revoke(number))

    ask(store, revoke)


def _library() -> Sequence[Any]:
    try:
        return import_module("mcp.server.stdio").stdio_server, import_module("palaver.web.mcp.server").make_server
    except ModuleNotFoundError as missing:
        raise BadArgument(
            "A package is missing:",
            found=missing.name or str(missing),
            allowed="palaver's mcp and web extras",
            example="pip install 'palaver[mcp,web]'",
        ) from missing


async def _serve(stdio: Any, make_server: Any, remote: RemoteClient) -> None:  # noqa: ANN401 - of an extra
    server = make_server(remote)
    async with stdio() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
