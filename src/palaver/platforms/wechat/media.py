"""Upload, download and send files: the same in WeChat and WeCom."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from palaver.platforms.wechat.render import MAX_FILE_BYTES, media_kind
from palaver.protocols import Attachment, Outbound, file_to_send
from palaver.protocols.files import send_text_of_file
from palaver.protocols.tokens import TokenApi


def download(api: TokenApi, file: Attachment) -> AsyncIterator[bytes]:
    return api.download("/cgi-bin/media/get", params={"media_id": file.handle or ""})


async def send_file(
    api: TokenApi,
    outbound: Outbound,
    content: Path,
    *,
    post: Callable[[Mapping[str, Any]], Awaitable[str]],
    send: Callable[[], Awaitable[str]],
    takes_files: bool,
) -> str:
    """Upload and `post` a file, then `send` its text."""
    file = file_to_send(outbound, content, MAX_FILE_BYTES)
    body = await asyncio.to_thread(content.read_bytes)
    kind = media_kind(file, len(body), takes_files=takes_files)
    files = {"media": (file.name.plain() or "file", body, file.media_type)}
    uploaded = await api.call("POST", "/cgi-bin/media/upload", params={"type": kind}, files=files)
    receipt = await post({"touser": outbound.chat_id, "msgtype": kind, kind: {"media_id": str(uploaded["media_id"])}})
    await send_text_of_file(outbound, send)
    return receipt
