"""Discord as far as a bot meets it: servers, channels, messages, sessions with numbered events, and refusals.

No network in here. As https://discord.com/developers/docs documents it, version 10.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

__all__ = ["ALICE", "BOT", "BOT_ROLE", "TOKEN", "No", "Session", "World"]

Json = dict[str, Any]

TOKEN = "OTAw.Gabcde." + "A" * 38
BOT: Json = {"id": "900", "username": "helper", "discriminator": "0", "global_name": None, "avatar": None, "bot": True}
ALICE: Json = {"id": "7", "username": "alice", "discriminator": "0", "global_name": "alice", "avatar": None}
BOT_ROLE = "901"
_EPOCH_MS = 1_420_070_400_000
_THREADS = {10, 11, 12}
_NUMBERS = count()


class No(Exception):
    """An error answer: https://discord.com/developers/docs/topics/opcodes-and-status-codes#json."""

    def __init__(self, status: int, code: int, words: str, **more: Any) -> None:
        super().__init__(words)
        self.status = status
        self.body = {"message": words, "code": code, **more}


@dataclass
class Session:
    id: str
    events: list[Json] = field(default_factory=list[Json])
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, name: str, data: Json) -> None:
        self.events.append({"op": 0, "t": name, "s": len(self.events) + 1, "d": data})
        self.news.set()


