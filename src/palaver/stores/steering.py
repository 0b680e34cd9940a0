"""What is said to a turn while it runs: that it stop, and more messages."""

from datetime import datetime

from palaver.domain.key import SessionKey
from palaver.domain.turn import Received, Turn
from palaver.ports.store import Choose, Signals, Status, key_topic
from palaver.ports.work import Lock, Notify, Steps, work
from palaver.stores.inbox import RUNNING, put_into_turn, waiting
from palaver.stores.records import instant
from palaver.stores.sessions import join, open_by_key, touch
from palaver.stores.turns import write_messages

__all__ = ["keep_draft", "request_stop", "signals", "status", "steer"]


@work
def request_stop(key: SessionKey, now: datetime, *, by: str) -> Steps[bool]:
    """Ask the turn of this conversation to stop, whoever works on it or takes it up. False if there is none."""
    rows = yield (
        "UPDATE turns SET stop = ? WHERE key = ? AND state IN ('running', 'interrupted') RETURNING no",
        (f"{by} at {now.isoformat()}", key.text),
    )
    yield Notify(key_topic(key))
    return bool(rows)


@work
def signals(turn: Turn) -> Steps[Signals]:
    rows = yield "SELECT stop FROM turns WHERE no = ?", (turn.number,)
    line = yield from waiting(turn.key, held=False)
    return Signals(stop=rows[0][0] is not None, waiting=tuple(line))


@work
def steer(turn: Turn, choose: Choose, now: datetime) -> Steps[list[Received]]:
    """Take what waits into the turn that already runs."""
    yield Lock(turn.key.text)
    line = yield from waiting(turn.key)
    taken = line[: choose(line).take] if line else []
    if taken:
        yield from join(turn.session_number, taken[-1].inbound.source)
        yield from touch(turn.session_number, now, human=any(each.inbound.keeps_awake for each in taken))
        yield from write_messages(turn, taken)
        yield from put_into_turn(turn.number, taken)
    return taken


@work
def keep_draft(turn: Turn, receipt: str) -> Steps[None]:
    """Which message the answer grows in: after a crash it is gone on with."""
    yield "UPDATE turns SET draft = ? WHERE no = ? AND fence = ?", (receipt, turn.number, turn.fence)


@work
def status(key: SessionKey) -> Steps[Status]:
    """What is going on in a conversation. Looking changes nothing."""
    session = yield from open_by_key(key)
    running = yield f"SELECT started FROM turns WHERE key = ? AND {RUNNING}", (key.text,)
    waits = yield "SELECT count(*) FROM inbox WHERE key = ? AND state = 'waiting'", (key.text,)
    since = instant(running[0][0]) if running else None
    return Status(session=session, running_since=since, waiting=waits[0][0])
