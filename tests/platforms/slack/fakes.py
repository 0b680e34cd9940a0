"""The rig: a person in a channel of a Slack workspace with the app in it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.platforms.slack.adapter import SlackAdapter
from palaver.platforms.slack.client import SlackOptions
from palaver.testkit.fake_server import Shown
from tests.platforms.slack.server import Server
from tests.platforms.slack.world import APP_TOKEN, BOT_TOKEN, BOT_USER, TEAM, Json, No, escaped, seen

__all__ = ["ACCOUNT", "ALICE", "EVE", "FakeSlack", "adapter_of", "options_of"]

ACCOUNT = "helper"
ALICE, EVE = "U0ALICE", "U0EVE"


def options_of(server: Server, **options: Any) -> SlackOptions:
    given = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "api_url": f"{server.url}/api", **options}
    return SlackOptions.model_validate(given)


def adapter_of(server: Server, **options: Any) -> SlackAdapter:
    """Without the pace that real channels ask for."""
    adapter = SlackAdapter(ACCOUNT, options_of(server, **options))
    adapter.limits = replace(adapter.limits, interval=0.0, draft_interval=0.1)
    return adapter


class FakeSlack:
    def __init__(self, server: Server) -> None:
        self.server, self.world = server, server.world
        self.chat_id = self.world.channel("C0DEV")
        self.world.user(ALICE)
        root = {"type": "message", "user": EVE, "text": "plans", "ts": self.world.number()}
        self.world.add(self.chat_id, root, None)
        self.thread_id: str | None = root["ts"]

    def adapter(self) -> SlackAdapter:
        return adapter_of(self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        if self.world.users[ALICE]["profile"]["display_name"] != name:
            self.world.rename(ALICE, name)
        return self._source(self.world.says(self.chat_id, ALICE, escaped(text), thread=thread_id))

    def _source(self, message: Json, thread: str | None = None) -> Source:
        return Source(
            platform="slack",
            account=ACCOUNT,
            chat_kind="channel",
            chat_id=self.chat_id,
            thread_id=thread or message.get("thread_ts"),
            scope_id=TEAM,
            user_id=ALICE,
            message_id=message["ts"],
        )

    def _said(self, said: Source) -> Json:
        return next(each for each in self.world.messages[self.chat_id] if each["ts"] == said.message_id)

    async def edit(self, said: Source, text: str) -> None:
        self.world.edit(self.chat_id, self._said(said), escaped(text))

    async def delete(self, said: Source) -> None:
        self.world.delete(self.chat_id, self._said(said))

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        sent: list[Json] = []
        for number, file in enumerate(files):
            about: Json = {
                "id": f"F0IN{number}",
                "name": file.name,
                "mimetype": file.media_type,
                "size": len(file.content),
            }
            about |= {"mode": "hosted", "url_private_download": f"{self.server.url}/files/F0IN{number}"}
            self.world.files[about["id"]] = about
            self.world.contents[about["id"]] = file.content
            sent.append(about)
        return self._source(self.world.says(self.chat_id, ALICE, escaped(text), subtype="file_share", files=sent))

    async def shown_files(self) -> Sequence[NewFile]:
        files = [file for each in self.world.messages[self.chat_id] for file in each.get("files", ())]
        return [NewFile(file["title"], self.world.contents[file["id"]]) for file in files]

    async def mention(self, text: str) -> Source:
        return self._source(self.world.says(self.chat_id, ALICE, f"<@{BOT_USER}> {escaped(text)}"))

    async def answer(self, receipt: str, text: str) -> Source:
        return self._source(self.world.says(self.chat_id, ALICE, escaped(text), thread=receipt))

    async def choices(self) -> Sequence[str]:
        return [button["text"]["text"] for button in self._buttons()]

    async def press(self, label: str) -> Source:
        value = next(button["value"] for button in self._buttons() if button["text"]["text"] == label)
        self.world.press(self.chat_id, ALICE, self.world.sent()[-1], value)
        return self._source(self.world.sent()[-1])

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        ours = next(each for each in self.world.sent() if each["ts"] == receipt)
        self.world.react(
            self.chat_id, ALICE, ours, {"👍": "+1::skin-tone-2", "👎": "thumbsdown"}[sign], removed=removed
        )
        return self._source(ours)

    def _buttons(self) -> list[Json]:
        blocks = self.world.sent()[-1]["blocks"]
        return [button for block in blocks if block["type"] == "actions" for button in block["elements"]]

    async def move_chat(self) -> str:
        old, self.chat_id = self.chat_id, self.world.channel("C0NEW")
        self.world.messages[self.chat_id] = self.world.messages.pop(old)
        self.world.event({"type": "channel_id_changed", "old_channel_id": old, "new_channel_id": self.chat_id})
        return self.chat_id

    async def shown(self) -> Sequence[Shown]:
        return [
            Shown(chat_id=channel, text=seen(message["text"]), thread_id=message.get("thread_ts"))
            for channel in self.world.messages
            for message in self.world.sent(channel)
        ]

    async def cut(self) -> None:
        self.server.cut()

    async def limit_rate(self) -> None:
        self.world.refuses["chat.postMessage"].append(No("ratelimited", 429, retry_after=7))

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self.world.channels[self.chat_id]["is_archived"] = True
