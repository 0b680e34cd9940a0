"""Receive from Discord's gateway: resume after the last stored event, or else read what was written meanwhile.

Discord replays events after the number that a resuming client names, for some minutes. So the number of an event is
stored once the message is. When Discord has forgotten the session, we start another and read the channels' history.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from http import HTTPStatus
from typing import Any, cast

from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from yarl import URL

from palaver.platforms.discord.client import API, ApiError, Client, DiscordOptions, close_gateway
from palaver.platforms.discord.parse import (
    COMMAND,
    EVENTS,
    PLATFORM,
    THREADS,
    OwnBot,
    Payload,
    Place,
    has_role,
    parse_event,
)
from palaver.protocols import (
    BackgroundTasks,
    Clock,
    PlatformBusy,
    PlatformDown,
    Receiver,
    Trust,
    log_skipped,
    parse_or_skip,
)
from palaver.protocols.recent import remember

_PAGE = 100
_OVERLAP = 10_000 << 22
"""Ten seconds of ids: those of different channels are not quite in order."""
_MAX_DIRECT_CHATS = 200
_MAX_CHANNELS = 10_000
"""How many channels and threads we remember; Discord is asked about any other."""
_SHORT_SECONDS = 5.0
"""A connection that ends sooner is a failure: the gateway waits before the next one."""
_KEPT_STARTS = 50
"""How many of the 1000 session starts of a day are left for people."""
_DAY_SECONDS = 86_400.0
_EPHEMERAL = 1 << 6
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class Position:
    """What is stored, as far as Discord is concerned."""

    session: str | None = None
    url: str = ""
    number: int = 0
    """Of the last event that we handled."""
    newest: int = 0
    """The id of the newest message; ids grow with time."""

    @classmethod
    def decode(cls, text: str | None) -> "Position":
        try:
            known = {each.name for each in fields(cls)}
            return cls(**{name: value for name, value in json.loads(text or "{}").items() if name in known})
        except (AttributeError, TypeError, ValueError):
            return cls()  # not written by us


class Listener:
    """Serves the account while `run` runs."""

    def __init__(self, client: Client, receiver: Receiver, account: str, options: DiscordOptions, clock: Clock) -> None:
        self._client = client
        self._receiver = receiver
        self._account = account
        self._options = options
        self._clock = clock
        self._position = Position()
        self._since = 0
        """The id of a message up to which nothing is missing."""
        self._awaited: set[str] = set()
        """Servers whose channels we have not seen in this session; `""` stands for direct chats."""
        self._channels: dict[str, Payload] = {}
        self._own_roles: dict[str, list[str]] = {}
        self._tasks = BackgroundTasks(LookupError)

    async def run(self) -> None:
        self._position = Position.decode(await self._receiver.load_position())
        self._since = self._position.newest
        try:
            await self._converse(is_first=True)
            while True:
                await self._converse()
        finally:
            await self._tasks.end()

    async def _converse(self, *, is_first: bool = False) -> None:
        """Handle events until the connection ends. Return if it can be resumed at once."""
        is_live = False
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with self._opened(is_first=is_first) as socket:
            try:
                while True:
                    for event in await self._next(socket, may_skip=is_live):
                        is_live = await self._handle(event) or is_live
            except ReconnectWebSocket as ended:
                if not ended.resume:
                    await self._forget_session()
                    raise PlatformDown("Discord has ended the session.") from ended
                if not is_live or loop.time() - began < _SHORT_SECONDS:
                    raise PlatformDown("Discord closes the connection.") from ended

    async def _next(self, socket: DiscordWebSocket, *, may_skip: bool) -> list[dict[str, Any]]:
        events = self._client.events
        try:
            await socket.poll_event()
            return [json.loads(events.popleft()) for _ in range(len(events))]
        except _UNREADABLE as error:
            if not may_skip:
                raise PlatformDown(f"Discord's gateway is unreadable: {type(error).__name__}") from error
            events.clear()
            log_skipped(PLATFORM, error)
            return []

    @asynccontextmanager
    async def _opened(self, *, is_first: bool) -> AsyncGenerator[DiscordWebSocket]:
        position = self._position
        if position.session:
            session = {"session": position.session, "sequence": position.number, "resume": True}
            url = position.url
        else:
            session = {"initial": True}
            url = _gateway_url(await self._client.call("GET", "/gateway/bot"))
        try:
            socket = await self._client.open_gateway(gateway=URL(url), **session)
        except (*API.raised, ReconnectWebSocket) as error:
            if is_first:  # We have just logged in, so Discord is there: only the address of the session is gone.
                await self._forget_session()
            raise PlatformDown("Discord closes the connection.") from error
        try:
            yield socket
        except ConnectionClosed:
            await self._forget_session()
            raise
        finally:
            await close_gateway(socket)

    async def _forget_session(self) -> None:
        self._position.session = None
        await self._save()

    async def _handle(self, event: Mapping[str, Any]) -> bool:
        """Handle an event; return whether it says that we are connected."""
        if event["op"] != 0:
            return False
        name = event["t"]
        is_news = True
        data: Payload = cast("Payload", event["d"]) if isinstance(event["d"], dict) else {}
        match name:
            case "READY":
                await self._begin(data)
            case "RESUMED":
                await self._receiver.connected()
            case "GUILD_CREATE":
                await self._learn_server(data)
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                is_news = False
                parse_or_skip(PLATFORM, lambda: self._learn_channel(str(data["id"]), dict(data)))
            case "GUILD_DELETE" if not data.get("unavailable"):
                self._awaited.discard(str(data.get("id")))
                self._finish()
            case name if name in EVENTS:
                is_news = await self._take(name, data)
            case _:
                is_news = False
        self._position.number = event["s"]
        if is_news:
            await self._save()
        return name in {"READY", "RESUMED"}

    async def _save(self) -> None:
        """Store the position. While channels are still being read, start again with a new session after a crash."""
        stored = asdict(self._position)
        if self._awaited:
            stored |= {"session": None, "newest": self._since}
        await self._receiver.save_position(json.dumps(stored))

    # A new session

    async def _begin(self, ready: Payload) -> None:
        position = self._position
        position.session = str(ready["session_id"])
        position.url = str(ready["resume_gateway_url"])
        self._awaited = {"", *(str(server["id"]) for server in ready["guilds"])}
        self._since = position.newest
        await self._receiver.connected()
        # Discord does not list them.
        for channel in await self._receiver.recent_chats(_MAX_DIRECT_CHATS) if self._since else ():
            await self._catch_up(channel, {})
        self._awaited.discard("")
        self._finish()

    async def _learn_server(self, server: Payload) -> None:
        """Remember its channels, and read what was written there since the last session."""
        own_id = self._client.own_id
        read = parse_or_skip(PLATFORM, lambda: (_channels_of(server), _roles_of(server.get("roles", ()), own_id)))
        if read is None or server.get("unavailable"):
            return
        channels = read[0]
        number = str(server["id"])
        self._awaited.add(number)
        self._own_roles[number] = read[1]
        for channel in channels:
            self._learn_channel(str(channel["id"]), channel)
        for channel in channels:
            last = channel["last_message_id"]
            if last > self._since - _OVERLAP:
                await self._catch_up(str(channel["id"]), {"guild_id": number})
            self._position.newest = max(self._position.newest, last)
        self._awaited.discard(number)
        self._finish()

    def _finish(self) -> None:
        if not self._awaited:
            self._since = self._position.newest

    async def _catch_up(self, channel: str, where: Payload) -> None:
        after = max(self._since - _OVERLAP, 0)
        is_full = self._since > 0
        while is_full:
            query = {"params": {"after": str(after), "limit": str(_PAGE)}}
            found = await self._ask("/channels/{channel_id}/messages", query, channel_id=channel)
            messages = cast("list[Payload]", found or [])
            for message in sorted(messages, key=lambda each: int(each["id"])):
                await self._take("MESSAGE_CREATE", {**message, **where})
                if message.get("edited_timestamp"):
                    await self._take("MESSAGE_UPDATE", {**message, **where})
                after = int(message["id"])
            is_full = len(messages) == _PAGE

    # Messages

    async def _take(self, name: str, data: Payload) -> bool:
        """Hand over what an event says; return whether that is anything."""
        try:
            number = int(data["id"]) if name == "MESSAGE_CREATE" else 0
            place = await self._place(data)
            us = await self._us(data)
            trust = await self._trust(data)
        except _UNREADABLE as error:
            log_skipped(PLATFORM, error)
            return False
        found = parse_or_skip(PLATFORM, lambda: parse_event(name, data, place, us, self._clock.now()))
        if found is None:
            return False
        for inbound in found:
            await self._receiver.receive(inbound, trust)
        self._position.newest = max(self._position.newest, number)
        self._finish()
        if found and name == "INTERACTION_CREATE":
            self._tasks.run(self._confirm(data))
        return bool(found)

    async def _us(self, data: Payload) -> OwnBot:
        return OwnBot(self._account, self._client.own_id, await self._roles(data), self._options.auto_thread)

    async def _place(self, data: Payload) -> Place:
        if not data.get("guild_id"):
            return Place({}, {})
        found = await self._channel(str(data["channel_id"]))
        is_thread = found.get("type") in THREADS
        return Place(found, await self._channel(str(found["parent_id"])) if is_thread else {})

    async def _channel(self, channel: str) -> Payload:
        """A resumed session does not list channels again."""
        if channel not in self._channels:
            self._learn_channel(channel, await self._ask("/channels/{channel_id}", channel_id=channel) or {})
        return self._channels[channel]

    def _learn_channel(self, channel: str, about: Payload) -> None:
        remember(self._channels, channel, about, _MAX_CHANNELS)

    async def _roles(self, data: Payload) -> list[str]:
        server = str(data.get("guild_id"))
        if data.get("mention_roles") and data.get("guild_id") and server not in self._own_roles:
            found = await self._ask("/guilds/{guild_id}/roles", guild_id=server)
            self._own_roles[server] = _roles_of(found or (), self._client.own_id)
        return self._own_roles.get(server, [])

    async def _trust(self, data: Payload) -> Trust:
        member: Payload | None = data.get("member")
        author: Payload = data.get("author") or (member or {}).get("user") or {}
        person = str(author.get("id") or data.get("user_id") or "")
        if self._options.roles and member is None and data.get("guild_id") and person:
            # Messages from the history have no member, and neither has a reaction that is taken back.
            server = str(data["guild_id"])
            member = await self._ask("/guilds/{guild_id}/members/{user_id}", guild_id=server, user_id=person)
        is_bot = bool(author.get("bot") or data.get("webhook_id"))
        return Trust(is_bot=is_bot, has_role_grant=has_role(member, self._options.roles))

    async def _ask(self, path: str, request: Payload | None = None, **ids: str) -> Any:  # noqa: ANN401 - JSON
        """Return what Discord knows, at the pace it allows; None if it does not tell us."""
        while True:
            try:
                return await self._client.call("GET", path, request, **ids)
            except ApiError as error:
                if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                    return None
                if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
                await asyncio.sleep(error.after or 1.0)

    async def _confirm(self, data: Payload) -> None:
        """Confirm a pressed button silently. A slash command needs an answer, which only its sender sees."""
        answer: dict[str, Any] = {"type": 6}
        if data["type"] == COMMAND:
            answer = {"type": 4, "data": {"content": "👍", "flags": _EPHEMERAL}}
        path = "/interactions/{webhook_id}/{webhook_token}/callback"
        ids = (str(data["id"]), str(data["token"]))
        with API.requests():
            await self._client.call("POST", path, {"json": answer}, webhook_id=ids[0], webhook_token=ids[1])


def _gateway_url(gateway: Payload) -> str:
    """Return where to start a session. Discord takes the token away from a bot that starts too many in a day."""
    limit: Payload = gateway.get("session_start_limit") or {}
    if limit.get("remaining", _KEPT_STARTS) < _KEPT_STARTS:
        raise PlatformBusy(limit.get("reset_after", 0) / 1000 or _DAY_SECONDS)
    return gateway["url"]


def _channels_of(server: Payload) -> list[dict[str, Any]]:
    return [
        {**each, "guild_id": str(server["id"]), "last_message_id": int(each.get("last_message_id") or 0)}
        for each in (*server.get("channels", ()), *server.get("threads", ()))
    ]


def _roles_of(roles: Iterable[Payload], bot: str) -> list[str]:
    """Return the roles that Discord made for this bot alone."""
    return [str(role["id"]) for role in roles if role.get("tags", {}).get("bot_id") == bot]
