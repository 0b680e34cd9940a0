"""Downloads: files of strangers, handed out so that no browser takes them for a page of ours."""

from pathlib import Path
from urllib.parse import quote

from starlette.responses import FileResponse, Response

from palaver.domain.attachment import UNKNOWN_TYPE, Attachment
from palaver.domain.errors import NotFound
from palaver.domain.text import one_line
from palaver.ports.files import Shelf

__all__ = ["PICTURES", "download"]

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LONGEST_NAME = 200


def download(file: Attachment, shelf: Shelf | None) -> Response:
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
