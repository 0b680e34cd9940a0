"""API endpoints for background processes: list them, read their output, kill them."""

import asyncio
from typing import Annotated

from msgspec import Meta

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import NotAllowed, NotFound
from palaver.model.process import Process, ProcessState
from palaver.model.session import Principal
from palaver.operations.operation import Limit, Schema, Timestamp, fill
from palaver.processes.pages import read_page
from palaver.store.people.api_tokens import Right
from palaver.web.api.endpoints import endpoint
from palaver.web.routes import WebRequest

_PAGE_BYTES = 200_000
_COMMAND = "processes"
"""Who can use it in a chat can read them here."""


class ProcessSchema(Schema, frozen=True, kw_only=True):
    name: str
    """Unique, for example p3."""
    session: str
    state: ProcessState
    command: str
    """Without secrets."""
    backend: str
    folder: str
    host: str
    """The machine whose gateway looks after it."""
    pid: int | None
    started: Timestamp
    exited: Timestamp | None
    """When the command ended; something that it started may still run."""
    exit_code: int | None
    """Negative for the signal that ended it."""
    ended: Timestamp | None
    problem: str | None
    """Why nobody knows how it ended."""
    output_bytes: int


class ProcessesSchema(Schema, frozen=True, kw_only=True):
    processes: list[ProcessSchema]


class _ProcessesQuery(Schema, frozen=True, kw_only=True):
    session: str | None = None
    live: bool = False
    """Only those that still run."""
    limit: Limit = 100


@endpoint("GET", "/processes", summary="List background processes, those that run first")
async def list_processes(request: WebRequest, query: _ProcessesQuery) -> ProcessesSchema:
    store = request.store

    @transaction
    def find(who: Principal) -> Statements[list[Process]]:
        session = None
        if query.session:
            session = (yield from request.check_command(who, query.session, _COMMAND)).session.number
        listed = store.processes.list_visible(who, session=session, live_only=query.live, limit=query.limit)
        return (yield from _allowed(request, who, (yield from listed)))

    return ProcessesSchema(processes=[fill(ProcessSchema, each) for each in await request.read(find)])


@transaction
def _allowed(request: WebRequest, who: Principal, found: list[Process]) -> Statements[list[Process]]:
    """Return the processes of the sessions in which the caller can use the command."""
    refused: set[str] = set()
    for session in {process.session for process in found}:
        try:
            yield from request.check_command(who, session, _COMMAND)
        except (NotAllowed, NotFound):
            refused.add(session)
    return [process for process in found if process.session not in refused]


async def find_process(request: WebRequest) -> Process:
    """Return the process that the path names, if the caller can see it and use the command there."""
    return await request.read(lambda who: _find(request, who))


@transaction
def _find(request: WebRequest, who: Principal) -> Statements[Process]:
    process = yield from request.store.processes.find(request.path["name"], who)
    yield from request.check_command(who, process.session, _COMMAND)
    return process


@endpoint("GET", "/processes/{name}", summary="Show a background process")
async def get_process(request: WebRequest) -> ProcessSchema:
    return fill(ProcessSchema, await find_process(request))


class _OutputQuery(Schema, frozen=True, kw_only=True):
    offset: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None
    """The first byte. Default: the last 200 kB."""


class OutputSchema(Schema, frozen=True, kw_only=True):
    offset: int
    """Of the first byte. It is higher than you asked for if that is no longer kept."""
    next: int
    """Where the output goes on."""
    size: int
    """All output so far."""
    text: str
    """Without control characters and secrets."""


@endpoint("GET", "/processes/{name}/output", summary="Read the output of a process; it is kept on its machine")
async def get_output(request: WebRequest, query: _OutputQuery) -> OutputSchema:
    process, manager = await find_process(request), request.services.processes
    if not manager.is_here(process):
        raise NotFound(f"output in this data directory (the machine is {process.host}) of", process.name)
    page = await asyncio.to_thread(read_page, manager.directory(process), query.offset, _PAGE_BYTES)
    return OutputSchema(offset=page.start, next=page.end, size=page.size, text=page.text)


class KilledSchema(Schema, frozen=True, kw_only=True):
    done: bool
    """False if it had ended already."""


@endpoint("POST", "/processes/{name}/kill", summary="End a process and all it started", needs=Right.MANAGE)
async def kill_process(request: WebRequest) -> KilledSchema:
    store, now = request.store, request.now

    @transaction
    def kill(who: Principal) -> Statements[int]:
        process = yield from _find(request, who)
        return (yield from store.processes.ask_stop([process.number], now, by=who.name))

    return KilledSchema(done=await request.write(kill) > 0)


ENDPOINTS = (list_processes, get_process, get_output, kill_process)
