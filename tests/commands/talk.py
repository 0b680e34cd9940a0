"""Talk with a gateway: something is said, something is heard."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from palaver.model.prompt import Naming
from palaver.model.session import Principal, Session
from palaver.model.view import Message, view
from palaver.testkit.adapter import FAKE
from palaver.testkit.chat import Chat
from palaver.testkit.updates import Person
from tests.engine.agents import Condensing, Slow
from tests.engine.gateway import Bench, running

__all__ = ["Talk", "talking"]

OPERATOR = Principal.operator()


@dataclass(frozen=True)
class Talk:
    """One person in one chat."""

    here: Bench
    agent: Slow | Condensing
    chat: Chat
    who: Person

    async def ask(self, text: str) -> str:
        """Anything that is shown next: for commands, which are answered once."""
        before = len(self.chat.shown)
        await self.chat.say(self.who, text)
        return (await self.chat.hears("", times=before + 1)).text

    async def say(self, text: str) -> None:
        """An ordinary message, and its answer."""
        answer = f"answer to: {text}"
        before = len([message for message in self.chat.shown if answer in message.text])
        await self.chat.say(self.who, text)
        await self.chat.hears(answer, times=before + 1)

    def beside(self, name: str, chat: Chat | None = None) -> "Talk":
        """Somebody else, in a chat of their own or in a given one."""
        person = self.here.world.person(name)
        return Talk(self.here, self.agent, chat or self.here.world.dm(person), person)

    def elsewhere(self) -> "Talk":
        return Talk(self.here, self.agent, self.here.world.dm(self.who), self.who)

    def within(self, chat: Chat) -> "Talk":
        return Talk(self.here, self.agent, chat, self.who)

    async def session(self) -> Session:
        """The one that is open where we talk."""
        rows = await self.here.rows(
            "SELECT id FROM sessions WHERE ended IS NULL AND key LIKE ? ORDER BY no DESC", f"%:{self.chat.id}%"
        )
        return await self.here.store.read(self.here.store.sessions.get_visible(rows[0][0], OPERATOR))

    async def view(self) -> list[Message]:
        """What the agent would be shown here now."""
        entries = await self.here.entries((await self.session()).id)
        return list(view(entries, Naming(platform=FAKE)))

    async def texts(self) -> list[str]:
        return await self.here.texts((await self.session()).id)


@asynccontextmanager
async def talking(
    url: str | Path, *, agent: Slow | Condensing | None = None, **changed: object
) -> AsyncGenerator[Talk]:
    agent = agent or Slow()
    agent.go.set()
    async with running(url, agent=agent, **changed) as here:  # pyright: ignore[reportArgumentType]
        alice = here.world.person("alice")
        yield Talk(here, agent, here.world.dm(alice), alice)
