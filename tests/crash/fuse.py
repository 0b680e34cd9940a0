"""Fuses: a gateway that dies, or freezes, at a step with a name. Nothing in the engine knows of them."""

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from palaver.agents.echo import EchoAgent
from palaver.db.transaction import KeyedTransaction, Row, Statements, Transaction, keyed, transaction
from palaver.engine.jobs import scheduler
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound, Outbound
from palaver.processes import manager
from palaver.processes.directory import ProcessDirectory
from palaver.processes.launcher import Launch, start
from palaver.protocols.adapter import Adapter, AnswerStatus, Receiver
from palaver.protocols.agent import Event, Final, Request
from palaver.store import process_notices, processes
from palaver.store.queue import commands
from palaver.store.store import Store

__all__ = ["ASKED", "BACKGROUND", "ENDED", "LEAVING", "STEPS", "Fuse", "FusedAgent", "FusedStore", "fuse_adapter"]

T = TypeVar("T")

ASKED, ENDED = "asked", "ended"
"""What an agent writes down about a turn."""
LEAVING = ("begin_send", "begin_draft")
"""What is written down of a send or a turn before its commit, from which on a crash leaves it unclear."""
COMMITTED = "committed_"
"""What is written before that once the gateway knows of the commit: from then on the request can leave."""
_WORKS = (
    *("count_start", "acquire", "reclaim", "reclaim_sends", "extend_leases", "save_position"),
    *("accept", "begin", "append_to_turn", "settle", "claim", "begin_send", "settle_send"),
)
_OF_PROCESSES = ("add", "hold", "record")
BACKGROUND = ("fire", *_OF_PROCESSES, "report_exit", "start")
"""What is done for jobs and processes."""
STEPS = (
    "receive",
    "before acknowledge",
    "run",
    "after an event",
    "before send",
    "after send",
    "before start",
    "after start",
    *(f"{when} {work}" for work in (*_WORKS, "fire", *_OF_PROCESSES) for when in ("before", "uncommitted", "after")),
)
"""Every place where a gateway can die. A transaction is `uncommitted` once all its statements have been run."""


@dataclass
class Fuse:
    """Burns down each time its step is reached, and then the process gets a signal."""

    step: str | None = None
    length: int = 1
    signal: int = signal.SIGKILL

    def reach(self, step: str) -> None:
        if step == self.step:
            self.length -= 1
            if not self.length:
                os.kill(os.getpid(), self.signal)


@dataclass(frozen=True, slots=True)
class _Done:
    """Said by work that was done, to the process that drives it."""

    name: str
    about: str
    """The number of the send or turn that leaves now, if one does."""


@transaction
def _fused(name: str, piece: Transaction[T], fuse: Fuse, note: Callable[[str], None], about: str) -> Statements[T]:
    """Transaction that knows its name, also where it is joined with other work; `about` says what leaves, if it did."""
    fuse.reach(f"before {name}")
    result = yield from piece
    fuse.reach(f"uncommitted {name}")
    about = about if result else ""
    if about:
        note(f"{name} {about}")
    yield _Done(name, about)  # pyright: ignore[reportReturnType]
    return result


@transaction
def _whole(piece: Transaction[T], done: list[_Done]) -> Statements[T]:
    """One transaction; `done` says which work was done in it."""
    done.clear()
    steps, rows = iter(piece), list[Row]()
    try:
        statement = next(steps)
        while True:
            if isinstance(statement, _Done):
                done.append(statement)
                rows = []
            else:
                rows = yield statement
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value


def _with_key_of(work: Transaction[T], around: Transaction[T]) -> Transaction[T]:
    return keyed(work.key, around) if isinstance(work, KeyedTransaction) else around


class _Group:
    """One group of a store's work, each piece under its name."""

    def __init__(self, group: object, fuse: Fuse, note: Callable[[str], None] = lambda _: None) -> None:
        self._group = group
        self._fuse = fuse
        self._note = note

    def __getattr__(self, name: str) -> Callable[..., Transaction[Any]]:
        describe: Callable[..., Transaction[Any]] = getattr(self._group, name)

        def describe_fused(*args: Any, **kwargs: object) -> Transaction[Any]:
            work = describe(*args, **kwargs)
            about = str(args[0].number) if name in LEAVING else ""
            return _with_key_of(work, _fused(name, work, self._fuse, self._note, about))

        return describe_fused


