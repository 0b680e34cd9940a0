"""Parse the lines of an ntfy subscription."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from palaver.protocols import DM, Attachment, Inbound, Source
from palaver.protocols.files import described_file

Json = Mapping[str, Any]
ROBOT = "robot"
"""The tag of what programs write; apps show it as an emoji. Without it we would answer ourselves."""


class Line(NamedTuple):
    event: str
    time: int
    inbound: Inbound | None = None


def parse(text: str, account: str, server: str) -> Line:
    """Parse a line. The server does not say who wrote a message, so a topic is one person."""
    found: Json = json.loads(text)
    event, time = str(found["event"]), int(found["time"])
    if event != "message" or ROBOT in (found.get("tags") or ()):
        return Line(event, 0)
    topic = str(found["topic"])
    inbound = Inbound(
        source=Source(
            platform="ntfy",
            account=account,
            chat_kind=DM,
            chat_id=topic,
            user_id=topic,
            message_id=str(found["id"]),
        ),
        text="\n".join(str(part) for part in (found.get("title"), found.get("message")) if part),
        at=datetime.fromtimestamp(time, UTC),
        mentions_us=True,
        files=tuple(_files(found, server)),
    )
    return Line(event, time, inbound)


def _files(found: Json, server: str) -> Iterator[Attachment]:
    """Only files on the server itself: a message could name any address."""
    file = cast("Json | None", found.get("attachment"))
    url = str(file["url"]) if file else ""
    if file and url.startswith(f"{server}/file/"):
        yield described_file(file.get("name"), file.get("type"), file.get("size"), handle=url.removeprefix(server))
