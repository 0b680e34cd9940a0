"""A gateway between two platforms, for tests of conversations that move or are in several places at once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from palaver.model.access import AccessRole, Grant
from palaver.model.platform import Ability, Platform
from palaver.protocols.adapter import Adapter, Limits
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from tests.engine.gateway import Bench, running, until

__all__ = ["OTHER", "Two", "adapters", "between"]

OTHER = Platform(name="other", title="The other platform", abilities=frozenset({Ability.THREADS}))
MEMBERS = (Grant(role=AccessRole.MEMBER),)


@dataclass(kw_only=True)
class Two:
    """One world for each platform; people of the same number have the same id in both."""

    here: Bench
    fake: FakePlatform
    other: FakePlatform

    async def set_home(self, chat: Chat, person: Person) -> None:
        """Somebody with the right makes it the home channel of the other platform."""
        await chat.say(person, "/sethome")
        await chat.hears("home channel")

    async def ask(self, chat: Chat, person: Person, text: str, *, thread: str | None = None) -> str:
        """What is answered to it, besides what an admin learns at first contact."""
        said = await chat.say(person, text, thread=thread)

        def answers() -> list[str]:
            return [each.text for each in chat.shown if each.reply_to == said.id]

        await until(lambda: bool(answers()))
        return answers()[0]

    async def session_of(self, text: str) -> str:
        """The id of the session in which this was said."""
        rows = await self.here.rows("SELECT id FROM sessions ORDER BY no")
        (found,) = [row[0] for row in rows if text in await self.here.texts(row[0])]
        return found


def adapters(fake: FakePlatform, other: FakePlatform, *, safe: bool = False) -> list[Adapter]:
    return [FakeAdapter(fake), FakeAdapter(other, platform=OTHER, limits=Limits(repeats_safely=safe))]


@asynccontextmanager
async def between(
    url: str, fake: FakePlatform | None = None, other: FakePlatform | None = None, *, safe: bool = False, **more: object
) -> AsyncGenerator[Two]:
    fake, other = fake or FakePlatform(), other or FakePlatform()
    changed = {"grants": MEMBERS, "acknowledges": False, **more}
    async with running(url, fake, adapters=adapters(fake, other, safe=safe), **changed) as here:  # pyright: ignore[reportArgumentType]
        yield Two(here=here, fake=fake, other=other)
