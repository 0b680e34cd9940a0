"""Attachments: files that come with messages or go out with answers, and what is believed about them."""

import re
from typing import NamedTuple

from palaver.model.errors import PalaverError
from palaver.model.label import Label

__all__ = [
    "ID_LENGTH",
    "UNKNOWN_TYPE",
    "Attachment",
    "NewFile",
    "StoredBlob",
    "TooLarge",
    "describe_attachment",
    "detect_media_type",
    "format_size",
]

UNKNOWN_TYPE = "application/octet-stream"
ID_LENGTH = 16
_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")


class Attachment(NamedTuple):
    """A file that somebody sent, or that is to be sent. A named tuple, since entries hold them."""

    name: Label
    """As a stranger called it: never part of a path."""
    media_type: str = UNKNOWN_TYPE
    size: int | None = None
    sha256: str | None = None
    """What it is kept under; None while, or because, it is not here."""
    handle: str | None = None
    """How the adapter of its platform fetches it."""
    problem: str = ""
    """Why it is not here, in words for the agent."""

    @property
    def id(self) -> str | None:
        """What the agent and people call it by."""
        return self.sha256 and self.sha256[:ID_LENGTH]

    @property
    def is_settled(self) -> bool:
        """It is here, or never will be."""
        return self.sha256 is not None or bool(self.problem)


class NewFile(NamedTuple):
    """A file that the agent or a command has made."""

    name: str
    content: bytes
    media_type: str = UNKNOWN_TYPE


# By their first bytes. Text has none, and stays what it claims to be.
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\x7fELF", "application/x-elf"),
    (b"MZ", "application/x-msdownload"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_SEEN_BY_SIGNATURE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})


def detect_media_type(head: bytes, claimed: str) -> str:
    """What a file is by its first bytes, else what it claims to be, unless the bytes say that it is not."""
    seen = next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None)
    if head.startswith(b"RIFF"):
        seen = _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp" and not claimed.startswith(("audio/", "image/")):
        seen = "video/mp4"
    if seen is not None:
        return seen
    claimed = claimed.partition(";")[0].strip().lower()
    is_false = not _TYPE.fullmatch(claimed) or claimed in _SEEN_BY_SIGNATURE
    return UNKNOWN_TYPE if is_false else claimed


def format_size(size: int | None) -> str:
    """`34 kB`: for people."""
    if size is None:
        return "of unknown size"
    if size == 1:
        return "1 byte"
    amount = float(size)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:  # noqa: PLR2004 - the step between the units
            return f"{amount:.0f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def describe_attachment(attachment: Attachment) -> str:
    """What the agent is told of a file; whoever writes it into a prompt puts it into a mark."""
    kind = attachment.media_type if _TYPE.fullmatch(attachment.media_type) else UNKNOWN_TYPE
    facts = f"{attachment.name.quoted()}, {kind}, {format_size(attachment.size)}"
    if attachment.id is None:
        return f"file {facts}, not here: {attachment.problem or 'it is still to come'}"
    return f"file {attachment.id}: {facts}"


class StoredBlob(NamedTuple):
    """Content that was stored under its hash."""

    sha256: str
    size: int
    head: bytes
    """The first bytes, by which its type is known."""


class TooLarge(PalaverError):
    """More came than is taken; nothing was kept."""
