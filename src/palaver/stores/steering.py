"""What is said to a turn while it runs: that it stop, and more messages."""

from datetime import datetime

from palaver.domain.key import SessionKey
from palaver.domain.turn import Received, Turn
from palaver.ports.store import Choose, Signals, Status, key_topic
from palaver.ports.work import Lock, Notify, Steps, work
from palaver.stores.inbox import put_into_turn, waiting
from palaver.stores.records import instant
from palaver.stores.sessions import open_by_key
from palaver.stores.turns import write_messages

__all__ = ["keep_draft", "request_stop", "signals", "status", "steer"]


@work
def request_stop(key: SessionKey, now: datetime, *, by: str) -> Steps[bool]:
    """Ask the turn that runs in this conversation, on whatever worker, to stop. False if none does."""
    rows = yield (
        "UPDATE turns SET stop = ? WHERE key = ? AND state = 'running' RETURNING no",
        (f"{by} at {now.isoformat()}", key.text),
    )
    yield Notify(key_topic(key))
    return bool(rows)


@work
def signals(turn: Turn) -> Steps[Signals]:
    rows = yield (
        "SELECT t.stop, EXISTS (SELECT 1 FROM inbox i WHERE i.key = t.key AND i.state = 'waiting')"
        " FROM turns t WHERE t.no = ?",
        (turn.number,),
    )
    stop, waits = rows[0]
    return Signals(stop=stop is not None, waiting=bool(waits))


@work
def steer(turn: Turn, choose: Choose) -> Steps[list[Received]]:
    """Take what waits into the turn that already runs."""
    yield Lock(turn.key.text)
    line = yield from waiting(turn.key)
    taken = line[: choose(line).take] if line else []
    if taken:
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
    running = yield "SELECT started FROM turns WHERE key = ? AND state = 'running'", (key.text,)
    waits = yield "SELECT count(*) FROM inbox WHERE key = ? AND state = 'waiting'", (key.text,)
    since = instant(running[0][0]) if running else None
    return Status(session=session, running_since=since, waiting=waits[0][0])
