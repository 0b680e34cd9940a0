"""Transcripts for people: what strangers wrote made harmless, who spoke, what was left out."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from palaver.domain.attachment import size_text
from palaver.domain.label import Label
from palaver.domain.text import one_line
from palaver.domain.transcript import Entry, Role
from palaver.stores.archive.form import ArchivedSession, Record

__all__ = ["facts", "file_lines", "heading", "legible", "marks", "moment_text", "shown_entries", "speaker"]

_BREAKS = re.compile("\r\n?|[\u2028\u2029\x85\x0b\x0c]")
# Control characters but tab and line feed, half surrogates, what turns the direction of writing, hidden tags.
_HARMFUL = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def legible(text: str) -> str:
    """The text with its lines, without anything that could play tricks on a terminal or a page."""
    return _HARMFUL.sub("", _BREAKS.sub("\n", text))


def moment_text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def heading(session: ArchivedSession) -> str:
    return Label(session.title).plain() if session.title else f"Session {session.id}"


def facts(session: ArchivedSession, entries: int) -> Iterator[tuple[str, str]]:
    yield "id", session.id
    yield "conversation", session.key
    yield "started", moment_text(session.started)
    if session.ended is not None:
        yield "ended", f"{moment_text(session.ended)} ({session.end_reason})"
    if session.parent is not None:
        yield "branched from", session.parent
    yield "entries", str(entries)
    yield "tokens", f"{session.input_tokens} in, {session.output_tokens} out"


def shown_entries(record: Record, *, hidden: bool) -> list[Entry]:
    return [entry for entry in record.entries if hidden or entry.hidden_by is None]


_ROLES = {Role.USER: "somebody", Role.ASSISTANT: "assistant", Role.TOOL: "tool", Role.NOTE: "note"}


def speaker(entry: Entry) -> str:
    if entry.role is Role.USER and entry.sender is not None:
        name = entry.sender.name or (entry.sender.id and Label(entry.sender.id))
        return (name and name.plain()) or _ROLES[Role.USER]
    return _ROLES.get(entry.role, entry.role.value)


def file_lines(entry: Entry) -> Iterator[str]:
    """A line for each file that came with an entry."""
    for file in entry.files:
        here = f", {file.id}" if file.id else ", not kept"
        yield f"{file.name.plain()} ({one_line(file.media_type, 100)}, {size_text(file.size)}{here})"


def marks(entry: Entry) -> Iterable[str]:
    """What is special about an entry."""
    if entry.hidden_by is not None:
        yield "hidden"
    if entry.observed:
        yield "observed"
    if entry.covers is not None:
        yield f"stands for {entry.covers[0]} to {entry.covers[1]}"
