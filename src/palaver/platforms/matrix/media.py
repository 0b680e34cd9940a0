"""Files on a homeserver: fetched, and put there; those of encrypted rooms are only opened here."""

import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from Crypto.Cipher import AES
from Crypto.Util import Counter
from nio.responses import UploadResponse

from palaver.model.attachment import Attachment
from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.errors import asking, unanswered
from palaver.platforms.matrix.events import Keyed
from palaver.protocols.adapter import PlatformBusy, PlatformDown, SendRefused

__all__ = ["content_of", "put"]

_PIECE = 65_536
_PATIENCE = 5.0
_PATHS = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")
"""Where files are, and where older homeservers have them."""


async def content_of(client: Client, handle: str) -> AsyncIterator[bytes]:
    """By what the event said: an address, or an address and a key."""
    if handle.startswith("mxc://"):
        async for piece in _download(client, handle):
            yield piece
        return
    try:
        keyed = msgspec.json.decode(handle, type=Keyed)
        opening = _Opening(keyed)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise SendRefused("what the message says of the file cannot be used") from error
    async for piece in _download(client, keyed.url):
        yield opening.opened(piece)
    opening.check()


class _Opening:
    """An encrypted file that is opened piece by piece; at the end it shows whether it was the right one."""

    def __init__(self, keyed: Keyed) -> None:
        start = _unpadded(keyed.iv)
        counter = Counter.new(64, prefix=start[:8], initial_value=int.from_bytes(start[8:], "big"))
        self._cipher = AES.new(_unpadded(str(keyed.key["k"])), AES.MODE_CTR, counter=counter)
        self._expected = _unpadded(keyed.hashes["sha256"])
        self._seen = hashlib.sha256()

    def opened(self, piece: bytes) -> bytes:
        self._seen.update(piece)
        return self._cipher.decrypt(piece)

    def check(self) -> None:
        if self._seen.digest() != self._expected:
            raise SendRefused("the file is not the one that was sent")


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))


async def _download(client: Client, address: str) -> AsyncGenerator[bytes]:
    server, _, name = address.removeprefix("mxc://").partition("/")
    if not server or not name:
        raise SendRefused("the message says of no file where it is")
    headers = {"Authorization": f"Bearer {client.access_token}"}
    with asking():
        for path in _PATHS:
            where = f"{path}/{quote(server, safe='')}/{quote(name, safe='')}"
            # A large file takes its time; whoever fetches it says how much it has.
            response = await client.send("GET", where, None, headers, timeout=0)
            if response.ok:
                async for piece in response.content.iter_chunked(_PIECE):
                    yield piece
                return
            _raise_passing(response)
    raise SendRefused("the homeserver does not have the file")


def _raise_passing(response: aiohttp.ClientResponse) -> None:
    response.release()
    if response.status == 429:  # noqa: PLR2004 - too many requests
        raise PlatformBusy(_PATIENCE)
    if response.status >= 500:  # noqa: PLR2004 - the server is in trouble
        raise PlatformDown(f"the homeserver could not give the file ({response.status})")


async def put(client: Client, file: Attachment, content: Path, *, encrypt: bool) -> dict[str, Any]:
    """How an event says where the file is; its name is said there, too."""
    size = content.stat().st_size  # noqa: ASYNC240 - quick
    with asking(), content.open("rb") as opened:
        answer, keyed = await client.upload(opened, file.media_type, encrypt=encrypt, filesize=size)
    if not isinstance(answer, UploadResponse):
        status = getattr(answer.transport_response, "status", 0)
        refused = SendRefused(f"the homeserver does not take the file ({answer.status_code or status})")
        raise unanswered(answer, status) or refused
    return {"file": {**keyed, "url": answer.content_uri}} if keyed else {"url": answer.content_uri}
