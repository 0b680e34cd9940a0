"""`palaver platforms check`: check that configured accounts work, without serving them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.loop import run
from palaver.cli.output import FAILED, print_json, print_verdict
from palaver.cli.platforms import EXAMPLES, error_of, fields_of, is_dropped, list_accounts, since
from palaver.cli.shared_options import Json, StoreOption
from palaver.config.loader import load_with_sources
from palaver.gateway.probe import Answer, ask_accounts
from palaver.model.errors import UnknownPlatform
from palaver.model.source import account_text
from palaver.model.value import value
from palaver.platforms.plugins import installed_platforms, known_platforms, load_factory
from palaver.store.accounts import AccountHealth

app = typer.Typer(rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="[NAME]", help="A platform or an account, for example telegram:helper.")]
_RETRYING = "the platform rejected the gateway, which keeps retrying; SIGHUP retries at once"
_ENABLE_WEB = "enable the web server: web: {enabled: true}"


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
        accounts = [{**fields_of(each.health), "ok": each.ok, "found": each.found} for each in findings]
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
    known = [each for each in list_accounts(store) if not is_dropped(each, wanted)]
    meant = [each for each in known if (name in {each.platform, each.name} if name else each.name in wanted)]
    asked = [each for each in config.accounts if account_text(each[0], each[1]) in {health.name for health in meant}]
    names = [account_text(platform, account) for platform, account, _ in asked]
    answers = dict(zip(names, run(ask_accounts(asked)), strict=True))
    return [_finding(each, answers.get(each.name), has_window=config.web.enabled) for each in meant]


def _finding(health: AccountHealth, answer: Answer | None, *, has_window: bool) -> _Finding:
    state = _RETRYING if health.state == "refused" else f"{health.state} {since(health)}".rstrip()
    if answer and answer.is_called and not has_window:
        return _Finding(
            health, ok=False, found="the platform calls it over HTTP, but the web server is off", fix=_ENABLE_WEB
        )
    if answer and answer.was_asked:
        return _Finding(health, ok=answer.ok, found=f"{answer.words}; {state}" if answer.ok else answer.words)
    unasked = "; its adapter cannot check it without serving it" if answer else ""
    return _Finding(health, ok=bool(health.connected_since), found=f"{state}{unasked}", fix=_fix(health))


def _fix(health: AccountHealth) -> str:
    if health.connected_since:
        return ""
    if health.worker is None:
        return "no gateway serves it. Run palaver up"
    return (
        f"the gateway {health.worker} retries; last error {error_of(health)}" if health.failed_at else "wait a moment"
    )


def _missing(platform: str) -> str:
    if not platform:
        return f"run palaver setup NAME with one of {', '.join(installed_platforms()) or 'the installed platforms'}"
    if platform in installed_platforms():
        return f"run palaver setup {platform}"
    return f"install an adapter for {platform}. Installed: {', '.join(installed_platforms()) or 'none'}"
