"""A rig over the fake platform."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.model.split import Unit
from palaver.protocols.adapter import Adapter, Limits, PlatformBusy, SendRefused, TargetGone
from palaver.protocols.capabilities import MenuCommand
from palaver.testkit.adapter import FakeAdapter, PlatformClient
from palaver.testkit.fake_server import Refusal, Shown
from palaver.testkit.faults import SendFault
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import File, Message, Person

ALICE = Person(id="p1", name="alice")
Make = Callable[[PlatformClient], Adapter]


def fake(link: PlatformClient) -> Adapter:
    return FakeAdapter(link, limits=Limits(text=500, interval=0.01, repeats_safely=True, announces_requests=True))


class FakePlatformServer:
    thread_id: str | None = "42"

    def __init__(self, world: FakePlatform, link: PlatformClient, make: Make = fake) -> None:
        self._world = world
        self._link = link
        self._make = make
        self._chat = world.group("Dev")

    @property
    def chat_id(self) -> str:
        return self._chat.id

    def adapter(self) -> Adapter:
        return self._make(self._link)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        return self._source(await self._chat.say(Person(id="p1", name=name), text, thread=thread_id))

    async def say_under(self, message_id: str, text: str) -> None:
        await self._chat.say(ALICE, text, under=message_id)

    def _source(self, message: Message) -> Source:
        return Source(
            platform="fake",
            account="bot",
            chat_kind="group",
            chat_id=self._chat.id,
            thread_id=message.thread,
            user_id="p1",
            message_id=message.id,
        )

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        sent = tuple(File(name=file.name, media_type=file.media_type, content=file.content) for file in files)
        message = await self._chat.say(ALICE, text, files=sent)
        return self._source(message)

    async def shown_files(self) -> list[NewFile]:
        files = [file for message in self._chat.shown for file in message.files]
        return [NewFile(file.name, file.content, file.media_type) for file in files]

    async def mention(self, text: str) -> Source:
        return self._source(await self._chat.say(ALICE, text, mentions=("bot",)))

    async def answer(self, receipt: str, text: str) -> Source:
        return self._source(await self._chat.say(ALICE, text, reply_to=receipt))

    async def choices(self) -> list[str]:
        return [choice.label for choice in self._chat.shown[-1].choices]

    async def press(self, label: str) -> Source:
        return self._source(await self._chat.press(ALICE, self._chat.shown[-1], label))

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        ours = next(each for each in self._chat.shown if each.id == receipt)
        await self._chat.react(ALICE, ours, sign, removed=removed)
        return self._source(replace(ours, author=ALICE.id))

    async def move_chat(self) -> str:
        return await self._chat.move()

    async def menu(self) -> Sequence[MenuCommand]:
        return self._world.menus["bot"]

    async def edit(self, said: Source, text: str) -> None:
        await self._chat.edit(ALICE, self._message(said), text)

    async def delete(self, said: Source) -> None:
        await self._chat.delete(ALICE, self._message(said))

    def _message(self, said: Source) -> Message:
        message = self._chat.find(said.message_id or "")
        assert message
        return message

    async def shown(self) -> list[Shown]:
        return [Shown(chat_id=self._chat.id, text=each.text, thread_id=each.thread) for each in self._chat.shown]

    async def cut(self) -> None:
        self._world.cut()

    async def limit_rate(self) -> None:
        self._world.injector.script.append(SendFault.BUSY)

    def refusals(self) -> Sequence[Refusal]:
        return (
            Refusal(answer=SendFault.REFUSED, means=SendRefused),
            Refusal(answer=SendFault.GONE, means=TargetGone),
            Refusal(answer=SendFault.BUSY, means=PlatformBusy, after=self._world.injector.faults.busy_for),
        )

    async def refuse(self, refusal: Refusal) -> None:
        self._world.injector.script.append(refusal.answer)

    def foreign_files(self) -> Sequence[str]:
        return ("elsewhere/1/0",)

    async def say_nonsense(self) -> None:
        await self.say_under("m" * 20_000, "nonsense")

    async def lose_send(self, *, shown: bool) -> None:
        self._world.injector.script.append(SendFault.LOST_AFTER if shown else SendFault.LOST_BEFORE)

    async def close_chat(self) -> None:
        self._chat.gone = True


def world_for_checks(unit: Unit = Unit.CODE_POINTS) -> FakePlatform:
    return FakePlatform(max_text=500, unit=unit, interval=0.01, repeats_safely=True)
