"""`palaver platforms`: show connected accounts and list platforms; `check_accounts` checks configured ones."""

from collections.abc import Collection, Sequence
from dataclasses import asdict

import typer

from palaver.cli.output import print_found, print_json, print_line, print_rows
from palaver.cli.shared_options import Json, StoreOption, ask_database, load_config, now
from palaver.commands.formatting import ago
from palaver.db.transaction import DatabaseClient
from palaver.platforms.plugins import BUILT_IN, installed_platforms, known_platforms
from palaver.store import accounts as store_accounts
from palaver.store.accounts import AccountHealth
from palaver.store.clock import store_time

EXAMPLES = {
    "platforms": "palaver platforms",
    "check": "palaver platforms check telegram",
    "list": "palaver platforms list",
}

app = typer.Typer(help=f"Show which accounts are connected.\n\n{EXAMPLES['platforms']}", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def platforms(context: typer.Context, *, store: StoreOption = None, json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    accounts, wanted = list_accounts(store), _wanted()
    if json:
        print_json({"accounts": [{**fields_of(each), "state": _state(each, wanted)} for each in accounts]})
    elif accounts:
        rows = [(each.name, _state(each, wanted), since(each), error_of(each)) for each in accounts]
        print_rows(("account", "state", "connected", "last error"), rows)
    else:
        print_line("No account has been connected yet. Run palaver up to connect the configured ones.")


@app.command("list", help=f"List the installed platforms and what each can do.\n\n{EXAMPLES['list']}")
def list_platforms(*, json: Json = False) -> None:
    known = known_platforms()
    found = [known[name] for name in installed_platforms()]
    fields = [{"name": each.name, "title": each.title, "can": each.abilities_in_order} for each in found]
    rows = [(each.name, each.title, ", ".join(each.abilities_in_order)) for each in found]
    print_found({"platforms": fields}, ("platform", "name", "can do"), rows, as_json=json)


def list_accounts(store: str | None) -> list[AccountHealth]:
    """Return accounts served before and configured ones."""
    found = ask_database(store, _served, [])
    served = {each.name: each for each in found}
    return sorted({**{each.name: each for each in _configured()}, **served}.values(), key=lambda each: each.name)


async def _served(store: DatabaseClient) -> list[AccountHealth]:
    return await store.read(store_accounts.list_health(await store_time(store.database, now())))


def _configured() -> Sequence[AccountHealth]:
    accounts = load_config().accounts
    return [AccountHealth(platform=platform, account=account) for platform, account, _ in accounts]


def _wanted() -> set[str]:
    return {each.name for each in _configured()}


def is_dropped(health: AccountHealth, wanted: Collection[str]) -> bool:
    """Return whether the account is neither served nor configured."""
    return not (health.worker or health.name in wanted or health.platform in BUILT_IN)


def _state(health: AccountHealth, wanted: Collection[str]) -> str:
    return "no longer configured" if is_dropped(health, wanted) else health.state


def since(health: AccountHealth) -> str:
    return ago(health.connected_since, now()) if health.connected_since else ""


def error_of(health: AccountHealth) -> str:
    return f"{ago(health.failed_at, now())}: {health.last_error}" if health.failed_at else ""


def fields_of(health: AccountHealth) -> dict[str, object]:
    return {**asdict(health), "state": health.state}
