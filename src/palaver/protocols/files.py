"""Files: where they can be fetched from, and their text, if a platform shows it as a message of its own."""

import base64
import binascii
import mimetypes
from collections.abc import Awaitable, Callable
from urllib.parse import unquote, urlsplit

from palaver.model.attachment import UNKNOWN_TYPE, Attachment, NewFile
from palaver.model.label import Label
from palaver.model.text import one_line
from palaver.model.turn import Outbound
from palaver.protocols.adapter import PlatformError, SendRefused, SendUnclear

__all__ = ["check_file_url", "decoded_file", "described_file", "name_in_uri", "named_file", "send_text_of_file"]

_MAX_NAME_LENGTH = 100
_ENDINGS = {"image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/wav": ".wav"}
"""Where the usual ending is not the first that comes to the library's mind."""


def named_file(name: str, size: int | None = None, *, handle: str) -> Attachment:
    """Return a file to fetch, with the type that its name suggests."""
    return Attachment(Label(name), mimetypes.guess_type(name)[0] or UNKNOWN_TYPE, size, handle=handle)


def check_file_url(url: str, *, api_url: str, hosts: tuple[str, ...]) -> str:
    """Return the URL of a file if it is on the API's own server, or with HTTPS below one of these: `.example.org`.

    People can put any URL into a message, of our own network, too. Raises SendRefused for that.
    """
    address = urlsplit(url)
    is_trusted = address.scheme == "https" and (address.hostname or "").endswith(hosts)
    if not is_trusted and (not address.netloc or address.netloc != urlsplit(api_url).netloc):
        raise SendRefused("The file is not on a server of the platform.")
    return url


def described_file(name: object, media_type: object, size: object = None, *, handle: str) -> Attachment:
    """Return a file to fetch as a message describes it: a type can have parameters, and a size can be missing."""
    kind = str(media_type or "").partition(";")[0].strip() or UNKNOWN_TYPE
    known = size if isinstance(size, int) and size >= 0 else None
    return Attachment(Label(str(name or "file")), kind, known, handle=handle)


async def send_text_of_file(outbound: Outbound, send: Callable[[], Awaitable[object]]) -> None:
    """Send the text of a file that people already see."""
    if not outbound.text.strip():
        return
    try:
        await send()
    except PlatformError as error:
        raise SendUnclear(f"The file was sent, but its text failed: {error}") from error


def decoded_file(data: str, media_type: str | None, name: str) -> NewFile | None:
    """Return a file that came as Base64, with an ending to its name; None if it is not Base64."""
    kind = (media_type or "").partition(";")[0].strip().lower() or mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    ending = "" if "." in name else _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ""
    return NewFile(one_line(name, _MAX_NAME_LENGTH) + ending, content, kind)


def name_in_uri(uri: str) -> str:
    """Return the last part of the path; nothing if there is none."""
    try:
        return unquote(urlsplit(uri).path).rstrip("/").rpartition("/")[2]
    except ValueError:
        return ""
