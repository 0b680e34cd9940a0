"""Parts in the store: what was sent as one, as an album is, and whether it was said to us."""

from dataclasses import replace

from palaver.domain.busy import is_part
from palaver.domain.turn import Received
from palaver.ports.store import INBOX
from palaver.ports.work import Lock, Notify, Steps, work
from palaver.stores.inbox import line, withdraw
from palaver.stores.records import INBOX_COLUMNS, inbound_body, received_of

__all__ = ["decide"]

_LATELY = (
    f"SELECT {INBOX_COLUMNS} FROM inbox i JOIN turns t ON t.no = i.turn_no WHERE length(i.body) > 0 AND i.turn_no IN"
    " (SELECT no FROM turns WHERE session_no = (SELECT no FROM sessions WHERE key = ? AND ended IS NULL)"
    " ORDER BY no DESC LIMIT 3)"
)


@work
def decide(received: Received) -> Steps[None]:
    """A part waits that was not said to us: unless another part was, nothing of it is kept.

    That other part may wait by now, or have come into a turn lately.
    """
    yield Lock(received.key.text)
    waiting = yield from line(received.key)
    rows = yield _LATELY, (received.key.text,)
    for part in [each for each in waiting if each.number == received.number]:
        parts = [each for each in (*waiting, *map(received_of, rows)) if is_part(each, part)]
        if all(each.inbound.observed for each in parts):
            yield from withdraw(part.number, "it was said to others")
            body = b""
        else:
            body = inbound_body(replace(part.inbound, observed=False), part.role)
        yield "UPDATE inbox SET body = ? WHERE no = ?", (body, part.number)
    yield Notify(INBOX)
