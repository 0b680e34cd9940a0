"""A person on a real XMPP server, with a client of their own."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from xml.etree.ElementTree import Element, SubElement, fromstring

from palaver.platforms.xmpp.adapter import XmppAdapter
from palaver.platforms.xmpp.archive import upload
from palaver.platforms.xmpp.parse import CLIENT, CORRECT, NICK, OOB, REPLY, RETRACT, SFS, SID, bare, file_message
from palaver.platforms.xmpp.stream import Stream, XmppOptions, connected
from palaver.protocols import Adapter, Attachment, Label, NewFile, Outbound, Source
from palaver.protocols.rest import RestApi
from palaver.testkit.fake_server import NotPossible, Shown
from palaver.testkit.recorder import TIMEOUT_SECONDS
from tests.platforms.called import ACCOUNT
from tests.platforms.xmpp.prosody import DOMAIN, ROOMS, Prosody
from tests.platforms.xmpp.proxy import Proxy

__all__ = ["PASSWORD", "FakeRoom", "FakeXmpp", "Person", "options_of", "person"]

PASSWORD = "secret"  # noqa: S105
_ADMIN = "http://jabber.org/protocol/muc#admin"
_numbers = count(1)


def options_of(port: int, name: str, **more: Any) -> XmppOptions:
    given = {"jid": f"{name}@{DOMAIN}", "password": PASSWORD, "host": "127.0.0.1", "port": port, **more}
    return XmppOptions.model_validate(given)


class Person:
    def __init__(self, name: str, stream: Stream) -> None:
        self.name, self.jid, self.stream = name, f"{name}@{DOMAIN}", stream
        self.heard: list[Element] = []
        self.heard_at: list[datetime] = []
        self._listening = asyncio.create_task(self._listen())
        self.given: dict[str, str] = {}
        """The ids that rooms gave our messages."""

    async def _listen(self) -> None:
        async for live in self.stream.messages():
            self.heard.append(live.message)
            self.heard_at.append(datetime.now(UTC))
            self.stream.stored(live)

    def new_id(self) -> str:
        return f"{self.name}-{next(_numbers)}"

    async def say(
        self, to: str, text: str, *elements: Element, kind: str = "chat", message_id: str | None = None
    ) -> str:
        """Send a message, and wait until the server has it."""
        name = message_id or self.new_id()
        message = Element(f"{{{CLIENT}}}message", to=to, type=kind, id=name)
        if text:
            SubElement(message, f"{{{CLIENT}}}body").text = text
        message.extend(elements)
        self.given[name] = await self.stream.say(message)
        return name

    async def leave(self) -> None:
        await self.stream.close()
        await self._listening


@asynccontextmanager
async def person(server: Prosody, name: str) -> AsyncGenerator[Person]:
    server.register(name, PASSWORD)
    async with connected(options_of(server.port, name)) as stream:
        stream.write(Element(f"{{{CLIENT}}}presence"))
        who = Person(name, stream)
        yield who
        await who.leave()


class FakeXmpp:
    """A direct chat. Each has accounts of its own, as all use one server."""

    thread_id: str | None = "thread-7"
    kind = "chat"

    def __init__(self, server: Prosody, between: Proxy, alice: Person) -> None:
        self.server, self.between, self.alice = server, between, alice
        self.bot = f"bot{next(_numbers)}"
        server.register(self.bot, PASSWORD)

    @property
    def chat_id(self) -> str:
        return self.alice.jid

    @property
    def rooms(self) -> list[str]:
        return []

    @property
    def target(self) -> str:
        return f"{self.bot}@{DOMAIN}"

    def adapter(self) -> Adapter:
        files = [f"http://127.0.0.1:{self.server.http_port}"]
        options = options_of(self.between.port, self.bot, rooms=self.rooms, file_hosts=files)
        adapter = XmppAdapter(ACCOUNT, options)
        setattr(adapter, "limits", replace(adapter.limits, interval=0.0))  # noqa: B010 - the server has no limits
        return adapter

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        elements = [_element(f"{{{NICK}}}nick", name)] if self.kind == "chat" else []
        elements += [_element(f"{{{CLIENT}}}thread", thread_id)] if thread_id else []
        return await self._say(text, *elements, thread_id=thread_id)

    async def _say(self, text: str, *elements: Element, thread_id: str | None = None) -> Source:
        await self._is_there()
        return self.source(await self.alice.say(self.target, text, *elements, kind=self.kind), thread_id)

    def source(self, message_id: str, thread_id: str | None = None) -> Source:
        user = self.alice.jid
        return Source(
            platform="xmpp",
            account=ACCOUNT,
            chat_kind="dm",
            chat_id=user,
            user_id=user,
            message_id=message_id,
            thread_id=thread_id,
        )

    async def _is_there(self) -> None:
        """The server keeps a message for an account that is away."""

    async def edit(self, said: Source, text: str) -> None:
        await self._say(text, Element(f"{{{CORRECT}}}replace", id=self._own_id(said)))

    async def delete(self, said: Source) -> None:
        await self._say("", Element(f"{{{RETRACT}}}retract", id=self._own_id(said)))

    def _own_id(self, said: Source) -> str:
        return said.message_id or ""

    async def shown(self) -> Sequence[Shown]:
        """Return what the bot wrote, as corrected."""
        texts: dict[str, Shown] = {}
        for message in await self._heard():
            replaced = message.find(f"{{{CORRECT}}}replace")
            name = message.attrib["id"] if replaced is None else replaced.attrib["id"]
            text, thread = message.findtext(f"{{{CLIENT}}}body") or "", message.findtext(f"{{{CLIENT}}}thread")
            texts[name] = Shown(chat_id=self.chat_id, text=text, thread_id=thread)
        return list(texts.values())

    async def _heard(self) -> list[Element]:
        await self.alice.stream.ping()
        await asyncio.sleep(0)
        return [each for each in self.alice.heard if self._is_bots(each)]

    def _is_bots(self, message: Element) -> bool:
        return bare(message.attrib["from"]) == f"{self.bot}@{DOMAIN}"

    async def cut(self) -> None:
        self.between.cut()

    async def limit_rate(self) -> None:
        raise NotPossible("the server answers slowly, and rejects nothing")

    async def lose_send(self, *, shown: bool) -> None:
        self.between.lose(shown=shown)

    async def close_chat(self) -> None:
        await self.alice.leave()
        (self.server.folder / "data" / DOMAIN / "accounts" / f"{self.alice.name}.dat").unlink()

    # Files

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        await self._is_there()
        first = await self._say(text)
        for file in files:
            attached = Attachment(Label(file.name), file.media_type, len(file.content))
            with NamedTemporaryFile() as content:
                content.write(file.content)
                content.flush()
                url = await upload(self.alice.stream, RestApi("files", ""), attached, Path(content.name))
            outbound = Outbound(platform="xmpp", chat_id=self.target, text="")
            message = file_message(outbound, self.alice.new_id(), url, attached, in_room=self.kind == "groupchat")
            self.alice.stream.write(message)
            await self.alice.stream.ping()
        return first

    async def shown_files(self) -> Sequence[NewFile]:
        found: list[NewFile] = []
        for message in await self._heard():
            about = message.find(f"{{{SFS}}}file-sharing/")
            url = message.findtext(f"{{{OOB}}}x/{{{OOB}}}url")
            if about is not None and url:
                content = b"".join([piece async for piece in RestApi("files", "").download(url)])
                name, media_type = (
                    about.findtext(f"{{urn:xmpp:file:metadata:0}}{key}") or "" for key in ("name", "media-type")
                )
                found.append(NewFile(name, content, media_type))
        return found


class FakeRoom(FakeXmpp):
    """A room that tells everybody's address, which alice owns."""

    kind = "groupchat"

    @property
    def chat_id(self) -> str:
        return f"{self.bot}@{ROOMS}"

    @property
    def rooms(self) -> list[str]:
        return [self.chat_id]

    @property
    def target(self) -> str:
        return self.chat_id

    async def enter(self) -> None:
        assert await self.alice.stream.rooms.enter(self.chat_id, "alice", datetime.now(UTC))

    def source(self, message_id: str, thread_id: str | None = None) -> Source:
        user = self.alice.jid
        return replace(
            super().source(f"alice/{message_id}", thread_id), chat_kind="group", chat_id=self.chat_id, user_id=user
        )

    def _own_id(self, said: Source) -> str:
        return (said.message_id or "").removeprefix("alice/")

    async def delete(self, said: Source) -> None:
        """People name the id that the room gave a message."""
        await self._say("", Element(f"{{{RETRACT}}}retract", id=self._given_id(self._own_id(said))))

    def _given_id(self, message_id: str) -> str:
        if message_id in self.alice.given:
            return self.alice.given[message_id]
        message = next(each for each in self.alice.heard if each.get("id") == message_id)
        given = message.find(f"{{{SID}}}stanza-id")
        assert given is not None
        return given.attrib["id"]

    def _is_bots(self, message: Element) -> bool:
        return message.attrib["from"] == f"{self.chat_id}/{self.bot}"

    async def mention(self, text: str) -> Source:
        return await self._say(f"{self.bot}: {text}")

    async def answer(self, receipt: str, text: str) -> Source:
        await self._heard()
        to = f"{self.chat_id}/{self.bot}"
        return await self._say(text, Element(f"{{{REPLY}}}reply", id=self._given_id(receipt), to=to))

    async def close_chat(self) -> None:
        kick = fromstring(f"<query xmlns='{_ADMIN}'><item nick='{self.bot}' role='none'/></query>")  # noqa: S314
        await self.alice.stream.ask("set", self.chat_id, kick)

    async def is_in(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not self.alice.stream.rooms.jid_of(f"{self.chat_id}/{self.bot}"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def _element(tag: str, text: str) -> Element:
    made = Element(tag)
    made.text = text
    return made
