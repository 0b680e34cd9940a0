"""The client: nio's, let in with what was configured, and not to be stopped by what strangers send."""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from nio import AsyncClient, AsyncClientConfig, store
from nio.api import Api
from nio.crypto import ENCRYPTION_ENABLED
from nio.events import BadEventType, Event, MegolmEvent, ToDeviceEvent, UnknownEvent
from nio.exceptions import LocalProtocolError
from nio.responses import (
    ErrorResponse,
    KeysClaimError,
    KeysClaimResponse,
    KeysQueryError,
    KeysQueryResponse,
    KeysUploadError,
    KeysUploadResponse,
    LoginResponse,
    Response,
    RoomMessagesResponse,
    WhoamiResponse,
)
from nio.rooms import MatrixRoom

from palaver.model.errors import BadArgument
from palaver.model.value import value
from palaver.platforms.matrix.errors import EXPIRES, asking, refusal, unanswered
from palaver.platforms.matrix.events import is_name
from palaver.platforms.matrix.options import Options
from palaver.protocols.adapter import PlatformDown, PlatformError, PlatformRefused

__all__ = [
    "Call",
    "Calls",
    "Client",
    "Entry",
    "check_extra",
    "opened",
    "position_of",
    "read_position",
]


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    room_id: str
    server: str
    """One that knows the way."""
    inviter: str = ""
    """Nobody, where a room of ours was closed for this one."""
    is_direct: bool = False


Calls = dict[str, Call]
"""By the ids of the rooms, the oldest first."""


def position_of(user_id: str, batch: str, calls: Calls) -> str:
    """What the store keeps: whose position it is, then the position, then what is still to be answered."""
    text = f"{user_id} {batch}"
    return f"{text} {msgspec.json.encode([*calls.values()]).decode()}" if calls else text


def read_position(text: str | None, user_id: str) -> tuple[str | None, Calls]:
    """Nothing where it was of another account."""
    whose, _, rest = (text or "").partition(" ")
    if whose != user_id:
        return None, {}
    batch, _, written = rest.partition(" ")
    try:
        calls = msgspec.json.decode(written or "[]", type=list[Call])
    except msgspec.DecodeError:
        calls = []
    return batch, {call.room_id: call for call in calls}


_PATIENCE = 30.0
_API = "/_matrix/client/v3/"
_MESSAGES = frozenset({"m.room.message", "m.sticker"})


@value
class Entry:
    """What logging in has given us."""

    device_id: str
    token: str


