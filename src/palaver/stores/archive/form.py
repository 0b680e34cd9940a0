"""The form of an archive: one line that says what it is, then sessions, each a line for itself and one per entry.

    {"format":"palaver-sessions","version":1}
    {"session":{"id":"01…","key":"agent:main:telegram:dm:1", … ,"turns":[…],"operations":[…]}}
    {"entry":{"seq":1,"role":"user","at":"2026-03-29T08:00:00Z","text":"hello","turn":1}}
    {"end":{"session":"01…","entries":1}}

Nothing in it depends on the database it came from: turns and operations are counted from 1 within their session.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from palaver.domain.label import Label
from palaver.domain.transcript import Entry, Role, Sender, ToolCall
from palaver.stores.records import json_text
from palaver.stores.transcript import SEQS

__all__ = [
    "FORMAT",
    "HEADER",
    "VERSION",
    "ArchivedOperation",
    "ArchivedRoute",
    "ArchivedSession",
    "ArchivedTurn",
    "End",
    "Record",
    "decode_line",
    "lines",
]

FORMAT = "palaver-sessions"
VERSION = 1
HEADER = json_text({"format": FORMAT, "version": VERSION}).encode() + b"\n"

_Moment = Annotated[datetime, Meta(tz=True)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 63)]
_Ordinal = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Seq = Annotated[int, Meta(ge=1, lt=SEQS)]
_Id = Annotated[str, Meta(pattern=r"^[0-9a-z_-]{1,64}$")]


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Part of a line: what is not said has its usual value, what is not known is refused."""


class ArchivedTurn(_Line):
    """A turn that is over."""

    state: str
    started: _Moment
    ended: _Moment | None = None
    attempt: Annotated[int, Meta(ge=1, lt=1 << 31)] = 1
    error: str | None = None


class ArchivedOperation(_Line):
    key: str
    kind: str
    at: _Moment
    by: str
    details: dict[str, Any] = {}
    """As in the store, but `before` is the id of a session."""
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
    title: str | None = None
    parent: _Id | None = None
    parent_seq: Annotated[int, Meta(ge=0, lt=SEQS)] | None = None
    started: _Moment
    ended: _Moment | None = None
    end_reason: str | None = None
    last_human: _Moment
    last_active: _Moment
    next_seq: Annotated[int, Meta(ge=1, le=SEQS)]
    turn_count: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cost_micros: _Count = 0
    override: dict[str, str] | None = None
    participants: list[str] = []
    routes: list[ArchivedRoute] = []
    turns: list[ArchivedTurn] = []
    operations: list[ArchivedOperation] = []


class _ArchivedEntry(_Line):
    """An entry with its turn and what hides it as numbers within the session; 0 hides it for a reason that is lost."""

    seq: _Seq
    turn: _Ordinal | None = None
    hidden_by: _Ordinal | None = None
    role: Role
    at: _Moment
    text: str = ""
    sender: Sender | None = None
    message_id: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    reasoning: str = ""
    blob: bytes = b""
    tokens: Annotated[int, Meta(ge=-(1 << 63), lt=1 << 63)] = 0
    observed: bool = False
    covers: tuple[int, int] | None = None


class End(_Line):
    """The last line of a session: it is all there."""

    session: str
    entries: _Count


class _AnyLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    entry: _ArchivedEntry | None = None
    session: ArchivedSession | None = None
    end: End | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A session as it is archived. In its entries `turn` and `hidden_by` are numbers within it, as text."""

    session: ArchivedSession
    entries: list[Entry]


_FIELDS = tuple(field.name for field in fields(Entry))
_PLACES = ("turn", "hidden_by")


def _stored(value: object) -> object:
    if isinstance(value, Label):
        return value.stored()
    raise NotImplementedError(type(value))


def _read(wanted: type, value: object) -> object:
    if wanted is Label:
        return Label(str(value))
    raise NotImplementedError(wanted)


_encoder = msgspec.json.Encoder(enc_hook=_stored)
_decoder = msgspec.json.Decoder(_AnyLine, dec_hook=_read)


def lines(record: Record) -> Iterator[bytes]:
    """The lines of one session. The first is plain ASCII, since ids may hold what UTF-8 has no form for."""
    yield json_text({"session": msgspec.to_builtins(record.session)}).encode() + b"\n"
    for entry in record.entries:
        yield _encoder.encode(_AnyLine(entry=_archived(entry))) + b"\n"
    yield _encoder.encode(_AnyLine(end=End(session=record.session.id, entries=len(record.entries)))) + b"\n"


def _archived(entry: Entry) -> _ArchivedEntry:
    values = {name: getattr(entry, name) for name in _FIELDS}
    return _ArchivedEntry(**values | {name: int(values[name]) for name in _PLACES if values[name] is not None})


def decode_line(line: bytes) -> ArchivedSession | Entry | End:
    """What one line says. Raises `msgspec.ValidationError` or `ValueError` with the reason if it says nothing known."""
    if line.startswith(b'{"entry"'):
        found = _decoder.decode(line)
    else:
        found = msgspec.convert(json.loads(line), _AnyLine, dec_hook=_read)
    said = [part for part in (found.entry, found.session, found.end) if part is not None]
    if len(said) != 1:
        raise ValueError("neither a session nor an entry nor the end of a session")
    return _entry(said[0]) if isinstance(said[0], _ArchivedEntry) else said[0]


def _entry(archived: _ArchivedEntry) -> Entry:
    values = {name: getattr(archived, name) for name in _FIELDS}
    return Entry(**values | {name: str(values[name]) for name in _PLACES if values[name] is not None})
