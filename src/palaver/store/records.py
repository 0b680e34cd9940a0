"""Records: values of the model as columns, and back."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar, cast
from zlib import crc32

import msgspec

from palaver.db.transaction import Row
from palaver.model.access import AccessRole, Basis
from palaver.model.attachment import Attachment
from palaver.model.epochs import REPLIES
from palaver.model.errors import InvalidInput, Unreadable
from palaver.model.firing import FiredJob
from palaver.model.key import SessionKey
from palaver.model.label import Label, read_label
from palaver.model.redact import redact, redact_own
from palaver.model.session import Counters, EndReason, ModelOverride, Session
from palaver.model.source import AddresseeKind, Labels, Source, account_text, decode_id, encode_id
from palaver.model.text import whole_characters
from palaver.model.transcript import KEPT_QUOTE_LIMIT, UNREADABLE_TEXT, Entry, Quote, Role, UnreadableEntry
from palaver.model.turn import (
    ANY_FORM,
    AnswerForm,
    BusyMode,
    Cause,
    ClientTool,
    Delivery,
    Destination,
    Inbound,
    InboxState,
    Outbound,
    OutboxState,
    Reaction,
    Received,
    Revision,
    Turn,
    TurnState,
)
from palaver.model.usage import SPENT_FIELDS

T = TypeVar("T")

OPEN_TURN = "('running', 'parked', 'interrupted')"
"""The states of a turn that is not over: its conversation cannot start another."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def instant_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else instant(microseconds)


def placeholders(values: Sized) -> str:
    """Return the inside of `IN (…)`; without values it matches nothing."""
    return ", ".join("?" * len(values)) or "NULL"


def json_text(value: object) -> str:
    """Return ASCII only: not every database stores NUL and lone surrogates."""
    return _compact.encode(value)


_compact = json.JSONEncoder(separators=(",", ":"))


def _json_bytes(value: object) -> bytes:
    """Encode for a blob. Only lone surrogates are escaped."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json_text(value).encode()


def from_json(text: str | bytes) -> Any:  # noqa: ANN401 - the caller knows its shape
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)  # half a surrogate, which only the standard library reads


def _encode_label(value: object) -> object:
    """Write a label as text that UTF-8 can encode: a hook of msgspec."""
    if isinstance(value, Label):
        stored = value.stored()
        return stored if stored.isascii() else whole_characters(stored)
    raise NotImplementedError(type(value))


_encoder = msgspec.json.Encoder(enc_hook=_encode_label)


def _decode_json(body: bytes, form: msgspec.json.Decoder[T]) -> T:
    try:
        return form.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return msgspec.convert(json.loads(body), form.type, dec_hook=read_label)  # half a surrogate, as above


# Damaged rows. Each row is decoded by itself, so that one that cannot be read costs nothing but itself.

UNREADABLE = (
    msgspec.MsgspecError,
    InvalidInput,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What decoding a damaged row raises."""


