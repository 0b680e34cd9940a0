"""What is said in a web chat besides its transcript, read from inbox and outbox."""

import re
from collections.abc import Sequence
from datetime import datetime

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.source import encode_id, identity_of
from palaver.model.turn import InboxState
from palaver.model.value import value
from palaver.store.queue.cause import CauseKind, kinds_in
from palaver.store.records import (
    DELIVERY_COLUMNS,
    REPLIES,
    SELECT_RECEIVED,
    delivery_of,
    micros,
    readable,
    received_of,
    reply_span,
)


@value
class WebchatMessage:
    name: str
    """`in-12`, `out-7168`: the argument of `get_message`."""
    id: str
    """The message id of the platform. It stays the same while an answer grows."""
    at: datetime
    text: str
    is_mine: bool
    """Whether the reader wrote it."""
    files: tuple[Attachment, ...] = ()
    problem: str | None = None
    """Why it was refused or failed."""
    waits: bool = False


# A removed message keeps its row, with an empty body.
_RECEIVED = f"{SELECT_RECEIVED} WHERE length(i.body) > 0"
_SENT = f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE substr(account, 1, 5) = 'web:' AND state = 'delivered'"
_NAME = re.compile(r"(in|out)-(-?[0-9]{1,18})", re.ASCII)
_END = 1 << 62


@transaction
def list_asides(
    place: SessionKey, chat: str, principal: Principal, *, since: datetime, until: datetime | None = None
) -> Statements[list[WebchatMessage]]:
    """Return what was said in a web chat besides its transcript: commands, notices, reminders, what waits."""
    if not _owns_chat(chat, principal):
        raise NotFound("chat", chat)
    span = micros(since), _END if until is None else micros(until)
    received = yield (
        f"{_RECEIVED} AND coalesce(i.place, i.key) = ? AND i.platform = 'web'"
        " AND (i.turn_no IS NULL OR i.answers IS NOT NULL)"
        " AND ((i.received >= ? AND i.received < ? AND i.retried_in = 0) OR i.state = 'waiting')"
        " ORDER BY i.no DESC LIMIT ?",
        (place.text, *span, _MAX_ASIDES),
    )
    sent = yield (
        f"{_SENT} AND chat = ? AND created >= ? AND created < ?"
        f" AND (cause_kind NOT IN ({_SHOWN_AS_STATE}) OR (id > 0 AND NOT EXISTS ({_TURN_HERE})))"
        " ORDER BY created DESC, id DESC LIMIT ?",
        (encode_id(chat), *span, place.text, place.text, _MAX_ASIDES),
    )
    messages = [*_received(received, chat, principal), *readable(_sent_message, sent)]
    # Retention leaves messages without content.
    shown = [each for each in messages if each.text or each.files or each.problem]
    return sorted(shown, key=lambda each: (each.at, not each.is_mine))


_MAX_ASIDES = 200
_TURN_HERE = (
    f"SELECT 1 FROM turns t WHERE t.no = outbox.id / {REPLIES}"
    " AND t.key IN (?, coalesce((SELECT a.key FROM attached_chats a WHERE a.place = ?), ''))"
)
"""Of a reply: its turn is one of the conversation in this place. The answer to a job is not."""
_SHOWN_AS_STATE = kinds_in((CauseKind.BUSY, CauseKind.PARKED, CauseKind.HALT))
"""Notices about what the page itself shows: that a message waits, and what is to be approved."""


@transaction
def failure_notices(turns: Sequence[int]) -> Statements[dict[int, str]]:
    """Return what people were told about turns that failed."""
    told: dict[int, str] = {}
    for turn in turns:
        span = reply_span(turn)
        rows = yield f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1", span
        for delivery in readable(delivery_of, rows):
            if delivery.outbound.text:
                told[turn] = delivery.outbound.text
    return told


@transaction
def get_message(name: str, chat: str, principal: Principal) -> Statements[WebchatMessage]:
    found, messages = _NAME.fullmatch(name), list[WebchatMessage]()
    if found and _owns_chat(chat, principal):
        if found[1] == "in":
            messages = _received((yield f"{_RECEIVED} AND i.no = ?", (int(found[2]),)), chat, principal)
        else:
            rows = yield f"{_SENT} AND chat = ? AND id = ?", (encode_id(chat), int(found[2]))
            messages = list(readable(_sent_message, rows))
    if not messages:
        raise NotFound("message", name)
    return messages[0]


def _owns_chat(chat: str, principal: Principal) -> bool:
    """A web chat is named after its person: `owner`, `owner/plans`."""
    return f"web:{chat.partition('/')[0]}" in principal.identities


def _received(rows: list[Row], chat: str, principal: Principal) -> list[WebchatMessage]:
    """Keep the messages of this chat: several chats can share one conversation."""
    return [
        WebchatMessage(
            name=f"in-{each.number}",
            id=each.inbound.source.message_id or "",
            at=each.received,
            text=each.inbound.text,
            is_mine=True,
            files=each.inbound.files,
            problem=each.reason if each.state in {InboxState.REFUSED, InboxState.FAILED} else None,
            waits=each.state is InboxState.WAITING,
        )
        for each in readable(received_of, rows)
        if (each.inbound.source.platform, each.inbound.source.chat_id) == ("web", chat)
        and identity_of(each.inbound.source) in principal.identities
    ]


def _sent_message(row: Row) -> WebchatMessage:
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
