"""Reading an archive: line by line into whole sessions; what is wrong is named by its line and costs one session."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.key import SessionKey
from palaver.model.lifecycle import EndReason, TurnState
from palaver.model.session import ModelOverride
from palaver.model.source import Source
from palaver.model.text import one_line
from palaver.model.title import clean_title
from palaver.model.transcript import Entry
from palaver.model.value import value
from palaver.store.archive.format import (
    FORMAT,
    HEADER,
    VERSION,
    ArchivedOperation,
    ArchivedSession,
    End,
    Record,
    decode_line,
)
from palaver.store.records import micros
from palaver.store.results import OperationKind

__all__ = [
    "Problem",
    "Readable",
    "check_header",
    "read_archive",
]

_EXAMPLE = "palaver sessions import archive.jsonl"


@value
class Readable:
    """A session that is all there."""

    line: int
    record: Record


@value
class Problem:
    line: int
    session: str | None
    sentence: str


def read_archive(lines: Iterable[bytes]) -> Iterator[Readable | Problem]:
    """Every session of an archive, or why it cannot be read. A file that is no archive at all is refused."""
    numbered = enumerate(lines, 1)
    check_header(next(numbered, (1, b""))[1])
    reader = _Reader()
    for number, line in numbered:
        if line.strip():
            yield from reader.take(number, line)
    yield from reader.finish()


def check_header(line: bytes) -> None:
    """Whether a file that begins with this line is an archive that can be read."""
    try:
        header = json.loads(line)
        format_, version = header["format"], header["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _no_archive(line[:60].decode(errors="replace")) from None
    if format_ != FORMAT:
        raise _no_archive(str(format_))
    if version != VERSION:
        raise BadArgument(
            "This archive was written by another Palaver, in version",
            found=str(version),
            allowed=f"version {VERSION}",
            example=_EXAMPLE,
        )


def _no_archive(found: str) -> BadArgument:
    return BadArgument(
        "This is no archive of sessions, it begins with",
        found=found,
        allowed=f"{HEADER.decode().strip()} in the first line",
        example=_EXAMPLE,
    )


@dataclass(slots=True)
class _Session:
    """A session of which lines are still to come."""

    line: int
    session: ArchivedSession
    entries: list[Entry] = field(default_factory=list[Entry])
    problem: Problem | None = None

    def finished(self) -> Readable | Problem:
        record = Record(session=self.session, entries=self.entries)
        return self.problem or Readable(line=self.line, record=record)


class _Reader:
    """Between the lines: the session that is being read, or that its rest is being passed over."""

    def __init__(self) -> None:
        self._current: _Session | None = None
        self._passing_over = False

    def take(self, number: int, line: bytes) -> Iterator[Readable | Problem]:
        try:
            yield from self._understand(number, decode_line(line))
        except (InvalidInput, msgspec.DecodeError, ValueError, RecursionError) as error:
            yield from self._malformed(number, one_line(str(error), 300) or type(error).__name__)

    def _understand(self, number: int, said: ArchivedSession | Entry | End) -> Iterator[Readable | Problem]:
        if isinstance(said, ArchivedSession):
            yield from self.finish()
            self._current, self._passing_over = _Session(number, said), False
            _check_session(said)
        elif self._current is None:
            raise ValueError("it belongs to no session")
        elif isinstance(said, Entry):
            _check_entry(said, self._current)
            self._current.entries.append(said)
        else:
            _check_end(said, self._current)
            current, self._current = self._current, None
            yield current.finished()

    def _malformed(self, number: int, reason: str) -> Iterator[Problem]:
        """The first thing that is wrong with a session is told at its end; what belongs to none, once."""
        if self._current is not None:
            self._current.problem = self._current.problem or _problem(number, reason, self._current.session)
        elif not self._passing_over:
            self._passing_over = True
            yield _problem(number, reason)

    def finish(self) -> Iterator[Problem]:
        """A session that never came to its end."""
        if self._current is not None:
            current, self._current = self._current, None
            yield current.problem or _problem(current.line, "its end is missing in the file", current.session)


def _problem(line: int, reason: str, session: ArchivedSession | None = None) -> Problem:
    name = f"session {session.id} was not imported" if session else "malformed"
    return Problem(line=line, session=session and session.id, sentence=f"line {line}: {name}: {reason}")


# What types alone cannot say


def _check_entry(entry: Entry, current: _Session) -> None:
    session, last = current.session, current.entries[-1].seq if current.entries else 0
    if not last < entry.seq < session.next_seq:
        raise ValueError(f"entry {entry.seq} does not follow {last} below {session.next_seq}")
    if entry.turn is not None and not 0 < int(entry.turn) <= len(session.turns):
        raise ValueError(f"entry {entry.seq} is of turn {entry.turn}, which is not there")
    if int(entry.hidden_by or 0) > len(session.operations):
        raise ValueError(f"entry {entry.seq} is hidden by operation {entry.hidden_by}, which is not there")


def _check_end(end: End, current: _Session) -> None:
    found = len(current.entries)
    if (end.session, end.entries) != (current.session.id, found):
        raise ValueError(f"{end.entries} entries of {end.session} are promised, {found} are there")


def _check_session(session: ArchivedSession) -> None:
    SessionKey.parse(session.key)
    _check_source(session.origin)
    if (session.ended is None) != (session.end_reason is None):
        raise ValueError("it has an end without a reason, or a reason without an end")
    if session.end_reason is not None:
        EndReason(session.end_reason)
    if session.title is not None:
        session.title = clean_title(session.title)
    if session.override is not None:
        _check_override(session.override)
    _check_storable(session.profile, session.platform, session.owner, *session.participants)
    _check_parts(session)


def _check_override(override: dict[str, str]) -> None:
    if not {"model"} <= override.keys() <= {"model", "provider", "base_url"}:
        raise ValueError("an override holds model, provider and base_url, nothing else")
    ModelOverride(**override)


def _check_parts(session: ArchivedSession) -> None:
    for route in session.routes:
        SessionKey.parse(route.key)
        _check_source(route.address)
    for turn in session.turns:
        if TurnState(turn.state) not in {TurnState.DONE, TurnState.FAILED}:
            raise ValueError(f"a turn is {turn.state}, but an archive holds only turns that are over")
        _check_storable(turn.error or "")
    for operation in session.operations:
        SessionKey.parse(operation.key)
        _check_details(operation)
        _check_storable(operation.by)


_FIRST_MICROSECOND = micros(datetime.min.replace(tzinfo=UTC))
_LAST_MICROSECOND = micros(datetime.max.replace(tzinfo=UTC))


class _Details(msgspec.Struct):
    """What `moves` needs to take an operation back."""

    before: str | None = None
    summary: int | None = None
    key: str = ""
    ended: Annotated[int, msgspec.Meta(ge=_FIRST_MICROSECOND, le=_LAST_MICROSECOND)] | None = None
    reason: EndReason | None = None


def _check_details(operation: ArchivedOperation) -> None:
    kind, given = OperationKind(operation.kind), operation.details
    known = {name: given[name] for name in _Details.__struct_fields__ if name in given}
    details = msgspec.convert(known, _Details)
    if kind is OperationKind.COMPACTION and details.summary is None:
        raise ValueError("a compaction has no summary")
    if kind is OperationKind.SWITCH and operation.undone_at is None:
        SessionKey.parse(details.key)


def _check_source(source: dict[str, str]) -> None:
    if not source.get("platform"):
        raise ValueError("a source has no platform")
    Source.from_json(source, known=(source["platform"],))


def _check_storable(*texts: str) -> None:
    """Neither NUL nor half a surrogate."""
    for text in texts:
        if "\0" in text or text.encode(errors="ignore").decode() != text:
            raise ValueError("a text holds what no database can hold")
