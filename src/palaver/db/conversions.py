"""Conversions: the parts of a migration that SQL cannot do, such as taking a text or a JSON value apart.

A migration always writes the same, so nothing here calls a rule of the model that may change.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from palaver.db.transaction import Row, Statements, Transaction, Value, transaction

_PAGE = 1000
_LOWEST = -(1 << 62)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _convert(select: str, update: str, convert: Callable[[Row], Iterable[Value] | None]) -> Statements[None]:
    """Update every row that the first column of `select` numbers, page by page."""
    after = _LOWEST
    while rows := (yield f"{select} LIMIT {_PAGE}", (after,)):
        after = rows[-1][0]
        converted = ((row[0], convert(row)) for row in rows)
        yield update, [(*values, number) for number, values in converted if values is not None]


# Schema 15


@transaction
def outbox_causes() -> Statements[None]:
    yield from _convert(
        "SELECT id, dedup FROM outbox WHERE id > ? AND dedup IS NOT NULL ORDER BY id",
        "UPDATE outbox SET cause_kind = ?, cause_id = ?, cause_detail = ?, part = ? WHERE id = ?",
        lambda row: _cause(row[1]),
    )
    rows = yield "SELECT dedup FROM said_once", ()
    yield (
        "INSERT INTO wiped_after_send (cause_kind, cause_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [_cause(name)[:2] for (name,) in rows],
    )


def _cause(name: str) -> tuple[str, str, str, int]:
    """`halt:7:2:0` is kind, turn, fence and part. Only what is sent in parts ends with the number of one."""
    kind, _, rest = name.partition(":")
    id_, _, detail = rest.partition(":")
    if kind not in _IN_PARTS:
        return kind, id_, detail, 0
    before, colon, last = detail.rpartition(":")
    if last.isdecimal():
        return kind, id_, before, int(last)
    return kind, id_, before + colon + last, 0


_IN_PARTS = frozenset({"halt", "tool", "command", "revision", "pair", "paired", "welcome"})


@transaction
def inbox_columns() -> Statements[None]:
    yield from _convert(
        "SELECT no, body FROM inbox WHERE no > ? AND length(body) > 0 ORDER BY no",
        "UPDATE inbox SET identity = ? WHERE no = ?",
        lambda row: _sender(row[1]),
    )
    sessions = yield "SELECT id, no FROM sessions", ()
    numbers: Mapping[str, int] = dict(sessions)
    yield from _convert(
        "SELECT no, dedup FROM inbox WHERE no > ? AND substr(dedup, 1, 6) = 'retry:' ORDER BY no",
        "UPDATE inbox SET retried_in = ? WHERE no = ?",
        lambda row: (numbers.get(row[1].split(":")[1]),),
    )


def _sender(body: bytes) -> tuple[Value, ...] | None:
    source = _source(body)
    return (_identity(source),) if source else None


def _identity(source: Mapping[str, str]) -> str | None:
    """Return the sender as schema 15 knew them: alternate ids and user ids were not told apart."""
    participant = source.get("user_id_alt") or source.get("user_id")
    return f"{source['platform']}:{participant}" if participant else None


def _source(body: bytes) -> dict[str, str] | None:
    """Return the ids of a message's source, percent-encoded; None if it cannot be read: `palaver doctor` names it."""
    try:
        source = _inbound_decoder.decode(body).source
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    ids = {name: _encode(str(value)) for name, value in source.items() if isinstance(value, str | int) and value != ""}
    return {"chat_kind": "dm", **ids} if "platform" in ids else None


def _encode(id_: str) -> str:
    return quote(id_, safe="@+!=$#", errors="surrogatepass")


class _Inbound(msgspec.Struct):
    source: dict[str, Any]


_inbound_decoder = msgspec.json.Decoder(_Inbound)


