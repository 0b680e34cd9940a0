"""Pairing: strangers with a code, and the messages they sent before approval."""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from palaver.db.transaction import Lock, Row, Statements, transaction
from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.errors import LockedOut
from palaver.model.key import Scope, SessionKey, Speaker, derive_key
from palaver.model.people import (
    CODE_LIFETIME,
    LOCKOUT,
    MAX_FAILURES,
    REQUEST_INTERVAL,
    PairingRequest,
    Reception,
    code_hash,
    locked_until,
    receive_stranger,
)
from palaver.model.source import Source, account_text, encode_id, identity_of, message_address
from palaver.model.turn import Inbound, Outbound, OutboxState, Received, outbound_to
from palaver.store.people import grants
from palaver.store.people.grants import ChangeKind, Stranger
from palaver.store.queue import inbox, outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    SELECT_RECEIVED,
    SET_BODY,
    body_values,
    delivery_of,
    inbound_body,
    instant,
    instant_or_none,
    micros,
    placeholders,
    readable,
    received_of,
)

PAIRING_LOCK = Lock("pairing")
"""Held to decide about strangers: those of all platforms are counted together."""
_WIPED_TEXT = "(deleted after it was sent)"
_TURNED_AWAY_COUNTS = timedelta(days=1)
_OVER = frozenset({OutboxState.DELIVERED, OutboxState.DEAD})
KEPT_REASONS = tuple(reception.value for reception in Reception if reception.keeps)


@transaction
def receive(source: Source, now: datetime) -> Statements[Reception]:
    """Decide what happens to a stranger's message."""
    requests = yield from _requests(account_text(source.platform, source.account))
    locked, turned_away = (yield from _are_all_locked_out(now)), (yield from _turned_away(source, now))
    return receive_stranger(identity_of(source) or "", requests, now, locked=locked, turned_away=turned_away)


def _turned_away(source: Source, now: datetime) -> Statements[datetime | None]:
    """Return when a stranger first came to an account, within a day, while there were too many others."""
    rows = yield (
        "SELECT min(received) FROM inbox WHERE identity = ? AND platform = ? AND account = ? AND state = 'refused'"
        " AND reason = ? AND received > ?",
        (
            *(identity_of(source) or "", source.platform, encode_id(source.account or "")),
            *(Reception.TOO_MANY.value, micros(now - _TURNED_AWAY_COUNTS)),
        ),
    )
    return instant_or_none(rows[0][0])


class Requested(NamedTuple):
    number: int
    """Of the message in the inbox."""
    reason: str
    """Why it is not answered."""
    rank: int | None = None
    """How many new strangers asked the account within `REQUEST_INTERVAL`, this one included; None if not new."""


@transaction
def request(
    inbound: Inbound,
    key: SessionKey,
    now: datetime,
    *,
    code: str,
    answer: Sequence[Outbound],
    without_code: Sequence[Outbound] = (),
) -> Statements[Requested | None]:
    """Store a stranger's message, and answer with their code: or without, while a lock-out would reject it."""
    identity = identity_of(inbound.source) or ""
    account = account_text(inbound.source.platform, inbound.source.account)
    yield PAIRING_LOCK
    reception = yield from receive(inbound.source, now)
    yield from drop_expired(now)
    message = inbound if reception.keeps else inbound.without_content()
    number = yield from inbox.accept(message, key, now, refused=reception.value)
    if number is None:
        return None
    rank = None
    if reception in {Reception.CODE, Reception.LOCKED}:
        cause = SendCause(CauseKind.PAIRING_CODE, number)
        rank = yield from _store_code(identity, account, number, code, now)
        yield from outbox.enqueue_parts(answer if reception is Reception.CODE else without_code, cause, now)
        yield from wipe_after_send(cause)
    elif reception.keeps:
        yield "UPDATE pairings SET kept = kept + 1 WHERE identity = ? AND account = ?", (identity, account)
    return Requested(number, reception.value, rank)


