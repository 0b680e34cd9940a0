"""The line in the store: conversations in which something waits, the one that was served longest ago in front."""

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.key import SessionKey

__all__ = [
    "OPEN_TURN",
    "add",
    "list_ready",
    "lock_and_add",
    "remove_if_empty",
    "requeue_or_remove",
]

OPEN_TURN = "('running', 'parked', 'interrupted')"
"""The states of a turn that keeps its conversation from beginning another."""
_LAST = "(SELECT coalesce(max(place), 0) + 1 FROM lines)"
_TO_THE_END = f"UPDATE lines SET place = {_LAST} WHERE key = ?"
_OUT = (
    "DELETE FROM lines WHERE key = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.key = lines.key AND i.state = 'waiting')"
)


@transaction
def add(key: SessionKey) -> Statements[None]:
    """Something waits in a conversation that is held."""
    # The row is written to also where it is there already: then nobody can take it away who does not see the message.
    yield (
        f"INSERT INTO lines (key, place) VALUES (?, {_LAST}) ON CONFLICT (key) DO UPDATE SET place = lines.place",
        (key.text,),
    )


@transaction
def lock_and_add(key: SessionKey) -> Statements[None]:
    """Something from elsewhere waits in a conversation that need not be held."""
    yield _end_of(key)
    yield from add(key)


@transaction
def requeue_or_remove(key: SessionKey) -> Statements[None]:
    """A conversation that was served goes behind all others, or out of the line if nothing waits in it any more."""
    yield _end_of(key)
    yield _TO_THE_END, (key.text,)
    # A statement of its own: it sees whatever was accepted before the first one got hold of the row.
    yield _OUT, (key.text,)


@transaction
def remove_if_empty(key: SessionKey) -> Statements[None]:
    """Nothing waits any more in a conversation that is held, unless something was brought there meanwhile."""
    yield _end_of(key)
    yield _OUT, (key.text,)


def _end_of(key: SessionKey) -> Lock:
    """Whoever brings something, and whoever takes the last of it, see each other's doing."""
    return Lock(f"line of {key.text}")


@transaction
def list_ready(limit: int) -> Statements[list[SessionKey]]:
    """Keys with waiting messages and no open turn.

    In front is the one that has waited longest since it was last served: neither who has much to say nor who is new
    keeps others waiting.
    """
    rows = yield (
        "SELECT l.key FROM lines l"
        f" WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = l.key AND t.state IN {OPEN_TURN})"
        " ORDER BY l.place, l.key LIMIT ?",
        (limit,),
    )
    return [SessionKey.parse(row[0]) for row in rows]
