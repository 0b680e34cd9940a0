"""Files that we send: Yuanbao gives a place in Tencent's cloud storage (COS), and keys for a while to write there."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from palaver.platforms.yuanbao.wire import elements
from palaver.protocols import Attachment, value
from palaver.protocols.protobuf import encode

MAX_FILE_BYTES = 20 << 20
_ANY_FORMAT = 255


@value
class Place:
    """Where a file goes, and the URL under which people then find it."""

    url: str
    headers: Mapping[str, str]
    resource: str

    @classmethod
    def read(cls, found: Mapping[str, Any], size: int, storage_url: str | None) -> "Place":
        path = f"/{str(found['location']).lstrip('/')}"
        url = (storage_url or f"https://{found['bucketName']}.cos.{found['region']}.myqcloud.com") + path
        token = str(found["encryptToken"])
        signed = {"content-length": str(size), "host": urlsplit(url).netloc, "x-cos-security-token": token}
        during = f"{int(found['startTime'])};{int(found['expiredTime'])}"
        secret_id, secret = str(found["encryptTmpSecretId"]), str(found["encryptTmpSecretKey"])
        headers = {"authorization": sign(path, signed, during, secret_id, secret), "x-cos-security-token": token}
        return cls(url=url, headers=headers, resource=str(found["resourceUrl"]))


def sign(path: str, headers: Mapping[str, str], during: str, secret_id: str, secret: str) -> str:
    """Sign a PUT as Tencent's documentation of COS describes it."""
    names = sorted(headers)
    listed = "&".join(f"{name}={quote(headers[name], safe='')}" for name in names)
    request = hashlib.sha1(f"put\n{path}\n\n{listed}\n".encode()).hexdigest()  # noqa: S324 - COS wants it
    signature = _hmac(_hmac(secret, during), f"sha1\n{during}\n{request}\n")
    parts = {
        "q-sign-algorithm": "sha1",
        "q-ak": secret_id,
        "q-sign-time": during,
        "q-key-time": during,
        "q-header-list": ";".join(names),
        "q-url-param-list": "",
        "q-signature": signature,
    }
    return "&".join(f"{name}={part}" for name, part in parts.items())


def file_part(file: Attachment, content: bytes, url: str) -> list[bytes]:
    """Return a message body: a picture, or another file."""
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if file.media_type.startswith("image/"):
        picture = encode((1, 1), (2, len(content)), (5, url))
        return elements([("TIMImageElem", encode((2, digest), (3, _ANY_FORMAT), (8, picture)))])
    name = file.name.plain() or "file"
    return elements([("TIMFileElem", encode((2, digest), (10, url), (11, len(content)), (12, name)))])


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha1).hexdigest()
