"""Epochs: begin one where commits can be missing, and find what this process has seen of them."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from palaver.db.high_water import Loss, Reckoned, Seen, Witness, measure
from palaver.db.postgres_schema_check import IDENTITIES
from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.epochs import Epoch, Epochs, HighWater
from palaver.model.turn import OutboxState
from palaver.store.clock import read_time
from palaver.store.damage.losses import record_loss
from palaver.store.meta import SET_META, read_meta
from palaver.store.queue.outbox import OPEN_SEND, keep_notice_number
from palaver.store.records import instant, json_text, micros, placeholders

FAILOVER = "failover"
"""What is missing after one is recorded under this name."""
_MARGIN = 10_000
"""How many numbers to leave out, besides those that this process knows: others can have seen more."""
_CHECK_BYTES = 3
_NAME = "epochs"
SERVER = "server"
"""The PostgreSQL server and its timeline on which the store was used last."""


@transaction
def load_epochs() -> Statements[Epochs]:
    """Load the epochs. If they are damaged there are none, and every id that was given out is unknown."""
    stored = yield from read_meta(_NAME)
    with suppress(msgspec.DecodeError):
        return Epochs(msgspec.json.decode(stored or "[]", type=tuple[Epoch, ...]))
    return Epochs(())


def _save(epochs: Epochs) -> Statements[Epochs]:
    yield SET_META, (_NAME, msgspec.json.encode(epochs.known).decode())
    return epochs


@transaction
def begin_epoch(now: datetime, *, after: HighWater, had: HighWater, in_doubt: bool = True) -> Statements[Epochs]:
    """Begin an epoch whose numbers are above `after`. Nobody gets these from now on."""
    epochs = yield from load_epochs()
    epoch = Epoch(check=secrets.token_hex(_CHECK_BYTES), began=now, after=after, had=had, in_doubt=in_doubt)
    return (yield from _save(Epochs((*epochs.known, epoch))))


@transaction
def reckon(witness: Witness, server: str, now: datetime) -> Statements[Reckoned]:
    """Compare a database with what this process has seen of it, and begin an epoch if commits can be missing.

    `server` names the PostgreSQL server and its timeline, as far as they are known.
    """
    yield Lock("epochs")
    epochs, reached = (yield from load_epochs()), (yield from measure())
    newest, before = epochs.newest, (yield from read_meta(SERVER))
    if server and server != before:
        yield SET_META, (SERVER, server)
    if newest is None:
        epochs = yield from begin_epoch(now, after=reached, had=reached, in_doubt=False)
    elif (server and before and server != before) or _is_behind(reached, witness, newest):
        after = yield from _raise_numbers(reached.raised_to(witness.mark).raised_to(newest.after), now)
        epochs = yield from begin_epoch(
            (yield from _latest(now)), after=after, had=reached, in_doubt=not witness.is_synchronous
        )
    return Reckoned(*((yield from _find_loss(witness, epochs)) if witness.check else (epochs, None)))


def _is_behind(reached: HighWater, witness: Witness, newest: Epoch) -> bool:
    """Tell whether numbers can be given twice: the database lacks some, or another gateway has left out too few."""
    if witness.check == newest.check:
        return bool(_lost(witness.mark, reached))
    return bool(witness.check and witness.mark.beyond(newest.after))


def _lost(mark: HighWater, had: HighWater) -> dict[str, int]:
    """Return by how much a mark is beyond what there was. The deletion of a turn lowers what PostgreSQL counts."""
    return mark._replace(turns=0).beyond(had)


def _latest(now: datetime) -> Statements[datetime]:
    """Return a time after everything that was received: the clock of a new server can be slow."""
    own = (yield from read_time()) or now
    rows = yield "SELECT received FROM inbox ORDER BY no DESC LIMIT 1", ()
    return max(own, instant(rows[0][0]) + timedelta(microseconds=1)) if rows else own


def _raise_numbers(known: HighWater, now: datetime) -> Statements[HighWater]:
    """Continue every sequence of PostgreSQL far above what is known."""
    given = {"inbox": known.messages, "journal": known.changes, "turns": known.turns}
    raised: dict[str, int] = {}
    for table, column, sequence in (yield IDENTITIES, ()):
        rows = yield (
            f"SELECT setval('{sequence}', {_MARGIN} + greatest((SELECT last_value FROM {sequence}),"
            f" (SELECT coalesce(max({column}), 0) FROM {table}), CAST(? AS BIGINT)))",
            (given.get(table, 0),),
        )
        raised[table] = rows[0][0]
    notices = known.notices + _MARGIN
    yield from keep_notice_number(-notices, now)
    return HighWater(messages=raised["inbox"], changes=raised["journal"], notices=notices, turns=raised["turns"])


# What this process has seen and no longer finds


def _find_loss(witness: Witness, epochs: Epochs) -> Statements[tuple[Epochs, Loss | None]]:
    since = epochs.since(witness.check)
    if not since:
        return epochs, None
    first = since[0]
    missing = yield from _missing_messages([each for each in witness.seen if each.kind == "in"], first)
    missing += yield from _restore_receipts([each for each in witness.seen if each.kind == "out"])
    if not (missing or _lost(witness.mark, first.had) or any(each.in_doubt for each in since)):
        return epochs, None
    if not first.in_doubt:
        doubted = tuple(replace(each, in_doubt=each.in_doubt or each is first) for each in epochs.known)
        epochs = yield from _save(Epochs(doubted))
    for each in missing:
        yield from _record(each, epochs, first.began)
    reason = f"the database was promoted or restored at {first.began:%Y-%m-%d %H:%M:%S %Z}, and commits can be missing"
    yield from record_loss(FAILOVER, f"epoch {first.check}", reason, first.began)
    return epochs, Loss(first.check, first.began, tuple(missing))


def _missing_messages(seen: Sequence[Seen], first: Epoch) -> Statements[list[Seen]]:
    """Return messages that are not there. A number of a later epoch is another message's."""
    rows = yield (
        f"SELECT no FROM inbox WHERE no IN ({placeholders((0, *seen))})",
        (0, *(each.number for each in seen)),
    )
    found = {row[0] for row in rows}
    return [each for each in seen if each.number not in found or each.number > first.after.messages]


def _restore_receipts(seen: Sequence[Seen]) -> Statements[list[Seen]]:
    """Store the receipts again of sends that arrived. Return the sends that are not there."""
    rows = yield (
        f"SELECT id, created, state, receipt FROM outbox WHERE id IN ({placeholders((0, *seen))})",
        (0, *(each.number for each in seen)),
    )
    stored = {(id_, created): (state, receipt) for id_, created, state, receipt in rows}
    missing: list[Seen] = []
    for each in seen:
        found = stored.get((each.number, micros(each.at)))
        if found is None:
            missing.append(each)
        elif found != (OutboxState.DELIVERED.value, each.receipt):
            yield (
                "UPDATE outbox SET state = 'delivered', receipt = ?, worker = NULL, claim_until = NULL"
                f" WHERE id = ? AND state IN {OPEN_SEND}",
                (each.receipt, each.number),
            )
    return missing


def _record(missing: Seen, epochs: Epochs, began: datetime) -> Statements[None]:
    name = epochs.message(missing.number) if missing.kind == "in" else epochs.send(missing.number)
    deed = "accepted from" if missing.kind == "in" else "sent to"
    reason = f"{deed} {missing.place} at {missing.at:%Y-%m-%d %H:%M:%S %Z}, and missing since {began:%H:%M:%S}"
    yield from record_loss(FAILOVER, name, reason, began, content=json_text({"chat": missing.place}))
