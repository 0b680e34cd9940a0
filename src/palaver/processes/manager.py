"""Background processes of a gateway: start, find, wait for, write to and kill them; find them again after a crash."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from palaver.db.transaction import PROCESSES, Statements, transaction
from palaver.engine.retry import log_task_error, retry_outage, retry_until_stored, wait_any
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.process import NewProcess, Process
from palaver.processes import notices
from palaver.processes.backends.base import Backend, Order
from palaver.processes.directory import ProcessDirectory
from palaver.processes.home import ProcessHome, remove_forgotten
from palaver.processes.launcher import GRACE_SECONDS, StartFailed, reap, start
from palaver.processes.watcher import Watcher
from palaver.protocols.clock import Clock
from palaver.protocols.tools import ToolContext
from palaver.store import process_notices, processes
from palaver.store.process_notices import SeesOutput, everybody_sees
from palaver.store.processes import Findings, Keeper, ProcessLimits
from palaver.store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

CLEAN_UP_EVERY = timedelta(minutes=1)
ABANDONED_AFTER = timedelta(hours=24)
"""A process whose gateway has not looked after it for so long counts as lost."""
_COALESCE_SECONDS = 0.05
_KILL_PATIENCE_SECONDS = 3.0
_OUTPUT_SECONDS = 0.5


@dataclass(kw_only=True)
class ProcessManager:
    """Serve it while the gateway runs. Everything it knows is in the store and in the directories of processes."""

    store: Store
    home: ProcessHome
    keeper: Keeper
    clock: Clock
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    keep_finished: timedelta = timedelta(hours=24)
    on_output: Callable[[], None] = lambda: None
    """Called when processes have new output, at most twice a second."""
    sees_output: SeesOutput = everybody_sees
    """Tells who can have the output of their process now. Set it before serving."""
    watchers: dict[int, Watcher] = field(default_factory=dict[int, Watcher], init=False)
    _tasks: set["asyncio.Task[Any]"] = field(default_factory=set["asyncio.Task[Any]"], init=False)
    _watching: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"], init=False)
    _starting: set[str] = field(default_factory=set[str], init=False)
    """Ids of processes that have no supervisor yet."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _output_timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _cleaned_at: datetime | None = field(default=None, init=False)

    def _watcher(self, process: Process) -> Watcher:
        directory, sees = self.directory(process), self.sees_output
        on_output = self._schedule_on_output
        return Watcher(process, directory, self.store, self.clock, sees_output=sees, on_output=on_output)

    # Serve

    async def serve(self) -> None:
        """Look after the processes of this gateway until cancelled, those from before a crash included."""
        try:
            with self.store.listen(PROCESSES) as changed:
                while True:
                    changed.clear()
                    self._woken.clear()
                    await retry_outage(self.look_after)
                    await wait_any(changed, self._woken, timeout=self.keeper.lease.total_seconds() / 3)
                    await asyncio.sleep(_COALESCE_SECONDS)
        finally:
            for task in self._watching:
                task.cancel()
            await asyncio.gather(*self._watching, return_exceptions=True)

    async def look_after(self) -> None:
        reap()
        now, asked = self.clock.now(), list[Coroutine[Any, Any, None]]()
        for process in await self.store.transact(processes.hold(self.keeper, now)):
            if process.id in self._starting:
                continue
            watcher = self.watchers.get(process.number)
            if watcher is not None:
                asked.append(watcher.obey(process))
            elif process.ended is None:
                self._watch(process)
            else:
                asked.append(self._watcher(process).report_exit())
        await _run_all(asked)
        if self._cleaned_at is None or now - self._cleaned_at >= CLEAN_UP_EVERY:
            self._cleaned_at = now
            await self.clean_up(now)

    async def clean_up(self, now: datetime) -> None:
        for process in await self.store.read(processes.list_abandoned(now - ABANDONED_AFTER)):
            problem = f"the gateway on {process.host} has not looked after it since"
            lost = await self.store.transact(processes.record(process.number, Findings(ended=now, problem=problem)))
            notice = notices.exit_notice(lost, b"")
            await self.store.transact(process_notices.report_exit(lost.number, notice, now, self.sees_output))
        await self.store.transact(processes.delete_finished(self.keeper, now - self.keep_finished))
        await self.remove_forgotten()

    async def remove_forgotten(self) -> None:
        """Remove the output of processes that the store has forgotten."""
        await remove_forgotten(self.store, self.home)

    def _watch(self, process: Process) -> Watcher:
        watcher = self._watcher(process)
        self.watchers[process.number] = watcher
        task = asyncio.create_task(watcher.run(), name=f"process {process.number}")
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        task.add_done_callback(lambda _: self.watchers.pop(process.number, None))
        task.add_done_callback(lambda _: self._woken.set())
        extra = {"action": "process.error", "number": process.number}
        task.add_done_callback(lambda done: log_task_error(log, "a process is no longer watched", extra, done))
        return watcher

    def _schedule_on_output(self) -> None:
        loop = asyncio.get_running_loop()
        if self._output_timer is None:
            self._output_timer = loop.call_later(_OUTPUT_SECONDS, self._call_on_output)

    def _call_on_output(self) -> None:
        self._output_timer = None
        self.on_output()

    def _spawn(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Start

    async def start(
        self, backend: Backend, order: Order, new: NewProcess, context: ToolContext, *, in_background: bool
    ) -> Process:
        """Start a process. When this returns, it runs and is recorded. Raises BadArgument if it cannot start.

        One in the foreground owes no notice until `go_on_in_background`: its turn waits for it.
        """
        start = self._start(backend, order, new, context, waiters=0 if in_background else 1)
        starting = self._spawn(start, "start of a process")
        try:
            return (await asyncio.shield(starting)).process
        except asyncio.CancelledError:
            starting.add_done_callback(partial(self._leave_started, kills=not context.services.resumes))
            raise

    async def _start(
        self, backend: Backend, order: Order, new: NewProcess, context: ToolContext, *, waiters: int
    ) -> Watcher:
        self._starting.add(new.id)
        try:
            add = processes.add(new, context.turn, context.last, self.keeper, self.limits, self.clock.now())
            process = await self.store.transact(add)
            await self._launch(process, backend, order)
            watcher = self._watch(process)
            watcher.waiters += waiters
        finally:
            self._starting.discard(new.id)
            self._woken.set()
        log.info("process started", extra={"action": "process.started", "number": process.number})
        while watcher.process.pid is None and watcher.process.ended is None:
            await watcher.change()
        return watcher

    async def _launch(self, process: Process, backend: Backend, order: Order) -> None:
        try:
            await start(self.directory(process), backend.launch(order))
        except (OSError, StartFailed, UnicodeEncodeError, InvalidInput) as error:
            await self._forget(process)
            if isinstance(error, InvalidInput):
                raise
            broken = "it has half a character in it" if isinstance(error, UnicodeEncodeError) else ""
            reason = broken or getattr(error, "strerror", None) or "its supervisor did not start"
            raise BadArgument(f"The command was not started: {reason}.", found="", allowed="", example="") from error

    async def _forget(self, process: Process) -> None:
        findings = Findings(ended=self.clock.now(), problem="it was never started")
        await retry_until_stored(self.store, processes.record(process.number, findings))
        await retry_until_stored(self.store, processes.delete(process.number))

    def _leave_started(self, starting: "asyncio.Task[Watcher]", *, kills: bool) -> None:
        """Kill a process whose turn was stopped while it started, or report its end to a turn that goes on later."""
        if starting.cancelled() or starting.exception() is not None:
            return
        process = starting.result().process
        if kills:
            self._spawn(self.kill([process], by="the end of its turn", silently=True), "kill of a process")
        else:
            self.go_on_in_background(process)

    def go_on_in_background(self, process: Process) -> None:
        """Report the end of a process that was in the foreground, unless its agent has seen it."""
        if watcher := self.watchers.get(process.number):
            watcher.waiters = max(watcher.waiters - 1, 0)
        self._woken.set()

    # Ask

    def directory(self, process: Process) -> ProcessDirectory:
        return self.home.directory(process.id)

    def is_here(self, process: Process) -> bool:
        """Tell whether the output of a process is on this machine."""
        return self.directory(process).path.is_dir()

    def _watcher_of(self, process: Process) -> Watcher | None:
        """Return the watcher of a process that this gateway looks after, also if it has just been found again."""
        watcher, is_ours = self.watchers.get(process.number), self.keeper.alone or process.worker == self.keeper.worker
        if watcher or process.ended or not is_ours or process.id in self._starting:
            return watcher
        return self._watch(process)

    async def current(self, process: Process) -> Process:
        watcher = self.watchers.get(process.number)
        return watcher.process if watcher else await self.store.read(processes.get(process.number))

    async def wait(self, process: Process, seconds: float, interrupted: Awaitable[object] | None = None) -> Process:
        """Wait until the command has ended, or for some time, or until it is interrupted."""
        watcher = self._watcher_of(process)
        if watcher is None:
            return await self.current(process)
        stop = asyncio.ensure_future(interrupted) if interrupted else None
        watcher.waiters += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wait_for_exit(watcher, stop)
            return watcher.process
        finally:
            watcher.waiters -= 1
            self._woken.set()
            if stop:
                stop.cancel()

    async def _wait_for_exit(self, watcher: Watcher, stop: "asyncio.Future[object] | None") -> None:
        while watcher.process.exited is None and watcher.process.ended is None:
            change = asyncio.ensure_future(watcher.change())
            try:
                await asyncio.wait({change, *([stop] if stop else [])}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
            if stop and stop.done():
                return

    async def mark_seen(self, process: Process) -> None:
        """Record that the agent knows the end of a process, so that it gets no notice of it."""
        await retry_until_stored(self.store, process_notices.mark_seen(process.number))

    async def write(self, process: Process, data: bytes) -> bool:
        """Write to standard input. Return False if the process does not take it."""
        return await self._order(process, b"w", data)

    async def close_input(self, process: Process) -> bool:
        return await self._order(process, b"c")

    async def _order(self, process: Process, letter: bytes, payload: bytes = b"") -> bool:
        watcher = self._watcher_of(process)
        return watcher is not None and await watcher.order(letter, payload)

    async def kill(
        self, found: Collection[Process], *, by: str, silently: bool = False, grace: float = GRACE_SECONDS
    ) -> int:
        """Kill processes with everything that they started, on any machine, and wait for those on this one.

        Return how many were still running. `silently` sends their conversation no notice of it.
        """
        ask = _ask_stop(found, self.clock.now(), by=by, silently=silently)
        count = await retry_until_stored(self.store, ask)
        watchers = [watcher for each in found if (watcher := self._watcher_of(each))]
        await asyncio.gather(*(watcher.kill(grace) for watcher in watchers))
        with suppress(TimeoutError):
            async with asyncio.timeout(grace + _KILL_PATIENCE_SECONDS):
                for watcher in watchers:
                    while watcher.process.ended is None:
                        await watcher.change()
        return count

    async def forget(self, process: Process) -> None:
        """Remove a process that has ended, with its output."""
        await retry_until_stored(self.store, processes.delete(process.number))
        await asyncio.to_thread(self.directory(process).remove)

    async def end_all(self) -> None:
        """Kill every process that this gateway looks after."""
        await self.kill([watcher.process for watcher in self.watchers.values()], by="the gateway's stop")


@transaction
def _ask_stop(found: Collection[Process], now: datetime, *, by: str, silently: bool) -> Statements[int]:
    for process in found if silently else ():
        yield from process_notices.silence(process.number)
    return (yield from processes.ask_stop([process.number for process in found], now, by=by))


async def _run_all(work: Collection[Coroutine[Any, Any, None]]) -> None:
    """Run all at once until each has ended, then raise the first error. If cancelled, end all of them first."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):  # also a CancelledError that one has raised on its own
            raise result
