"""nio's client: options, errors, logged in, and hardened against malformed events."""

import json
import re
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import quote, urlencode

import aiohttp
from nio import AsyncClient, AsyncClientConfig, store
from nio.api import Api
from nio.crypto import ENCRYPTION_ENABLED
from nio.events import BadEventType, Event, KeyVerificationEvent, MegolmEvent, ToDeviceEvent, UnknownEvent
from nio.exceptions import EncryptionError, GroupEncryptionError, LocalProtocolError, MembersSyncError
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
from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.platforms.matrix.parse import is_valid_id
from palaver.protocols import (
    BadArgument,
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    TargetGone,
    answer_error,
    check_url,
    value,
)
from palaver.protocols.installation import install_line
from palaver.protocols.options import AccountOptions

Invites = Literal["everybody", "server", "nobody"] | tuple[str, ...]
Verifiers = Literal["owner"] | tuple[str, ...]

_USER = re.compile(r"@[^:\s]+:\S+")


_check_url = check_url("the URL of the homeserver, like https://matrix.example.org")


def _check_user_id(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError("the full user id, like @helper:example.org")
    return text


def _check_folder(path: Path) -> Path:
    whole = path.expanduser()
    if not whole.is_absolute():
        raise ValueError("an absolute path, like ~/palaver/matrix-keys")
    return whole


class Options(AccountOptions):
    homeserver: Annotated[str, AfterValidator(_check_url), Field(examples=["https://matrix.example.org"])]
    user_id: Annotated[str, AfterValidator(_check_user_id), Field(examples=['"@helper:example.org"'])]
    access_token: SecretStr | None = None
    password: SecretStr | None = None
    device_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] = "PALAVER"
    """The device id for logging in with a password."""
    keys: Annotated[Path, AfterValidator(_check_folder)] | None = None
    """The folder for the keys of encrypted rooms; without it we cannot read them."""
    invites: Invites = "server"
    """Whose invitations to accept: everybody's, our homeserver's, nobody's, or those of listed people and servers."""
    verifiers: Verifiers = "owner"
    """Who can verify our device with emoji: an owner, or the listed people."""

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if (self.access_token is None) == (self.password is None):
            raise ValueError("either access_token or password, not both")
        return self


EXPIRY_HINT = (
    "Tokens from Element expire within hours on homeservers with the Matrix Authentication Service, such as"
    " matrix.org: configure password there instead."
)
_DEFAULT_WAIT_SECONDS = 5.0
"""How long to wait if a rate limit does not say."""
_LOGGED_OUT = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
_NO_ACCESS = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_GUEST_ACCESS_FORBIDDEN"})
_POSITION_ERRORS = frozenset({"M_UNKNOWN", "M_INVALID_PARAM"})
_DEFINITE = frozenset({400, 403, 404, 413})
"""Statuses that a retry would not change."""


def common_error(answer: ErrorResponse) -> PlatformError | None:
    """Translate the errors that any request can get; None for others."""
    code = answer.status_code or ""
    if code == "M_LIMIT_EXCEEDED":
        return PlatformBusy((answer.retry_after_ms or _DEFAULT_WAIT_SECONDS * 1000) / 1000)
    if code in _LOGGED_OUT:
        return PlatformRefused(f"The access token has expired ({code}). Configure a new one. {EXPIRY_HINT}")
    if code == "M_USER_DEACTIVATED":
        return PlatformRefused(f"The account is deactivated ({code}). Configure another one.")
    return None


def sync_error(answer: ErrorResponse) -> PlatformError:
    """Translate an error of /sync. A rate limit counts as a lost connection."""
    known = common_error(answer)
    if isinstance(known, PlatformRefused):
        return known
    return PlatformDown(str(known or f"The sync failed: {answer.status_code or 'no reason given'}"))


def is_unknown_position(answer: object) -> bool:
    """Return whether the homeserver rejects our position. A proxy in front of it would send no error code."""
    if not isinstance(answer, ErrorResponse) or answer.status_code not in _POSITION_ERRORS:
        return False
    return getattr(answer.transport_response, "status", 0) == HTTPStatus.BAD_REQUEST


def request_error(answer: ErrorResponse, status: int) -> PlatformError | None:
    """Translate an error of any other request; None for a definite no."""
    if known := common_error(answer):
        return known
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return PlatformBusy(_DEFAULT_WAIT_SECONDS)
    return None if status in _DEFINITE else PlatformDown(f"The homeserver answered {status}.")


def send_error(answer: ErrorResponse) -> PlatformError:
    """Translate an error of sending a message."""
    code = answer.status_code or ""
    if known := common_error(answer):
        return known
    if code in _NO_ACCESS:
        return TargetGone(f"We cannot write to this room ({code}).")
    status = getattr(answer.transport_response, "status", 0)
    return answer_error("The homeserver", status, sending=True, words=code)


API = ClientErrors(
    title="the homeserver",
    raised=(aiohttp.ClientError, TimeoutError),
    unsent=(aiohttp.ClientConnectorError,),
    hint="If that lasts, check the homeserver option and the network.",
)


@contextmanager
def encryption_errors() -> Generator[None]:
    """Translate errors of encrypting a message: nothing was sent."""
    try:
        yield
    except (GroupEncryptionError, MembersSyncError) as error:
        raise PlatformDown("The room key has not reached every member yet.") from error
    except (EncryptionError, LocalProtocolError) as error:
        raise SendRefused(f"The message cannot be encrypted: {type(error).__name__}") from error


class Login(NamedTuple):
    device_id: str
    token: str


@value
class Invitation:
    room_id: str
    server: str
    """A server to join through."""
    inviter: str
    is_direct: bool = False


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
    folder = options.keys
    name = _key_file(account)
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
