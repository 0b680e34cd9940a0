"""The world: a chat platform in memory that one can speak into, listen to, and make go wrong.

Time comes from the running event loop alone and chance from a seed, so that a test can own both.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

from palaver.model.source import CHANNEL, DM, GROUP
from palaver.model.split import Unit
from palaver.model.turn import Outbound
from palaver.protocols.adapter import (
    ChatMoved,
    PlatformBusy,
    PlatformDown,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
)
from palaver.protocols.capabilities import MenuCommand
from palaver.protocols.clock import Clock
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults, Luck, Mishap
from palaver.testkit.mailbox import File, Mailbox, MailboxLine, Message, Person, Update

__all__ = [
    "BOT",
    "LoopClock",
    "World",
]

BOT = "bot"
"""The account of ours that chats have unless told otherwise."""
_START = datetime(2026, 1, 1, tzinfo=UTC)
_CUTS = frozenset({Mishap.LOST_BEFORE, Mishap.LOST_AFTER})
_A_MOMENT = 0.001  # A timer may ring that much early.


class LoopClock:
    """The time of day as the event loop counts it: it stands still, or flies, when the loop's time does."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=asyncio.get_running_loop().time())


class World:
    """A `Link` of its own: an adapter in the same process is simply given the world."""

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        seed: int = 0,
        longest: int = 4000,
        unit: Unit = Unit.CODE_POINTS,
        interval: float = 0.0,
        repeats_safely: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.luck = Luck(faults or Faults(), seed)
        self.down = False
        """Nobody can connect or send."""
        self.chats: dict[str, Chat] = {}
        self._longest = longest
        self._unit = unit
        self._interval = interval
        self._repeats_safely = repeats_safely
        self._clock = clock or LoopClock()
        self.menus: dict[str, tuple[MenuCommand, ...]] = {}
        """The commands that each account shows."""
        self._mailboxes: dict[str, Mailbox] = {}
        self._renamed: dict[str, Chat] = {}
        """Chats under ids that they had before and that still say where they are."""
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
        """Every connection breaks: for updates, and of sends that are under way."""
        self._cuts += 1
        for mailbox in self._mailboxes.values():
            mailbox.cut()

    def unacknowledged(self, account: str = BOT) -> list[Message]:
        return [update.message for update in self._mailbox(account).waiting.values()]

    # For adapters

    async def open(self, account: str) -> MailboxLine:
        if self.down:
            raise PlatformDown("the platform does not answer")
        return self._mailbox(account).open()

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        return (await self._show(account, outbound, key)).id

    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str:
        """The thread is named after what begins it, and has its number in the chat."""
        chat = self._place(account, outbound)
        if not chat.has_threads:
            raise SendRefused(f"chat {chat.id} has no threads")
        thread = f"t{len(chat.messages) + 1}"
        return (await self._show(account, replace(outbound, thread_id=thread), key)).thread or thread

    async def _show(self, account: str, outbound: Outbound, key: str) -> Message:
        mishap = await self._under_way()
        chat = self._place(account, outbound)
        if self._repeats_safely and (known := self._known(chat, key)):
            return known
        self._accept_text(chat, outbound.text)
        cuts = self._cuts
        message = chat.show(account, outbound, key=key)
        if mishap:
            raise self.luck.error(mishap)
        await self._take_time(cuts)
        return message

    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None:
        mishap = await self._under_way()
        chat = self._place(account, outbound)
        message = chat.find(receipt)
        if not message or message.author != account:
            raise SendRefused(f"there is no message {receipt} of {account} in chat {chat.id}")
        self._accept_text(chat, outbound.text)
        chat.change(receipt, outbound.text, outbound.choices)
        if mishap:
            raise self.luck.error(mishap)

    async def typing(self, account: str, outbound: Outbound) -> None:
        if self.down:
            raise PlatformDown("the platform does not answer")
        self._place(account, outbound).typing.append((account, outbound.thread_id))

    async def show_menu(self, account: str, lines: Sequence[MenuCommand]) -> None:
        if self.down:
            raise PlatformDown("the platform does not answer")
        self.menus[account] = tuple(lines)

    async def fetch(self, account: str, handle: str) -> bytes:
        """The content of a file that somebody sent; the handle says where it is."""
        if self.down:
            raise PlatformDown("the platform does not answer")
        mishap = self.luck.mishap()
        await asyncio.sleep(self.luck.delay())
        if mishap is Mishap.BUSY:
            raise PlatformBusy(self.luck.faults.busy_for)
        if mishap:
            raise PlatformDown("the connection was cut") if mishap in _CUTS else SendRefused("the file is gone")
        number, message, position = handle.split("/")
        chat = self.chats.get(number)
        found = chat.find(message) if chat and account in chat.accounts else None
        if found is None or found.deleted:
            raise SendRefused("the file is gone")
        return found.files[int(position)].content

    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str:
        mishap = await self._under_way()
        chat = self._place(account, outbound)
        if self._repeats_safely and (known := self._known(chat, key)):
            return known.id
        named = outbound.file
        if named is None:
            raise SendRefused("there is no file")
        file = File(name=named.name.stored(), media_type=named.media_type, content=content, size=len(content))
        message = chat.show(account, outbound, key=key, file=file)
        if mishap:
            raise self.luck.error(mishap)
        return message.id

    def _chat(self, kind: str, title: str, people: tuple[Person, ...], accounts: Iterable[str]) -> Chat:
        chat = Chat(
            id=f"c{next(self._chat_numbers)}",
            kind=kind,
            title=title,
            people=people,
            accounts=frozenset(accounts),
            clock=self._clock,
            tell=self._tell,
            rename=self._rename,
        )
        chat.interval = self._interval
        self.chats[chat.id] = chat
        return chat

    def _mailbox(self, account: str) -> Mailbox:
        return self._mailboxes.setdefault(account, Mailbox(self.luck))

    def _tell(self, chat: Chat, person: Person, message: Message) -> None:
        update = Update(
            number=next(self._update_numbers),
            chat=chat.id,
            kind=chat.kind,
            title=chat.title,
            person=person,
            message=replace(message, files=tuple(map(_described, message.files))) if message.files else message,
        )
        for account in sorted(chat.accounts.intersection(message.mentions) if message.pressed else chat.accounts):
            self._deliver(self._mailbox(account), update)

    def _rename(self, chat: Chat, silently: bool) -> None:
        old, chat.id = chat.id, f"c{next(self._chat_numbers)}"
        self.chats[chat.id] = self.chats.pop(old)
        if silently:
            self._renamed[old] = chat
            return
        nobody, nothing = Person(id="", name=""), Message(id="", author="", text="", at=self._clock.now())
        for account in sorted(chat.accounts):
            number = next(self._update_numbers)
            update = Update(
                number=number, chat=chat.id, kind=chat.kind, title=chat.title, person=nobody, message=nothing
            )
            self._deliver(self._mailbox(account), replace(update, moved_from=old))

    def _deliver(self, mailbox: Mailbox, update: Update) -> None:
        if delay := self.luck.delay():
            asyncio.get_running_loop().call_later(delay, mailbox.put, update)
        else:
            mailbox.put(update)

    async def _under_way(self) -> Mishap | None:
        """What a send meets before it is shown; gives what will still go wrong afterwards."""
        if self.down:
            raise PlatformDown("the platform does not answer")
        mishap = self.luck.mishap()
        await self._take_time(self._cuts)
        if mishap and mishap is not Mishap.LOST_AFTER:
            raise self.luck.error(mishap)
        return mishap

    async def _take_time(self, cuts: int) -> None:
        """Raises if everything was cut meanwhile: whoever waits for the answer does not get it."""
        if delay := self.luck.delay():
            await asyncio.sleep(delay)
        if self._cuts != cuts:
            raise SendUnclear("the connection was lost while sending")

    def _place(self, account: str, outbound: Outbound) -> Chat:
        if moved := self._renamed.get(outbound.chat_id):
            raise ChatMoved(moved.id)
        chat = self.chats.get(outbound.chat_id)
        if chat is None or chat.gone or account not in chat.accounts:
            raise TargetGone(f"there is no chat {outbound.chat_id} in which {account} may write")
        if chat.away:
            raise TargetAway(self.luck.faults.busy_for)
        return chat

    def _known(self, chat: Chat, key: str) -> Message | None:
        return next((message for message in chat.shown if message.key == key), None)

    def _accept_text(self, chat: Chat, text: str) -> None:
        length = self._unit.measure(text)
        if not text.strip() or length > self._longest:
            raise SendRefused(f"a message has 1 to {self._longest} {self._unit.value}, not {length}")
        now = asyncio.get_running_loop().time()
        if chat.free_at - now > _A_MOMENT:
            raise PlatformBusy(chat.free_at - now)
        chat.free_at = now + chat.interval


def _described(file: File) -> File:
    return replace(file, content=b"", size=len(file.content) if file.size is None else file.size)
