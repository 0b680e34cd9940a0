"""The fake platform: a chat platform in memory, with people, chats and faults.

Time comes from the running event loop and chance from a seed, so a test controls both:

    platform = FakePlatform(faults=Faults(duplicate=0.3, delay=0.1), seed=7)
    alice = platform.person("alice")
    chat = platform.dm(alice)
    adapter = FakeAdapter(platform)  # hand it to a gateway, or run it against a Recorder

    recorder = Recorder()
    async with running(adapter, recorder):
        await chat.say(alice, "hello")
        await recorder.has(1)
        platform.injector.script.append(SendFault.LOST_AFTER)
        with pytest.raises(SendUnclear):
            await adapter.send(Outbound(platform="fake", chat_id=chat.id, text="hi"), idempotency_key="1")
    assert [message.text for message in chat.shown] == ["hi"]
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from weakref import WeakKeyDictionary

from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    ChatMoved,
    Clock,
    MenuCommand,
    Outbound,
    PlatformBusy,
    PlatformDown,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
    Unit,
    request_leaves,
)
from palaver.testkit.chat import Chat
from palaver.testkit.faults import FaultInjector, Faults, SendFault
from palaver.testkit.updates import File, Message, Person, QueueStream, Update, UpdateQueue

__all__ = ["BOT", "FakePlatform", "LoopClock"]

BOT = "bot"
"""The account of ours that is in every chat by default."""
_START = datetime(2026, 1, 1, tzinfo=UTC)
_PROCESS_START = time.monotonic()
_origins: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""The time of each event loop at `_START`: all clocks of a loop agree."""
_CUTS = frozenset({SendFault.LOST_BEFORE, SendFault.LOST_AFTER})
_TIMER_SLACK_SECONDS = 0.001  # A timer can fire that much early.