@transaction
def turn_columns() -> Statements[None]:
    yield from _convert(
        "SELECT no, stop FROM turns WHERE no > ? AND stop IS NOT NULL ORDER BY no",
        "UPDATE turns SET stopped_by = ?, stopped_at = ? WHERE no = ?",
        lambda row: _stop(row[1]),
    )
    yield from _convert(
        "SELECT no, error FROM turns WHERE no > ? AND substr(error, 1, 11) = 'stopped by ' ORDER BY no",
        "UPDATE turns SET stopped_by = coalesce(stopped_by, ?), error = 'stopped instead of an answer' WHERE no = ?",
        lambda row: _matched(r"stopped by (.*) instead of an answer", row[1]),
    )
    yield from _convert(
        "SELECT no, error FROM turns WHERE no > ? AND substr(error, 1, 16) = 'over the cap of ' ORDER BY no",
        "UPDATE turns SET quota = ? WHERE no = ?",
        lambda row: _matched(r"over the cap of ([^:]*).*", row[1]),
    )


def _stop(text: str) -> tuple[Value, ...]:
    by, _, at = text.rpartition(" at ")
    try:
        return by, (datetime.fromisoformat(at) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        return text, 0


def _matched(pattern: str, text: str) -> tuple[str | Any, ...] | None:
    found = re.fullmatch(pattern, text, re.DOTALL)
    return found.groups() if found else None


@transaction
def operation_columns() -> Statements[None]:
    yield from _convert(
        "SELECT no, details FROM operations WHERE no > ? AND details <> '{}' ORDER BY no",
        "UPDATE operations SET from_session = ?, from_key = ?, to_key = ?, details = ? WHERE no = ?",
        lambda row: _course(msgspec.json.decode(row[1])),
    )


def _course(details: dict[str, Any]) -> tuple[Value, ...] | None:
    course = tuple(details.pop(name, None) for name in ("before", "key", "to"))
    return (*course, msgspec.json.encode(details).decode()) if any(course) else None


# Schema 16


@transaction
def inbox_addresses() -> Statements[None]:
    """Copy the inbox, with columns instead of the text that recognised a redelivery."""
    after, retried = _LOWEST, set[tuple[Value, ...]]()
    while rows := (yield f"{_OLD_INBOX} LIMIT {_PAGE}", (after,)):
        after = rows[-1][0]
        copies: list[tuple[Value, ...]] = []
        for number, name, revises, key, place, retried_in, *rest in rows:
            version, message = _version_and_name(name, revises, retried_in)
            address = _address(message, place or key, rest[-1])
            repeat = (*address, retried_in)
            if retried_in and repeat in retried:
                address = address._replace(message_id=None)
            retried.add(repeat if retried_in else ())
            copies.append((number, *address, version, retried_in or 0, key, place, *rest))
        yield _NEW_INBOX, copies


class _Address(NamedTuple):
    message_id: str | None
    chat: str = ""
    alt_chat: str = ""
    chat_user: str = ""
    server: str = ""
    platform: str = ""
    account: str = ""


_REST = "state, received, identity, turn_no, reason, body"
_OLD_INBOX = f"SELECT no, dedup, revises, key, place, retried_in, {_REST} FROM inbox WHERE no > ? ORDER BY no"
_NEW_COLUMNS = f"no, {', '.join(_Address._fields)}, version, retried_in, key, place, {_REST}"
_NEW_INBOX = f"INSERT INTO received ({_NEW_COLUMNS}) VALUES ({', '.join('?' * (_NEW_COLUMNS.count(',') + 1))})"


def _version_and_name(name: str | None, revises: str | None, retried_in: int | None) -> tuple[str, str | None]:
    """Return the version of an edit, and the name of the message that a row is, changes or sends once more."""
    if name is None or name.startswith("retry:"):
        return "", revises if retried_in else None
    return (name.rpartition(":")[2] or "-", revises) if revises else ("", name)


def _address(name: str | None, key: str, body: bytes) -> _Address:
    """The name has the chat's present id; all else is in the message, or if that was deleted, in its key."""
    source = _source(body) or _place(key)
    chat, alternate = source.get("chat_id", ""), source.get("chat_id_alt", "") if source["chat_kind"] != "dm" else ""
    address = _Address(
        message_id=None,
        chat=chat,
        alt_chat="" if chat else alternate,
        chat_user="" if chat or alternate else source.get("user_id_alt") or source.get("user_id", ""),
        server=source.get("scope_id") or source.get("guild_id", ""),
        platform=source["platform"],
        account=source.get("account", ""),
    )
    if name is None:
        return address
    platform, account, chat, message = name.split(":")
    named = {"chat_user": chat} if address.chat_user else {} if address.alt_chat else {"chat": chat}
    return address._replace(message_id=message, platform=platform, account=account, **named)


def _place(key: str) -> dict[str, str]:
    """Return the percent-encoded ids in a session key: `agent:main:telegram:dm:7:account:b`."""
    head, *place = key.split(":")
    named = dict(zip(place[4::2], place[5::2], strict=False))
    _, platform, kind, chat = (*place, "", "", "", "")[:4] if head == "agent" else ("", "", "dm", "")
    names = {"scope": "scope_id", "user": "user_id", "account": "account"}
    ids = {names[name]: id_ for name, id_ in named.items() if name in names}
    return {"platform": platform or "-", "chat_kind": kind, "chat_id": chat, **ids}


# Schema 26


@transaction
def alternate_ids() -> Statements[None]:
    """Name people by `alt:ID` who have an alternate id; before, nothing told it from a user id."""
    alternates, users = yield from _rename_senders()
    for old, new in sorted(alternates.items()):
        yield from _rename_in_grants(old, new, keeps=old in users)
        if old not in users:
            for table, column in _NAMING_PEOPLE:
                yield (
                    f"UPDATE {table} SET {column} = ? WHERE {column} = ?"
                    f" AND NOT EXISTS (SELECT 1 FROM {table} WHERE {column} = ?)",
                    (new, old, new),
                )


def _rename_senders() -> Statements[tuple[dict[str, str], set[str]]]:
    """Rename the senders of messages. Return the old and new identities, and those that are user ids."""
    after, alternates, users = _LOWEST, dict[str, str](), set[str]()
    while rows := (yield f"{_MESSAGES} LIMIT {_PAGE}", (after,)):
        after = rows[-1][0]
        for number, source in ((row[0], _source(row[1])) for row in rows):
            identity = _identity(source) if source else None
            if source is None or identity is None:
                continue
            alternate = source.get("user_id_alt")
            if alternate is None:
                users.add(identity)
                continue
            new = alternates[identity] = f"{source['platform']}:{_ALTERNATE}{alternate}"
            yield "UPDATE inbox SET identity = ? WHERE no = ?", (new, number)
            yield _RENAME_CHAT, (f"{_ALTERNATE}{alternate}", alternate, number, f"{_ALTERNATE}{alternate}")
    return alternates, users


def _rename_in_grants(old: str, new: str, *, keeps: bool) -> Statements[None]:
    """Rename in grants. Those of a block, and of a name that is also a user id (`keeps`), hold for both from now on."""
    platform, _, before = old.partition(":")
    user = new.removeprefix(f"{platform}:")
    theirs = "platform = ? AND user_id = ?"
    yield (
        f"INSERT INTO grants (user_id, {_GRANTED}) SELECT ?, {_GRANTED} FROM grants"
        f" WHERE {theirs} AND (effect = 'block' OR ? = 1)",
        (user, platform, before, int(keeps)),
    )
    if not keeps:
        yield f"UPDATE grants SET user_id = ? WHERE {theirs} AND effect <> 'block'", (user, platform, before)


_ALTERNATE = "alt%3A"
_MESSAGES = "SELECT no, body FROM inbox WHERE no > ? AND length(body) > 0 ORDER BY no"
_RENAME_CHAT = (
    "UPDATE inbox SET chat_user = ? WHERE chat_user = ? AND no = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.chat_user = ?"
    " AND i.message_id = inbox.message_id AND i.chat = inbox.chat AND i.alt_chat = inbox.alt_chat"
    " AND i.server = inbox.server AND i.platform = inbox.platform AND i.account = inbox.account"
    " AND i.version = inbox.version AND i.retried_in = inbox.retried_in)"
)
_GRANTED = "effect, role, basis, platform, kind, account, scope_id, chat_id, person, created, actor"
_NAMING_PEOPLE = (
    ("participants", "identity"),
    ("identities", "identity"),
    ("api_tokens", "identity"),
    ("turns", "identity"),
    ("usage", "identity"),
    ("sessions", "owner"),
    ("links", "one"),
    ("links", "other"),
    ("schedules", "owner"),
)


_ALL = (outbox_causes, inbox_columns, turn_columns, operation_columns, inbox_addresses, alternate_ids)
CONVERSIONS: Mapping[str, Callable[[], Transaction[None]]] = {each.__name__: each for each in _ALL}
