"""The archive format: a header line, then for each session one line, its entries, and an end line.

    {"format":"palaver-sessions","version":1}
    {"file":{"sha256":"9f…","content":"aGVsbG8="}}
    {"session":{"id":"01…","key":"agent:main:telegram:dm:1", … ,"turns":[…],"operations":[…]}}
    {"entry":{"seq":1,"role":"user","at":"2026-03-29T08:00:00Z","text":"hello","turn":1}}
    {"end":{"session":"01…","entries":1}}

The content of a file comes once, in base64, before the first session that has it.
Nothing depends on the database it came from: turns and operations are numbered from 1 within their session.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from palaver.model.attachment import UNKNOWN_TYPE, Attachment
from palaver.model.label import Label
from palaver.model.transcript import Entry, Quote, Role, Sender, ToolCall, UnreadableEntry
from palaver.model.value import value
from palaver.store.records import SEQS, json_text, quote_json

FORMAT = "palaver-sessions"
VERSION = 1
HEADER = json_text({"format": FORMAT, "version": VERSION}).encode() + b"\n"

_Moment = Annotated[datetime, Meta(tz=True)]
_Count = Annotated[int, Meta(ge=0, le=1 << 62)]
_Ordinal = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Seq = Annotated[int, Meta(ge=1, lt=SEQS)]
_Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Id = Annotated[str, Meta(pattern=r"\A[0-9a-z_-]{1,64}\Z")]


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Part of a line. Default values are left out, unknown fields refused."""


class ArchivedTitle(_Line):
    """What the title of a session used that was generated after a turn."""

    at: _Moment
    model: str | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cached_tokens: _Count = 0
    cost_micros: _Count = 0
    unpriced_tokens: _Count = 0


class ArchivedFeedback(_Line):
    """What somebody thinks of the answer of a turn."""

    at: _Moment
    rating: Annotated[int, Meta(ge=-1, le=1)]
    identity: str | None = None
    """None in an archive made for a participant."""


class ArchivedTurn(_Line):
    """A turn that has ended."""

    state: str
    started: _Moment
    ended: _Moment
    attempt: Annotated[int, Meta(ge=1, lt=1 << 31)] = 1
    error: str | None = None
    identity: str | None = None
    """Who used what follows; None in an archive made for a participant, and for a turn that a branch copied."""
    model: str | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cached_tokens: _Count = 0
    cost_micros: _Count = 0
    unpriced_tokens: _Count = 0
    prompt_tokens: _Count = 0
    title: ArchivedTitle | None = None
    feedback: list[ArchivedFeedback] = []


class ArchivedOperation(_Line):
    key: str
    kind: str
    at: _Moment
    by: str
    details: dict[str, Any] = {}
    undone_at: _Moment | None = None


class ArchivedRoute(_Line):
    key: str
    address: dict[str, str]
    settings: dict[str, Any] = {}


class ArchivedSession(_Line):
    id: _Id
    key: str
    profile: str
    platform: str
    owner: str
    origin: dict[str, str]
    started: _Moment
    last_human: _Moment
    last_active: _Moment
    next_seq: Annotated[int, Meta(ge=1, le=SEQS)]
    title: str | None = None
    parent: _Id | None = None
    parent_seq: Annotated[int, Meta(ge=0, lt=SEQS)] | None = None
    ended: _Moment | None = None
    end_reason: str | None = None
    turn_count: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cached_tokens: _Count = 0
    cost_micros: _Count = 0
    unpriced_tokens: _Count = 0
    override: dict[str, str] | None = None
    instructions: str | None = None
    participants: list[str] = []
    routes: list[ArchivedRoute] = []
    turns: list[ArchivedTurn] = []
    operations: list[ArchivedOperation] = []


class _ArchivedSender(_Line):
    id: str | None = None
    name: str | None = None


class _ArchivedCall(_Line):
    id: str
    name: str
    arguments: str = "{}"


class _ArchivedFile(_Line, kw_only=False):
    """The metadata of a file."""

    name: str
    media_type: str = UNKNOWN_TYPE
    size: _Count | None = None
    sha256: _Sha256 | None = None
    handle: str | None = None
    problem: str = ""


class _ArchivedQuote(_Line):
    text: str
    author: str | None = None
    name: str | None = None
    is_ours: bool = False


