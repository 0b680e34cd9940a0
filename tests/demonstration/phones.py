"""Alice on two platforms, through their loopback servers: what she does, and what she sees."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from palaver.model.audio import recording_seconds
from tests.demonstration.calls import Json
from tests.platforms.slack import server as slack
from tests.platforms.slack.fakes import ALICE as SLACK_ALICE
from tests.platforms.slack.world import escaped, seen
from tests.platforms.telegram import server as telegram
from tests.platforms.telegram.fakes import ALICE as TELEGRAM_ALICE

__all__ = ["Phone", "SlackPhone", "TelegramPhone"]


class Phone(Protocol):
    @property
    def name(self) -> str: ...
    def say(self, text: str) -> None: ...
    def shown(self) -> Sequence[str]:
        """Return what the agent's messages show now, in order."""
        ...


@dataclass(kw_only=True)
class TelegramPhone:
    server: telegram.Server
    name: str = "Telegram"
    _files: "count[int]" = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self._chat = self.server.world.chat(TELEGRAM_ALICE["id"])

    def say(self, text: str) -> None:
        self._push(text)

    def send_voice(self, recording: bytes) -> None:
        about = {"duration": round(recording_seconds(recording)), "mime_type": "audio/ogg"}
        self._push(voice=self._file(recording) | about)

    def send_photo(self, picture: bytes, caption: str) -> None:
        self._push(photo=[self._file(picture) | {"width": 64, "height": 64}], caption=caption)

    def press(self, label: str) -> None:
        """Press a button of the newest message that has it."""
        for message in reversed(self.server.world.sent):
            for button in _buttons(message):
                if button["text"] == label:
                    self.server.world.press(TELEGRAM_ALICE, message, button["callback_data"])
                    return
        raise AssertionError(label)

    @property
    def uploads(self) -> Sequence[tuple[str, str, bytes]]:
        """Kind, name and content of the files that it got."""
        return self.server.world.uploads

    def shown(self) -> Sequence[str]:
        uploads = iter(self.uploads)
        return [_telegram_text(message, uploads) for message in self.server.world.sent]

    def _file(self, content: bytes) -> Json:
        handle = f"alice-{next(self._files)}"
        self.server.world.files[handle] = content
        return {"file_id": handle, "file_unique_id": handle, "file_size": len(content)}

    def _push(self, text: str = "", **more: Any) -> None:
        world = self.server.world
        world.push(world.says(self._chat, TELEGRAM_ALICE, text, **more))


def _telegram_text(message: Json, uploads: Iterator[tuple[str, str, bytes]]) -> str:
    if "document" not in message:
        return "".join((message["text"], *(f" [{button['text']}]" for button in _buttons(message))))
    kind, name, content = next(uploads)
    length = f", {recording_seconds(content):.1f} s" if kind == "voice" else ""
    return f"({kind} {name}, {len(content)} bytes{length})"


def _buttons(message: Json) -> list[Json]:
    markup: Json = message.get("reply_markup") or {"inline_keyboard": []}
    return [button for row in markup["inline_keyboard"] for button in row]


@dataclass(kw_only=True)
class SlackPhone:
    server: slack.Server
    name: str = "Slack"

    def __post_init__(self) -> None:
        self.server.world.user(SLACK_ALICE)
        self._chat = self.server.world.channel("D0ALICE", "im")

    def say(self, text: str) -> None:
        self.server.world.says(self._chat, SLACK_ALICE, escaped(text))

    def shown(self) -> Sequence[str]:
        return [
            seen(message["text"]) or f"({', '.join(file['title'] for file in message['files'])})"
            for message in self.server.world.messages[self._chat]
            if message.get("bot_id")
        ]
