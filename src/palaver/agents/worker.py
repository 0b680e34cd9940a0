"""A process of an agent, and the turns that it works on."""

import asyncio
from asyncio import Queue
from collections.abc import AsyncGenerator, Callable
from itertools import count

from msgspec.structs import replace

from palaver.agents.foreign import Broken, Question
from palaver.agents.process import Process
from palaver.agents.wire import ApprovalWanted, Cancel, Done, Failed, FromAgent, Hello, Reply, Rubbish, encoded, parsed
from palaver.ports.agent import FailureKind

__all__ = ["Seat", "Worker"]

_HEED = 2.0
"""How many seconds it has to let go of a turn that nobody waits for any more."""
_WAITING = 8
"""How many lines of a turn are read before somebody has taken the first."""

Heard = FromAgent | Broken | Rubbish


class Worker:
    def __init__(self, process: Process, *, lasts: bool, news: Callable[[], None]) -> None:
        self._process = process
        self._lasts = lasts
        """It is kept for the next turn."""
        self._news = news
        self._turns: dict[str, Queue[Heard] | None] = {}
        """What each turn is to hear; None where nobody listens any more."""
        self._numbers = count(1)
        self._hello: Hello | None = None
        self._at_once = asyncio.Event()
        self._quietly = asyncio.Event()
        self.is_over = False
        self.has_worked = False
        """It has brought a turn to an end."""
        self.task = asyncio.create_task(self._work())

    @property
    def has_room(self) -> bool:
        room = self._hello.at_once if self._hello and self._lasts else 1
        return len(self._turns) < room and not (self.is_over or self._quietly.is_set() or self._at_once.is_set())

    @property
    def is_heard(self) -> bool:
        return any(self._turns.values())

    def take(self, question: Question) -> "Seat":
        name = str(next(self._numbers))
        heard: Queue[Heard] = Queue(_WAITING)
        self._turns[name] = heard
        if self._hello:
            heard.put_nowait(self._hello)
        self._process.write(encoded(replace(question, id=name)))
        return Seat(self, name, heard)

    def reply(self, name: str, reply: Reply) -> None:
        self._process.write(encoded(replace(reply, id=name)))

    def leave(self, name: str) -> None:
        """Nobody listens to this turn any more; where it is not done yet, it is to be dropped."""
        if heard := self._turns.get(name):
            self._turns[name] = None
            self._process.write(encoded(Cancel(id=name)))
            asyncio.get_running_loop().call_later(_HEED, self._insist, name)
            # Whoever reads may be about to put something in.
            while not heard.empty():
                heard.get_nowait()
        self._rest()

    def retire(self) -> None:
        """From now on it is only waited for until it is idle."""
        self._lasts = False
        self._rest()

    def _insist(self, name: str) -> None:
        if name in self._turns:
            self._at_once.set()

    def _rest(self) -> None:
        if not self._lasts and not self.is_heard:
            self._quietly.set()
        self._news()

    async def _work(self) -> None:
        reading = asyncio.create_task(self._read())
        told = [asyncio.create_task(word.wait()) for word in (self._quietly, self._at_once)]
        try:
            await asyncio.wait({reading, *told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_over = True
            for task in (reading, *told):
                task.cancel()
            code = await self._process.end(at_once=not self._quietly.is_set())
        why = _why(reading, code)
        heard = [queue for queue in self._turns.values() if queue]
        self._turns.clear()
        self._news()
        await asyncio.gather(*(queue.put(why) for queue in heard))

    async def _read(self) -> None:
        while (line := await self._process.line()) is not None:
            said = parsed(line)
            if isinstance(said, Hello):
                self._hello = said
                for heard in filter(None, list(self._turns.values())):
                    await heard.put(said)
            else:
                await self._pass_on(said)
            self._news()

    async def _pass_on(self, said: FromAgent) -> None:
        name = said.id or next(iter(self._turns), "")
        if not said.id and self._lasts:
            raise Rubbish("a line does not say which turn it is about: it has no id")
        heard = self._turns.get(name)
        if isinstance(said, Done | Failed | ApprovalWanted):
            self._turns.pop(name, None)
            self.has_worked = True
        if heard:
            await heard.put(said)


def _why(reading: "asyncio.Task[None]", code: int) -> Broken | Rubbish:
    error = None if reading.cancelled() or not reading.done() else reading.exception()
    return error if isinstance(error, Rubbish) else Broken(FailureKind.TRANSIENT, f"the program ended with code {code}")


class Seat:
    """A turn with a process."""

    def __init__(self, worker: Worker, name: str, heard: Queue[Heard]) -> None:
        self._worker = worker
        self._name = name
        self._heard = heard

    async def said(self) -> AsyncGenerator[FromAgent]:
        while True:
            said = await self._heard.get()
            if isinstance(said, Broken | Rubbish):
                raise said
            yield said

    def reply(self, reply: Reply) -> None:
        self._worker.reply(self._name, reply)

    def leave(self) -> None:
        self._worker.leave(self._name)
