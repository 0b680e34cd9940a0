"""Ask a BlueBubbles server: its options, its API, and what came since we last read."""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Annotated, Any, cast

import httpx2
from pydantic import AfterValidator, Field, SecretStr

from palaver.platforms.imessage.parse import is_complete
from palaver.protocols import (
    Clock,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
    check_url,
    parse_or_skip,
    value,
)
from palaver.protocols.options import AccountOptions
from palaver.protocols.rest import RestApi

Url = Annotated[str, AfterValidator(check_url("a URL, like http://mac.local:1234"))]


class IMessageOptions(AccountOptions):
    url: Url = Field(description="URL of the BlueBubbles server.")
    password: SecretStr = Field(min_length=1, description="The server password of BlueBubbles.")
    public_url: Url | None = Field(
        default=None, description="Your web server as the Mac reaches it: BlueBubbles then calls you at once."
    )
    secret: SecretStr | None = Field(
        default=None, min_length=8, description="With `public_url`: the secret in these calls; by default derived."
    )
    poll_seconds: float = Field(
        default=2.0, gt=0, le=3600, description="Without `public_url`: how often to ask for new messages."
    )
    read_receipts: bool = Field(default=True, description="Mark chats as read; needs the private API.")

    @property
    def shared_secret(self) -> str:
        """The secret in BlueBubbles' calls; the same in every worker."""
        if self.secret:
            return self.secret.get_secret_value()
        return hmac.new(self.password.get_secret_value().encode(), b"palaver webhook", hashlib.sha256).hexdigest()


Json = Mapping[str, Any]

_WRONG_PASSWORD = "BlueBubbles rejects the password. Copy the server password from its settings on the Mac."  # noqa: S105
_NOT_ON_IMESSAGE = 22
_NO_CHAT = re.compile(r"chat does not exist|.*\(-1728\)\s*", re.DOTALL | re.IGNORECASE)
"""What the private API says; the number is AppleScript's, which quotes the message before it."""


def api_of(options: IMessageOptions) -> RestApi:
    return RestApi(
        "the BlueBubbles server",
        f"{options.url}/api/v1",
        params={"password": options.password.get_secret_value()},
        fix=_WRONG_PASSWORD,
        explain=_explain,
        hint="Is the Mac awake, and does it run BlueBubbles?",
    )


def _explain(response: httpx2.Response) -> PlatformError | None:
    """Explain an error answer; None if its status says enough."""
    try:
        answer: Any = response.json()
        words = str(answer["error"]["message"])
        data = answer.get("data")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    code = cast("Json", data).get("error") if isinstance(data, dict) else None
    if code == _NOT_ON_IMESSAGE:
        return TargetGone("This address is not on iMessage (error 22).")
    if isinstance(code, int) and code:
        return PlatformDown(f"Messages on the Mac could not deliver it (error {code}).")
    if _NO_CHAT.fullmatch(words.rstrip("!")):
        return TargetGone("Messages on the Mac does not have this chat.")
    if words.startswith(("Message is already queued", "Attachment is already queued")):
        return SendUnclear("BlueBubbles is still sending this message.")
    is_missing = words.startswith("iMessage Private API")
    return PlatformDown("The private API of BlueBubbles is not connected.") if is_missing else None


@value
class ServerInfo:
    """What the server says about itself."""

    address: str
    """Our own address on iMessage."""
    version: str
    macos: str
    has_private_api: bool

    def __str__(self) -> str:
        private = "with" if self.has_private_api else "without"
        return f"{self.address} (BlueBubbles {self.version}, macOS {self.macos}, {private} the private API)"


async def fetch_info(api: RestApi) -> ServerInfo:
    info: Json = {}
    with suppress(SendRefused):
        info = data_of(await api.call("GET", "/server/info"))
    if "server_version" not in info:
        raise PlatformRefused("There is a server, but it is not BlueBubbles. Check the url.")
    return ServerInfo(
        address=str(info.get("detected_imessage") or info.get("detected_icloud") or info.get("computer_id") or "?"),
        version=str(info["server_version"]),
        macos=str(info.get("os_version")),
        has_private_api=bool(info.get("private_api") and info.get("helper_connected")),
    )


def data_of(answer: object) -> Json:
    """Return the object that an answer is about; empty if there is none."""
    found = cast("Json", answer).get("data") if isinstance(answer, dict) else None
    return cast("Json", found) if isinstance(found, dict) else {}