class Client(AsyncClient):
    """What is encrypted is a stranger's, whatever it claims to be: where nio stumbles over it, it stays unread."""

    def _handle_decrypt_to_device(self, to_device_event: ToDeviceEvent) -> ToDeviceEvent | None:
        try:
            return super()._handle_decrypt_to_device(to_device_event)
        except Exception:  # noqa: BLE001 - anything may be wrong with it
            return None

    def _handle_timeline_event(
        self, event: Event | BadEventType, room_id: str, room: MatrixRoom, encrypted_rooms: set[str]
    ) -> Event | BadEventType | None:
        """What is decrypted changes nothing of the room: no homeserver has seen whether its sender may."""
        if isinstance(event, MegolmEvent):
            event.room_id = room_id
            return self.read(event)
        try:
            return super()._handle_timeline_event(event, room_id, room, encrypted_rooms)
        except Exception:  # noqa: BLE001 - anything may be wrong with it
            return None

    def _handle_messages_response(self, response: RoomMessagesResponse) -> None:
        """One by one: one that cannot be read keeps nobody from the others."""
        response.chunk = [self.read(each) or each for each in response.chunk]

    def read(self, event: Event | BadEventType) -> Event | None:
        """The message in an encrypted event, or nothing but the event where it holds anything else.

        None where it cannot be read, or is not encrypted.
        """
        if not isinstance(event, MegolmEvent) or self.olm is None:
            return None
        try:
            return _message_in(event, self.decrypt_event(event).source)
        except Exception:  # noqa: BLE001 - anything may be wrong with it
            return None

    async def keys_upload(self) -> KeysUploadResponse | KeysUploadError:
        """Written down before they are given away: a crash must not leave keys there that nobody has here."""
        if not self.olm:
            raise LocalProtocolError("there are no keys")
        keys = self.olm.share_keys()
        self.olm.save_account()
        answer: Any = await self._send(KeysUploadResponse, *Api.keys_upload(self.access_token, keys))  # pyright: ignore[reportUnknownMemberType]
        return answer

    async def keys_query(self) -> KeysQueryResponse | KeysQueryError:
        """Of all at once; where what somebody gives out breaks it, of each alone."""
        users = [*self.users_for_key_query]
        answer = await self._of_strangers(KeysQueryResponse, Api.keys_query(self.access_token, users))
        if answer is not None:
            return answer
        for user in users:
            answer = await self._of_strangers(KeysQueryResponse, Api.keys_query(self.access_token, [user]))
            if isinstance(answer, KeysQueryError):
                return answer
            self.users_for_key_query.discard(user)
        return KeysQueryResponse({}, {})

    async def keys_claim(self, user_set: dict[str, Iterable[str]]) -> KeysClaimResponse | KeysClaimError:
        """Like `keys_query`."""
        devices = {user: [*each] for user, each in user_set.items()}
        answer = await self._of_strangers(KeysClaimResponse, Api.keys_claim(self.access_token, {**devices}), "")
        if answer is not None:
            return answer
        for one in ({user: [device]} for user, each in devices.items() for device in each):
            answer = await self._of_strangers(KeysClaimResponse, Api.keys_claim(self.access_token, {**one}), "")
            if isinstance(answer, KeysClaimError):
                return answer
        return KeysClaimResponse({}, {})

    async def _of_strangers(self, kind: type[Response], request: tuple[str, str, str], *about: str) -> Any:  # noqa: ANN401 - as nio has it
        """None where the homeserver has answered, and nio stumbles over what strangers have put into that."""
        try:
            answer: Any = await self._send(kind, *request, response_data=about)  # pyright: ignore[reportUnknownMemberType]
        except (aiohttp.ClientError, TimeoutError):
            raise
        except Exception:  # noqa: BLE001 - anything may be wrong with it
            return None
        return answer if isinstance(answer, kind) or not answer.transport_response.ok else None

    async def ask(
        self, method: str, *path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> Mapping[str, Any] | None:
        """What nio has no method for; None where there is no such thing, or not for us.

        Any other refusal is of this moment, and raised.
        """
        if not all(map(is_name, path)):
            return None
        address = _API + "/".join(quote(part, safe="") for part in path) + (f"?{urlencode(query)}" if query else "")
        headers = {"Authorization": f"Bearer {self.access_token}", "Content-Type": "application/json"}
        with asking():
            response = await self.send(method, address, None if body is None else json.dumps(body), headers)
            answer = await self.parse_body(response)
        if response.ok:
            return answer
        if problem := unanswered(ErrorResponse.from_dict(answer), response.status):
            raise problem
        return None


def _message_in(event: MegolmEvent, read: Mapping[str, Any]) -> UnknownEvent:
    """Who sent it, and when, is said outside; of what is inside only the words of a message are believed."""
    source: dict[str, Any] = {"type": "m.room.encrypted", "event_id": event.event_id, "sender": event.sender}
    if read.get("type") in _MESSAGES:
        source |= {"type": read["type"], "content": read["content"]}
    return UnknownEvent({**source, "origin_server_ts": event.server_timestamp}, source["type"])


def check_extra(options: Options) -> None:
    """Raises BadArgument where encrypted rooms are wanted and cannot be had."""
    if options.keys and not ENCRYPTION_ENABLED:
        raise BadArgument(
            "Encrypted rooms cannot be read here: there is",
            found="matrix-nio without its part for encryption",
            allowed="the extra matrix-encryption, or no option keys",
            example="pip install 'palaver[matrix-encryption]'",
        )


@asynccontextmanager
async def opened(account: str, options: Options, entry: Entry | None = None) -> AsyncGenerator[Client]:
    """A client that is let in, by an earlier log-in if there was one."""
    client = _client(account, options)
    try:
        with asking():
            await _enter(client, options, entry)
        yield client
    finally:
        await client.close()
        if client.store:
            client.store.database.close()


def _client(account: str, options: Options) -> Client:
    config: dict[str, Any] = {"max_limit_exceeded": 0, "max_timeouts": 0, "request_timeout": _PATIENCE}
    folder = options.keys
    if folder:
        name = f"{quote(account, safe='')}.db"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / name).touch(mode=0o600)
        config |= {"store": store.SqliteStore, "store_name": name}
    settings = AsyncClientConfig(encryption_enabled=folder is not None, **config)
    return Client(options.homeserver, options.user_id, options.device_id, str(folder or ""), settings)


async def _enter(client: Client, options: Options, entry: Entry | None) -> None:
    if options.password and entry:
        client.restore_login(options.user_id, entry.device_id, entry.token)
    elif options.password:
        answer = await client.login(options.password.get_secret_value(), "Palaver")
        if not isinstance(answer, LoginResponse):
            raise _no_entry(answer, options, "the password")
    elif options.access_token:
        client.access_token = options.access_token.get_secret_value()
        who = await client.whoami()
        if not isinstance(who, WhoamiResponse):
            raise _no_entry(who, options, "the access token")
        if who.user_id != options.user_id:
            raise PlatformRefused(f"the access token is one of {who.user_id}, but user_id says {options.user_id}")
        client.restore_login(who.user_id, who.device_id or options.device_id, client.access_token)


def _no_entry(answer: ErrorResponse, options: Options, means: str) -> PlatformError:
    code = answer.status_code or "no answer that we understand"
    if code in {"M_FORBIDDEN", "M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"}:
        return PlatformRefused(
            f"{options.homeserver} does not take {means} of {options.user_id} ({code}):"
            " log in there with another client to see whether the account is in order, and configure a new one"
            + (f"; {EXPIRES}" if options.access_token else "")
        )
    return refusal(answer) or PlatformDown(f"{options.homeserver} does not let us in: {code}")
