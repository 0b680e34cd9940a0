"""Relayed messages: a connector keeps each in its inbox until the gateway that it belongs to has stored it."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Notify, Row, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.source import encode_id, identity_of, message_address
from palaver.model.turn import Delivery, Inbound, Outbound
from palaver.store.queue import outbox
from palaver.store.queue.cause import CAUSE_COLUMNS, CauseKind, SendCause
from palaver.store.queue.inbox import insert_message
from palaver.store.records import (
    DELIVERY_COLUMNS,
    SET_BODY,
    body_values,
    delivery_of,
    inbound_body,
    inbound_of,
    micros,
    readable,
)


class Relayed(NamedTuple):
    number: int
    inbound: Inbound


def relay_topic(tenant: str) -> str:
    """Return the topic on which a tenant's connection learns of messages."""
    return f"relay {encode_id(tenant)}"


@transaction
def accept(
    inbound: Inbound, key: SessionKey, tenant: str, now: datetime, *, refused: str | None = None
) -> Statements[int | None]:
    """Store a message for a tenant; return its number, or None for a redelivery."""
    stored = inbound.without_content() if refused else inbound
    columns = {
        "version": encode_id(inbound.revision.version) or "-" if inbound.revision else "",
        "key": key.text,
        "state": "refused" if refused else "relay",
        "received": micros(now),
        "reason": refused,
        "identity": identity_of(inbound.source),
        "tenant": tenant,
    }
    body = inbound_body(stored, None, None, is_relayed=True)
    number = yield from insert_message(message_address(inbound.source), body, columns)
    if number and not refused:
        yield Notify(relay_topic(tenant))
    return number


_WAITS = "tenant = ? AND platform = ? AND account = ? AND state = 'relay'"


@transaction
def list_waiting(
    tenant: str, platform: str, account: str | None, *, after: int, limit: int
) -> Statements[list[Relayed]]:
    """Return what the tenant has not acknowledged yet, in the order it came. `doctor` names what cannot be read."""
    rows = yield (
        f"SELECT no, body FROM inbox WHERE {_WAITS} AND no > ? ORDER BY no LIMIT ?",
        (tenant, encode_id(platform), encode_id(account or ""), after, limit),
    )
    return list(readable(_relayed_of, rows))


def _relayed_of(row: Row) -> Relayed:
    return Relayed(row[0], inbound_of(row[1])[0])


@transaction
def acknowledge(tenant: str, platform: str, account: str | None, numbers: Sequence[int]) -> Statements[int]:
    """Settle messages that the tenant has stored, and delete their content here. Return how many were open."""
    settled = 0
    for number in numbers:
        rows = yield (
            f"UPDATE inbox SET state = 'done', reason = ?, {SET_BODY} WHERE no = ? AND {_WAITS} RETURNING no",
            (f"relayed to {tenant}", *body_values(b""), number, tenant, encode_id(platform), encode_id(account or "")),
        )
        settled += len(rows)
    return settled


@transaction
def count_waiting(tenant: str) -> Statements[int]:
    rows = yield "SELECT count(*) FROM inbox WHERE tenant = ? AND state = 'relay'", (tenant,)
    return rows[0][0]


@transaction
def has_come_from(tenant: str, outbound: Outbound) -> Statements[bool]:
    """Return whether a message from this chat was relayed to the tenant."""
    rows = yield (
        "SELECT 1 FROM inbox WHERE tenant = ? AND platform = ? AND account = ? AND server = ? AND chat = ? LIMIT 1",
        (
            tenant,
            encode_id(outbound.platform),
            encode_id(outbound.account or ""),
            encode_id(outbound.scope_id or ""),
            encode_id(outbound.chat_id),
        ),
    )
    return bool(rows)


@transaction
def is_gone(number: int) -> Statements[bool]:
    """Return whether a send goes to a chat that is known to be gone."""
    return number in (yield from outbox.find_gone([number]))


@transaction
def enqueue(tenant: str, outbound: Outbound, key: str, now: datetime) -> Statements[Delivery | None]:
    """Send a message for a tenant, once for each of its keys. Return how far it is."""
    cause = SendCause(CauseKind.RELAY, tenant, key)
    yield from outbox.enqueue(outbound, cause, now)
    columns = " AND ".join(f"{column.strip()} = ?" for column in CAUSE_COLUMNS.split(","))
    rows = yield f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE {columns}", cause.columns
    return next(readable(delivery_of, rows), None)
