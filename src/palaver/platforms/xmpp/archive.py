"""Archives (XEP-0313): read what was written while we were away."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from palaver.platforms.xmpp.names import DATA_FORM, MAM, RSM
from palaver.platforms.xmpp.parse import Stored, read_result
from palaver.platforms.xmpp.stream import Refusal, Stream
from palaver.protocols import parse_or_skip

_PAGE = 50
_MAX_PAGES = 200


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
    for _ in range(_MAX_PAGES):
        try:
            results, answer = await stream.ask_archive(archive, _query(last, since.at))
        except Refusal as refusal:
            if refusal.condition != "item-not-found" or not last:
                return
            last = ""  # The archive no longer has that message.
            continue
        for result in results:
            stored = parse_or_skip("xmpp", lambda result=result: read_result(result, archive))
            if stored is not None:
                yield stored
        fin = answer.find(f"{{{MAM}}}fin")
        last = answer.findtext(f"{{{MAM}}}fin/{{{RSM}}}set/{{{RSM}}}last") or ""
        if fin is None or fin.get("complete") == "true" or not last:
            return


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
