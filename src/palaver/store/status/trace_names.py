"""Which message, turn or send a name means, and what it belongs to."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.model.epochs import Epochs
from palaver.model.process import parse_process_name
from palaver.model.source import MessageAddress, decode_id, encode_id, shorten_id
from palaver.store.queue.cause import OF_TURN, CauseKind
from palaver.store.queue.inbox import ADDRESS_COLUMNS, CHANGE
from palaver.store.queue.outbox import get_cause
from palaver.store.records import REPLIES, placeholders


class Anchor(NamedTuple):
    """The row a trace starts from: `in`, `turn` or `out`, and its number."""

    kind: str
    number: int


_TURN = re.compile(r"turn:([0-9]{1,18})", re.ASCII)


@transaction
def find_anchors(name: str, epochs: Epochs, *, bare: bool) -> Statements[list[Anchor]]:
    """Return what a name means. The ids of messages and sends can be `bare` where a person types them."""
    if found := _TURN.fullmatch(name):
        return [Anchor("turn", int(found[1]))]
    if named := epochs.find(name, bare=bare):
        return [Anchor(*named)]
    if (process := parse_process_name(name)) is not None and name.startswith("p"):
        rows = yield "SELECT turn_no FROM processes WHERE no = ?", (process,)
        return [Anchor("turn", row[0]) for row in rows]
    parts = name.rsplit(":", _MAX_COLONS)
    endings = [":".join(parts[start:]) for start in range(len(parts))]
    received = yield from _received_with_id(name, endings)
    if not received and (refused := shorten_id(name)) != name:
        received = yield from _received_with_id(refused, [refused])
    sent = yield from _sent_with_id(name, endings)
    return [*(Anchor("in", number) for number in received), *(Anchor("out", number) for number in sent)]


_MAX_COLONS = 16


def _received_with_id(name: str, endings: Sequence[str]) -> Statements[list[int]]:
    """Match the platform's message id, alone or with platform, account and chat. Edits belong to their message."""
    rows = yield (
        f"SELECT no, CASE WHEN {CHANGE} THEN 1 ELSE 0 END, {ADDRESS_COLUMNS} FROM inbox"
        f" WHERE message_id IN ({placeholders(endings)}) ORDER BY no",
        tuple(map(encode_id, endings)),
    )
    found = [(number, bool(change), MessageAddress(*columns)) for number, change, *columns in rows]
    named = [(number, change, address) for number, change, address in found if name in _names_of(address)]
    originals = {address for _, change, address in named if not change}
    return [number for number, change, address in named if not change or address not in originals]


def _names_of(address: MessageAddress) -> set[str]:
    chat = address.chat or address.alt_chat or address.chat_user
    return _names(*map(decode_id, (address.platform, address.account, chat, address.message_id or "")))


def _sent_with_id(name: str, endings: Sequence[str]) -> Statements[list[int]]:
    rows = yield (
        f"SELECT id, account, chat, receipt FROM outbox WHERE receipt IN ({placeholders(endings)}) ORDER BY id",
        tuple(endings),
    )
    found = [(row[0], *map(decode_id, (*row[1].split(":"), row[2])), row[3]) for row in rows]
    return [number for number, *parts in found if name in _names(*parts)]


def _names(platform: str, account: str, chat: str, message: str) -> set[str]:
    return {message, f"{platform}:{chat}:{message}", f"{platform}:{account}:{chat}:{message}"}


@transaction
def root_of(anchor: Anchor) -> Statements[Anchor]:
    """Return the turn of a message or send, the message that a command's answer belongs to, or the anchor itself."""
    if anchor.kind == "in":
        rows = yield "SELECT turn_no FROM inbox WHERE no = ? AND turn_no IS NOT NULL", (anchor.number,)
        return Anchor("turn", rows[0][0]) if rows else anchor
    if anchor.kind == "out" and anchor.number > 0:
        return Anchor("turn", anchor.number // REPLIES)
    if anchor.kind == "out":
        cause = yield from get_cause(anchor.number)
        if cause and cause.kind in _ROOTS and cause.number is not None:
            return (yield from root_of(Anchor(_ROOTS[cause.kind], cause.number)))
    return anchor


OWED_BY_TURN = OF_TURN - {CauseKind.DELIVERED}
_ROOTS = dict.fromkeys(OWED_BY_TURN, "turn") | {CauseKind.COMMAND: "in", CauseKind.REVISION: "in"}
"""What a send belongs to that is no reply of a turn, by its cause."""
