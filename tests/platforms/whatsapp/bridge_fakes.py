"""Rigs: a person on WhatsApp, alone with a personal number behind a bridge, or in a group with it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.platforms.whatsapp.adapter import BridgeAdapter
from palaver.platforms.whatsapp.cloud import WhatsAppOptions
from palaver.testkit.fake_server import Shown
from tests.platforms.whatsapp.bridge import OWN_NUMBER, SECRET, Bridge

__all__ = ["ACCOUNT", "ALICE", "GROUP_ID", "FakeBridged", "FakeBridgedGroup", "bridge_adapter", "said"]

ACCOUNT = "mine"
ALICE = "491701234567@s.whatsapp.net"
GROUP_ID = "120363043968066561@g.us"
_numbers = count(1)


def bridge_adapter(bridge: Bridge, **options: Any) -> BridgeAdapter:
    given = {"bridge_url": bridge.url, "bridge_secret": SECRET, "read_receipts": False}
    adapter = BridgeAdapter(ACCOUNT, WhatsAppOptions.model_validate({**given, **options}))
    adapter.limits = replace(adapter.limits, interval=0.0)
    return adapter


def said(text: str, **more: Any) -> dict[str, Any]:
    message = {"type": "message", "id": f"3A{next(_numbers)}", "from": ALICE, "at": 1749416383, "text": text}
    return {**message, **more}


class FakeBridged:
    thread_id: str | None = None
    chat_id = "491701234567"
    """Where answers go: the canonical form of her id."""
    place: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    def adapter(self) -> BridgeAdapter:
        return bridge_adapter(self.bridge)

    def _source(self, frame: dict[str, Any]) -> Source:
        return Source(
            platform="whatsapp",
            account=ACCOUNT,
            chat_kind="group" if "group" in frame else "dm",
            chat_id=frame.get("group", ALICE),
            user_id=ALICE,
            message_id=frame["id"],
        )

    async def _say(self, frame: dict[str, Any]) -> Source:
        await self.bridge.say(frame)
        return self._source(frame)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        del thread_id
        return await self._say(said(text, name=name, **self.place))

    async def say_under(self, message_id: str, text: str) -> None:
        await self._say(said(text, id=message_id, **self.place))

    async def edit(self, said_before: Source, text: str) -> None:
        await self._change(said_before, text=text, at=1749416390 + next(_numbers))

    async def delete(self, said_before: Source) -> None:
        await self._change(said_before, text="", deleted=True, at=1749419999)

    async def _change(self, said_before: Source, **changed: Any) -> None:
        version = f"3B{next(_numbers)}"
        frame = {"type": "change", "id": said_before.message_id, "version": version, **changed}
        await self.bridge.say({**said(changed["text"], **self.place), **frame})

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        frame = {"type": "reaction", "id": receipt, "emoji": "" if removed else sign}
        return await self._say({**said("", **self.place), **frame})

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        about: list[dict[str, Any]] = []
        for file in files:
            handle = f"in/{len(self.bridge.files)}"
            self.bridge.files[handle] = (file.media_type, file.content)
            size = len(file.content)
            about.append({"handle": handle, "name": file.name, "type": file.media_type, "size": size})
        return await self._say(said(text, files=about, **self.place))

    async def shown(self) -> Sequence[Shown]:
        return [Shown(chat_id=each["to"], text=each["text"]) for each in self.bridge.sent]

    async def shown_files(self) -> Sequence[NewFile]:
        files = [each["file"] for each in self.bridge.sent if "file" in each]
        return [NewFile(file["name"], self.bridge.files[file["handle"]][1]) for file in files]

    async def cut(self) -> None:
        self.bridge.cut()

    async def limit_rate(self) -> None:
        self.bridge.errors.append({"error": "busy", "after": 7})

    async def lose_send(self, *, shown: bool) -> None:
        self.bridge.loses = shown

    async def close_chat(self) -> None:
        self.bridge.gone.add(self.chat_id)


class FakeBridgedGroup(FakeBridged):
    chat_id = GROUP_ID
    place = {"group": GROUP_ID, "group_name": "Dev"}  # noqa: RUF012

    async def mention(self, text: str) -> Source:
        mentions = [f"{OWN_NUMBER}@s.whatsapp.net"]
        return await self._say(said(f"@{OWN_NUMBER} {text}", mentions=mentions, **self.place))

    async def answer(self, receipt: str, text: str) -> Source:
        quote = {"from": f"{OWN_NUMBER}:7@s.whatsapp.net", "text": "hello"}
        return await self._say(said(text, reply_to=receipt, quote=quote, **self.place))
