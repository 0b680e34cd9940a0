"""`/processes`: list, read and kill what agents run in the background."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from palaver.commands.formatting import ago
from palaver.commands.registry import CommandHandler, is_owner
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Command, Invocation, as_said
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.process import Process
from palaver.model.session import Principal
from palaver.processes.directory import BUFFER_BYTES
from palaver.processes.manager import ProcessManager
from palaver.processes.output import last_lines
from palaver.processes.pages import read_page
from palaver.store.conversations.visibility import get
from palaver.store.store import Store

_ALL = "all"
_MAX_LISTED = 20
_OUTPUT_CHARACTERS = 3_000
_COMMAND = Command(
    name="processes",
    help="List background processes; read the output of one, or kill it",
    example="/processes log p3",
    args=(
        Arg(name="action", choices=("log", "kill")),
        Arg(name="process", hint="process"),
        Arg(name=_ALL, kind=ArgKind.FLAG),
    ),
    role=AccessRole.ADMIN,
    urgent=True,
    group="gateway",
)


def process_handlers(store: Store, manager: ProcessManager | None) -> Iterator[CommandHandler]:
    yield CommandHandler(_COMMAND, partial(_processes, store, manager))


async def _processes(
    store: Store, manager: ProcessManager | None, invocation: Invocation, context: CommandContext
) -> Transaction[str]:
    action, name = invocation.words.get("action"), invocation.words.get("process", "")
    principal = _principal(invocation, context)
    if action and not name:
        raise BadArgument(
            f"/processes {action} needs a process.", found="", allowed="its name", example="/processes log p3"
        )
    if action == "log":
        return await _log(store, manager, name, principal, context)
    return _kill(store, name, principal, context) if action else _list(store, principal, context)


def _principal(invocation: Invocation, context: CommandContext) -> Principal:
    if _ALL not in invocation.flags:
        return context.audience
    if not is_owner(context) or context.is_overheard:
        raise NotAllowed("/processes --all", "owner")
    return Principal.operator()


@transaction
def _list(store: Store, principal: Principal, context: CommandContext) -> Statements[str]:
    found = yield from store.processes.list_visible(principal, limit=_MAX_LISTED)
    yield from _mention(found, context)
    return "\n".join(f"{each.name}: {_describe(each, context)}" for each in found) or "No processes are known here."


def _describe(process: Process, context: CommandContext) -> str:
    return f"{process.outcome}, started {ago(process.started, context.now)}: {as_said(process.line)}"


def _mention(found: Sequence[Process], context: CommandContext) -> Statements[None]:
    """Delete the answer together with the conversations whose commands it quotes."""
    for number in sorted({process.session_number for process in found}):
        context.mentioned.append((yield from get(number)))


@transaction
def _kill(store: Store, name: str, principal: Principal, context: CommandContext) -> Statements[str]:
    if name == _ALL:
        found = yield from store.processes.list_visible(principal, live_only=True)
    else:
        found = [(yield from store.processes.find(name, principal))]
    count = yield from store.processes.ask_stop(
        [process.number for process in found], context.now, by=context.principal.name
    )
    if name == _ALL:
        return (
            f"Killing {'one process' if count == 1 else f'{count} processes'}." if count else "No process is running."
        )
    return f"Killing {found[0].name}." if count else f"{found[0].name} has already ended: {found[0].outcome}."


async def _log(
    store: Store, manager: ProcessManager | None, name: str, principal: Principal, context: CommandContext
) -> Transaction[str]:
    process = await store.read(store.processes.find(name, principal))
    if manager is None or not manager.is_here(process):
        text = f"The output is on {process.host}."
    else:
        page = await asyncio.to_thread(read_page, manager.directory(process), None, BUFFER_BYTES)
        text = as_said(last_lines(page.text.strip(), _OUTPUT_CHARACTERS)) if page.text.strip() else ""
    return _with_mention(process, f"{process.name}: {_describe(process, context)}\n{text or '(no output)'}", context)


@transaction
def _with_mention(process: Process, text: str, context: CommandContext) -> Statements[str]:
    yield from _mention([process], context)
    return text
