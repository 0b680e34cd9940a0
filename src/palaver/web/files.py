"""Serve files: attachments as safe downloads, and static assets under addresses that change with their content."""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from palaver.model.attachment import UNKNOWN_TYPE, Attachment
from palaver.model.errors import NotFound
from palaver.model.text import one_line
from palaver.store.conversations.blob_store import BlobStore

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SOUNDS = frozenset({"audio/mpeg", "audio/ogg", "audio/wav", "audio/webm", "audio/mp4", "audio/aac", "audio/flac"})
_SHOWN = PICTURES | SOUNDS
_MAX_NAME_LENGTH = 200
_STATIC = Path(__file__).parent / "static"
_STATIC_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}


def download(file: Attachment, shelf: BlobStore | None) -> Response:
    """Show pictures and play sounds in place, save everything else; nothing in a file can run."""
    sha256 = file.sha256 or file.handle or ""
    if shelf is None or shelf.place(sha256) is None:
        raise NotFound("file", file.name.plain())
    is_shown = file.media_type in _SHOWN
    return _StoredFile(
        shelf,
        sha256,
        media_type=file.media_type if is_shown else UNKNOWN_TYPE,
        headers={
            "content-disposition": f"{'inline' if is_shown else 'attachment'}; filename*=UTF-8''{_safe_name(file)}",
            "content-security-policy": "sandbox; default-src 'none'",
            "cache-control": "private, max-age=3600",
        },
    )


class _StoredFile(FileResponse):
    """Stored content, readable for as long as the response takes."""

    def __init__(self, shelf: BlobStore, sha256: str, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__("", media_type=media_type, headers=headers)
        self._shelf = shelf
        self._sha256 = sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._shelf.reading(self._sha256) as path:
            if path is None:  # removed since
                await PlainTextResponse("There is no such file.\n", status_code=404)(scope, receive, send)
                return
            self.path = path
            await super().__call__(scope, receive, send)


def _safe_name(file: Attachment) -> str:
    """Return the last path component on one line, so that the name cannot lead out of the download folder."""
    name = one_line(file.name.plain().replace("\\", "/").rpartition("/")[2], _MAX_NAME_LENGTH)
    return quote(name.lstrip(".") or "file", safe="")


@cache
def _static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the content and media type of each file. Anybody can ask for them, so they stay in memory."""
    found = [path for path in _STATIC.iterdir() if path.suffix in _STATIC_TYPES]
    return {path.name: (path.read_bytes(), _STATIC_TYPES[path.suffix]) for path in found}


@cache
def asset(name: str) -> str:
    """Return the URL of a static file, for templates: `asset("palaver.css")`."""
    if name not in _static_files():
        raise KeyError(name)
    return f"/static/{_static_digest()}/{name}"


@cache
def _static_digest() -> str:
    """Return one digest for all files: a script imports others beside it, and gets them from the same version."""
    contents = (content for _, (content, _) in sorted(_static_files().items()))
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]


async def _serve_static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _static_files():
        return PlainTextResponse("There is no such file.\n", status_code=404)
    content, media_type = _static_files()[name]
    is_current = request.path_params["digest"] == _static_digest()
    cache_control = "public, max-age=31536000, immutable" if is_current else "no-cache"
    headers = {"cache-control": cache_control, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = _compressed(name), {**headers, "content-encoding": "gzip"}
    return Response(content, media_type=media_type, headers=headers)


@cache
def _compressed(name: str) -> bytes:
    """Compress a static file. Pages are not compressed: what strangers say must not tell the length of a token."""
    return gzip.compress(_static_files()[name][0], mtime=0)


ROUTES = (Route("/static/{digest}/{name}", _serve_static),)