def _fuse_start(fuse: Fuse) -> Callable[[ProcessDirectory, Launch], Awaitable[None]]:
    """Start a supervisor; it outlives the gateway."""

    async def fused_start(directory: ProcessDirectory, launch: Launch) -> None:
        fuse.reach("before start")
        await start(directory, launch)
        fuse.reach("after start")

    return fused_start


class FusedStore(Store):
    def __init__(self, store: Store, fuse: Fuse, note: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(store.database, store.search)
        self._fuse = fuse
        self._note = note
        for group in ("inbox", "turns", "turn_control", "outbox", "accounts"):
            setattr(self, group, _Group(getattr(store, group), fuse, note))
        # In a process of its own.
        works = (
            *((commands, ["run_command"]), (scheduler, ["fire"])),
            *((processes, _OF_PROCESSES), (process_notices, ["report_exit"])),
        )
        for module, names in works:
            for name in names:
                setattr(module, name, getattr(_Group(module, fuse), name))
        manager.start = _fuse_start(fuse)

    async def transact(self, work: Transaction[T]) -> T:
        done: list[_Done] = []
        result = await super().transact(_with_key_of(work, _whole(work, done)))
        for each in done:
            if each.about:
                self._note(f"{COMMITTED}{each.name} {each.about}")
            self._fuse.reach(f"after {each.name}")
        return result

    async def read(self, work: Transaction[T]) -> T:
        return await super().read(_whole(work, []))


@dataclass(frozen=True, slots=True)
class _FusedInlet:
    receiver: Receiver
    fuse: Fuse
    report: Callable[[], None]

    async def connected(self) -> None:
        self.report()
        await self.receiver.connected()

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        self.fuse.reach("receive")
        await self.receiver.receive(inbound, trust)
        self.fuse.reach("before acknowledge")

    async def load_position(self) -> str | None:
        return await self.receiver.load_position()

    async def save_position(self, position: str) -> None:
        await self.receiver.save_position(position)

    async def recent_chats(self, limit: int, *, server: str | None = None) -> Sequence[str]:
        return await self.receiver.recent_chats(limit, server=server)

    async def link_alias(self, alias: str, canonical: str) -> None:
        await self.receiver.link_alias(alias, canonical)

    async def chat_returned(self, chat_id: str) -> None:
        await self.receiver.chat_returned(chat_id)

    async def person_moved(self, old: str, new: str, at: datetime) -> None:
        await self.receiver.person_moved(old, new, at)

    async def chat_moved(self, old: str, new: str, *, server: str | None = None) -> None:
        await self.receiver.chat_moved(old, new, server=server)

    async def is_owner(self, user_id: str) -> bool:
        return await self.receiver.is_owner(user_id)

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        return await self.receiver.wait_for_answer(source, timeout)


def fuse_adapter(adapter: Adapter, fuse: Fuse, *, connected: Callable[[], None]) -> None:
    """It dies when it has heard something, or sent something; it can all that it could."""
    run, send = adapter.run, adapter.send

    async def fused_run(receiver: Receiver) -> None:
        await run(_FusedInlet(receiver, fuse, connected))

    async def fused_send(outbound: Outbound, *, idempotency_key: str) -> str:
        fuse.reach("before send")
        receipt = await send(outbound, idempotency_key=idempotency_key)
        fuse.reach("after send")
        return receipt

    for name, method in (("run", fused_run), ("send", fused_send)):
        setattr(adapter, name, method)


@dataclass(frozen=True)
class FusedAgent:
    """Writes down which turns it was asked for, and which it ended."""

    fuse: Fuse
    note: Callable[[str], None]
    echo: EchoAgent = field(default_factory=EchoAgent)

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        self.note(f"{ASKED} {request.turn}")
        self.fuse.reach("run")
        async for event in self.echo.answer(request):
            if isinstance(event, Final):
                self.note(f"{ENDED} {request.turn}")
            yield event
            self.fuse.reach("after an event")
