"""`palaver processes`: list background processes, read their output, kill them. Works without a gateway, too."""

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import pick, print_found, print_json, print_note, print_result
from palaver.cli.shared_options import OPERATOR, Json, Limit, StoreOption, ask, filled, find
from palaver.commands.formatting import ago
from palaver.config.loader import load
from palaver.model.attachment import format_size
from palaver.model.errors import BadArgument, NotFound
from palaver.model.process import Process
from palaver.model.text import counted
from palaver.model.value import value
from palaver.processes.directory import ProcessDirectory
from palaver.processes.findings import look
from palaver.processes.home import ProcessHome, end_here, find_home
from palaver.processes.launcher import end_orphan
from palaver.processes.pages import read_page
from palaver.store import processes
from palaver.store.store import Store

EXAMPLES = {
    "list": "palaver processes list --live",
    "log": "palaver processes log p3 --follow",
    "kill": "palaver processes kill p3",
}
_FIELDS = "name session command backend folder host started exited exit_code ended problem output_bytes pid state"
_FOLLOW_SECONDS = 0.2
_TAIL_BYTES = 200_000

app = typer.Typer(help="List, read and kill background processes.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="PROCESS", help="The name of a process, for example p3.")]
Session = Annotated[str, typer.Option("--session", help="All processes of this session.", callback=filled)]


@value(kw_only=False)
class _Found:
    """A process, and its directory if that is on this machine."""

    process: Process
    directory: ProcessDirectory | None


@app.command("list", help=f"List processes, those that run first.\n\n{EXAMPLES['list']}")
def list_processes(
    *,
    live: Annotated[bool, typer.Option("--live", help="Only those that still run.")] = False,
    session: Session = "",
    limit: Limit = 100,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    nothing = "No process is running." if live else "There are no processes."
    found = ask(store, lambda opened: _list(opened, session, limit, live_only=live), [], nothing=nothing)
    now = shared_options.now()
    fields = {"processes": [pick(each.process, _FIELDS) for each in found]}
    rows = [_row(each.process, ago(each.process.started, now)) for each in found]
    print_found(fields, ("process", "state", "started", "output", "host", "command"), rows, as_json=json)


def _row(process: Process, started: str) -> tuple[str, ...]:
    return process.name, process.outcome, started, format_size(process.output_bytes), process.host, process.line


async def _list(store: Store, session: str, limit: int, *, live_only: bool) -> list[_Found]:
    number = (await find(store, session)).number if session else None
    found = await store.read(processes.list_visible(OPERATOR, session=number, live_only=live_only, limit=limit))
    home = await _home(store)
    current = [_Found(*_observed(process, home)) for process in found]
    return [each for each in current if not (live_only and each.process.ended)]


async def _home(store: Store) -> ProcessHome | None:
    return await find_home(store, load().data_dir)


def _observed(process: Process, home: ProcessHome | None) -> tuple[Process, ProcessDirectory | None]:
    """Return a process as it is now, even if no gateway has recorded its end yet."""
    directory = home.directory(process.id) if home else None
    if directory is None or not directory.path.is_dir():
        return process, None
    if process.ended is None:
        seen = look(process, directory, shared_options.now())
        known = pick(seen, "exited exit_code ended problem output_bytes")
        process = replace(process, **known)  # pyright: ignore[reportArgumentType]
    return process, directory


async def _find(store: Store, name: str) -> _Found:
    found = await store.read(processes.find(name, OPERATOR))
    return _Found(*_observed(found, await _home(store)))


@app.command("log", help=f"Print the output of a process.\n\n{EXAMPLES['log']}")
def print_log(
    name: Name,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until it ends.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print it unchanged, secrets and control characters included.")
    ] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    if follow and json:
        raise BadArgument("--follow cannot be used with --json.", found="", allowed="", example=EXAMPLES["log"])
    found = ask(store, lambda opened: _find(opened, name))
    if found.directory is None:
        raise NotFound(f"output in this data directory (the machine is {found.process.host}) of", name)
    if follow:
        asyncio.run(_follow(found.directory, raw=raw))
        return
    if raw and not json:
        start, data = found.directory.tail(found.directory.size())
    else:
        page = read_page(found.directory, None, _TAIL_BYTES)
        start, data = page.start, page.text.encode("utf-8", "replace")
        if json:
            print_json({**pick(found.process, _FIELDS), "offset": start, "output": page.text})
            return
    if start:
        print_note(f"The first {start} bytes are left out.")
    _write(data)
    print_note(f"{found.process.name}: {found.process.outcome}")


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _follow(directory: ProcessDirectory, *, raw: bool) -> None:
    end = directory.size()
    at = max(end - _TAIL_BYTES, 0)
    while True:
        # A line that has no end yet is printed once nothing more comes.
        is_over, before, end = not directory.is_supervised(), end, directory.size()
        is_growing = not is_over and end > before
        if raw:
            _write(b"".join(data for _, data in directory.read(at, end)))
            at = end
        while at < end:
            page = read_page(directory, at, _TAIL_BYTES, is_growing=is_growing)
            _write(page.text.encode("utf-8", "replace"))
            if page.end == at:
                break
            at = page.end
        if is_over:
            return
        await asyncio.sleep(_FOLLOW_SECONDS)


@app.command("kill", help=f"End processes with everything that they started.\n\n{EXAMPLES['kill']}")
def kill(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PROCESS]...", help="Names, for example p3.")] = None,
    *,
    session: Session = "",
    everything: Annotated[bool, typer.Option("--all", help="End all processes.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    ways = sum((bool(names), bool(session), everything))
    if ways != 1:
        problem = "Choose processes in one way only." if ways else "Say which processes to kill."
        raise BadArgument(problem, found="", allowed="names, --session or --all", example=EXAMPLES["kill"])
    killed, asked = ask(store, lambda opened: _kill(opened, names or (), session))
    others = counted(len(asked), "other process", "other processes")
    waits = f" The gateways on their machines end {others}." if asked else ""
    told = f"Killed {', '.join(killed)}." if killed else "No process was running here."
    print_result({"killed": killed, "asked": asked}, f"{told}{waits}", as_json=json)


async def _kill(store: Store, names: Iterable[str], session: str) -> tuple[list[str], list[str]]:
    """Kill what is on this machine, and ask other gateways to kill the rest. Return the names of both."""
    found = [await _find(store, name) for name in names] or await _list(store, session, 10_000, live_only=False)
    live = [each for each in found if each.process.ended is None]
    numbers, now = [each.process.number for each in live], shared_options.now()
    await store.transact(processes.ask_stop(numbers, now, by=OPERATOR.name))
    home, here = await _home(store), [each.process.id for each in live if each.directory]
    ended = await end_here(store, home, here, now) if home else []
    killed = [each.process.name for each in live if each.process.id in ended]
    over = [each for each in found if each.process.ended and each.directory]
    killed += [each.process.name for each in over if each.directory and await end_orphan(each.directory)]
    return killed, [each.process.name for each in live if each.directory is None]
