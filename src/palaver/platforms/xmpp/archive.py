"""What a server keeps: the archive of messages, and uploaded files."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from palaver.platforms.xmpp.parse import DATA_FORM, DISCO_INFO, DISCO_ITEMS, MAM, RSM, UPLOAD, Stored, read_result
from palaver.platforms.xmpp.stream import Refusal, Stream
from palaver.protocols import Attachment, PlatformDown, SendRefused, parse_or_skip
from palaver.protocols.rest import RestApi

log = logging.getLogger(__name__)

_PAGE = 50
_MAX_PAGES = 1_000
"""A room could send pages forever."""
_TEMPORARY = frozenset({"internal-server-error", "resource-constraint", "remote-server-timeout"})


class Place(NamedTuple):
    """How far an archive is read: the id of the last message, and when it came."""

    id: str
    at: datetime


Position = dict[str, Place]
"""By the address of a room; our own archive is the empty one."""


def read_position(saved: str | None) -> Position:
    found = json.loads(saved or "{}")
    return {archive: Place(last, datetime.fromisoformat(at)) for archive, (last, at) in found.items()}


def write_position(position: Position) -> str:
    return json.dumps({archive: (place.id, place.at.isoformat()) for archive, place in position.items()})


async def read_archive(stream: Stream, archive: str, since: Place) -> AsyncGenerator[Stored]:
    """Yield what came after a place, the oldest first; nothing if there is no archive."""
    last = since.id
    for page in count():
        try:
            results, answer = await stream.ask_archive(archive, _query(last, since.at))
        except (Refusal, PlatformDown) as error:
            if last and isinstance(error, Refusal) and error.condition == "item-not-found":
                last = ""  # The archive no longer has that message.
                continue
            _give_up(stream, archive, error)
            return
        for result in results:
            stored = parse_or_skip("xmpp", lambda result=result: read_result(result, archive))
            if stored is not None:
                yield stored
        fin = answer.find(f"{{{MAM}}}fin")
        before = last
        last = answer.findtext(f"{{{MAM}}}fin/{{{RSM}}}set/{{{RSM}}}last") or ""
        if fin is None or fin.get("complete") == "true" or last in {"", before}:
            return
        if archive and page >= _MAX_PAGES:
            _warn("it never ends")
            return


def _give_up(stream: Stream, archive: str, error: Refusal | PlatformDown) -> None:
    """Raise PlatformDown if our own archive cannot be read now: nothing is passed over. A room stops nothing."""
    is_temporary = isinstance(error, PlatformDown) or error.condition in _TEMPORARY
    if stream.lost.done() or (is_temporary and not archive):
        raise PlatformDown("The XMPP server cannot read its archive now.") from error
    if is_temporary:
        _warn(str(error))


def _warn(why: str) -> None:
    log.warning("cannot read the archive of a room: %s", why, extra={"action": "xmpp.archive_failed"})


def _query(after: str, start: datetime) -> Element:
    query = Element(f"{{{MAM}}}query")
    if not after:
        form = SubElement(query, f"{{{DATA_FORM}}}x", type="submit")
        for name, value in (("FORM_TYPE", MAM), ("start", f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")):
            field = SubElement(form, f"{{{DATA_FORM}}}field", var=name)
            SubElement(field, f"{{{DATA_FORM}}}value").text = value
    page = SubElement(query, f"{{{RSM}}}set")
    SubElement(page, f"{{{RSM}}}max").text = str(_PAGE)
    if after:
        SubElement(page, f"{{{RSM}}}after").text = after
    return query


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
