"""Ready queue: the conversations with waiting messages; the one served longest ago is first."""

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.key import SessionKey

OPEN_TURN = "('running', 'parked', 'interrupted')"
"""The states of a turn that is not over: its conversation cannot start another."""
_NEXT_PLACE = "(SELECT coalesce(max(place), 0) + 1 FROM lines)"
_MOVE_TO_END = f"UPDATE lines SET place = {_NEXT_PLACE} WHERE key = ?"
_REMOVE_IF_EMPTY = (
    "DELETE FROM lines WHERE key = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.key = lines.key AND i.state = 'waiting')"
)


@transaction
def add(key: SessionKey) -> Statements[None]:
    """Add a conversation whose key is locked."""
    # Write the row even if it exists: then nobody who does not see the message can remove it.
    yield (
        f"INSERT INTO lines (key, place) VALUES (?, {_NEXT_PLACE}) ON CONFLICT (key) DO UPDATE SET place = lines.place",
        (key.text,),
    )


@transaction
def lock_and_add(key: SessionKey) -> Statements[None]:
    """Add a conversation whose key is not locked."""
    yield _queue_lock(key)
    yield from add(key)


@transaction
def requeue_or_remove(key: SessionKey) -> Statements[None]:
    """Move a conversation that was served to the end, or remove it if nothing waits in it."""
    yield _queue_lock(key)
    yield _MOVE_TO_END, (key.text,)
    # A statement of its own: it sees every message accepted before the first one locked the row.
    yield _REMOVE_IF_EMPTY, (key.text,)


@transaction
def remove_if_empty(key: SessionKey) -> Statements[None]:
    """Remove a conversation whose key is locked, unless a message was moved there meanwhile."""
    yield _queue_lock(key)
    yield _REMOVE_IF_EMPTY, (key.text,)


def _queue_lock(key: SessionKey) -> Lock:
    """Return the lock that orders moving a message in and taking the last one out."""
    return Lock(f"line of {key.text}")


@transaction
def list_ready(limit: int) -> Statements[list[SessionKey]]:
    """Return keys with waiting messages and no open turn, longest unserved first.

    So neither a busy conversation nor new ones keep others waiting.
    """
    rows = yield (
        "SELECT l.key FROM lines l"
        f" WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = l.key AND t.state IN {OPEN_TURN})"
        " ORDER BY l.place, l.key LIMIT ?",
        (limit,),
    )
    return [SessionKey.parse(row[0]) for row in rows]