@transaction
def wipe_after_send(cause: SendCause) -> Statements[None]:
    """Wipe what this cause sends as soon as it was sent: it holds a code, or names strangers."""
    yield "INSERT INTO wiped_after_send (cause_kind, cause_id) VALUES (?, ?) ON CONFLICT DO NOTHING", cause.columns[:2]


@transaction
def wipe_sent_codes() -> Statements[int]:
    """Wipe messages with codes that were sent, or never will be; return their number."""
    rows = yield (
        f"SELECT cause_kind, cause_id, {DELIVERY_COLUMNS} FROM outbox WHERE cause_kind IS NOT NULL"
        " AND (cause_kind, cause_id) IN (SELECT cause_kind, cause_id FROM wiped_after_send) AND cause_detail = ''",
        (),
    )
    causes = {row[2]: row[:2] for row in rows}
    sends = [(causes[each.number], each) for each in readable(delivery_of, (row[2:] for row in rows))]
    sent = [delivery for _, delivery in sends if delivery.state in _OVER and delivery.outbound.text != _WIPED_TEXT]
    for delivery in sent:
        yield from outbox.rewrite(delivery.number, replace(delivery.outbound, text=_WIPED_TEXT))
    # As they were found above: what was sent meanwhile is wiped the next time.
    unsent = {cause for cause, delivery in sends if delivery.state not in _OVER}
    over = {cause for cause, _ in sends} - unsent
    yield "DELETE FROM wiped_after_send WHERE cause_kind = ? AND cause_id = ?", sorted(over)
    # A message is marked and sent in one transaction, so a mark without any message is left from one that was removed.
    yield (
        "DELETE FROM wiped_after_send WHERE NOT EXISTS (SELECT 1 FROM outbox o"
        " WHERE o.cause_kind = wiped_after_send.cause_kind AND o.cause_id = wiped_after_send.cause_id)",
        (),
    )
    return len(sent)


def _requests(account: str) -> Statements[list[PairingRequest]]:
    sql = "SELECT identity, first_requested, requested, expires, kept FROM pairings WHERE account = ?"
    rows = yield sql, (account,)
    return [
        PairingRequest(identity=identity, first=instant(first), at=instant(asked), expires=instant(expires), kept=kept)
        for identity, first, asked, expires, kept in rows
    ]


def _store_code(identity: str, account: str, number: int, code: str, now: datetime) -> Statements[int | None]:
    """Store a code in place of an earlier one. Return the rank of a new request."""
    moment, recently = micros(now), micros(now - REQUEST_INTERVAL)
    stored = yield (
        "INSERT INTO pairings (identity, account, code_hash, first_requested, requested, expires, inbox_no, kept)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (identity, account) DO UPDATE SET code_hash = excluded.code_hash,"
        " requested = excluded.requested, expires = excluded.expires, kept = pairings.kept + 1"
        " RETURNING first_requested",
        (identity, account, code_hash(code, account), moment, moment, micros(now + CODE_LIFETIME), number),
    )
    yield from grants.record(ChangeKind.ASKED, now, identity, identity)
    if stored[0][0] != moment:
        return None
    rows = yield "SELECT count(*) FROM pairings WHERE account = ? AND first_requested > ?", (account, recently)
    return rows[0][0]


@transaction
def drop_expired(now: datetime) -> Statements[None]:
    """Drop requests that nobody can approve any more, with the content of the messages that waited for that."""
    yield PAIRING_LOCK
    rows = yield (
        "DELETE FROM pairings WHERE expires <= ? AND requested <= ? RETURNING inbox_no",
        (micros(now), micros(now - REQUEST_INTERVAL)),
    )
    for (first,) in rows:
        yield from _delete_kept(first, "a stranger: nobody approved them in time")


def _delete_kept(first: int, reason: str) -> Statements[None]:
    rows = yield from _kept_since(first)
    yield "UPDATE inbox SET reason = ? WHERE no = ?", [(reason, row[0]) for row in rows]
    yield from inbox.delete_content(rows)


