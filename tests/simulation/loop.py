"""The virtual loop: time passes only when there is nothing to do, and whole processes can stand still."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
import asyncio
import heapq
import sys
from asyncio import events
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, TypeVar

__all__ = ["PROCESS", "Process", "Stuck", "VirtualLoop", "run"]

T = TypeVar("T")
_Steps = Generator[Any, None, T] | Coroutine[Any, Any, T]


class Stuck(AssertionError):
    """Nothing can run and no timer will ring: everybody waits for somebody else."""


class Process:
    """What runs together, stands still together and dies together: anything that its tasks start belongs to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stands = False
        """Not one more step of it is taken, as after SIGSTOP or SIGKILL."""
        self.dead = False
        """Nothing it asks for is done any more."""
        self.tasks: list[asyncio.Task[Any]] = []
        self._held: list[asyncio.Handle] = []

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def go_on(self) -> list[asyncio.Handle]:
        """What would have run meanwhile, in order."""
        held, self._held, self.stands = self._held, [], False
        return held

    @property
    def alive(self) -> list[asyncio.Task[Any]]:
        self.tasks = [task for task in self.tasks if not task.done()]
        return self.tasks


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class _Task(asyncio.Task[T]):
    """Its hash is its number: sets of tasks, also those of asyncio itself, have the same order in every run."""

    def __init__(self, coro: "_Steps[T]", number: int, *, loop: "VirtualLoop", context: Context | None) -> None:
        self._number = number
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready, in order; then it is at once as late as the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._numbers = count(1)
        self.complaints: list[str] = []
        """What nobody looked at: exceptions of tasks that were never awaited."""
        self.set_task_factory(self._start)
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self._now

    def let_go(self, process: Process) -> None:
        self._ready.extend(process.go_on())

    def _start(
        self,
        _loop: asyncio.AbstractEventLoop,
        coro: "_Steps[T]",
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = _Task(coro, next(self._numbers), loop=self, context=context)
        owner = PROCESS.get() if context is None else context.get(PROCESS)
        if owner is not None:
            owner.tasks.append(task)
        return task

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context['message']}: {context.get('exception')!r} {context.get('future')!r}")

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            self._ring()
        if not self._ready:
            if not self._scheduled:
                raise Stuck(f"nothing can run any more at {self._now:.3f} s")
            self._now = max(self._now, self._scheduled[0].when())
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(self._ring())
        for _ in range(len(self._ready)):
            self._take(self._ready.popleft())

    def _ring(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        timer._scheduled = False
        return timer

    def _take(self, handle: asyncio.Handle) -> None:
        owner: Process | None = handle._context.get(PROCESS)
        if handle.cancelled():
            return
        if owner is not None and owner.stands:
            owner.hold(handle)
        else:
            handle._run()

    def _write_to_self(self) -> None:
        """Nobody sleeps here who would have to be woken."""


def run(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Until it is done. A loop that is stuck says which tasks wait where."""
    events.set_event_loop(loop)
    task = loop.create_task(main)
    try:
        return loop.run_until_complete(task)
    except Stuck:
        for waiting in asyncio.all_tasks(loop):
            waiting.print_stack(file=sys.stderr)
        raise
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        events.set_event_loop(None)
        loop.close()
