"""Archives (XEP-0313): read what was written while we were away."""

import json
import logging
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from itertools import count
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from palaver.platforms.xmpp.names import DATA_FORM, MAM, RSM
from palaver.platforms.xmpp.parse import Stored, read_result
from palaver.platforms.xmpp.stream import Refusal, Stream
from palaver.protocols import PlatformDown, parse_or_skip

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
        fin, before = answer.find(f"{{{MAM}}}fin"), last
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
