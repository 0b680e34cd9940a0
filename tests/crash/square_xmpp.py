"""The square on XMPP: a real Prosody, where everybody has a client of their own, and a connection that can be cut."""

import random
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from palaver.db.transaction import Statements, transaction
from palaver.platforms.xmpp.parse import CLIENT, CORRECT, bare
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.square import View, is_group
from tests.platforms.xmpp.fakes import PASSWORD, Person, person
from tests.platforms.xmpp.prosody import DOMAIN, ROOMS, Prosody, prosody
from tests.platforms.xmpp.proxy import Proxy, proxy

__all__ = ["XmppSquare", "xmpp_square"]

_MISHAP = 0.02
"""How often something goes wrong with what is sent."""
_BOT = "bot"


@transaction
def _taken_in() -> Statements[set[str]]:
    return {unquote(row[0]) for row in (yield "SELECT message_id FROM inbox", ())}


@dataclass(kw_only=True)
class XmppSquare:
    server: Prosody
    between: Proxy
    stack: AsyncExitStack
    platform: str = "xmpp"
    keeps_position: bool = True
    _chats: list[tuple[str, Sequence[Person]]] = field(default_factory=list[tuple[str, Sequence[Person]]])
    _said: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])

    @property
    def where(self) -> Mapping[str, Any]:
        rooms = [chat for chat, people in self._chats if len(people) > 1]
        place = {"host": "127.0.0.1", "port": self.between.port, "rooms": rooms}
        return {"jid": f"{_BOT}@{DOMAIN}", "password": PASSWORD, **place}

    async def settle(self, chats: int) -> None:
        self.server.register(_BOT, PASSWORD)
        for number in range(chats):
            count = 3 if is_group(number) else 1
            people = [
                await self.stack.enter_async_context(person(self.server, f"p{number}x{each}")) for each in range(count)
            ]
            room = f"room{number}@{ROOMS}"
            for each in people if count > 1 else ():
                assert await each.stream.rooms.enter(room, each.name, datetime.now(UTC))
            self._chats.append((room if count > 1 else people[0].jid, people))

    async def is_heard(self, store: Store) -> bool:
        del store
        return True

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        chat, people = self._chats[place]
        word, sender = f"c{place}-{number}", chance.choice(people)
        in_room = len(people) > 1
        text = f"{_BOT}: {order} {word}" if in_room else f"{order} {word}".strip()
        self._go_wrong(chance)
        kind = "groupchat" if in_room else "chat"
        said_id = await sender.say(chat if in_room else f"{_BOT}@{DOMAIN}", text, kind=kind)
        message_id = f"{sender.name}/{said_id}" if in_room else said_id
        said = Message(id=message_id, author=sender.jid, text=text, at=datetime.now(UTC), key=None)
        self._said.append((chat, said))
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or at any time."""
        if chance.random() < _MISHAP:
            self.between.lose(shown=chance.random() < 0.5)
        if chance.random() < _MISHAP:
            self.between.cut()

    async def waiting(self, store: Store) -> int:
        return len({said.id for _, said in self._said} - await store.read(_taken_in()))

    async def look(self) -> Sequence[View]:
        views: list[View] = []
        for chat, people in self._chats:
            await people[0].stream.ping()
            messages = [*(said for where, said in self._said if where == chat), *_answers(people[0], chat)]
            views.append(View(id=chat, messages=sorted(messages, key=lambda each: each.at)))
        return views


def _answers(who: Person, chat: str) -> Iterator[Message]:
    """Yield what the bot wrote, as corrected."""
    bot = {f"{_BOT}@{DOMAIN}"} if chat == who.jid else {chat}
    shown: dict[str, Message] = {}
    for message, at in zip(who.heard, who.heard_at, strict=True):
        sender, replaced = message.attrib["from"], message.find(f"{{{CORRECT}}}replace")
        is_bots = bare(sender) in bot and (chat == who.jid or sender == f"{chat}/{_BOT}")
        if is_bots:
            name = message.attrib["id"] if replaced is None else replaced.attrib["id"]
            first = shown[name].at if name in shown else at
            text = message.findtext(f"{{{CLIENT}}}body") or ""
            # Each time that it was sent: a repetition has the same id.
            key = name if replaced is not None or name not in shown else f"{name} again {at}"
            shown[key] = Message(id=key, author=sender, text=text, at=first, key=key)
    yield from shown.values()


@asynccontextmanager
async def xmpp_square() -> AsyncGenerator[XmppSquare]:
    with prosody() as server:
        async with proxy(server.port) as between, AsyncExitStack() as stack:
            yield XmppSquare(server=server, between=between, stack=stack)
