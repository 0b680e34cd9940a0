"""The REST API of a BlueBubbles server, and what its errors mean."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import httpx2

from palaver.platforms.imessage.options import IMessageOptions
from palaver.protocols import PlatformDown, PlatformError, PlatformRefused, SendRefused, SendUnclear, TargetGone, value
from palaver.protocols.rest import RestApi

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
        words, data = str(answer["error"]["message"]), answer.get("data")
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
