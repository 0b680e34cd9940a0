"""Read an archive line by line into sessions. An error is reported with its line and costs one session."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from io import IOBase
from typing import Annotated, NamedTuple

import msgspec

from palaver.db.transaction import storable
from palaver.model.attachment import ID_LENGTH
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, ModelOverride, clean_title
from palaver.model.source import Source
from palaver.model.text import one_line
from palaver.model.transcript import Entry
from palaver.model.turn import TurnState
from palaver.model.value import value
from palaver.store.archive.format import (
    FORMAT,
    HEADER,
    VERSION,
    ArchivedOperation,
    ArchivedSession,
    End,
    FileContent,
    SessionRecord,
    decode_line,
)
from palaver.store.records import micros
from palaver.store.results import OperationKind

_EXAMPLE = "palaver sessions import archive.jsonl"


@value
class Problem:
    line: int
    session: str | None
    """The id of the session that it costs."""
    reason: str


class LineLimits(NamedTuple):
    """How many bytes a line can have."""

    line: int = 100_000_000
    file: int = 1_400_000_000
    """With the content of a file in base64: the largest that a message can have fits."""

    def of(self, line: bytes) -> int:
        return self.file if line.startswith(b'{"file"') else self.line


_LIMITS = LineLimits()


def read_archive(
    lines: Iterable[bytes], limits: LineLimits = _LIMITS
) -> Iterator[SessionRecord | FileContent | Problem]:
    """Yield each session and file of an archive, or its problem. Raises BadArgument if the file is no archive."""
    numbered = enumerate(_bounded(lines, limits), 1)
    check_header(next(numbered, (1, b""))[1])
    reader = _Reader()
    for number, line in numbered:
        if len(line) > limits.of(line):
            yield from reader.report(number, f"it is longer than {limits.of(line)} bytes")
        elif line.strip():
            yield from reader.read_line(number, line)
    yield from reader.finish()


def _bounded(lines: Iterable[bytes], limits: LineLimits) -> Iterator[bytes]:
    """Yield the lines of a file. Of one that is too long, no more is held in memory than shows that it is."""
    if not isinstance(lines, IOBase):
        yield from lines
        return
    while line := lines.readline(limits.line + 1):
        if not line.endswith(b"\n"):
            line += lines.readline(max(0, limits.of(line) + 1 - len(line)))
        yield line
        is_cut = not line.endswith(b"\n")
        while is_cut and (rest := lines.readline(limits.line)):
            is_cut = not rest.endswith(b"\n")


def check_header(line: bytes) -> None:
    """Raise BadArgument unless this is the first line of an archive that we can read."""
    try:
        header = json.loads(line)
        format_, version = header["format"], header["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _not_an_archive(line[:60].decode(errors="replace")) from None
    if format_ != FORMAT:
        raise _not_an_archive(str(format_))
    if version != VERSION:
        raise BadArgument(
            "This archive has the unsupported version",
            found=str(version),
            allowed=f"version {VERSION}",
            example=_EXAMPLE,
        )


def _not_an_archive(found: str) -> BadArgument:
    return BadArgument(
        "This is not a session archive: it starts with",
        found=found,
        allowed=f"a file whose first line is {HEADER.decode().strip()}",
        example=_EXAMPLE,
    )


class _Reader:
    """The state between lines: the current session, or that lines are skipped up to the next one."""

    def __init__(self) -> None:
        self._current: SessionRecord | None = None
        self._problem: Problem | None = None
        """The first problem of the current session."""
        self._skipping = False

    def read_line(self, number: int, line: bytes) -> Iterator[SessionRecord | FileContent | Problem]:
        try:
            yield from self._add(number, decode_line(line))
        except (InvalidInput, msgspec.DecodeError, ValueError, RecursionError) as error:
            yield from self.report(number, one_line(str(error), 300) or type(error).__name__)

    def _add(
        self, number: int, part: ArchivedSession | Entry | End | FileContent
    ) -> Iterator[SessionRecord | FileContent | Problem]:
        if isinstance(part, FileContent):
            _check_content(part)
            yield part
        elif isinstance(part, ArchivedSession):
            yield from self.finish()
            self._current, self._problem, self._skipping = (
                SessionRecord(session=part, entries=[], line=number),
                None,
                False,
            )
            _check_session(part)
        elif self._current is None:
            raise ValueError("it belongs to no session")
        elif isinstance(part, Entry):
            _check_entry(part, self._current)
            self._current.entries.append(part)
        else:
            _check_end(part, self._current)
            current, self._current = self._current, None
            yield self._problem or current

    def report(self, number: int, reason: str) -> Iterator[Problem]:
        """Report the first problem of a session at its end, and lines outside a session once."""
        if self._current is not None:
            self._problem = self._problem or Problem(line=number, session=self._current.session.id, reason=reason)
        elif not self._skipping:
            self._skipping = True
            yield Problem(line=number, session=None, reason=reason)

    def finish(self) -> Iterator[Problem]:
        """Report a session whose end line is missing."""
        if self._current is not None:
            current, self._current = self._current, None
            missing = Problem(line=current.line, session=current.session.id, reason="its end line is missing")
            yield self._problem or missing


# Checks beyond types


def _check_entry(entry: Entry, current: SessionRecord) -> None:
    session, last = current.session, current.entries[-1].seq if current.entries else 0
    if not last < entry.seq < session.next_seq:
        raise ValueError(f"entry {entry.seq} does not come after {last} and before {session.next_seq}")
    if entry.turn is not None and not 0 < int(entry.turn) <= len(session.turns):
        raise ValueError(f"entry {entry.seq} belongs to turn {entry.turn}, which is missing")
    if int(entry.hidden_by or 0) > len(session.operations):
        raise ValueError(f"entry {entry.seq} is hidden by operation {entry.hidden_by}, which is missing")


def _check_content(file: FileContent) -> None:
    if hashlib.sha256(file.content).hexdigest() != file.sha256:
        raise ValueError(f"the content of file {file.sha256[:ID_LENGTH]} does not match its hash")


def _check_end(end: End, current: SessionRecord) -> None:
    found = len(current.entries)
    if (end.session, end.entries) != (current.session.id, found):
        raise ValueError(f"the end line promises {end.entries} entries of {end.session}, found {found}")


def _check_session(session: ArchivedSession) -> None:
    SessionKey.parse(session.key)
    _check_source(session.origin)
    if (session.ended is None) != (session.end_reason is None):
        raise ValueError("it has an end time without a reason, or a reason without an end time")
    if session.end_reason is not None:
        EndReason(session.end_reason)
    if session.title is not None:
        session.title = clean_title(session.title)
    if session.override is not None:
        _check_override(session.override)
    _check_storable(session.profile, session.platform, session.owner, session.instructions or "", *session.participants)
    _check_parts(session)


def _check_override(override: dict[str, str]) -> None:
    if not {"model"} <= override.keys() <= {"model", "provider", "base_url"}:
        raise ValueError("an override has model, provider and base_url, nothing else")
    ModelOverride(**override)


def _check_parts(session: ArchivedSession) -> None:
    for route in session.routes:
        SessionKey.parse(route.key)
        _check_source(route.address)
    for turn in session.turns:
        if TurnState(turn.state) not in {TurnState.DONE, TurnState.FAILED}:
            raise ValueError(f"a turn is {turn.state}, but an archive contains only ended turns")
        _check_storable(turn.error or "", turn.identity or "", turn.model or "")
    for operation in session.operations:
        SessionKey.parse(operation.key)
        _check_details(operation)
        _check_storable(operation.by)


_FIRST_MICROSECOND = micros(datetime.min.replace(tzinfo=UTC))
_LAST_MICROSECOND = micros(datetime.max.replace(tzinfo=UTC))


class _Details(msgspec.Struct):
    """What is needed to undo an operation."""

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
    """Refuse NUL and half surrogates."""
    if storable(texts) != texts:
        raise ValueError("a text contains NUL or a lone surrogate")
