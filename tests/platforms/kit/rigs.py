"""A rig over the fake platform."""

from collections.abc import Callable, Sequence

from palaver.domain.attachment import NewFile
from palaver.domain.source import Source
from palaver.platforms.kit.adapter import FakeAdapter
from palaver.platforms.kit.conformance import Shown
from palaver.platforms.kit.faults import Mishap
from palaver.platforms.kit.link import Link
from palaver.platforms.kit.messages import File, Message, Person
from palaver.platforms.kit.world import World
from palaver.ports.adapter import Adapter, Limits

Make = Callable[[Link], Adapter]


def fake(link: Link) -> Adapter:
    return FakeAdapter(link, limits=Limits(text=500, interval=0.01, repeats_safely=True))


class WorldRig:
    thread_id: str | None = "42"

    def __init__(self, world: World, link: Link, make: Make = fake) -> None:
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
        message = await self._chat.say(Person(id="p1", name="alice"), text, files=sent)
        return self._source(message)

    async def shown_files(self) -> list[NewFile]:
        files = [file for message in self._chat.shown for file in message.files]
        return [NewFile(file.name, file.content, file.media_type) for file in files]

    async def edit(self, said: Source, text: str) -> None:
        await self._chat.edit(Person(id="p1", name="alice"), self._message(said), text)

    async def delete(self, said: Source) -> None:
        await self._chat.delete(Person(id="p1", name="alice"), self._message(said))

    def _message(self, said: Source) -> Message:
        message = self._chat.find(said.message_id or "")
        assert message
        return message

    async def shown(self) -> list[Shown]:
        return [Shown(chat_id=self._chat.id, text=each.text, thread_id=each.thread) for each in self._chat.shown]

    async def cut(self) -> None:
        self._world.cut()

    async def limit_rate(self) -> None:
        self._world.luck.next.append(Mishap.BUSY)

    async def lose_send(self, *, shown: bool) -> None:
        self._world.luck.next.append(Mishap.LOST_AFTER if shown else Mishap.LOST_BEFORE)

    async def close_chat(self) -> None:
        self._chat.gone = True


def world_for_checks() -> World:
    return World(longest=500, interval=0.01, repeats_safely=True)
