"""A Slack workspace in memory: what https://docs.slack.dev/reference says its Web API does and its events contain."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from html import unescape
from itertools import count
from typing import Any

__all__ = ["APP_TOKEN", "BOT", "BOT_TOKEN", "BOT_USER", "TEAM", "Json", "No", "World", "escaped", "seen"]

Json = dict[str, Any]
BOT_TOKEN, APP_TOKEN = "xoxb-1-2-secret", "xapp-1-A1-secret"
TEAM, BOT_USER, BOT, APP = "T0TEAM", "U0BOT", "B0BOT", "A0APP"
_MAX_PAGE = 3
"""Slack can return fewer than were asked for."""
_MAX_TEXT, _MAX_SECTION, _MAX_LABEL, _MAX_VALUE = 4000, 3000, 75, 2000
_MARKUP = re.compile(r"<(@[UW]\w+|#C\w+|!\w+|https?://[^<>|\s]+)(\|[^<>]*)?>")
_BARE = re.compile(r"<|(?<!^)>|&(?!amp;|lt;|gt;)", re.MULTILINE)


class No(Exception):
    """An answer that is not ok."""

    def __init__(self, code: str, status: int = 200, *, retry_after: int | None = None, **more: str) -> None:
        super().__init__(code)
        self.code, self.status, self.retry_after, self.more = code, status, retry_after, more


def escaped(text: str) -> str:
    """What a client makes of what somebody types."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def seen(text: str) -> str:
    return unescape(text)