def _kept_since(first: int) -> Statements[list[Row]]:
    """Return the messages that wait for the approval of a stranger, whose first message this is."""
    return (
        yield (
            f"{SELECT_RECEIVED} WHERE i.no >= ? AND i.key = (SELECT key FROM inbox WHERE no = ?)"
            f" AND i.state = 'refused' AND i.reason IN ({placeholders(KEPT_REASONS)}) AND length(i.body) > 0",
            (first, first, *KEPT_REASONS),
        )
    )


@transaction
def list_pending(now: datetime) -> Statements[list[Stranger]]:
    return [waiting.stranger for waiting in (yield from _waiting(now))]


class _Waiting(NamedTuple):
    """A request that can still be approved."""

    stranger: Stranger
    account: str
    """The account they asked at."""
    code_hash: str
    first: Received


def _waiting(now: datetime) -> Statements[list[_Waiting]]:
    rows = yield (
        f"SELECT p.identity, p.account, p.code_hash, p.requested, p.expires, p.kept, {INBOX_COLUMNS} FROM pairings p"
        " JOIN inbox i ON i.no = p.inbox_no LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE p.expires > ? AND length(i.body) > 0 ORDER BY p.requested, p.identity, p.account",
        (micros(now),),
    )
    return list(readable(_waiting_of, rows))


def _waiting_of(row: Row) -> _Waiting:
    identity, account, hashed, asked, expires, kept, *columns = row
    first = received_of(tuple(columns))
    stranger = Stranger(
        identity=identity,
        source=first.inbound.source,
        name=first.inbound.labels.user,
        asked=instant(asked),
        expires=instant(expires),
        kept=kept,
    )
    return _Waiting(stranger, account, hashed, first)


@transaction
def approve(
    name: str,
    role: AccessRole,
    now: datetime,
    *,
    by: str,
    notice: str,
    scope_of: Callable[[Source], Scope] = lambda _: Scope(),
) -> Statements[Stranger | None]:
    """Approve the request with a code, or all requests of an identity.

    What they wrote is queued, by `scope_of` in the conversation they have now. Wrong codes lock out who enters them.
    """
    yield PAIRING_LOCK
    waiting = yield from _waiting(now)
    named = _with_identity(name, waiting)
    if not named and ":" not in name:
        yield from _check_not_locked_out(by, now)
        named = _with_code(name, waiting)[:1]
        if not named:
            yield from grants.record(ChangeKind.WRONG_CODE, now, by, None)
    for stranger, account, _, first in named:
        source = stranger.source
        yield from grants.add(_grant(source, role=role), now, by=by)
        yield from grants.record(ChangeKind.APPROVED, now, by, stranger.identity, {"role": role.text})
        yield "DELETE FROM pairings WHERE identity = ? AND account = ?", (stranger.identity, account)
        yield from outbox.enqueue(
            outbound_to(source, notice, reply_to=source.message_id), SendCause(CauseKind.PAIRED, first.number), now
        )
        yield from _queue_kept(first, _key_now(first, role, scope_of), role, now)
    return replace(named[0].stranger, kept=sum(each.stranger.kept for each in named)) if named else None


def _key_now(first: Received, role: AccessRole, scope_of: Callable[[Source], Scope]) -> SessionKey:
    """Return the key of what they wrote: an owner can share one conversation where a stranger has their own."""
    source = first.inbound.source
    scope = scope_of(source)
    if role is not AccessRole.OWNER or derive_key(source, scope) != first.key:
        return first.key
    return derive_key(source, scope, Speaker(is_owner=True))


def _grant(source: Source, effect: Effect = Effect.ALLOW, role: AccessRole = AccessRole.MEMBER) -> Grant:
    """Return a grant that allows at the account where they asked, or blocks at every account."""
    return Grant(
        effect=effect,
        role=role,
        platform=source.platform,
        account=source.account if effect is Effect.ALLOW else None,
        scope_id=source.scope_id,
        user_id=source.participant,
    )


