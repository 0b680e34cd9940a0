"""nio's client, logged in with our options and hardened against malformed events."""

import json
import re
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from nio import AsyncClient, AsyncClientConfig, store
from nio.api import Api
from nio.crypto import ENCRYPTION_ENABLED
from nio.events import BadEventType, Event, KeyVerificationEvent, MegolmEvent, ToDeviceEvent, UnknownEvent
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

from palaver.platforms.matrix.errors import API, EXPIRY_HINT, common_error, request_error
from palaver.platforms.matrix.events import is_valid_id
from palaver.platforms.matrix.logins import Login
from palaver.platforms.matrix.options import Options
from palaver.protocols import BadArgument, PlatformDown, PlatformError, PlatformRefused
from palaver.protocols.installation import install_line


class Invitation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    room_id: str
    server: str
    """A server to join through."""
    inviter: str = ""
    """Empty if this room replaces one of ours."""
    is_direct: bool = False


Invitations = dict[str, Invitation]
"""By room id, the oldest first."""


def encode_position(user_id: str, batch: str, calls: Invitations, login: str = "") -> str:
    """Encode the stored position: the account, the sync token, the open invitations, and the sealed login."""
    text = f"{user_id} {batch}"
    if calls or login:
        text += f" {msgspec.json.encode([*calls.values()]).decode()}"
    return f"{text} {login}" if login else text


def decode_login(text: str | None, user_id: str) -> str:
    """Return the sealed login of a stored position; empty if there is none."""
    whose, _, rest = (text or "").partition(" ")
    _, bracket, login = rest.rpartition("] ")
    return login if whose == user_id and bracket else ""


def decode_position(text: str | None, user_id: str) -> tuple[str | None, Invitations]:
    """Decode a stored position; empty if it belongs to another account."""
    whose, _, rest = (text or "").partition(" ")
    if whose != user_id:
        return None, {}
    batch, _, written = rest.partition(" ")
    try:
        calls = msgspec.json.decode(written[: written.rfind("]") + 1] or "[]", type=list[Invitation])
    except msgspec.DecodeError:
        calls = []
    return batch, {call.room_id: call for call in calls}


_REQUEST_TIMEOUT_SECONDS = 30.0
_API = "/_matrix/client/v3/"
_MESSAGE_TYPES = frozenset({"m.room.message", "m.sticker"})