@dataclass(kw_only=True)
class World:
    channels: dict[str, Json] = field(default_factory=dict[str, Json])
    users: dict[str, Json] = field(default_factory=dict[str, Json])
    messages: dict[str, list[Json]] = field(default_factory=lambda: defaultdict[str, list[Json]](list))
    """By channel, in order."""
    files: dict[str, Json] = field(default_factory=dict[str, Json])
    contents: dict[str, bytes] = field(default_factory=dict[str, bytes])
    statuses: list[Json] = field(default_factory=list[Json])
    envelopes: list[Json] = field(default_factory=list[Json])
    """Not acknowledged yet, oldest first."""
    refuses: dict[str, list[No]] = field(default_factory=lambda: defaultdict[str, list[No]](list))
    """Errors that the next calls of a method get."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody did something."""
    calls: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    url: str = ""
    echoes: bool = True
    """Whether the app's own messages come back as events, as they do with the usual subscriptions."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _latest: int = 0

    def channel(self, id_: str, kind: str = "channel", name: str = "dev") -> str:
        self.channels[id_] = {"id": id_, "name": name, "type": kind, "is_mpim": kind == "mpim", "is_im": kind == "im"}
        return id_

    def user(self, id_: str, name: str = "alice") -> str:
        self.users[id_] = {
            "id": id_,
            "team_id": TEAM,
            "name": "a.l",
            "profile": {"display_name": name, "real_name": ""},
        }
        return id_

    def number(self) -> str:
        self._latest = max(self._latest + 1, time.time_ns() // 1000)
        return f"{self._latest // 1_000_000}.{self._latest % 1_000_000:06d}"

    # Events

    def event(self, event: Json, **more: Any) -> Json:
        payload = {"token": "x", "team_id": TEAM, "api_app_id": APP, "type": "event_callback"}
        payload |= {"event": event, "event_id": f"Ev{next(self._numbers)}", "event_time": 1_777_000_000, **more}
        return self.push("events_api", payload)

    def push(self, type_: str, payload: Json) -> Json:
        accepts = type_ != "events_api"
        envelope = {"type": type_, "payload": deepcopy(payload), "accepts_response_payload": accepts}
        self.envelopes.append(envelope)
        self.news.set()
        return envelope

    def says(self, channel: str, user: str, text: str, *, thread: str | None = None, **more: Any) -> Json:
        """Say something; the text is as Slack has it, escaped."""
        message = {"type": "message", "user": user, "text": text, "ts": self.number(), "team": TEAM, **more}
        self.add(channel, message, thread)
        self.event(self.about(channel, message))
        return message

    def about(self, channel: str, message: Json) -> Json:
        return {
            **message,
            "channel": channel,
            "channel_type": self.channels[channel]["type"],
            "event_ts": message["ts"],
        }

    def add(self, channel: str, message: Json, thread: str | None) -> None:
        root = next((each for each in self.messages[channel] if each["ts"] == thread), None)
        if root is not None:
            root |= {"thread_ts": root["ts"], "latest_reply": message["ts"]}
            message |= {"thread_ts": thread, "parent_user_id": root["user"]}
        self.messages[channel].append(message)

    def edit(self, channel: str, message: Json, text: str, **more: Any) -> None:
        before = deepcopy(message)
        number = self.number()
        message |= {
            "text": text,
            "edited": {"user": message["user"], "ts": f"{number.partition('.')[0]}.000000"},
            **more,
        }
        self.changed(channel, message, before, number)

    def changed(self, channel: str, message: Json, before: Json, number: str) -> None:
        event = {"type": "message", "subtype": "message_changed", "hidden": True, "ts": number}
        self.event({**self.about(channel, event), "message": deepcopy(message), "previous_message": before})

    def delete(self, channel: str, message: Json) -> None:
        self.messages[channel].remove(message)
        event = {"type": "message", "subtype": "message_deleted", "hidden": True, "ts": self.number()}
        self.event({**self.about(channel, event), "deleted_ts": message["ts"], "previous_message": message})

    def rename(self, user: str, name: str) -> None:
        self.user(user, name)
        self.event({"type": "user_change", "user": self.users[user], "event_ts": self.number()})

    def react(self, channel: str, user: str, message: Json, name: str, *, removed: bool = False) -> Json:
        item = {"type": "message", "channel": channel, "ts": message["ts"]}
        kind = "reaction_removed" if removed else "reaction_added"
        about = {"user": user, "reaction": name, "item_user": message.get("user"), "event_ts": self.number()}
        return self.event({"type": kind, "item": item, **about})

    def press(self, channel: str, user: str, message: Json, value: str) -> Json:
        elements = [each for block in message["blocks"] if block["type"] == "actions" for each in block["elements"]]
        button = next(each for each in elements if each["value"] == value)
        action = {**button, "block_id": "b", "action_ts": self.number()}
        payload = {
            "type": "block_actions",
            "user": {"id": user, "username": "a.l", "name": "a.l", "team_id": TEAM},
            "team": {"id": TEAM, "domain": "example"},
            "channel": {"id": channel, "name": "directmessage"},
            "container": {"type": "message", "message_ts": message["ts"], "channel_id": channel, "is_ephemeral": False},
            "message": message,
            "actions": [action],
            "trigger_id": f"13345224609.{self.number()}",
            "response_url": "https://hooks.slack.example/actions/1",
        }
        return self.push("interactive", payload)

    def command(self, channel: str, user: str, text: str) -> Json:
        payload = {
            "token": "x",
            "team_id": TEAM,
            "team_domain": "example",
            "channel_id": channel,
            "channel_name": "dev",
            "user_id": user,
            "user_name": "a.l",
            "command": "/palaver",
            "text": text,
            "api_app_id": APP,
            "response_url": "https://hooks.slack.example/commands/1",
            "trigger_id": f"13345224609.{self.number()}",
        }
        return self.push("slash_commands", payload)

    # The Web API

    def asked(self, method: str) -> list[Json]:
        return [arguments for called, arguments in self.calls if called == method]

    def sent(self, channel: str | None = None) -> list[Json]:
        found = [each for name, every in self.messages.items() if channel in {None, name} for each in every]
        return [each for each in found if each.get("bot_id") == BOT and "files" not in each]

    def answer(self, method: str, token: str, asked: Json) -> Json:
        self.calls.append((method, asked))
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if token != wanted:
            raise No("not_allowed_token_type" if token in {APP_TOKEN, BOT_TOKEN} else "invalid_auth")
        if self.refuses[method]:
            raise self.refuses[method].pop(0)
        return getattr(self, "_" + method.replace(".", "_").lower())(asked)

    def _apps_connections_open(self, _: Json) -> Json:
        return {}  # The server adds the address.

    def _auth_test(self, _: Json) -> Json:
        us = {"user": "helper", "user_id": BOT_USER, "bot_id": BOT}
        return {"url": "https://example.slack.example/", "team": "Example", "team_id": TEAM, **us}

    def _users_info(self, asked: Json) -> Json:
        if asked["user"] not in self.users:
            raise No("user_not_found")
        return {"user": self.users[asked["user"]]}

    def _conversations_info(self, asked: Json) -> Json:
        return {"channel": self._channel(asked["channel"])}

    def _users_conversations(self, asked: Json) -> Json:
        """It lists only some per page, and what archived ones contain can still be read."""
        types = {"channel": "public_channel", "group": "private_channel"}
        asked_for = asked.get("types", "public_channel").split(",")
        found = [each for each in self.channels.values() if types.get(each["type"], each["type"]) in asked_for]
        return _page([{**each, "is_private": each["type"] == "group"} for each in found], "channels", asked)

    def _conversations_history(self, asked: Json) -> Json:
        """The newest first, and of a thread only its first message."""
        self._channel(asked["channel"])
        said = self.messages[asked["channel"]]
        latest = float(asked.get("latest", "inf"))
        shown = [
            each for each in said if each.get("thread_ts", each["ts"]) == each["ts"] and float(each["ts"]) <= latest
        ]
        return _page([_unasked(each) for each in reversed(shown)], "messages", asked)

    def _conversations_replies(self, asked: Json) -> Json:
        """The oldest first; the message that begins the thread is always there."""
        self._channel(asked["channel"])
        thread = [
            each for each in self.messages[asked["channel"]] if asked["ts"] in {each["ts"], each.get("thread_ts")}
        ]
        if not thread:
            raise No("thread_not_found")
        oldest = float(asked.get("oldest", 0))
        shown = [each for each in thread if float(each["ts"]) > oldest or each["ts"] == asked["ts"]]
        return _page([_unasked(each) for each in shown], "messages", asked)

    def _channel(self, id_: str) -> Json:
        if id_ not in self.channels:
            raise No("channel_not_found")
        return self.channels[id_]

    def _open_channel(self, id_: str) -> Json:
        channel = self._channel(id_)
        if channel.get("is_archived"):
            raise No("is_archived")
        return channel

    def _chat_postmessage(self, asked: Json) -> Json:
        channel = self._open_channel(asked["channel"])["id"]
        message = {"type": "message", "user": BOT_USER, "bot_id": BOT, "ts": self.number(), **_content(asked)}
        self.add(channel, message, asked.get("thread_ts"))
        if self.echoes:
            self.event(self.about(channel, message))
        return {"channel": channel, "ts": message["ts"], "message": message}

    def _chat_update(self, asked: Json) -> Json:
        channel = self._open_channel(asked["channel"])["id"]
        message = next((each for each in self.messages[channel] if each["ts"] == asked["ts"]), None)
        if message is None or message.get("bot_id") != BOT:
            raise No("message_not_found" if message is None else "cant_update_message")
        before = deepcopy(message)
        message |= {"edited": {"user": BOT_USER, "ts": asked["ts"]}, **_content(asked)}
        if self.echoes:
            self.changed(channel, message, before, self.number())
        return {"channel": channel, "ts": asked["ts"], "text": message["text"]}

    def _assistant_threads_setstatus(self, asked: Json) -> Json:
        self._open_channel(asked["channel_id"])
        if not asked.get("thread_ts"):
            raise No("invalid_arguments")
        self.statuses.append(asked)
        return {}

    def _files_info(self, asked: Json) -> Json:
        if asked["file"] not in self.files:
            raise No("file_not_found")
        return {"file": self.files[asked["file"]]}

    def _files_getuploadurlexternal(self, asked: Json) -> Json:
        id_ = f"F{next(self._numbers)}"
        self.files[id_] = {"id": id_, "name": asked["filename"], "size": int(asked["length"])}
        return {"file_id": id_, "upload_url": f"{self.url}/upload/{id_}"}

    def _files_completeuploadexternal(self, asked: Json) -> Json:
        files = [self.files[each["id"]] | {"title": each["title"]} for each in asked["files"]]
        if any(len(self.contents.get(file["id"], b"")) != file["size"] for file in files):
            raise No("file_upload_incomplete")
        channel = self._open_channel(asked["channel_id"])["id"]
        message = {"type": "message", "subtype": "file_share", "user": BOT_USER, "bot_id": BOT, "ts": self.number()}
        message |= {"text": asked.get("initial_comment") or "", "files": files}
        self.add(channel, message, asked.get("thread_ts"))
        return {"files": [{"id": file["id"], "title": file["title"]} for file in files]}


def _page(found: list[Json], name: str, asked: Json) -> Json:
    start, size = int(asked.get("cursor") or 0), min(int(asked.get("limit", 100)), _MAX_PAGE)
    end = start + size
    more = {"next_cursor": str(end) if end < len(found) else ""}
    return {name: found[start:end], "has_more": end < len(found), "response_metadata": more}


def _unasked(message: Json) -> Json:
    """A message in a history does not say where it is."""
    return {name: value for name, value in message.items() if name not in {"channel", "channel_type", "event_ts"}}


def _content(asked: Json) -> Json:
    text = str(asked.get("text") or "")
    blocks: list[Json] = asked.get("blocks") or []
    if not text.strip():
        raise No("no_text")
    if len(text) > _MAX_TEXT:
        raise No("msg_too_long")
    if _BARE.search(_MARKUP.sub("", text)):
        raise No("unescaped_text")  # Slack would guess.
    for block in blocks:
        is_long = len(str(block["text"]["text"]) if "text" in block else "") > _MAX_SECTION
        buttons: list[Json] = block.get("elements", [])
        if is_long or any(
            len(each["text"]["text"]) > _MAX_LABEL or len(each["value"]) > _MAX_VALUE for each in buttons
        ):
            raise No("invalid_blocks")
        if len({each["action_id"] for each in buttons}) != len(buttons):
            raise No("invalid_blocks")
    return {"text": text, "blocks": blocks}
