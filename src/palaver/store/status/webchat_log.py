"""Talks in the store: what was said in a web chat and what was sent there are the rows that say so, and no others."""

import re
from datetime import datetime

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import NotFound
from palaver.model.ids import encode_id
from palaver.model.key import SessionKey
from palaver.model.lifecycle import InboxState
from palaver.model.session import Principal, identity_of
from palaver.model.value import value
from palaver.store.records import DELIVERY_COLUMNS, INBOX_COLUMNS, delivery_of, micros, received_of

__all__ = [
    "WebchatMessage",
    "get_message",
    "list_messages",
]


@value
class WebchatMessage:
    """One message in a talk."""

    name: str
    """Under which it is found again: `in-12`, `out-7168`."""
    id: str
    """What the platform calls it: the same while it grows, and when it is whole."""
    at: datetime
    text: str
    is_mine: bool
    """Said by whoever reads it; else sent to them."""
    files: tuple[Attachment, ...] = ()
    problem: str | None = None
    """Why it was not taken."""


# What was removed leaves its id behind, and no words.
_SAID = f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE length(i.body) > 0"
_SENT = f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE substr(account, 1, 5) = 'web:' AND state = 'delivered'"
_NAME = re.compile(r"(in|out)-(-?[0-9]{1,18})", re.ASCII)
_END = 1 << 62


@transaction
def list_messages(
    place: SessionKey, chat: str, principal: Principal, *, before: datetime | None = None, limit: int = 50
) -> Statements[list[WebchatMessage]]:
    if not _is_theirs(chat, principal):
        raise NotFound("chat", chat)
    until = _END if before is None else micros(before)
    said = yield (
        f"{_SAID} AND coalesce(i.place, i.key) = ? AND substr(i.dedup, 1, 5) = 'web::' AND i.received < ?"
        " ORDER BY i.no DESC LIMIT ?",
        (place.text, until, limit),
    )
    sent = yield (
        f"{_SENT} AND chat = ? AND created < ? ORDER BY created DESC, id DESC LIMIT ?",
        (encode_id(chat), until, limit),
    )
    lines = [*_said(said, chat, principal), *map(_sent, sent)]
    return sorted(lines, key=lambda each: (each.at, not each.is_mine))[-limit:]


@transaction
def get_message(name: str, chat: str, principal: Principal) -> Statements[WebchatMessage]:
    found, lines = _NAME.fullmatch(name), list[WebchatMessage]()
    if found and _is_theirs(chat, principal):
        if found[1] == "in":
            lines = _said((yield f"{_SAID} AND i.no = ?", (int(found[2]),)), chat, principal)
        else:
            rows = yield f"{_SENT} AND chat = ? AND id = ?", (encode_id(chat), int(found[2]))
            lines = [_sent(row) for row in rows]
    if not lines:
        raise NotFound("message", name)
    return lines[0]


def _is_theirs(chat: str, principal: Principal) -> bool:
    """A chat is called after the person whose it is: `owner`, `owner/plans`."""
    return f"web:{chat.partition('/')[0]}" in principal.identities


def _said(rows: list[Row], chat: str, principal: Principal) -> list[WebchatMessage]:
    """Several chats may be one conversation; each shows what was said in it."""
    every = [received_of(row) for row in rows]
    return [
        WebchatMessage(
            name=f"in-{each.number}",
            id=each.inbound.source.message_id or "",
            at=each.received,
            text=each.inbound.text,
            is_mine=True,
            files=each.inbound.files,
            problem=each.reason if each.state is InboxState.REFUSED else None,
        )
        for each in every
        if (each.inbound.source.platform, each.inbound.source.chat_id) == ("web", chat)
        and identity_of(each.inbound.source) in principal.identities
    ]


def _sent(row: Row) -> WebchatMessage:
    delivery = delivery_of(row)
    outbound = delivery.outbound
    return WebchatMessage(
        name=f"out-{delivery.number}",
        id=delivery.receipt or "",
        at=delivery.created,
        text=outbound.text,
        is_mine=False,
        files=(outbound.file,) if outbound.file else (),
    )
