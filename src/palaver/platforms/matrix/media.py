"""Download files from a homeserver and upload ours; decrypt those of encrypted rooms."""

import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from Crypto.Cipher import AES
from Crypto.Util import Counter
from nio.responses import UploadResponse

from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.errors import API, request_error
from palaver.platforms.matrix.events import EncryptedFile
from palaver.protocols import Attachment, SendRefused, answer_error

_CHUNK_BYTES = 65_536
_PATHS = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")
"""The current path, and that of older homeservers."""


async def download(client: Client, handle: str) -> AsyncIterator[bytes]:
    """Yield the content by its handle: an mxc URL, or JSON with a URL and a key."""
    if handle.startswith("mxc://"):
        async for piece in _download(client, handle):
            yield piece
        return
    try:
        keyed = msgspec.json.decode(handle, type=EncryptedFile)
        decryptor = _Decryptor(keyed)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise SendRefused("The message describes the file incorrectly.") from error
    async for piece in _download(client, keyed.url):
        yield decryptor.decrypt(piece)
    decryptor.check()


class _Decryptor:
    """Decrypts a file in chunks and checks its hash at the end."""

    def __init__(self, keyed: EncryptedFile) -> None:
        start = _decode_base64(keyed.iv)
        counter = Counter.new(64, prefix=start[:8], initial_value=int.from_bytes(start[8:], "big"))
        self._cipher = AES.new(_decode_base64(str(keyed.key["k"])), AES.MODE_CTR, counter=counter)
        self._expected = _decode_base64(keyed.hashes["sha256"])
        self._seen = hashlib.sha256()

    def decrypt(self, piece: bytes) -> bytes:
        self._seen.update(piece)
        return self._cipher.decrypt(piece)

    def check(self) -> None:
        if self._seen.digest() != self._expected:
            raise SendRefused("The file is not the one that was sent: its hash differs.")


def _decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))


async def _download(client: Client, address: str) -> AsyncGenerator[bytes]:
    server, _, name = address.removeprefix("mxc://").partition("/")
    if not server or not name:
        raise SendRefused("The message has no address for the file.")
    headers = {"Authorization": f"Bearer {client.access_token}"}
    with API.requests():
        for path in _PATHS:
            where = f"{path}/{quote(server, safe='')}/{quote(name, safe='')}"
            # No timeout: a large file takes long, and the caller has a limit of its own.
            response = await client.send("GET", where, None, headers, timeout=0)
            if response.ok:
                async for piece in response.content.iter_chunked(_CHUNK_BYTES):
                    yield piece
                return
            response.release()
            problem = answer_error("The homeserver", response.status, sending=False)
            if not isinstance(problem, SendRefused):
                raise problem
    raise SendRefused("The homeserver does not have the file.")


async def upload(client: Client, file: Attachment, content: Path, *, encrypt: bool) -> dict[str, Any]:
    """Upload a file and return the event fields that locate it."""
    size = content.stat().st_size  # noqa: ASYNC240 - quick
    with API.requests(), content.open("rb") as opened:
        answer, keyed = await client.upload(opened, file.media_type, encrypt=encrypt, filesize=size)
    if not isinstance(answer, UploadResponse):
        status = getattr(answer.transport_response, "status", 0)
        refused = SendRefused(f"The homeserver rejects the file ({answer.status_code or status}).")
        raise request_error(answer, status) or refused
    return {"file": {**keyed, "url": answer.content_uri}} if keyed else {"url": answer.content_uri}