class _Once(logging.Filter):
    """Log each row that is left out once: lists are read again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self._logged
        if len(self._logged) >= _MAX_REMEMBERED:
            self._logged.clear()
        self._logged.add(text)
        return is_new


_MAX_REMEMBERED = 4096
_log = logging.getLogger(__name__)
_log.addFilter(_Once())


def readable(decode: Callable[[Row], T], rows: Iterable[Row]) -> Iterator[T]:
    """Decode each row, and leave out those that cannot be read: `palaver doctor` names them."""
    for row in rows:
        try:
            found = decode(row)
        except UNREADABLE:
            _report_unreadable(decode.__name__, row[0])
        else:
            yield found


def read_one(decode: Callable[[Row], T], rows: Sequence[Row], what: str) -> T | None:
    """Decode the first row; None without one. Raise Unreadable if it cannot be read."""
    try:
        return decode(rows[0]) if rows else None
    except UNREADABLE as error:
        raise Unreadable(what, str(rows[0][0])) from error


def _report_unreadable(reader: str, row: object) -> None:
    what = reader.strip("_").removesuffix("_of").removesuffix("_in")
    _log.warning("Left out the %s %s: run palaver doctor", what, row, extra={"action": "row.unreadable"})


def details_of(text: str | None) -> dict[str, Any]:
    """Decode a JSON object that only adds to its row: one that cannot be read counts as empty."""
    try:
        return dict(from_json(text or "{}"))
    except UNREADABLE:
        return {}


SET_BODY = "body = ?, checksum = ?"


def body_values(body: bytes) -> tuple[bytes, int | None]:
    """Return a body and its checksum, as `SET_BODY` takes them. A body that was emptied has none."""
    return body, crc32(body) if body else None


# Sources. The store reads every platform it has written, also one that is no longer configured.


def source_text(source: Source) -> str:
    return json_text(source.to_json())


@lru_cache(1024)
def source_of(text: str) -> Source:
    data: Mapping[str, object] = from_json(text)
    return Source.from_json(data, known=(str(data["platform"]),))


def source_in(row: Row) -> Source:
    """Decode the source in the last column of a row."""
    return source_of(row[-1])


def key_in(row: Row) -> SessionKey:
    """Decode the key in the first column of a row."""
    return SessionKey.parse(row[0])


# Entries


def _encodable(value: object) -> object:
    """Replace lone surrogates in the values of a body."""
    match value:
        case str():
            return whole_characters(value)
        case tuple():
            return tuple(map(_encodable, cast("tuple[object, ...]", value)))
        case _:
            return value


SEQS = 1 << 24
"""Entry ids are session number * SEQS + seq."""
_entries_decoder = msgspec.json.Decoder(list[Entry], dec_hook=read_label)
_entry_decoder = msgspec.json.Decoder(Entry, dec_hook=read_label)
# Bound once: looking an enum member up costs more than comparing it, and this runs for every entry.
_USER, _ASSISTANT = Role.USER, Role.ASSISTANT
_DEFAULTS = tuple(Entry._field_defaults.values())


class Prepared(msgspec.Struct, frozen=True):
    """An encoded entry without its seq, which only the transaction knows."""

    role: str
    observed: int
    body: bytes
    files: tuple[str, ...] = ()
    """The digests of its stored files."""

    def placed(self, seq: int) -> bytes:
        return b"[%d," % seq + self.body

    def values(self, session_number: int, seq: int) -> tuple[bytes, int]:
        """Return the body and its checksum."""
        body = b"[%d," % seq + self.body
        return body, crc32(body, session_number)


def entry_span(session_number: int) -> tuple[int, int]:
    """Return the ids between which a session has its entries: from the first, below the second."""
    return session_number * SEQS, (session_number + 1) * SEQS


def entry_checksum(id_: int, body: bytes) -> int:
    """Return the checksum of a body in its place: it covers the session, and the body itself has the seq."""
    return crc32(body, id_ // SEQS)


def prepare(entry: Entry, turn: int | None = None) -> Prepared:
    """Encode an entry and redact secrets: all in tool output, and the gateway's own in what anybody says.

    Every entry is written through this function.
    """
    role = entry.role
    is_said = role is _USER or role is _ASSISTANT
    text = redact_own(entry.text) if is_said else redact(entry.text)
    if entry.reasoning or entry.calls:
        calls = tuple(each._replace(arguments=redact_own(each.arguments)) for each in entry.calls)
        entry = entry._replace(reasoning=redact_own(entry.reasoning), calls=calls)
    place = entry.turn if turn is None else str(turn)
    values = _without_defaults((role, entry.at, text, place, *entry[_AFTER_TURN:_HIDDEN_BY]))
    try:
        body = _encoder.encode(values)
    except UnicodeEncodeError:
        body = _encoder.encode(_encodable(values))
    return Prepared(str(role), 1 if entry.observed else 0, body[1:], file_digests(entry.files))


def file_digests(files: Sequence[Attachment]) -> tuple[str, ...]:
    """Return the digests of the files that are stored."""
    return tuple(dict.fromkeys(file.sha256 for file in files if file.sha256 is not None)) if files else ()


_AFTER_TURN = Entry._fields.index("turn") + 1
_HIDDEN_BY = Entry._fields.index("hidden_by")
"""Stored in a column, never in the body."""


def _without_defaults(values: tuple[object, ...]) -> tuple[object, ...]:
    """Drop trailing values that are defaults."""
    length = _USUAL_BODY if values[_USUAL_BODY:] == _RARE_DEFAULTS else len(values)
    while length > _SHORTEST_BODY and values[length - 1] == _DEFAULTS[length - _SHORTEST_BODY]:
        length -= 1
    return values[:length]


_SHORTEST_BODY = 3  # role, time and text
_USUAL_BODY = Entry._fields.index("observed") - 1  # a body has no seq
_RARE_DEFAULTS = _DEFAULTS[_USUAL_BODY - 2 : -1]


def entries_of(rows: Sequence[Row]) -> list[Entry]:
    """Decode rows that begin with id and body. One that cannot be read becomes an `UnreadableEntry`."""
    try:
        found = _entries_decoder.decode(b"[" + b",".join([row[1] for row in rows]) + b"]")
    except UNREADABLE:
        found = []
    return found if len(found) == len(rows) else _decode_singly(rows)


def entry_of(row: Row) -> Entry:
    """Decode one row that begins with id and body."""
    return _entry_decoder.decode(row[1])


def _decode_singly(rows: Sequence[Row]) -> list[Entry]:
    """Give an entry that cannot be read the time of one beside it."""
    found = {row[0]: entry for row in rows for entry in readable(entry_of, [row])}
    at = next((entry.at for entry in found.values()), instant(0))
    entries: list[Entry] = []
    for row in rows:
        gap = UnreadableEntry(seq=row[0] % SEQS, role=Role.NOTE, at=at, text=UNREADABLE_TEXT)
        entries.append(found.get(row[0], gap))
        at = entries[-1].at
    return entries


# Sessions

USAGE_COLUMNS = SPENT_FIELDS
"""What a turn, a session and a sum of usage count."""
counted = attrgetter(*USAGE_COLUMNS)
SESSION_TITLE = (
    "CASE WHEN s.version_root IS NULL THEN s.title"
    " ELSE (SELECT first.title FROM sessions first WHERE first.no = s.version_root) END"
)
"""All versions of a conversation have the title of the first."""
SESSION_COLUMNS = (
    f"s.no, s.id, s.key, s.owner, s.origin, {SESSION_TITLE}, s.parent, s.started, s.ended, s.end_reason, s.last_human,"
    " s.last_active, s.override, s.instructions, s.version_root, s.next_seq, s.turns,"
    f" {', '.join(f's.{column}' for column in USAGE_COLUMNS)}"
)


def session_of(row: Row) -> Session:
    (no, id_, key, owner, origin, title, parent, started, ended, reason, human, active, *more) = row
    override, instructions, version_root, seq, *used = more
    return Session(
        number=no,
        id=id_,
        key=SessionKey.parse(key),
        owner=owner,
        origin=source_of(origin),
        title=title,
        parent=parent,
        started=instant(started),
        ended=instant_or_none(ended),
        end_reason=reason and EndReason(reason),
        last_human=instant(human),
        last_active=instant(active),
        counters=Counters(entries=seq - 1, **dict(zip(("turns", *USAGE_COLUMNS), used, strict=True))),
        override=ModelOverride(**from_json(override)) if override else None,
        instructions=instructions,
        version_root=version_root,
    )


# Inbox, turns, outbox

INBOX_COLUMNS = "i.no, i.key, i.state, i.received, i.turn_no, i.reason, i.body, i.place, t.state, t.error"
SELECT_RECEIVED = f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"


def inbound_body(
    inbound: Inbound, role: AccessRole | None = None, basis: Basis | None = Basis.IDENTITY, *, is_relayed: bool = False
) -> bytes:
    """Encode a message. One that is relayed keeps what is otherwise used on arrival only."""
    rare = {
        "mentions_us": is_relayed and inbound.mentions_us,
        "basis": basis,
        "reply_to": inbound.reply_to,
        "quote": inbound.quote and quote_json(inbound.quote),
        "revision": inbound.revision and asdict(inbound.revision),
        "reaction": inbound.reaction and asdict(inbound.reaction),
        "earlier": inbound.earlier,
        "files": [(file.name.stored(), *file[1:]) for file in inbound.files],
        "offers": inbound.client_tools,
        "form": None if inbound.form == ANY_FORM else asdict(inbound.form),
        "instructions": inbound.instructions,
        "plain": inbound.plain,
        "job": inbound.job and msgspec.to_builtins(inbound.job),
        "destinations": inbound.destinations and msgspec.to_builtins(inbound.destinations),
        "request_digest": inbound.request_digest,
        "transcription_micros": inbound.transcription_micros,
        "heard": inbound.heard,
        "is_unheard": inbound.is_unheard,
    }
    return _json_bytes(
        {
            "source": inbound.source.to_json(),
            "labels": inbound.labels.to_json(),
            "text": inbound.text,
            "at": micros(inbound.at),
            "cause": inbound.cause,
            "observed": inbound.observed,
            "burst": inbound.burst,
            "busy": inbound.busy,
            "role": role,
            **{name: given for name, given in rare.items() if given},
        }
    )


def quote_json(quote: Quote) -> dict[str, object]:
    text = quote.text[:KEPT_QUOTE_LIMIT]
    return {"text": text, "author": quote.author, "name": quote.name and quote.name.stored(), "is_ours": quote.is_ours}


class _Written(msgspec.Struct, frozen=True):
    """The form that `inbound_body` writes."""

    source: Source
    labels: Labels
    text: str
    at: int
    cause: Cause
    observed: bool
    burst: str | None
    role: AccessRole | None
    basis: Basis | None = None
    busy: BusyMode | None = None
    reply_to: str | None = None
    quote: Quote | None = None
    revision: Revision | None = None
    reaction: Reaction | None = None
    earlier: tuple[str, ...] = ()
    files: tuple[Attachment, ...] = ()
    offers: tuple[ClientTool, ...] = ()
    form: AnswerForm = ANY_FORM
    instructions: str = ""
    plain: bool = False
    job: FiredJob | None = None
    destinations: tuple[Destination, ...] = ()
    request_digest: str | None = None
    transcription_micros: int = 0
    heard: str = ""
    is_unheard: bool = False
    mentions_us: bool = False

    @property
    def inbound(self) -> Inbound:
        return Inbound(
            at=instant(self.at), client_tools=self.offers, **dict(zip(_AS_WRITTEN, _as_written(self), strict=True))
        )


_AS_WRITTEN = tuple(name for name in _Written.__struct_fields__ if name not in {"at", "offers", "role", "basis"})
"""The fields that a message and its written form have alike."""
_as_written = attrgetter(*_AS_WRITTEN)


_inbound_form = msgspec.json.Decoder(_Written, dec_hook=read_label)


def basis_of(body: bytes) -> Basis | None:
    """Return the basis on which the sender of a stored message was admitted.

    That of one that was emptied is the usual one, that of one that cannot be read is unknown.
    """
    try:
        return _decode_json(body, _inbound_form).basis if body else Basis.IDENTITY
    except UNREADABLE:
        return None


def inbound_of(body: bytes) -> tuple[Inbound, AccessRole | None, Basis | None]:
    """Return what `inbound_body` wrote."""
    written = _decode_json(body, _inbound_form)
    return written.inbound, written.role, written.basis


def received_of(row: Row) -> Received:
    no, key, state, received, turn, reason, body, place, turn_state, turn_error = row
    written = _decode_json(body, _inbound_form)
    return Received(
        number=no,
        key=SessionKey.parse(key),
        inbound=written.inbound,
        state=_STATE_BY_TURN.get(turn_state) or _STATES[state],
        received=instant(received),
        turn=turn,
        reason=reason or turn_error,
        role=written.role,
        basis=written.basis,
        place=place and SessionKey.parse(place),
    )


_STATES = {state.value: state for state in InboxState}
_STATE_BY_TURN = {TurnState.DONE.value: InboxState.DONE, TurnState.FAILED.value: InboxState.FAILED}

TURN_COLUMNS = (
    "t.no, t.key, s.id, t.state, t.attempt, t.fence, t.worker, t.lease_until, t.started, t.error, t.session_no,"
    " t.halted, t.draft, t.quota, t.failure, t.retry_at, t.draft_unclear"
)


def turn_of(row: Row) -> Turn:
    no, key, session, state, attempt, fence, worker, lease, started, error, session_no, halted, *rest = row
    draft, quota, failure, retry_at, draft_unclear = rest
    return Turn(
        number=no,
        key=SessionKey.parse(key),
        session=session,
        session_number=session_no,
        state=TurnState(state),
        attempt=attempt,
        fence=fence,
        worker=worker,
        lease_until=instant(lease),
        started=instant(started),
        error=error,
        halted=instant_or_none(halted),
        draft=draft,
        quota=quota,
        failure=failure,
        retry_at=instant_or_none(retry_at),
        draft_unclear=bool(draft_unclear),
    )


def reply_span(turn: int) -> tuple[int, int]:
    """Return the ids between which a turn has its replies: from the first, below the second."""
    return turn * REPLIES, (turn + 1) * REPLIES


def stop_text(by: str | None, at: int | None) -> str | None:
    """Say who asked a turn to stop, and when."""
    return f"{by} at {instant(at).isoformat()}" if by and at else by


DELIVERY_COLUMNS = "id, body, state, attempts, due, created, receipt, error, times_unclear, chat"


def outbound_body(outbound: Outbound) -> bytes:
    try:
        return _encoder.encode(outbound)
    except UnicodeEncodeError:
        return json_text(msgspec.to_builtins(outbound, enc_hook=_encode_label)).encode()


def chat_columns(outbound: Outbound) -> tuple[str, str, str]:
    """Return account, server and chat: messages to one chat are sent one after the other."""
    account = account_text(outbound.platform, outbound.account)
    return account, encode_id(outbound.scope_id or ""), addressee_column(outbound.addressee, outbound.chat_id)


def addressee_column(kind: AddresseeKind, id_: str) -> str:
    """Return the text for a chat: its encoded id, or another id after its kind and a colon, which no encoded id has."""
    return encode_id(id_) if kind is AddresseeKind.CHAT else f"{kind.value}:{encode_id(id_)}"


_outbound_form = msgspec.json.Decoder(Outbound, dec_hook=read_label)


def outbound_of(body: bytes) -> Outbound:
    """Return a message as it was written, no matter what its chat is called now."""
    return _decode_json(body, _outbound_form)


def outbound_in(row: Row) -> Outbound:
    """Decode a message in the second column."""
    return outbound_of(row[1])


def delivery_of(row: Row, outbound: Outbound | None = None) -> Delivery:
    """Decode a send; `outbound` is its content if that is decoded already."""
    number, body, state, attempts, due, created, receipt, error, times_unclear, chat = row
    return Delivery(
        number=number,
        outbound=_sent_to(outbound or outbound_of(body), chat),
        state=OutboxState(state),
        attempts=attempts,
        due=instant(due),
        created=instant(created),
        turn=number // REPLIES if number > 0 else None,
        ordinal=number % REPLIES if number > 0 else 0,
        receipt=receipt,
        error=error,
        times_unclear=times_unclear,
    )


def _sent_to(outbound: Outbound, chat: str) -> Outbound:
    """Address it to the chat's present id. Messages of the old chat cannot be answered or edited there."""
    if addressee_column(outbound.addressee, outbound.chat_id) == chat:
        return outbound
    return replace(outbound, chat_id=decode_id(chat), addressee=AddresseeKind.CHAT, reply_to=None, edits=None)