class LoopClock:
    """The time of day by the event loop's clock, which a test can stop or advance; a process begins at midnight."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start

    def now(self) -> datetime:
        loop = asyncio.get_running_loop()
        # A real loop counts from the start of the machine, a simulated one from zero.
        origin = _origins.setdefault(loop, min(_PROCESS_START, loop.time()))
        return self._start + timedelta(seconds=loop.time() - origin)


@dataclass(kw_only=True, eq=False)
class FakePlatform:
    """Also a `PlatformClient`: an adapter in the same process uses it directly."""

    faults: InitVar[Faults | None] = None
    seed: InitVar[int] = 0
    max_text: int = 4000
    unit: Unit = Unit.CODE_POINTS
    interval: float = 0.0
    repeats_safely: bool = False
    clock: Clock = field(default_factory=LoopClock)
    down: bool = False
    """While true, nobody can connect or send."""
    chats: dict[str, Chat] = field(default_factory=dict[str, Chat])
    menus: dict[str, tuple[MenuCommand, ...]] = field(default_factory=dict[str, tuple[MenuCommand, ...]])
    """The command menu of each account."""

    def __post_init__(self, faults: Faults | None, seed: int) -> None:
        self.injector = FaultInjector(faults or Faults(), seed)
        self._queues: dict[str, UpdateQueue] = {}
        self._renamed: dict[str, Chat] = {}
        """Chats by old ids that still point to the new one."""
        self._cuts = 0
        self._chat_numbers = count(1)
        self._people_numbers = count(1)
        self._update_numbers = count(1)

    # For tests: people and chats

    def person(self, name: str, *, is_bot: bool = False) -> Person:
        return Person(id=f"p{next(self._people_numbers)}", name=name, is_bot=is_bot)

    def dm(self, person: Person, *, account: str = BOT) -> Chat:
        return self._chat(DM, person.name, (person,), (account,))

    def group(self, title: str, *people: Person, accounts: Iterable[str] = (BOT,)) -> Chat:
        return self._chat(GROUP, title, people, accounts)

    def channel(self, title: str, *people: Person, accounts: Iterable[str] = (BOT,)) -> Chat:
        return self._chat(CHANNEL, title, people, accounts)

    # For tests: things that happen

    def cut(self) -> None:
        """Break every connection: those for updates and those of sends in progress."""
        self._cuts += 1
        for queue in self._queues.values():
            queue.cut()

    def unacknowledged(self, account: str = BOT) -> list[Message]:
        return [update.message for update in self._queue(account).waiting.values()]

    # For adapters

    async def open(self, account: str) -> QueueStream:
        self._check_connection()
        return self._queue(account).open()

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        return (await self._show(account, outbound, key)).id

    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str:
        chat = self._find_chat(account, outbound)
        if not chat.has_threads:
            raise SendRefused(f"Chat {chat.id} has no threads.")
        thread = f"t{len(chat.messages) + 1}"
        return (await self._show(account, replace(outbound, thread_id=thread), key)).thread or thread

    async def _show(self, account: str, outbound: Outbound, key: str, file: File | None = None) -> Message:
        fault = await self._start_send()
        chat = self._find_chat(account, outbound)
        sent = chat.shown if self.repeats_safely else ()
        if known := next((message for message in sent if message.key == key), None):
            return known
        if file is None:
            self._check_text(chat, outbound.text)
        cuts = self._cuts
        message = chat.show(account, outbound, key=key, file=file)
        if fault:
            raise self.injector.error(fault)
        await self._delay(cuts)
        return message

    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None:
        fault = await self._start_send()
        chat = self._find_chat(account, outbound)
        message = chat.find(receipt)
        if not message or message.author != account:
            raise SendRefused(f"There is no message {receipt} of {account} in chat {chat.id}.")
        self._check_text(chat, outbound.text)
        chat.change(receipt, outbound.text, outbound.choices)
        if fault:
            raise self.injector.error(fault)

    async def typing(self, account: str, outbound: Outbound) -> None:
        self._check_connection()
        self._find_chat(account, outbound).typing.append((account, outbound.thread_id))

    async def show_menu(self, account: str, commands: Sequence[MenuCommand]) -> None:
        self._check_connection()
        self.menus[account] = tuple(commands)

    async def fetch(self, account: str, handle: str) -> bytes:
        """Return the content of a file, by the handle from its message."""
        self._check_connection()
        fault = self.injector.next_fault()
        await asyncio.sleep(self.injector.delay())
        if fault is SendFault.BUSY:
            raise PlatformBusy(self.injector.faults.busy_for)
        if fault:
            raise PlatformDown("The connection was cut.") if fault in _CUTS else SendRefused("The file is gone.")
        chat_id, message_id, position = handle.split("/")
        chat = self.chats.get(chat_id)
        found = chat.find(message_id) if chat and account in chat.accounts else None
        if found is None or found.deleted:
            raise SendRefused("The file is gone.")
        return found.files[int(position)].content

    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str:
        named = outbound.file
        if named is None:
            raise SendRefused("There is no file to send.")
        file = File(name=named.name.stored(), media_type=named.media_type, content=content, size=len(content))
        return (await self._show(account, outbound, key, file)).id

    def _chat(self, kind: str, title: str, people: tuple[Person, ...], accounts: Iterable[str]) -> Chat:
        chat = Chat(
            has_threads=kind != DM,
            interval=self.interval,
            id=f"c{next(self._chat_numbers)}",
            kind=kind,
            title=title,
            people=people,
            accounts=frozenset(accounts),
            clock=self.clock,
            report=self._report,
            rename=self._rename,
        )
        self.chats[chat.id] = chat
        return chat

    def _queue(self, account: str) -> UpdateQueue:
        if account not in self._queues:
            self._queues[account] = UpdateQueue(self.injector)
        return self._queues[account]

    def _report(self, chat: Chat, person: Person, message: Message) -> None:
        reported = replace(message, files=tuple(map(_without_content, message.files))) if message.files else message
        accounts = chat.accounts.intersection(message.mentions) if message.pressed else chat.accounts
        self._deliver(sorted(accounts), self._update(chat, person, reported))

    def _rename(self, chat: Chat, silently: bool) -> None:
        old = chat.id
        chat.id = f"c{next(self._chat_numbers)}"
        self.chats[chat.id] = self.chats.pop(old)
        if silently:
            self._renamed[old] = chat
            return
        nobody = Person(id="", name="")
        nothing = Message(id="", author="", text="", at=self.clock.now())
        for account in sorted(chat.accounts):
            self._deliver([account], self._update(chat, nobody, nothing, moved_from=old))

    def _update(self, chat: Chat, person: Person, message: Message, *, moved_from: str | None = None) -> Update:
        return Update(
            number=next(self._update_numbers),
            chat=chat.id,
            kind=chat.kind,
            title=chat.title,
            person=person,
            message=message,
            moved_from=moved_from,
        )

    def _deliver(self, accounts: Iterable[str], update: Update) -> None:
        for queue in map(self._queue, accounts):
            if delay := self.injector.delay():
                asyncio.get_running_loop().call_later(delay, queue.put, update)
            else:
                queue.put(update)

    def _check_connection(self) -> None:
        if self.down:
            raise PlatformDown("The platform does not respond.")

    async def _start_send(self) -> SendFault | None:
        """Fail as planned before the message is shown; return the fault that strikes afterwards."""
        self._check_connection()
        await request_leaves()
        fault = self.injector.next_fault()
        await self._delay(self._cuts)
        if fault and fault is not SendFault.LOST_AFTER:
            raise self.injector.error(fault)
        return fault

    async def _delay(self, cuts: int) -> None:
        """Wait for the delay. Raises SendUnclear if the connections were cut meanwhile."""
        if delay := self.injector.delay():
            await asyncio.sleep(delay)
        if self._cuts != cuts:
            raise SendUnclear("The connection was lost while sending.")

    def _find_chat(self, account: str, outbound: Outbound) -> Chat:
        if moved := self._renamed.get(outbound.chat_id):
            raise ChatMoved(moved.id)
        chat = self.chats.get(outbound.chat_id)
        if chat is None or chat.gone or account not in chat.accounts:
            raise TargetGone(f"There is no chat {outbound.chat_id} that {account} can write to.")
        if chat.away:
            raise TargetAway(self.injector.faults.busy_for)
        return chat

    def _check_text(self, chat: Chat, text: str) -> None:
        length = self.unit.measure(text)
        if not text.strip() or length > self.max_text:
            raise SendRefused(f"A message has 1 to {self.max_text} {self.unit.value}, not {length}.")
        now = asyncio.get_running_loop().time()
        if chat.free_at - now > _TIMER_SLACK_SECONDS:
            raise PlatformBusy(chat.free_at - now)
        chat.free_at = now + chat.interval


def _without_content(file: File) -> File:
    return replace(file, content=b"", size=len(file.content) if file.size is None else file.size)