def items_of(answer: object) -> list[Json]:
    """Return the objects that an answer lists."""
    found = cast("Json", answer).get("data") if isinstance(answer, dict) else None
    items = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]


PARTS = ("chats", "attachments", "attributed-body", "message-summary-info")
_PAGE = 100
_EDITABLE_MS = 20 * 60 * 1000
"""How long before the newest message a message can still change: Apple permits edits for 15 minutes."""
_LATE_MS = 24 * 3600 * 1000
"""How much older than the newest message one can be that the Mac gets only now."""
_SAVE_EVERY = 20
"""How many new messages are handed over again at most after a crash."""
_HOLD_SECONDS = 30.0
"""How long to wait for the files of a message."""


@value
class Position:
    row: int = 0
    """The row of the last message: rows are numbered as the Mac gets them."""
    at: int = 0
    """The time of the newest message, in milliseconds."""
    since: int = 0
    """Older messages came before this account was set up."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | None) -> "Position | None":
        try:
            return cls(**{name: int(number) for name, number in json.loads(text or "").items()})
        except (AttributeError, TypeError, ValueError):
            return None  # not written by us


class Reader:
    def __init__(
        self, api: RestApi, receiver: Receiver, take: Callable[[Json, Receiver], Awaitable[None]], clock: Clock
    ) -> None:
        self.news = asyncio.Event()
        """Set when there may be something to read."""
        self._api = api
        self._receiver = receiver
        self._take = take
        self._clock = clock
        self._position = Position()
        self._seen: dict[tuple[object, ...], int] = {}
        """What was handed over and could still be read again, with its time."""
        self._held: dict[str, float] = {}
        """Since when messages wait for their files."""

    async def begin(self) -> None:
        stored = Position.decode(await self._receiver.load_position())
        latest = await self._query(sort="DESC", limit=_PAGE)
        row = max((_row(each) for each in latest), default=0)
        newest = max(map(self._time, latest), default=0)
        if stored is None:
            self._position = Position(row=row, at=newest, since=newest + 1)
            await self._receiver.save_position(self._position.encode())
        else:
            # A new Mac, or a restored one, numbers its messages anew.
            self._position = stored if stored.row <= row else replace(stored, row=0)

    async def read(self, *, changes: bool) -> bool:
        """Hand over what is new and, if asked for, what has changed. Return whether to read again soon."""
        start = self._position
        newest = self._position
        is_new = {"statement": "message.ROWID > :row", "args": {"row": start.row}}
        for ago, where in ((_LATE_MS, [is_new]), (_EDITABLE_MS, []))[: 2 if changes else 1]:
            found = [each async for each in self._pages(after=max(start.at - ago, start.since), where=where)]
            for count, message in enumerate(sorted(found, key=_row), 1):
                if not await self._hand_over(message):
                    return True
                newest = replace(newest, row=max(newest.row, _row(message)), at=max(newest.at, self._time(message)))
                if where and not count % _SAVE_EVERY:
                    await self._receiver.save_position(replace(start, row=_row(message)).encode())
        if newest != start:
            await self._receiver.save_position(newest.encode())
        self._position = newest
        self._seen = {key: at for key, at in self._seen.items() if at >= newest.at - _EDITABLE_MS}
        return False

    async def _hand_over(self, message: Json) -> bool:
        """Return whether it is done; not if its files are missing."""
        key = message["guid"], message.get("dateEdited"), message.get("dateRetracted")
        if key in self._seen:
            return True
        if parse_or_skip("imessage", lambda: is_complete(message)) is False:
            now = asyncio.get_running_loop().time()
            if now < self._held.setdefault(message["guid"], now) + _HOLD_SECONDS:
                return False
        self._held.pop(message["guid"], None)
        await self._take(message, self._receiver)
        self._seen[key] = self._time(message)
        return True

    def _time(self, message: Json) -> int:
        """Return when it was sent, but no time to come: that would hide everything until then."""
        return min(int(message["dateCreated"] or 0), int(self._clock.now().timestamp() * 1000))

    async def _pages(self, **query: object) -> AsyncIterator[Json]:
        offset = 0
        while True:
            page = await self._query(sort="ASC", limit=_PAGE, offset=offset, **query)
            for message in page:
                yield message
            if len(page) < _PAGE:
                return
            offset += _PAGE

    async def _query(self, **query: object) -> list[Json]:
        return items_of(await self._api.call("POST", "/message/query", json={"with": PARTS, **query}))


def _row(message: Json) -> int:
    return int(message["originalROWID"])