class _ArchivedEntry(_Line):
    """An entry. `turn` and `hidden_by` are numbers within the session; hidden by 0 means by an unknown operation."""

    seq: _Seq
    role: Role
    at: _Moment
    text: str = ""
    turn: _Ordinal | None = None
    sender: _ArchivedSender | None = None
    message_id: str | None = None
    calls: tuple[_ArchivedCall, ...] = ()
    answers: str | None = None
    reasoning: str = ""
    blob: bytes = b""
    tokens: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] = 0
    observed: bool = False
    covers: tuple[_Seq, _Seq] | None = None
    files: tuple[_ArchivedFile, ...] = ()
    quote: _ArchivedQuote | None = None
    cost_micros: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] | None = None
    cut: bool = False
    hidden_by: _Ordinal | None = None


class FileContent(_Line):
    sha256: _Sha256
    content: bytes


class End(_Line):
    """The last line of a session, which proves that it is complete."""

    session: str
    entries: _Count


class _AnyLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    entry: _ArchivedEntry | None = None
    session: ArchivedSession | None = None
    end: End | None = None
    file: FileContent | None = None


@value
class SessionRecord:
    """An archived session. In its entries `turn` and `hidden_by` are numbers within it, as text."""

    session: ArchivedSession
    entries: list[Entry]
    line: int = 0
    """Where it begins in the archive it was read from."""

    @property
    def unreadable(self) -> int:
        """How many entries stand for ones that cannot be read."""
        return sum(isinstance(entry, UnreadableEntry) for entry in self.entries)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_AnyLine)


# Escape characters that could manipulate a terminal.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def _printable(line: bytes) -> bytes:
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNPRINTABLE.sub(lambda found: json_text(found[0])[1:-1], line.decode()).encode()


def session_lines(record: SessionRecord) -> Iterator[bytes]:
    """Yield the lines of one session, byte for byte the same for equal content.

    The first is ASCII: ids may contain surrogates, which UTF-8 cannot encode. An entry that cannot be read is left out.
    """
    session = msgspec.to_builtins(record.session, order="deterministic")
    entries = [entry for entry in record.entries if not isinstance(entry, UnreadableEntry)]
    yield _printable(json_text({"session": session}).encode()) + b"\n"
    for entry in entries:
        yield _printable(_encoder.encode(_AnyLine(entry=_archived(entry)))) + b"\n"
    yield _encoder.encode(_AnyLine(end=End(session=record.session.id, entries=len(entries)))) + b"\n"


def _archived(entry: Entry) -> _ArchivedEntry:
    values: dict[str, Any] = entry._asdict()
    values["calls"] = tuple(_ArchivedCall(**call._asdict()) for call in entry.calls)
    values["files"] = tuple(_ArchivedFile(file.name.stored(), *file[1:]) for file in entry.files)
    if entry.quote is not None:
        values["quote"] = msgspec.convert(quote_json(entry.quote), _ArchivedQuote)
    if entry.sender is not None:
        name = entry.sender.name
        values["sender"] = _ArchivedSender(id=entry.sender.id, name=name and name.stored())
    return _ArchivedEntry(**values | _ordinals_as(values, int))


def _ordinals_as(values: dict[str, Any], kind: type[int | str]) -> dict[str, Any]:
    return {name: kind(values[name]) for name in ("turn", "hidden_by") if values[name] is not None}


def decode_line(line: bytes) -> ArchivedSession | Entry | End | FileContent:
    """Decode one line. Raises `msgspec.DecodeError` or `ValueError` with the reason."""
    is_plain = line.startswith((b'{"entry"', b'{"file"'))
    found = _decoder.decode(line) if is_plain else msgspec.convert(json.loads(line), _AnyLine)
    parts = [part for part in (found.entry, found.session, found.end, found.file) if part is not None]
    if len(parts) != 1:
        raise ValueError("it is no session, entry, file or end of a session")
    return _entry(parts[0]) if isinstance(parts[0], _ArchivedEntry) else parts[0]


def _entry(archived: _ArchivedEntry) -> Entry:
    values: dict[str, Any] = {name: getattr(archived, name) for name in Entry._fields}
    values["calls"] = tuple(ToolCall(call.id, call.name, call.arguments) for call in archived.calls)
    values["files"] = tuple(
        Attachment(Label(file.name), file.media_type, file.size, file.sha256, file.handle, file.problem)
        for file in archived.files
    )
    if archived.quote is not None:
        quote = archived.quote
        name = None if quote.name is None else Label(quote.name)
        values["quote"] = Quote(text=quote.text, author=quote.author, name=name, is_ours=quote.is_ours)
    if archived.sender is not None:
        name = archived.sender.name
        values["sender"] = Sender(archived.sender.id, None if name is None else Label(name))
    return Entry(**values | _ordinals_as(values, str))
