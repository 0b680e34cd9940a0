"""Render messages for QQ, which shows plain text."""

import hashlib
from typing import Any

from palaver.protocols import Attachment, SendRefused
from palaver.protocols.markdown import to_plain

MAX_FILE_BYTES = 10_000_000
_SEQUENCES = 1_000_000_000
_KINDS = {"image/png": 1, "image/jpeg": 1, "video/mp4": 2}


def render(text: str, reply_to: str, key: str) -> dict[str, Any]:
    """Render a reply. QQ shows one message for each number of a reply, so a key always has the same one."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % _SEQUENCES + 1
    return {"content": to_plain(text), "msg_type": 0, "msg_id": reply_to, "msg_seq": number}


def file_kind(file: Attachment) -> int:
    if file.media_type not in _KINDS:
        raise SendRefused(f"QQ takes no files of the type {file.media_type}.")
    return _KINDS[file.media_type]
