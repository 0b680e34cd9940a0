"""Numbers in addresses and fields, where anybody may write anything."""

import hashlib
from functools import cache
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from palaver.model.attachment import UNKNOWN_TYPE, Attachment
from palaver.model.errors import NotFound
from palaver.model.text import one_line
from palaver.store.conversations.blob_store import BlobStore

__all__ = [
    "PICTURES",
    "asset",
    "download",
    "number",
    "routes",
]

_LONGEST = 18


def number(text: str) -> int | None:
    """None for what is no number, or none that a store has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST else None


PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LONGEST_NAME = 200


def download(file: Attachment, shelf: BlobStore | None) -> Response:
    """Pictures may be looked at in their place, everything else is saved; nothing of it runs."""
    place = shelf.place(file.sha256 or file.handle or "") if shelf else None
    if place is None:
        raise NotFound("file", file.name.plain())
    return _answer(place, file)


def _answer(place: Path, file: Attachment) -> Response:
    is_picture = file.media_type in PICTURES
    return FileResponse(
        place,
        media_type=file.media_type if is_picture else UNKNOWN_TYPE,
        headers={
            "content-disposition": f"{'inline' if is_picture else 'attachment'}; filename*=UTF-8''{_name(file)}",
            "content-security-policy": "sandbox; default-src 'none'",
            "cache-control": "private, max-age=3600",
        },
    )


def _name(file: Attachment) -> str:
    """The last part alone, on one line: what came before could lead out of the folder that it is saved in."""
    plain = one_line(file.name.plain().replace("\\", "/").rpartition("/")[2], _LONGEST_NAME)
    return quote(plain.lstrip(".") or "file", safe="")


_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}
_FOR_EVER = "public, max-age=31536000, immutable"


@cache
def asset(name: str) -> str:
    """The address of a file, for templates: `asset("palaver.css")`."""
    digest = hashlib.sha256((_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


def routes() -> list[Route]:
    return [Route("/static/{digest}/{name}", _serve)]


async def _serve(request: Request) -> Response:
    name = request.path_params["name"]
    known = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _TYPES}
    if name not in known:
        return PlainTextResponse("There is no such file.\n", status_code=404)
    is_current = asset(name).split("/")[2] == request.path_params["digest"]
    return FileResponse(
        known[name],
        media_type=_TYPES[known[name].suffix],
        headers={"cache-control": _FOR_EVER if is_current else "no-cache"},
    )
