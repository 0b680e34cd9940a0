"""Attachments: files that come with messages or go out with answers, and what is known about them."""

import re
from typing import NamedTuple

from palaver.model.errors import PalaverError
from palaver.model.label import Label

UNKNOWN_TYPE = "application/octet-stream"
ID_LENGTH = 16
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")


class Attachment(NamedTuple):
    """A file that came in or goes out. A named tuple, because entries hold many."""

    name: Label
    """The sender's name for it. Never use it in a path."""
    media_type: str = UNKNOWN_TYPE
    size: int | None = None
    sha256: str | None = None
    """The hash it is stored under; None if it is not stored, or not yet."""
    handle: str | None = None
    """What the platform's adapter needs to fetch it."""
    problem: str = ""
    """Why it could not be stored, in words for the agent."""

    @property
    def id(self) -> str | None:
        """The short id that the agent and people use."""
        return self.sha256 and self.sha256[:ID_LENGTH]

    @property
    def is_settled(self) -> bool:
        """Whether it is stored or known to be unavailable."""
        return self.sha256 is not None or bool(self.problem)


class NewFile(NamedTuple):
    """A file that the agent or a command made."""

    name: str
    content: bytes
    media_type: str = UNKNOWN_TYPE


# Types by their first bytes. Text has no signature and keeps its declared type.
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
_BRANDS = {
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"M4P ": "audio/mp4",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"avif": "image/avif",
}
"""Files of the MP4 family by what their `ftyp` says; the others are taken for videos."""
_CONTAINERS = {"video/webm": ("audio/",), "video/mp4": ("audio/", "image/")}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_ALWAYS_SIGNED = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})


def detect_media_type(head: bytes, declared: str) -> str:
    """Return the type that the first bytes show, else the declared type unless the bytes contradict it."""
    detected = next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None)
    if head.startswith(b"RIFF"):
        detected = _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        detected = _BRANDS.get(head[8:12], "video/mp4")
    # A container holds sound alone as well as pictures; which is in its tracks, not in its first bytes.
    if detected in _CONTAINERS and declared.lower().startswith(_CONTAINERS[detected]):
        detected = None
    if detected is not None:
        return detected
    declared = declared.partition(";")[0].strip().lower()
    is_false = not _MEDIA_TYPE.fullmatch(declared) or declared in _ALWAYS_SIGNED
    return UNKNOWN_TYPE if is_false else declared


def format_size(size: int | None) -> str:
    """Return a size for people, such as `34 kB`."""
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
    """Return the line that describes a file to the agent. Wrap it in a marker before it enters a prompt."""
    kind = attachment.media_type if _MEDIA_TYPE.fullmatch(attachment.media_type) else UNKNOWN_TYPE
    facts = f"{attachment.name.quoted()}, {kind}, {format_size(attachment.size)}"
    if attachment.id is None:
        return f"file {facts}, not available: {attachment.problem or 'it has not arrived yet'}"
    return f"file {attachment.id}: {facts}"


class StoredBlob(NamedTuple):
    """Content stored under its hash."""

    sha256: str
    size: int
    head: bytes
    """The first bytes, which show its type."""


class TooLarge(PalaverError):
    """The file exceeds the size limit; nothing was stored."""