class World:
    def __init__(self) -> None:
        self.guilds: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self.messages: dict[str, list[Json]] = {}
        self.members: dict[tuple[str, str], list[str]] = {}
        """Roles of people, by server and person."""
        self.sent: list[Json] = []
        """What the bot has sent, in order."""
        self.uploads: list[tuple[str, bytes]] = []
        self.files: dict[str, bytes] = {}
        self.nonces: dict[str, Json] = {}
        self.commands: list[Json] = []
        self.confirmed: list[tuple[str, Json]] = []
        self.calls: list[tuple[str, str]] = []
        self.gone: set[str] = set()
        self.refuses: list[tuple[str, No]] = []
        self.starts = 999
        """How many sessions the bot can start today. Discord resets the token of one that starts more."""
        """What the next calls whose `METHOD path` matches are answered with."""
        self.trouble: No | None = None
        self.sessions: dict[str, Session] = {}
        self.begun = asyncio.Event()
        """Set by the first session: nobody tells a bot what was said before it."""
        self.flags = 1 << 19
        self.url = ""

    def new_id(self) -> str:
        return str(((int(time.time() * 1000) - _EPOCH_MS) << 22) + next(_NUMBERS) % (1 << 22))

    # Places

    def guild(self, guild_id: str, name: str = "Acme") -> Json:
        everyone = {"id": guild_id, "name": "@everyone"}
        own = {"id": BOT_ROLE, "name": "helper", "managed": True, "tags": {"bot_id": BOT["id"]}}
        return self.guilds.setdefault(guild_id, {"id": guild_id, "name": name, "roles": [everyone, own]})

    def channel(self, channel_id: str, guild: str | None = None, kind: int = 0, **more: Any) -> Json:
        placed = {"guild_id": guild} if guild else {}
        found = {"id": channel_id, "type": kind, "last_message_id": None, **placed, **more}
        self.messages.setdefault(channel_id, [])
        return self.channels.setdefault(channel_id, found)

    def dm(self, channel_id: str) -> Json:
        return self.channel(channel_id, kind=1)

    # People

    def says(self, channel: str, who: Json, text: str = "", *, kind: int = 0, **more: Any) -> Json:
        message = self._message(channel, who, text, type=kind, **more)
        self.emit("MESSAGE_CREATE", self._event(message))
        return message

    def _message(self, channel: str, who: Json, text: str, **more: Any) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        mentioned = [BOT] if f"<@{BOT['id']}>" in text else []
        roles = re.findall(r"<@&(\d+)>", text)
        message = {
            "id": self.new_id(),
            "channel_id": channel,
            "author": who,
            "content": text,
            "timestamp": now,
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": "@everyone" in text,
            "mentions": mentioned,
            "mention_roles": roles,
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            **more,
        }
        self.messages[channel].append(message)
        self.channels[channel]["last_message_id"] = message["id"]
        return message

    def _event(self, message: Json) -> Json:
        """Events, but not the history, say the server and the sender's roles there."""
        guild = self.channels[message["channel_id"]].get("guild_id")
        if guild is None:
            return message
        roles = self.members.get((guild, message["author"]["id"]), [])
        member = {"roles": roles, "nick": None, "joined_at": "2020-01-01T00:00:00+00:00", "deaf": False, "mute": False}
        return {**message, "guild_id": guild, "member": member}

    def edits(self, message: Json, text: str) -> None:
        message |= {"content": text, "edited_timestamp": datetime.now(UTC).isoformat(timespec="microseconds")}
        self.emit("MESSAGE_UPDATE", self._event({**message}))

    def deletes(self, *messages: Json) -> None:
        channel = messages[0]["channel_id"]
        guild = self.channels[channel].get("guild_id")
        about = {"channel_id": channel, **({"guild_id": guild} if guild else {})}
        ids = [each["id"] for each in messages]
        self.messages[channel] = [each for each in self.messages[channel] if each["id"] not in ids]
        if len(ids) == 1:
            self.emit("MESSAGE_DELETE", {"id": ids[0], **about})
        else:
            self.emit("MESSAGE_DELETE_BULK", {"ids": ids, **about})

    def interacts(self, channel: str, who: Json, kind: int, data: Json, **more: Any) -> Json:
        guild = self.channels[channel].get("guild_id")
        roles = self.members.get((guild or "", who["id"]), [])
        person = {"guild_id": guild, "member": {"user": who, "roles": roles, "nick": None}} if guild else {"user": who}
        number = self.new_id()
        about = {"id": number, "application_id": "990", "token": f"token-{number}", "version": 1}
        made = {**about, "type": kind, "data": data, "channel_id": channel, **person, **more}
        self.emit("INTERACTION_CREATE", made)
        return made

    def press(self, who: Json, message: Json, custom_id: str) -> Json:
        chosen = {"component_type": 2, "custom_id": custom_id}
        return self.interacts(message["channel_id"], who, 3, chosen, message=message)

    def react(self, who: Json, message: Json, sign: str, *, removed: bool = False) -> None:
        guild = self.channels[message["channel_id"]].get("guild_id")
        where = {"channel_id": message["channel_id"], "message_id": message["id"], "user_id": who["id"]}
        roles = self.members.get((guild or "", who["id"]), [])
        member: Json = {"member": {"user": who, "roles": roles, "nick": None}} if guild and not removed else {}
        about: Json = {**where, **({"guild_id": guild} if guild else {}), **member, "emoji": {"id": None, "name": sign}}
        self.emit(f"MESSAGE_REACTION_{'REMOVE' if removed else 'ADD'}", {**about, "type": 0, "burst": False})

    def command(self, channel: str, who: Json, name: str, text: str = "") -> Json:
        options = [{"type": 3, "name": "text", "value": text}] if text else []
        return self.interacts(channel, who, 2, {"id": "1", "name": name, "type": 1, "options": options})

    def emit(self, name: str, data: Json) -> None:
        for session in self.sessions.values():
            session.add(name, data)

    def begin(self) -> Session:
        """A new session: which servers there are, and then what is in each."""
        session = Session(f"session-{self.new_id()}")
        listed = [{"id": guild, "unavailable": True} for guild in self.guilds]
        about = {"session_id": session.id, "resume_gateway_url": f"{self.url}/gateway", "shard": [0, 1]}
        session.add(
            "READY", {"v": 10, "user": BOT, "guilds": listed, "application": {"id": "990", "flags": 0}, **about}
        )
        for guild in self.guilds.values():
            session.add("GUILD_CREATE", self._whole(guild))
        self.sessions[session.id] = session
        self.begun.set()
        return session

    def _whole(self, guild: Json) -> Json:
        inside = [{**each} for each in self.channels.values() if each.get("guild_id") == guild["id"]]
        for each in inside:
            del each["guild_id"]
        threads = [each for each in inside if each["type"] in _THREADS]
        return {
            **guild,
            "channels": [each for each in inside if each not in threads],
            "threads": threads,
            "members": [],
        }

    # The bot

    def answer(self, method: str, path: str, asked: Json, query: Json, files: list[tuple[str, bytes]]) -> Any:
        self.calls.append((method, path))
        if self.trouble:
            raise self.trouble
        for waiting in self.refuses:
            if re.fullmatch(waiting[0], f"{method} {path}"):
                self.refuses.remove(waiting)
                raise waiting[1]
        for pattern, act in self._routes.items():
            if found := re.fullmatch(pattern, f"{method} {path}"):
                return act(self, asked, query, files, *found.groups())
        raise No(404, 0, "404: Not Found")

    def _place(self, channel: str) -> Json:
        if channel not in self.channels:
            raise No(404, 10_003, "Unknown Channel")
        if channel in self.gone or self.channels[channel].get("parent_id") in self.gone:
            raise No(403, 50_001, "Missing Access")
        return self.channels[channel]

    def _find(self, channel: str, message: str) -> Json:
        self._place(channel)
        for each in self.messages[channel]:
            if each["id"] == message:
                return each
        raise No(404, 10_008, "Unknown Message")

    def _me(self, *_: Any) -> Json:
        return BOT

    def _application(self, *_: Any) -> Json:
        return {"id": "990", "name": "helper", "flags": self.flags}

    def _gateway(self, *_: Any) -> Json:
        limit = {"total": 1000, "remaining": self.starts, "reset_after": 14_400_000, "max_concurrency": 1}
        return {"url": f"{self.url}/gateway", "shards": 1, "session_start_limit": limit}

    def _channel(self, _: Json, __: Json, ___: Any, channel: str) -> Json:
        return self._place(channel)

    def _history(self, _: Json, query: Json, __: Any, channel: str) -> list[Json]:
        """The newest first, and of those after a message the oldest ones."""
        self._place(channel)
        after = [each for each in self.messages[channel] if int(each["id"]) > int(query.get("after", 0))]
        return after[: int(query.get("limit", 50))][::-1]

    def _get(self, _: Json, __: Json, ___: Any, channel: str, message: str) -> Json:
        return self._find(channel, message)

    def _send(self, asked: Json, _: Json, files: list[tuple[str, bytes]], channel: str) -> Json:
        place = self._place(channel)
        if place["type"] in {15, 16}:
            raise No(400, 40_058, "Cannot send messages in a forum channel")
        if place.get("closed"):
            raise place["closed"]
        nonce = str(asked.get("nonce") or "")
        if len(nonce) > 25:
            raise No(400, 50_035, "Invalid Form Body")
        if nonce in self.nonces and asked.get("enforce_nonce"):
            return self.nonces[nonce]
        message = self._shown(channel, asked, files)
        if nonce:
            self.nonces[nonce] = message
        self.emit("MESSAGE_CREATE", self._event(message))
        return message

    def _shown(self, channel: str, asked: Json, files: list[tuple[str, bytes]]) -> Json:
        _check(asked, files)
        answered: Json = asked.get("message_reference") or {}
        kind: Json = {"type": 19, "message_reference": {**answered, "channel_id": channel}} if answered else {}
        self.uploads += files
        attached = [{"id": str(n), "filename": name, "size": len(content)} for n, (name, content) in enumerate(files)]
        about = {"attachments": attached, "components": asked.get("components", []), "flags": asked.get("flags", 0)}
        message = self._message(channel, BOT, str(asked.get("content") or "").strip(), **about, **kind)
        self.sent.append(message)
        return message

    def _edit(self, asked: Json, _: Json, __: Any, channel: str, message: str) -> Json:
        found = self._find(channel, message)
        if found["author"] != BOT:
            raise No(403, 50_005, "Cannot edit a message authored by another user")
        _check(asked, [])
        self.edits(found | {"components": asked.get("components", [])}, asked["content"])
        found |= {"content": asked["content"], "components": asked.get("components", [])}
        return found

    def _typing(self, _: Json, __: Json, ___: Any, channel: str) -> None:
        self._place(channel)

    def _thread(self, asked: Json, _: Json, __: Any, channel: str, message: str = "") -> Json:
        place = self._place(channel)
        if place["type"] == 1:
            raise No(400, 50_024, "Cannot execute action on this channel type")
        if not 1 <= len(asked["name"]) <= 100:
            raise No(400, 50_035, "Invalid Form Body")
        number = message or self.new_id()
        if message:
            self._find(channel, message)
        if number in self.channels:
            raise No(400, 160_004, "A thread has already been created for this message")
        thread = self.channel(number, place["guild_id"], 11, parent_id=channel, name=asked["name"], owner_id=BOT["id"])
        self.emit("THREAD_CREATE", {**thread, "newly_created": True})
        if place["type"] in {15, 16}:
            message = self._shown(number, asked["message"], [])["id"]
        return thread

    def _menu(self, asked: Any, *_: Any) -> list[Json]:
        for each in asked:
            if not re.fullmatch(r"[-_'\w]{1,32}", each["name"]) or not 1 <= len(each["description"]) <= 100:
                raise No(400, 50_035, "Invalid Form Body")
        self.commands = asked
        return asked

    def _confirm(self, asked: Json, _: Json, __: Any, token: str) -> None:
        if token in {each for each, _ in self.confirmed}:
            raise No(400, 40_060, "Interaction has already been acknowledged")
        self.confirmed.append((token, asked))

    def _member(self, _: Json, __: Json, ___: Any, guild: str, person: str) -> Json:
        if (guild, person) not in self.members:
            raise No(404, 10_007, "Unknown Member")
        return {"user": {"id": person}, "roles": self.members[guild, person]}

    def _roles(self, _: Json, __: Json, ___: Any, guild: str) -> list[Json]:
        return self.guilds[guild]["roles"]

    _routes: ClassVar[dict[str, Callable[..., Any]]] = {
        "GET /users/@me": _me,
        "GET /applications/@me": _application,
        "GET /gateway/bot": _gateway,
        r"GET /channels/(\d+)": _channel,
        r"GET /channels/(\d+)/messages": _history,
        r"GET /channels/(\d+)/messages/(\d+)": _get,
        r"POST /channels/(\d+)/messages": _send,
        r"PATCH /channels/(\d+)/messages/(\d+)": _edit,
        r"POST /channels/(\d+)/typing": _typing,
        r"POST /channels/(\d+)/threads": _thread,
        r"POST /channels/(\d+)/messages/(\d+)/threads": _thread,
        r"PUT /applications/990/commands": _menu,
        r"POST /interactions/\d+/([^/]+)/callback": _confirm,
        r"GET /guilds/(\d+)/members/(\d+)": _member,
        r"GET /guilds/(\d+)/roles": _roles,
    }


def _check(asked: Json, files: list[tuple[str, bytes]]) -> None:
    text = str(asked.get("content") or "")
    if not text.strip() and not files:
        raise No(400, 50_006, "Cannot send an empty message")
    buttons = [button for row in asked.get("components", []) for button in row["components"]]
    is_long = len(text) > 2000 or any(len(each["label"]) > 80 or len(each["custom_id"]) > 100 for each in buttons)
    if is_long or any(len(row["components"]) > 5 for row in asked.get("components", [])):
        raise No(400, 50_035, "Invalid Form Body")
    if sum(len(content) for _, content in files) > 10 * 1024 * 1024:
        raise No(413, 40_005, "Request entity too large")
