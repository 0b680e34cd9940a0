"""The notebook: an inlet that writes down what an adapter hands over, and can refuse to."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

from palaver.model.attachment import Attachment
from palaver.model.errors import MalformedSource, StoreUnavailable
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound
from palaver.model.value import value
from palaver.protocols.adapter import Adapter, AnswerStatus, PlatformError, Receiver
from palaver.testkit.chat import Chat
from palaver.testkit.mailbox import Message

__all__ = [
    "PATIENCE",
    "Notebook",
    "Tally",
    "running",
    "tally",
]

PATIENCE = 10.0
"""Seconds after which something that should happen counts as not happening."""
_PAUSE = 0.01


class Notebook:
    """Like the real inlet it outlives the adapters that write into it."""

    def __init__(self) -> None:
        self.received: list[Inbound] = []
        """What is safe, in order of arrival, repetitions included."""
        self.trusts: list[Trust] = []
        self.offered: list[Inbound] = []
        """What was handed over, safe or not."""
        self.moves: list[tuple[str, str]] = []
        """Chats that got another id, as often as it was said."""
        self.refusals = 0
        """How many of the next messages it fails to keep."""
        self.writes = asyncio.Event()
        """While it is cleared, messages are offered but do not get safe."""
        self.writes.set()
        self._position: str | None = None
        self._changed = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        """What is safe, each message once, as it was sent."""
        return list({each.source: each.text for each in self.received if each.revision is None}.values())

    @property
    def files(self) -> list[Attachment]:
        """What is safe of files, each message once."""
        return [file for each in {each.source: each for each in self.received}.values() for file in each.files]

    @property
    def changes(self) -> list[Inbound]:
        """What is safe of changes, each once."""
        return list({(each.source, each.revision): each for each in self.received if each.revision}.values())

    async def connected(self) -> None: ...

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        self.offered.append(inbound)
        self._look()
        try:
            inbound.check_ids()
        except MalformedSource:
            return
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("the notebook is full")
        await self.writes.wait()
        self.received.append(inbound)
        self.trusts.append(trust)
        self._look()

    async def load_position(self) -> str | None:
        return self._position

    async def save_position(self, position: str) -> None:
        self._position = position

    async def chat_returned(self, chat_id: str) -> None: ...

    async def link_alias(self, alias: str, canonical: str) -> None: ...

    async def chat_moved(self, old: str, new: str) -> None:
        self.moves.append((old, new))
        self._look()

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        """It keeps, and answers nothing."""

    async def has(self, count: int) -> None:
        """Wait until that many different messages are safe."""
        await self._until(lambda: len(self.texts) >= count)

    async def has_changes(self, count: int) -> None:
        await self._until(lambda: len(self.changes) >= count)

    async def has_files(self, count: int) -> list[Attachment]:
        await self._until(lambda: len(self.files) >= count)
        return self.files

    async def has_moves(self, count: int) -> None:
        await self._until(lambda: len(self.moves) >= count)

    async def was_offered(self, count: int) -> None:
        await self._until(lambda: len(self.offered) >= count)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                await self._changed.wait()

    def _look(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def running(adapter: Adapter, receiver: Receiver) -> AsyncGenerator[None]:
    """The adapter runs, and is started again whenever it loses the connection, as the gateway would."""
    task = asyncio.create_task(_keep_running(adapter, receiver))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def _keep_running(adapter: Adapter, receiver: Receiver) -> None:
    while True:
        try:
            await adapter.run(receiver)
        except (PlatformError, StoreUnavailable):
            await asyncio.sleep(_PAUSE)
        else:
            raise AssertionError("run() ended although nobody cancelled it")


@value
class Tally:
    """Messages of people by what went wrong with their answers."""

    lost: tuple[Message, ...] = ()
    """Never answered."""
    twice: tuple[Message, ...] = ()
    """Answered more than once."""
    out_of_order: tuple[Message, ...] = ()
    """Answered before something that the same person had said earlier in the same place."""


def _repeats(said: Message, shown: Message) -> bool:
    """The answer has the whole text in it: `m1` is not answered by `m10`."""
    return said.text in shown.text and bool(re.search(rf"(?<!\w){re.escape(said.text)}(?!\w)", shown.text))


def tally(chats: Iterable[Chat], *, answers: Callable[[Message, Message], bool] = _repeats) -> Tally:
    """Count over some chats. `answers` says whether the second message answers the first."""
    lost: list[Message] = []
    twice: list[Message] = []
    out_of_order: list[Message] = []
    for chat in chats:
        latest: dict[tuple[str, str | None], int] = {}
        shown = chat.shown
        for said in chat.said:
            places = [place for place, reply in enumerate(shown) if answers(said, reply)]
            if not places:
                lost.append(said)
                continue
            if len(places) > 1:
                twice.append(said)
            who = (said.author, said.thread)
            if places[0] < latest.get(who, 0):
                out_of_order.append(said)
            latest[who] = max(places[0], latest.get(who, 0))
    return Tally(lost=tuple(lost), twice=tuple(twice), out_of_order=tuple(out_of_order))
