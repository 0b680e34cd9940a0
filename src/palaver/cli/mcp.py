"""`palaver mcp`: serve MCP on standard input and output, for agents that start it; log in to servers of others."""

import asyncio
import os
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Annotated, Any

import typer

from palaver.agents.plugins import import_extra
from palaver.cli import shared_options
from palaver.cli.shared_options import StoreOption, ask
from palaver.cli.up import configuration
from palaver.cli.web import Identity, rights_named
from palaver.config.loader import load
from palaver.model.errors import BadArgument
from palaver.protocols.installation import install_line
from palaver.settings.types import reveal
from palaver.store.people import api_tokens
from palaver.store.store import Store
from palaver.tools.toolsets import login_file
from palaver.web.mcp.remote_client import RemoteClient
from palaver.web.tokens import issue_token

EXAMPLES = {"mcp": "palaver mcp --scopes read", "login": "palaver mcp login calendar"}
_TOKEN = "PALAVER_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_LIFETIME = timedelta(days=30)

app = typer.Typer(rich_markup_mode=None)


@app.callback(
    invoke_without_command=True,
    help="Serve conversations as MCP tools on standard input and output, through the running gateway.\n\n"
    f"{EXAMPLES['mcp']}",
)
def serve(
    context: typer.Context,
    *,
    scopes: Annotated[str, typer.Option(help="What it can do: read, chat.")] = "read,chat",
    identity: Identity = None,
    url: Annotated[str | None, typer.Option(help=f"Use a gateway elsewhere, with its token in {_TOKEN}.")] = None,
    store: StoreOption = None,
) -> None:
    if context.invoked_subcommand:
        return
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


@app.command(
    help=f"Log in to a configured MCP server that asks for it. Open the address that it prints.\n\n{EXAMPLES['login']}"
)
def login(
    server: Annotated[str, typer.Argument(help="The name of the server in the configuration.")],
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Receive the answer of the browser at this port.")] = 0,
) -> None:
    config = load()
    found = config.tools.servers.get(server)
    if found is None or found.url is None:
        known = ", ".join(name for name, each in config.tools.servers.items() if each.url)
        raise BadArgument(
            "There is no MCP server with a url called",
            found=server,
            allowed=known or "one that tools.servers in the configuration names",
            example="tools: {servers: {calendar: {url: 'https://calendar.example.org/mcp'}}}",
        )
    log_in = import_extra("palaver.tools.mcp_login", "MCP servers need", "mcp").log_in_to
    options = {"registration": found.registration(), "port": port, "show": _show_address}
    is_needed = asyncio.run(log_in(login_file(config.data_dir, server), found.url, reveal(found.headers), **options))
    print(f"You are logged in to {server}." if is_needed else f"{server} asks for no login.")


def _show_address(address: str) -> None:
    print(f"Open this address in a browser on this machine, and log in:\n{address}", flush=True)
    with suppress(webbrowser.Error):
        webbrowser.open(address)


def _revoke(store: str | None, number: int) -> None:
    async def revoke(opened: Store) -> None:
        await opened.transact(api_tokens.revoke(number))

    ask(store, revoke)


def _library() -> Sequence[Any]:
    try:
        return import_module("mcp.server.stdio").stdio_server, import_module("palaver.web.mcp.server").make_server
    except ModuleNotFoundError as missing:
        line = install_line("mcp", "web")
        raise BadArgument(
            "A package is missing:",
            found=missing.name or str(missing),
            allowed="the extras mcp and web",
            fix=f"Install what they need: {line}",
            example=line,
        ) from missing


async def _serve(stdio: Any, make_server: Any, remote: RemoteClient) -> None:  # noqa: ANN401 - of an extra
    server = make_server(remote)
    async with stdio() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
