"""`palaver platforms`: show connected accounts and check configured ones."""

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.loop import run
from palaver.cli.output import FAILED, print_found, print_json, print_line, print_rows, print_verdict
from palaver.cli.shared_options import Json, StoreOption, ask, now
from palaver.commands.formatting import ago
from palaver.config.loader import load, load_with_sources
from palaver.gateway.probe import Answer, ask_accounts
from palaver.model.errors import UnknownPlatform
from palaver.model.source import account_text
from palaver.model.value import value
from palaver.platforms.abilities import abilities_of
from palaver.platforms.plugins import BUILT_IN, installed_platforms, known_platforms, load_factory
from palaver.store.accounts import AccountHealth
from palaver.store.clock import store_time
from palaver.store.store import Store

EXAMPLES = {
    "platforms": "palaver platforms",
    "check": "palaver platforms check telegram",
    "list": "palaver platforms list",
}

app = typer.Typer(help=f"Show which accounts are connected.\n\n{EXAMPLES['platforms']}", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="[NAME]", help="A platform or an account, for example telegram:helper.")]
_RETRYING = "the platform rejected the gateway, which keeps retrying; SIGHUP retries at once"
_ENABLE_WEB = "enable the web server: web: {enabled: true}"


@app.callback(invoke_without_command=True)
def platforms(context: typer.Context, *, store: StoreOption = None, json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    accounts, wanted = _accounts(store), _wanted()
    if json:
        print_json({"accounts": [{**_fields(each), "state": _state(each, wanted)} for each in accounts]})
    elif accounts:
        rows = [(each.name, _state(each, wanted), _since(each), _error(each)) for each in accounts]
        print_rows(("account", "state", "connected", "last error"), rows)
    else:
        print_line("No account has been connected yet. Run palaver up to connect the configured ones.")


@app.command("list", help=f"List the installed platforms and what each can do.\n\n{EXAMPLES['list']}")
def list_platforms(*, json: Json = False) -> None:
    known = known_platforms()
    found = [(name, known[name].title, abilities_of(name)) for name in installed_platforms()]
    fields = [{"name": name, "title": title, "can": can and [*can]} for name, title, can in found]
    rows = [(name, title, "see its documentation" if can is None else ", ".join(can)) for name, title, can in found]
    print_found({"platforms": fields}, ("platform", "name", "can do"), rows, as_json=json)


@value(kw_only=False)
class _Finding:
    health: AccountHealth
    ok: bool
    found: str
    fix: str = ""


@app.command(help=f"Check that accounts work, without serving them.\n\n{EXAMPLES['check']}")
def check(name: Name = "", *, store: StoreOption = None, json: Json = False) -> None:
    platform, known = name.partition(":")[0], known_platforms()
    if name and platform not in known:
        raise UnknownPlatform(platform, known, EXAMPLES["check"])
    findings = _findings(name, store)
    well = bool(findings) and all(each.ok for each in findings)
    absent = "there is no such account" if name else "none is configured"
    if json:
        accounts = [{**_fields(each.health), "ok": each.ok, "found": each.found} for each in findings]
        why = {} if findings else {"error": f"{name or 'accounts'}: {absent}. To add one, {_missing(platform)}"}
        print_json({"ok": well, "accounts": accounts, **why})
    for each in () if json else findings:
        print_verdict(each.health.name, each.found, ok=each.ok, fix=each.fix)
    if not findings and not json:
        print_verdict(name or "accounts", absent, ok=False, fix=_missing(platform))
    if not well:
        raise typer.Exit(FAILED)


def _findings(name: str, store: str | None) -> list[_Finding]:
    """Check the configured accounts, and report the state of others that a gateway still serves."""
    config = load_with_sources(Path.cwd(), os.environ, known_platforms(), load_factory).config
    wanted = {account_text(platform, account) for platform, account, _ in config.accounts}
    known = [each for each in _accounts(store) if not _is_dropped(each, wanted)]
    meant = [each for each in known if (name in {each.platform, each.name} if name else each.name in wanted)]
    asked = [each for each in config.accounts if account_text(each[0], each[1]) in {health.name for health in meant}]
    names = [account_text(platform, account) for platform, account, _ in asked]
    answers = dict(zip(names, run(ask_accounts(asked)), strict=True))
    return [_finding(each, answers.get(each.name), has_window=config.web.enabled) for each in meant]


def _finding(health: AccountHealth, answer: Answer | None, *, has_window: bool) -> _Finding:
    state = _RETRYING if health.state == "refused" else f"{health.state} {_since(health)}".rstrip()
    if answer and answer.is_called and not has_window:
        return _Finding(
            health, ok=False, found="the platform calls it over HTTP, but the web server is off", fix=_ENABLE_WEB
        )
    if answer and answer.was_asked:
        return _Finding(health, ok=answer.ok, found=f"{answer.words}; {state}" if answer.ok else answer.words)
    unasked = "; its adapter cannot check it without serving it" if answer else ""
    return _Finding(health, ok=bool(health.connected_since), found=f"{state}{unasked}", fix=_fix(health))


def _accounts(store: str | None) -> list[AccountHealth]:
    """Return accounts served before and configured ones."""
    found = ask(store, _served, [])
    served = {each.name: each for each in found}
    return sorted({**{each.name: each for each in _configured()}, **served}.values(), key=lambda each: each.name)


async def _served(store: Store) -> list[AccountHealth]:
    return await store.read(store.accounts.list_health(await store_time(store.database, now())))


def _configured() -> Sequence[AccountHealth]:
    accounts = load(Path.cwd()).accounts
    return [AccountHealth(platform=platform, account=account) for platform, account, _ in accounts]


def _wanted() -> set[str]:
    return {each.name for each in _configured()}


def _is_dropped(health: AccountHealth, wanted: Collection[str]) -> bool:
    """Return whether the account is neither served nor configured."""
    return not (health.worker or health.name in wanted or health.platform in BUILT_IN)


def _state(health: AccountHealth, wanted: Collection[str]) -> str:
    return "no longer configured" if _is_dropped(health, wanted) else health.state


def _since(health: AccountHealth) -> str:
    return ago(health.connected_since, now()) if health.connected_since else ""


def _error(health: AccountHealth) -> str:
    return f"{ago(health.failed_at, now())}: {health.last_error}" if health.failed_at else ""


def _fix(health: AccountHealth) -> str:
    if health.connected_since:
        return ""
    if health.worker is None:
        return "no gateway serves it. Run palaver up"
    return f"the gateway {health.worker} retries; last error {_error(health)}" if health.failed_at else "wait a moment"


def _missing(platform: str) -> str:
    if not platform:
        return f"run palaver setup NAME with one of {', '.join(installed_platforms()) or 'the installed platforms'}"
    if platform in installed_platforms():
        return f"run palaver setup {platform}"
    return f"install an adapter for {platform}. Installed: {', '.join(installed_platforms()) or 'none'}"


def _fields(health: AccountHealth) -> dict[str, object]:
    return {**asdict(health), "state": health.state}