class Client(AsyncClient):
    """Encrypted content is untrusted: if nio fails on it, the event stays unread."""

    def _handle_decrypt_to_device(self, to_device_event: ToDeviceEvent) -> ToDeviceEvent | None:
        if isinstance(to_device_event, KeyVerificationEvent):
            return None  # ours to answer, see `verification`
        try:
            return super()._handle_decrypt_to_device(to_device_event)
        except Exception:  # noqa: BLE001 - untrusted input
            return None

    def _handle_timeline_event(
        self, event: Event | BadEventType, room_id: str, room: MatrixRoom, encrypted_rooms: set[str]
    ) -> Event | BadEventType | None:
        """Ignore encrypted state events: no homeserver has checked the sender's permission."""
        if isinstance(event, MegolmEvent):
            event.room_id = room_id
            return self.read(event)
        try:
            return super()._handle_timeline_event(event, room_id, room, encrypted_rooms)
        except Exception:  # noqa: BLE001 - untrusted input
            return None

    def _handle_messages_response(self, response: RoomMessagesResponse) -> None:
        """Decrypt one by one, so that a bad event does not block the others."""
        response.chunk = [self.read(each) or each for each in response.chunk]

    def read(self, event: Event | BadEventType) -> Event | None:
        """Decrypt a message; None if it cannot be decrypted or is not encrypted.

        The content of anything but a message is dropped.
        """
        if not isinstance(event, MegolmEvent) or self.olm is None:
            return None
        try:
            return _message_in(event, self.decrypt_event(event).source)
        except Exception:  # noqa: BLE001 - untrusted input
            return None

    async def keys_upload(self) -> KeysUploadResponse | KeysUploadError:
        """Save the keys before they are published: after a crash we must still have them."""
        if not self.olm:
            raise LocalProtocolError("Encryption is not set up.")
        keys = self.olm.share_keys()
        self.olm.save_account()
        answer: Any = await self._send(KeysUploadResponse, *Api.keys_upload(self.access_token, keys))  # pyright: ignore[reportUnknownMemberType]
        return answer

    async def keys_query(self) -> KeysQueryResponse | KeysQueryError:
        """Query all users at once; if one user's keys break nio, query each user alone."""
        users = [*self.users_for_key_query]
        answer = await self._request_or_none(KeysQueryResponse, Api.keys_query(self.access_token, users))
        if answer is not None:
            return answer
        for user in users:
            answer = await self._request_or_none(KeysQueryResponse, Api.keys_query(self.access_token, [user]))
            if isinstance(answer, KeysQueryError):
                return answer
            self.users_for_key_query.discard(user)
        return KeysQueryResponse({}, {})

    async def keys_claim(self, user_set: dict[str, Iterable[str]]) -> KeysClaimResponse | KeysClaimError:
        """Claim all at once, or one by one, like `keys_query`."""
        devices = {user: [*each] for user, each in user_set.items()}
        answer = await self._request_or_none(KeysClaimResponse, Api.keys_claim(self.access_token, {**devices}), "")
        if answer is not None:
            return answer
        for one in ({user: [device]} for user, each in devices.items() for device in each):
            answer = await self._request_or_none(KeysClaimResponse, Api.keys_claim(self.access_token, {**one}), "")
            if isinstance(answer, KeysClaimError):
                return answer
        return KeysClaimResponse({}, {})

    async def _request_or_none(self, kind: type[Response], request: tuple[str, str, str], *about: str) -> Any:  # noqa: ANN401 - as nio has it
        """Return None if the homeserver has answered and nio fails on the untrusted content."""
        try:
            answer: Any = await self._send(kind, *request, response_data=about)  # pyright: ignore[reportUnknownMemberType]
        except (aiohttp.ClientError, TimeoutError):
            raise
        except Exception:  # noqa: BLE001 - untrusted input
            return None
        return answer if isinstance(answer, kind) or not answer.transport_response.ok else None

    async def ask(
        self, method: str, *path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> Mapping[str, Any] | None:
        """Make a request that nio has no method for; None if the homeserver answers a definite no.

        Temporary failures are raised.
        """
        if not all(map(is_valid_id, path)):
            return None
        address = _API + "/".join(quote(part, safe="") for part in path) + (f"?{urlencode(query)}" if query else "")
        headers = {"Authorization": f"Bearer {self.access_token}", "Content-Type": "application/json"}
        with API.requests():
            response = await self.send(method, address, None if body is None else json.dumps(body), headers)
            answer = await self.parse_body(response)
        if response.ok:
            return answer
        if problem := request_error(ErrorResponse.from_dict(answer), response.status):
            raise problem
        return None


def _message_in(event: MegolmEvent, read: Mapping[str, Any]) -> UnknownEvent:
    """Take sender and time from the outer event, and only the content of a message from the inner one."""
    source: dict[str, Any] = {"type": "m.room.encrypted", "event_id": event.event_id, "sender": event.sender}
    if read.get("type") in _MESSAGE_TYPES:
        source |= {"type": read["type"], "content": read["content"]}
    return UnknownEvent({**source, "origin_server_ts": event.server_timestamp}, source["type"])


def check_extra(options: Options) -> None:
    """Raise BadArgument if keys are configured and encryption is not installed."""
    if options.keys and not ENCRYPTION_ENABLED:
        line = install_line("matrix-encryption")
        raise BadArgument(
            "The keys option needs the matrix-encryption extra.",
            found="matrix-nio without encryption",
            allowed="the matrix-encryption extra, or no keys option",
            example=line,
            fix=f"Install it: {line}",
        )


@asynccontextmanager
async def open_client(account: str, options: Options, login: Login | None = None) -> AsyncGenerator[Client]:
    """Yield a logged-in client; reuse an earlier login if there is one."""
    try:
        client = _client(account, options)
    except OSError as error:
        raise PlatformRefused(
            f"The folder {options.keys} for keys cannot be written: {error.strerror}. Let the gateway write there, or"
            " change the keys option."
        ) from error
    try:
        with API.requests(), _key_errors(options):
            await _log_in(client, options, login)
        yield client
    finally:
        await client.close()
        if client.store:
            client.store.database.close()


@contextmanager
def _key_errors(options: Options) -> Generator[None]:
    """Say what to do about keys that cannot be read: the libraries that read them raise errors of their own."""
    try:
        yield
    except (PlatformError, aiohttp.ClientError, TimeoutError):
        raise
    except Exception as error:
        if options.keys is None:
            raise
        raise PlatformRefused(
            f"The keys in {options.keys} cannot be read. Restore the folder from a backup, or move it away: then the"
            " bot makes new keys and cannot read older messages."
        ) from error


def stored_fingerprint(account: str, options: Options, device_id: str) -> str | None:
    """Return the fingerprint of the device's keys in the key folder, as other clients show it; None if it has none."""
    name = _key_file(account)
    if options.keys is None or not (options.keys / name).exists():
        return None
    with _key_errors(options):
        keys = store.SqliteStore(options.user_id, device_id, str(options.keys), AsyncClientConfig().pickle_key, name)
        try:
            device = keys.load_account()
        finally:
            keys.database.close()
    return " ".join(re.findall(".{1,4}", device.identity_keys["ed25519"])) if device else None


def _key_file(account: str) -> str:
    return f"{quote(account, safe='')}.db"


def _client(account: str, options: Options) -> Client:
    config: dict[str, Any] = {"max_limit_exceeded": 0, "max_timeouts": 0, "request_timeout": _REQUEST_TIMEOUT_SECONDS}
    folder, name = options.keys, _key_file(account)
    if folder:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / name).touch(mode=0o600)
        config |= {"store": store.SqliteStore, "store_name": name}
    settings = AsyncClientConfig(encryption_enabled=folder is not None, **config)
    return Client(options.homeserver, options.user_id, options.device_id, str(folder or ""), settings)


async def _log_in(client: Client, options: Options, login: Login | None) -> None:
    if options.password and login:
        client.restore_login(options.user_id, login.device_id, login.token)
    elif options.password:
        answer = await client.login(options.password.get_secret_value(), "Palaver")
        if not isinstance(answer, LoginResponse):
            raise _login_error(answer, options, "the password")
    elif options.access_token:
        client.access_token = options.access_token.get_secret_value()
        who = await client.whoami()
        if not isinstance(who, WhoamiResponse):
            raise _login_error(who, options, "the access token")
        if who.user_id != options.user_id:
            raise PlatformRefused(
                f"The access token belongs to {who.user_id}, but user_id is {options.user_id}. Change one of them."
            )
        client.restore_login(who.user_id, who.device_id or options.device_id, client.access_token)


def _login_error(answer: ErrorResponse, options: Options, means: str) -> PlatformError:
    code = answer.status_code or "unknown answer"
    if code in {"M_FORBIDDEN", "M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"}:
        return PlatformRefused(
            f"{options.homeserver} rejects {means} of {options.user_id} ({code})."
            " Log in with another client to check the account, and configure a new one."
            + (f" {EXPIRY_HINT}" if options.access_token else "")
        )
    return common_error(answer) or PlatformDown(f"The login to {options.homeserver} failed: {code}")
