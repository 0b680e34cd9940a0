"""Rigs: Ann writes to the agent alone, where the agent asks the Mac, and in a group, where the Mac calls the agent."""

from collections.abc import Sequence
from typing import Any

from palaver.platforms.imessage.adapter import IMessageAdapter
from palaver.platforms.imessage.reader import IMessageOptions
from palaver.protocols import HttpRequest, HttpResponse, NewFile, Receiver, Source
from palaver.testkit.fake_server import Shown
from tests.platforms.imessage.server import PASSWORD, Server, web
from tests.platforms.imessage.world import ANN, DM_GUID, GROUP_GUID, Json

__all__ = ["ACCOUNT", "PUBLIC_URL", "CalledAdapter", "FakeAsking", "FakeCalled", "options_of"]

ACCOUNT = "mac"
PUBLIC_URL = "http://gateway.local:8080"


def options_of(server: Server, **options: Any) -> IMessageOptions:
    asked = {"url": server.url, "password": PASSWORD, "poll_seconds": 0.01, **options}
    return IMessageOptions.model_validate(asked)


class FakeAsking:
    """A direct chat."""

    thread_id: str | None = None
    kind, chat_id = "dm", DM_GUID

    def __init__(self, server: Server) -> None:
        self.server, self.mac = server, server.mac

    def adapter(self) -> IMessageAdapter:
        return IMessageAdapter(ACCOUNT, options_of(self.server))

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **fields: Any) -> Source:
        del name, thread_id
        return await self._bring(text, **fields)

    async def _bring(self, text: str, files: Sequence[NewFile] = (), **fields: Any) -> Source:
        await self.server.is_asked.wait()  # What came before the first connection is not for us.
        message = self.mac.add(self.chat_id, text, **fields)
        self.mac.attach(message, [(file.name, file.media_type, file.content) for file in files])
        await self.server.call("new-message", message)
        return self._source(message)

    def _source(self, message: Json) -> Source:
        return Source(
            platform="imessage",
            account=ACCOUNT,
            chat_kind=self.kind,
            chat_id=self.chat_id,
            user_id=ANN,
            message_id=message["guid"],
        )

    async def edit(self, said: Source, text: str) -> None:
        message = self.mac.find(said.message_id or "") or {}
        self.mac.edit(message, text)
        await self.server.call("updated-message", message)

    async def delete(self, said: Source) -> None:
        message = self.mac.find(said.message_id or "") or {}
        self.mac.unsend(message)
        await self.server.call("updated-message", message)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        return await self._bring(text, files)

    async def answer(self, receipt: str, text: str) -> Source:
        return await self._bring(text, threadOriginatorGuid=receipt)

    async def mention(self, text: str) -> Source:
        marks = {"__kIMMentionConfirmedMention": "helper@example.org"}
        words = f"Helper {text}"
        body = [{"string": words, "runs": [{"range": [0, 6], "attributes": marks}]}]
        return await self._bring(words, attributedBody=body)

    async def shown(self) -> Sequence[Shown]:
        return [
            Shown(chat_id=message["chats"][0]["guid"], text=message["text"])
            for message in self.mac.sent
            if not message["attachments"]
        ]

    async def shown_files(self) -> Sequence[NewFile]:
        files = [file for message in self.mac.sent for file in message["attachments"]]
        # The Finder shows a colon in a name as a slash.
        return [NewFile(file["transferName"].replace(":", "/"), self.mac.files[file["guid"]]) for file in files]

    async def cut(self) -> None:
        self.server.cut()

    async def limit_rate(self) -> None:
        """BlueBubbles has no limit, but tunnels to it have."""
        self.server.refuses.append(web.Response(status=429, headers={"retry-after": "7"}))

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self.mac.gone.add(self.chat_id)


class CalledAdapter(IMessageAdapter):
    """Reached at the address of the webhook for as long as it runs."""

    server: Server

    async def run(self, receiver: Receiver) -> None:
        async def hear(call: HttpRequest) -> HttpResponse:
            return await self.handle_callback(call, receiver)

        self.server.calls_us = hear
        try:
            await super().run(receiver)
        finally:
            self.server.calls_us = None


class FakeCalled(FakeAsking):
    """A group, with the private API; BlueBubbles calls."""

    kind, chat_id = "group", GROUP_GUID

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.mac.has_private_api = True
        self.mac.chat(GROUP_GUID, "Family")

    def adapter(self) -> IMessageAdapter:
        adapter = CalledAdapter(ACCOUNT, options_of(self.server, public_url=PUBLIC_URL))
        assert isinstance(adapter, CalledAdapter)
        adapter.server = self.server
        return adapter
