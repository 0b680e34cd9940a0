"""A conversation from its first message until its person is forgotten, in steps that a caller can repeat.

A step finds what it needs in the store, as a gateway does after an outage.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.session import Principal
from palaver.model.turn import Inbound, Outbound, OutboxState, Turn, Usage
from palaver.store.conversations import history, sessions, transcript
from palaver.store.privacy import erasure
from palaver.store.queue import inbox, outbox, turns
from palaver.store.records import DELIVERY_COLUMNS, TURN_COLUMNS, delivery_of, turn_of
from palaver.store.store import Store
from tests.store.world import LEASE, NEVER, NOON, answer, begin_sends, dm, key_of

__all__ = ["SCENARIO", "Picture", "Step", "take_picture"]

ANN = dm("7")
KEY, PRINCIPAL = key_of(ANN), Principal.speaking(ANN)
WORKER = "w1"
LATER = NOON + timedelta(minutes=1)


class Step(NamedTuple):
    name: str
    run: Callable[[Store], Awaitable[object]]


Picture = dict[str, list[Row]]
_SHOWN = {
    "sessions": "key, end_reason, next_seq, turns, input_tokens",
    "routes": "key",
    "inbox": "message_id, state, turn_no IS NULL",
    "ready_queue": "key",
    "turns": "key, state, attempt, worker, lease_until",
    "entries": "id % 16777216, role, hidden_by IS NULL",
    "outbox": "state, attempts, receipt, cause_kind",
    "operations": "kind",
    "journal": "kind, first_seq, last_seq",
    "erasures": "requested, ended IS NULL",
}
"""What is the same in every run: numbers of rows are not, after a step that had to be repeated."""


@transaction
def take_picture() -> Statements[Picture]:
    picture: Picture = {}
    for table, columns in _SHOWN.items():
        rows = yield f"SELECT {columns} FROM {table}", ()  # noqa: S608 - our own words
        picture[table] = sorted((tuple(row) for row in rows), key=repr)
    return picture


# Steps


def _accept(name: str) -> Step:
    inbound = Inbound(source=dm("7", message_id=name), text=f"{name} is on my mind", at=NOON)

    async def accept(store: Store) -> None:
        await store.transact(inbox.accept(inbound, KEY, NOON))

    return Step(f"accept {name}", accept)


async def _begin(store: Store) -> None:
    await store.transact(turns.begin(KEY, WORKER, NOON, LEASE, NEVER))


@transaction
def _running() -> Statements[Turn]:
    query = f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.ended IS NULL"  # noqa: S608
    rows = yield query, ()
    return turn_of(rows[0])


async def _append(store: Store) -> None:
    turn = await store.read(_running())
    await store.transact(turns.append_to_turn(turn, [answer("a step " + "." * 3000)]))


async def _settle(store: Store) -> None:
    turn = await store.read(_running())
    replies = [Outbound(platform="telegram", chat_id="7", text=f"part {number}") for number in range(2)]
    usage = Usage(input_tokens=10)
    await store.transact(turns.settle(turn, [answer("done " + "." * 3000)], replies, NOON, usage=usage))


async def _extend(store: Store) -> None:
    turn = await store.read(_running())
    await store.transact(turns.extend_leases([turn], LATER, LEASE))


async def _claim(store: Store) -> None:
    await store.transact(begin_sends(WORKER, NOON, limit=1))


@transaction
def _claimed() -> Statements[Row]:
    rows = yield f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE state = 'sending'", ()  # noqa: S608
    return rows[0]


async def _receipt(store: Store) -> None:
    delivery = delivery_of(await store.read(_claimed()))
    await store.transact(outbox.settle_send(delivery, WORKER, OutboxState.DELIVERED, receipt="p1"))


async def _undo(store: Store) -> None:
    await store.transact(transcript.undo(KEY, 1, LATER, principal=PRINCIPAL))


async def _redo(store: Store) -> None:
    await store.transact(history.redo(KEY, LATER, principal=PRINCIPAL))


async def _reset(store: Store) -> None:
    await store.transact(sessions.reset(KEY, ANN, LATER, by="test"))


async def _search(store: Store) -> None:
    await store.search.catch_up()


async def _ask_to_erase(store: Store) -> None:
    await store.transact(erasure.request("telegram:7", LATER, by="test"))


async def _erase(store: Store) -> None:
    """In many transactions, and the log is emptied at the end; anyone who repeats it continues."""
    try:
        number = await store.transact(erasure.request("telegram:7", LATER, by="test"))
    except NotFound:
        await store.scrub()
        return
    await store.erasures.run(number, LATER)


_TURN = (Step("begin", _begin), Step("append", _append), Step("extend", _extend), Step("settle", _settle))
_SEND = (Step("claim", _claim), Step("receipt", _receipt))
SCENARIO = (
    *(_accept("m1"), *_TURN, *_SEND, *_SEND),
    *(_accept("m2"), *_TURN, *_SEND, *_SEND),
    *(Step("search", _search), Step("undo", _undo), Step("redo", _redo), Step("reset", _reset)),
    *(Step("ask to erase", _ask_to_erase), Step("erase", _erase)),
)
