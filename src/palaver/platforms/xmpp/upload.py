"""Files: HTTP File Upload (XEP-0363) for ours, and where those of others can be fetched from."""

import asyncio
import re
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

from palaver.platforms.xmpp.names import DISCO_INFO, DISCO_ITEMS, UPLOAD
from palaver.platforms.xmpp.stream import Refusal, Stream
from palaver.protocols import Attachment, SendRefused
from palaver.protocols.rest import RestApi

_HEADERS = {"authorization", "cookie", "expires"}
_MAX_NAME = 100


class Slot(NamedTuple):
    put: str
    get: str
    headers: dict[str, str]


async def upload(stream: Stream, api: RestApi, file: Attachment, content: Path) -> str:
    """Put a file on the server and return its URL."""
    body = await asyncio.to_thread(content.read_bytes)
    try:
        slot = await _request_slot(stream, file, len(body))
    except Refusal as refusal:
        raise SendRefused(f"The XMPP server does not take the file: {refusal.condition}.") from refusal
    headers = {"content-type": file.media_type, **slot.headers}
    async with api.stream("PUT", slot.put, content=body, headers=headers) as response:
        await response.aread()
    return slot.get


async def _request_slot(stream: Stream, file: Attachment, size: int) -> Slot:
    service = await _find_service(stream)
    name = re.sub(r"[^\w.-]+", "_", Path(file.name.plain()).name)[-_MAX_NAME:] or "file"
    wanted = {"filename": name, "size": str(size), "content-type": file.media_type}
    answer = await stream.ask("get", service, Element(f"{{{UPLOAD}}}request", wanted))
    put = answer.find(f"{{{UPLOAD}}}slot/{{{UPLOAD}}}put")
    get = answer.find(f"{{{UPLOAD}}}slot/{{{UPLOAD}}}get")
    if put is None or get is None:
        raise SendRefused("The XMPP server gives no address for the file.")
    given = {each.get("name", "").lower(): each.text or "" for each in put.findall(f"{{{UPLOAD}}}header")}
    headers = {name: re.sub(r"[\r\n]", "", text) for name, text in given.items() if name in _HEADERS}
    return Slot(put.attrib["url"], get.attrib["url"], headers)


async def _find_service(stream: Stream) -> str:
    items = await stream.ask("get", stream.domain, Element(f"{{{DISCO_ITEMS}}}query"))
    names = [each.get("jid", "") for each in items.findall(f"{{{DISCO_ITEMS}}}query/{{{DISCO_ITEMS}}}item")]
    for name in (stream.domain, *names):
        try:
            info = await stream.ask("get", name, Element(f"{{{DISCO_INFO}}}query"))
        except Refusal:
            continue
        if any(each.get("var") == UPLOAD for each in info.iter(f"{{{DISCO_INFO}}}feature")):
            return name
    raise SendRefused("The XMPP server takes no files (XEP-0363).")
