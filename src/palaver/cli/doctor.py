"""`palaver doctor`: find problems and show how to fix them."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.bundle import write_bundle
from palaver.cli.export import blob_store
from palaver.cli.output import FAILED, print_json, print_line, print_note, print_verdict
from palaver.cli.probe import find_problem
from palaver.cli.salvage import EXAMPLE, salvage_store
from palaver.cli.shared_options import Json, StoreOption, ask, database_key, find_zone, local_now, now, store_url
from palaver.cli.versions import check_versions
from palaver.commands.formatting import format_time
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.loader import load, load_with_sources
from palaver.config.public_settings import public_path
from palaver.gateway.agents import build_agent, configured_agents, cost_warnings, find_unavailable_agents
from palaver.model.errors import BadArgument, InvalidInput, PalaverError, StoreError
from palaver.model.problem import ProblemArea, describe_agent_problem, is_agent_problem
from palaver.model.source import MAIN, account_name
from palaver.model.text import counted
from palaver.platforms.plugins import known_platforms, load_factory
from palaver.processes.health import check_processes
from palaver.protocols.agent import FailureKind
from palaver.settings.agents import AgentConfig
from palaver.store.damage.corruption import is_corrupt, recovery_steps
from palaver.store.damage.health_check import FIX_THE_CAUSE, HealthCheck
from palaver.store.damage.leftovers import describe_leftovers
from palaver.store.damage.losses import dismiss_losses
from palaver.store.damage.version import check_version
from palaver.store.opening import sqlite_path
from palaver.store.status.counts import count_rows
from palaver.store.status.health import check_all, check_data_directory, check_served, unreadable_folder
from palaver.store.status.permissions import check_permissions, data_files
from palaver.store.store import Store
from palaver.tools.toolsets import Toolsets

EXAMPLES = {"doctor": EXAMPLE}

app = typer.Typer(rich_markup_mode=None)

_FIX = "fix it in the configuration; palaver config check shows the line"

_PUT_BACK = "put the database back, then run palaver doctor again"

_ASK_AGAIN = "Then run palaver doctor again; --no-test skips the agents."

NoTest = Annotated[bool, typer.Option("--no-test", help="Do not ask the agents a question.")]
Rebuild = Annotated[bool, typer.Option("--rebuild-search", help="Rebuild the search index.")]
Salvages = Annotated[
    str,
    typer.Option(
        "--salvage", metavar="NEW_STORE", help="Copy everything readable into a new store. Stop the gateway first."
    ),
]
Repairs = Annotated[bool, typer.Option("--repair", hidden=True)]
Dismisses = Annotated[
    bool,
    typer.Option(
        "--dismiss", help="No longer warn of what salvages left behind and failovers lost so far. Nothing is deleted."
    ),
]

Bundle = Annotated[
    str,
    typer.Option(
        "--bundle", metavar="FILE.zip", help="Write a file for a bug report, with nothing said or secret in it."
    ),
]


@app.command(
    help="Check the configuration, the agents, the database and its guarantees, attachments, disk, clock, permissions,"
    f" versions and search index.\n\n{EXAMPLES['doctor']}"
)
def doctor(
    *,
    store: StoreOption = None,
    rebuild_search: Rebuild = False,
    salvage: Salvages = "",
    repair: Repairs = False,
    dismiss: Dismisses = False,
    bundle: Bundle = "",
    no_test: NoTest = False,
    json: Json = False,
) -> None:
    if repair:
        raise BadArgument(
            "palaver doctor finds damage and does not repair it.",
            found="--repair",
            allowed="a backup (palaver restore), or --salvage NEW_STORE, which copies everything readable",
            example=EXAMPLE,
        )
    if salvage:
        if not salvage_store(store, salvage, json=json):
            raise typer.Exit(FAILED)
        return
    if checks := _mistakes():
        checks.append(check_versions())
    else:
        checks = _checked(store, rebuild=rebuild_search, dismiss=dismiss, asks=not no_test)
    if bundle:
        _bundle(Path(bundle), store, checks)
    well = all(check.ok for check in checks)
    if json:
        print_json({"ok": well, "checks": [_fields(check) for check in checks]})
    else:
        _print(checks, well=well)
    if bundle:
        print_note(f"{bundle} holds versions, settings, findings, counts and log lines. Look before you send it.")
    if not well:
        raise typer.Exit(FAILED)


def _print(checks: Sequence[HealthCheck], *, well: bool) -> None:
    for check in checks:
        fix = check.fix if _has_fix(check) else ""
        print_verdict(check.name, check.found, fix=fix, ok=check.ok, is_warning=check.is_warning)
    warned = any(check.is_warning for check in checks)
    fine = "Everything works. Read the warnings above." if warned else "Everything is fine."
    print_line(fine if well else "Something needs fixing.")


def _bundle(file: Path, store: str | None, checks: Sequence[HealthCheck]) -> None:
    """Write a bug report; a configuration or database that cannot be opened is reported by its check."""
    counts: dict[str, int | dict[str, int]] = {}
    config = None
    with suppress(MalformedConfig, StoreError):
        config = load()
        counts = ask(store, lambda opened: opened.read(count_rows()), absent=counts)
    write_bundle(file, config=config, checks=checks, counts=counts, now=now())


def _mistakes() -> list[HealthCheck]:
    """Report why the configuration cannot be loaded: then nothing tells which store and agents to check."""
    try:
        load()
    except MalformedConfig as error:
        return [_mistake(each) for each in error.mistakes]
    return []


def _mistake(mistake: Mistake) -> HealthCheck:
    public = f"a mistake in {public_path(mistake.field, known_platforms()) or 'the whole file'}"
    if mistake.position.line:
        public += f", line {mistake.position.line}"
    return HealthCheck(name="configuration", ok=False, found=str(mistake), fix=_FIX, public=public)


def _checked(store: str | None, *, rebuild: bool, asks: bool, dismiss: bool = False) -> list[HealthCheck]:
    """Run all checks; a store that cannot be opened is reported as one."""
    file = sqlite_path(store_url(store))
    checks = check_data_directory(file.resolve()) if file else []
    checks += _machine(file)
    checks += [*_configuration(), *_agents(asks=asks), *_tool_servers()]

    async def examine(opened: Store) -> list[HealthCheck]:
        if rebuild:
            count = await opened.search.rebuild()
            checks.append(HealthCheck(name="search index", ok=True, found=f"rebuilt from {counted(count, 'entry')}"))
        if dismiss:
            count = await opened.transact(dismiss_losses(local_now()))
            checks.append(HealthCheck(name="dismissed", ok=True, found=counted(count, "warning")))
        async for check in check_all(opened, local_now(), blob_store()):
            checks.append(check)
        checks.append(await check_served(opened, local_now(), _configured_accounts()))
        checks.extend([] if asks else await _known_problems(opened))
        if kept := await check_processes(opened, load().data_dir, local_now()):
            checks.append(kept)
        return checks

    if file and unreadable_folder(file.resolve()):
        return checks
    # Opening a file that is missing or empty would create a new store in it.
    if file and (left := describe_leftovers(file.resolve())):
        return [*checks, HealthCheck(name="database", ok=False, found=left, fix=_PUT_BACK)]
    try:
        return ask(store, examine, absent=checks)
    except StoreError as error:
        return [*checks, *_explain_failed_opening(file, error)]


def _configured_accounts() -> list[str]:
    return [account_name(platform, account) for platform, account, _ in load().accounts]


def _machine(database: Path | None) -> list[HealthCheck]:
    """Check the files of this user, and the libraries."""
    kept = [*data_files(database.resolve())] if database and not unreadable_folder(database.resolve()) else []
    return [check_permissions(kept), check_versions()]


def _explain_failed_opening(file: Path | None, error: StoreError) -> Iterator[HealthCheck]:
    if file and (version := check_version(file, _key(file))):
        yield version
    else:
        fix = recovery_steps(file) if file and is_corrupt(file, error) else FIX_THE_CAUSE
        yield HealthCheck(name="database", ok=False, found=str(error), fix=fix)


def _key(file: Path) -> bytes | None:
    """Return the key of an encrypted database, if there is one that fits: that it does not was said."""
    try:
        return database_key(str(file))
    except PalaverError:
        return None


def _configuration() -> list[HealthCheck]:
    """Check that adapters and hooks load and accept their options, and who can read the files with secrets."""
    try:
        loaded = load_with_sources(Path(), os.environ, known_platforms(), load_factory)
    except MalformedConfig as error:
        return [_mistake(each) for each in error.mistakes]
    return [
        *(_warn("configuration", each) for each in loaded.warnings),
        *(_unset(each) for each in loaded.config.find_unset()),
    ]


def _unset(mistake: Mistake) -> HealthCheck:
    """The gateway can run with other variables than this shell."""
    found = f"{mistake.field} needs the environment variable {mistake.found}, which is not set here"
    return HealthCheck(
        name="configuration", ok=True, found=found, is_warning=True, fix="set it where the gateway starts"
    )


def _warn(name: str, sentences: str) -> HealthCheck:
    """The first sentence says what is so, the others what to do."""
    found, _, fix = sentences.partition(". ")
    return HealthCheck(name=name, ok=True, found=found, is_warning=True, fix=fix or _FIX)


def _agents(*, asks: bool) -> list[HealthCheck]:
    """Check that the configured agents start and answer, and that their cost is known if it is limited."""
    config = load()
    unavailable = dict(find_unavailable_agents(config))
    # A variable that is not set here was reported with the configuration.
    refused = [f"{'.'.join(way)}: {why}" for way, why in unavailable.items() if not isinstance(why, MalformedConfig)]
    checks = [HealthCheck(name="agent", ok=False, found=each, fix=_FIX) for each in refused]
    checks += [_warn("limits", each) for each in cost_warnings(config)]
    if asks and not refused:
        agents = configured_agents(config).items()
        checks += [_answer(".".join(path), choice) for path, choice in agents if path not in unavailable]
    return checks


def _answer(name: str, choice: AgentConfig) -> HealthCheck:
    """Ask an agent one small question."""
    problem = find_problem(partial(build_agent, choice), name, str(choice.facts().get("key") or ""))
    if problem is None:
        return HealthCheck(name=name, ok=True, found="it answers", topic="agent", public="it answers")
    fix = "Fix what it reports, or choose another agent with palaver setup."
    if is_agent_problem(problem.kind) and problem.kind is not FailureKind.FATAL:
        _, fix = describe_agent_problem(problem.kind, None, MAIN)
    return HealthCheck(
        name=name,
        ok=False,
        found=f"it does not answer: {problem.detail}",
        fix=f"{fix} {_ASK_AGAIN}",
        topic="agent",
        public=f"it does not answer: {problem.kind.value}",
    )


async def _known_problems(store: Store) -> list[HealthCheck]:
    """Report the agents that failed last, if they are not asked now. `check_all` reports accounts."""
    zone, found = find_zone(), await store.read(store.problems.list_problems(local_now()))
    return [
        HealthCheck(
            name="agent",
            ok=False,
            found=f"{each.cause} Since {format_time(each.since, zone)}; palaver trace turn:{each.turn} shows it.",
            fix=f"{each.fix} The problem ends when the agent answers.",
        )
        for each in found
        if each.area is ProblemArea.AGENT
    ]


def _tool_servers() -> list[HealthCheck]:
    """Check that the configured MCP servers start."""
    config = load()
    servers: dict[str, dict[str, object]] = {}
    for name, server in config.tools.servers.items():
        with suppress(MalformedConfig):  # reported with the configuration
            servers[name] = server.facts()
    if not servers:
        return []

    async def problems() -> Mapping[str, str]:
        tools = Toolsets(servers, config.data_dir)
        try:
            return await tools.check()
        finally:
            await tools.close()

    try:
        found = asyncio.run(problems())
    except InvalidInput as error:
        return [HealthCheck(name="MCP servers", ok=False, found=str(error), fix=_FIX)]
    return [
        HealthCheck(
            name=f"MCP server {name}",
            ok=name not in found,
            found=found.get(name, "it starts"),
            fix=_FIX,
            topic="MCP server",
            public="it does not start" if name in found else "it starts",
        )
        for name in servers
    ]


def _fields(check: HealthCheck) -> dict[str, object]:
    fields: dict[str, object] = {"name": check.name, "ok": check.ok, "found": check.found}
    if check.is_warning:
        fields["warning"] = True
    return fields | {"fix": check.fix} if _has_fix(check) else fields


def _has_fix(check: HealthCheck) -> bool:
    return bool(check.fix) and (check.is_warning or not check.ok)