def _queue_kept(first: Received, key: SessionKey, role: AccessRole, now: datetime) -> Statements[None]:
    """Queue the messages that were kept until approval."""
    yield Lock(key.text)
    for received in readable(received_of, (yield from _kept_since(first.number))):
        if (yield from _was_deleted(received.inbound)):
            continue
        yield (
            f"UPDATE inbox SET state = 'waiting', reason = NULL, key = ?, {SET_BODY} WHERE no = ?",
            (key.text, *body_values(inbound_body(received.inbound, role)), received.number),
        )
        yield from inbox.mark_ready(key, now)


def _was_deleted(inbound: Inbound) -> Statements[bool]:
    """Return whether its author deleted it before approval."""
    rows = yield (
        f"{SELECT_RECEIVED} WHERE {inbox.SAME_MESSAGE} AND {inbox.CHANGE} AND length(i.body) > 0",
        message_address(inbound.source),
    )
    authors = {None, identity_of(inbound.source)}
    changes = (each.inbound for each in readable(received_of, rows))
    return any(each.revision and each.revision.deleted and identity_of(each.source) in authors for each in changes)


def _with_identity(name: str, waiting: Sequence[_Waiting]) -> list[_Waiting]:
    return [each for each in waiting if each.stranger.identity == name]


def _with_code(code: str, waiting: Sequence[_Waiting]) -> list[_Waiting]:
    # One hash for each account, not for each stranger: it is slow, and strangers can be many.
    hashes = {account: code_hash(code, account) for account in {each.account for each in waiting}}
    return [each for each in waiting if hmac.compare_digest(hashes[each.account], each.code_hash)]


def _check_not_locked_out(by: str, now: datetime) -> Statements[None]:
    until = yield from _locked_until(by)
    if until is not None and now < until:
        raise LockedOut(until)


def _are_all_locked_out(now: datetime) -> Statements[bool]:
    """Return whether wrong codes have locked out everybody who ever entered one: no code can be used then."""
    rows = yield (
        "SELECT DISTINCT actor FROM access_log WHERE kind = ? AND at > ?",
        (ChangeKind.WRONG_CODE.value, micros(now - LOCKOUT)),
    )
    locked = list[str]()
    for (by,) in rows:
        until = yield from _locked_until(by)
        if until is not None and now < until:
            locked.append(by)
    if not locked:
        return False
    others = yield (
        f"SELECT 1 FROM access_log WHERE kind IN (?, ?) AND actor NOT IN ({placeholders(locked)}) LIMIT 1",
        (ChangeKind.WRONG_CODE.value, ChangeKind.APPROVED.value, *locked),
    )
    return not others


def _locked_until(by: str) -> Statements[datetime | None]:
    rows = yield (
        "SELECT at FROM access_log WHERE kind = ? AND actor = ? AND no > coalesce((SELECT max(no) FROM access_log"
        " WHERE kind = ? AND actor = ?), 0) ORDER BY no DESC LIMIT ?",
        (ChangeKind.WRONG_CODE.value, by, ChangeKind.APPROVED.value, by, MAX_FAILURES),
    )
    return locked_until([instant(row[0]) for row in rows])


@transaction
def deny(name: str, now: datetime, *, by: str, blocks: bool = False) -> Statements[Stranger | None]:
    """Deny the request with a code, or all requests of an identity."""
    yield PAIRING_LOCK
    waiting = yield from _waiting(now)
    named = _with_identity(name, waiting) or _with_code(name, waiting)
    if not named:
        return None
    stranger = named[0].stranger
    # The row stays for a while, so that they cannot ask again at once.
    yield (
        "UPDATE pairings SET expires = ? WHERE identity = ? AND account = ?",
        [(micros(now), each.stranger.identity, each.account) for each in named],
    )
    for each in named:
        yield from _delete_kept(each.first.number, "a stranger: access was denied")
    yield from grants.record(ChangeKind.DENIED, now, by, stranger.identity)
    if blocks:
        yield from grants.add(_grant(stranger.source, Effect.BLOCK), now, by=by)
    return stranger
