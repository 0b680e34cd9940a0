"""`palaver platforms`: which accounts are connected, since when, and what went wrong last."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.asking import ask
from palaver.cli.output import print_json, print_line, print_rows, print_verdict
from palaver.cli.place import StoreOption
from palaver.cli.when import ago, iso, now
from palaver.config.loading import load
from palaver.domain.errors import UnknownPlatform
from palaver.platforms.others import known_platforms, names
from palaver.ports.places import AccountHealth
from palaver.stores.store import Store

__all__ = ["EXAMPLES", "app", "check", "platforms"]

EXAMPLES = {"platforms": "palaver platforms", "check": "palaver platforms check telegram"}

app = typer.Typer(help=f"Which accounts are connected.\n\n{EXAMPLES['platforms']}", rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A platform, or one account of it: telegram:helper.")]


@app.callback(invoke_without_command=True)
def platforms(context: typer.Context, *, store: StoreOption = None, json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    accounts = _accounts(store)
    if json:
        print_json({"accounts": [_fields(each) for each in accounts]})
    elif accounts:
        rows = [(each.name, each.state, _since(each), _error(each)) for each in accounts]
        print_rows(("account", "state", "connected", "last error"), rows)
    else:
        print_line("No account was ever served: palaver up serves those of the configuration, and the terminal.")


@app.command(help=f"Whether every account of a platform is connected; if not, why.\n\n{EXAMPLES['check']}")
def check(name: Name, *, store: StoreOption = None, json: Json = False) -> None:
    known = known_platforms()
    platform = name.partition(":")[0]
    if platform not in known:
        allowed = ", ".join(sorted(known))
        raise UnknownPlatform("Unknown platform", found=platform, allowed=allowed, example=EXAMPLES["check"])
    accounts = [each for each in _accounts(store) if name in {each.platform, each.name}]
    well = bool(accounts) and all(each.connected_since for each in accounts)
    if json:
        print_json({"ok": well, "accounts": [_fields(each) for each in accounts]})
    for each in () if json else accounts:
        found = f"{each.state} {_since(each)}".rstrip()
        print_verdict(each.name, found, ok=bool(each.connected_since), mend=_mend(each))
    if not accounts and not json:
        print_verdict(name, "there is no such account", ok=False, mend=_missing(platform))
    if not well:
        raise typer.Exit(1)


def _accounts(store: str | None) -> list[AccountHealth]:
    """Those that were ever served, and those that are configured."""

    async def look(opened: Store) -> list[AccountHealth]:
        return await opened.read(opened.accounts.health(now()))

    served = {each.name: each for each in ask(store, look, absent=[])}
    return sorted({**{each.name: each for each in _configured()}, **served}.values(), key=lambda each: each.name)


def _configured() -> Sequence[AccountHealth]:
    platforms = load(Path.cwd(), os.environ).platforms
    return [
        AccountHealth(platform=name, account=account)
        for name, platform in platforms.items()
        for account in platform.accounts
    ]


def _since(health: AccountHealth) -> str:
    return ago(health.connected_since, now()) if health.connected_since else ""


def _error(health: AccountHealth) -> str:
    return f"{ago(health.failed_at, now())}: {health.last_error}" if health.failed_at else ""


def _mend(health: AccountHealth) -> str:
    if health.connected_since:
        return ""
    if health.worker is None:
        return "no gateway serves it: palaver up"
    return f"the gateway {health.worker} tries; last error {_error(health)}" if health.failed_at else "wait a little"


def _missing(platform: str) -> str:
    if platform in names():
        return f"name one in the configuration, under platforms.{platform}.accounts"
    return f"no adapter for {platform} is installed; installed are: {', '.join(names()) or 'none'}"


def _fields(health: AccountHealth) -> dict[str, object]:
    times = {"connected_since": iso(health.connected_since), "failed_at": iso(health.failed_at)}
    return {**asdict(health), **times, "state": health.state}
