"""A person on Signal: in a group with our account, and alone with it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.platforms.signal.adapter import SignalAdapter, SignalOptions
from palaver.protocols.adapter import Receiver
from palaver.testkit.fake_server import Shown
from tests.platforms.signal.server import ALICE, GROUP_ID, NUMBER, UUID, RpcError, Server, failed

__all__ = ["ACCOUNT", "FakeDirect", "FakeGroup", "adapter_of"]

ACCOUNT = "helper"


class _Adapter(SignalAdapter):
    """When it has stopped, the server has noticed."""

    server: Server

    async def run(self, receiver: Receiver) -> None:
        try:
            await super().run(receiver)
        finally:
            await self.server.unheard()


def adapter_of(server: Server, **options: Any) -> SignalAdapter:
    """Without the pace that real chats ask for."""
    adapter = _Adapter(ACCOUNT, SignalOptions.model_validate({"number": NUMBER, "url": server.url, **options}))
    adapter.limits, adapter.server = replace(adapter.limits, interval=0.0), server
    return adapter


class FakeDirect:
    thread_id: str | None = None
    kind = "dm"
    place: ClassVar[dict[str, Any]] = {}

    def __init__(self, server: Server) -> None:
        self.server = server
        self._versions: dict[str, int] = {}
        """The last version of each message."""

    @property
    def chat_id(self) -> str:
        return ALICE["sourceUuid"]

    def adapter(self) -> SignalAdapter:
        return adapter_of(self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return self._said({"message": text}, name=name)

    def _said(self, data: dict[str, Any], name: str = "alice") -> Source:
        envelope = self.server.receives(ALICE, {**data, **self.place}, name=name)
        source = Source(
            platform="signal",
            account=ACCOUNT,
            chat_kind=self.kind,
            chat_id=self.chat_id,
            user_id=ALICE["sourceNumber"],
            user_id_alt=ALICE["sourceUuid"],
            message_id=f"{envelope['timestamp']}:{ALICE['sourceUuid']}",
        )
        self._versions[source.message_id or ""] = envelope["timestamp"]
        return source

    async def edit(self, said: Source, text: str) -> None:
        """An edit names the version before it."""
        last = self._versions[said.message_id or ""]
        data = {"message": text, **self.place}
        envelope = self.server.receives(ALICE, data, kind="editMessage", target=last)
        self._versions[said.message_id or ""] = envelope["timestamp"]

    async def delete(self, said: Source) -> None:
        last = self._versions[said.message_id or ""]
        self.server.receives(ALICE, {"remoteDelete": {"timestamp": last}, **self.place})

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        attachments: list[dict[str, Any]] = []
        for file in files:
            handle = f"attachment-{len(self.server.attachments)}"
            self.server.attachments[handle] = file.content
            about = {"contentType": file.media_type, "filename": file.name, "id": handle}
            attachments.append({**about, "size": len(file.content), "width": None, "height": None, "caption": None})
        return self._said({"message": text, "attachments": attachments})

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        target = {"targetAuthorNumber": NUMBER, "targetAuthorUuid": UUID, "targetSentTimestamp": int(receipt)}
        return self._said({"reaction": {"emoji": sign, "isRemove": removed, **target}})

    async def shown(self) -> Sequence[Shown]:
        return [Shown(chat_id=message["chat"], text=message["text"]) for message in self.server.sent]

    async def shown_files(self) -> Sequence[NewFile]:
        return [NewFile(name, content, kind) for name, kind, content in self.server.files]

    async def cut(self) -> None:
        self.server.cut()

    async def limit_rate(self) -> None:
        results = failed("RATE_LIMIT_FAILURE", retryAfterSeconds=7)
        self.server.errors.append(RpcError(-5, "Failed to send message due to rate limiting", results))

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self.server.gone.add(self.chat_id)


class FakeGroup(FakeDirect):
    kind = "group"
    place: ClassVar[dict[str, Any]] = {
        "groupInfo": {"groupId": GROUP_ID, "groupName": "Dev", "revision": 3, "type": "DELIVER"}
    }

    @property
    def chat_id(self) -> str:
        return GROUP_ID

    async def mention(self, text: str) -> Source:
        mention = {"name": NUMBER, "number": NUMBER, "uuid": UUID, "start": 0, "length": 1}
        return self._said({"message": f"\N{OBJECT REPLACEMENT CHARACTER} {text}", "mentions": [mention]})

    async def answer(self, receipt: str, text: str) -> Source:
        quote = {"id": int(receipt), "author": NUMBER, "authorNumber": NUMBER, "authorUuid": UUID, "text": "hello"}
        return self._said({"message": text, "quote": {**quote, "attachments": []}})
