"""Rekeying in the store: a conversation goes on under another key."""

from palaver.domain.key import SessionKey
from palaver.ports.store import INBOX, key_topic
from palaver.ports.work import Lock, Notify, Steps
from palaver.stores.inbox import OPEN_TURN, carry

__all__ = ["rekey"]

_LOOK = Notify(INBOX)


def rekey(old: SessionKey, new: SessionKey) -> Steps[None]:
    """A turn that is at work goes along. Where the new key has a conversation already, only what waits goes there."""
    for name in sorted({old.text, new.text}):
        yield Lock(name)
    taken = yield (
        "SELECT 1 FROM sessions WHERE key = ? UNION ALL SELECT 1 FROM routes WHERE key = ?"
        " UNION ALL SELECT 1 FROM attached WHERE place = ? OR key = ?",
        (new.text,) * 4,
    )
    if not taken:
        yield from _take_along(old, new)
    yield from carry(old, old, new)
    yield (
        "UPDATE inbox SET place = (SELECT place FROM attached WHERE place = ?) WHERE place = ? AND state = 'waiting'",
        (new.text, old.text),
    )
    yield _LOOK


def _take_along(old: SessionKey, new: SessionKey) -> Steps[None]:
    for table in ("sessions", "routes", "operations", "attached"):
        yield f"UPDATE {table} SET key = ? WHERE key = ?", (new.text, old.text)
    yield "UPDATE attached SET place = ? WHERE place = ?", (new.text, old.text)
    moved = yield (
        f"UPDATE turns SET key = ? WHERE key = ? AND state IN {OPEN_TURN} RETURNING no",
        (new.text, old.text),
    )
    for (turn,) in moved:
        yield "UPDATE inbox SET key = ? WHERE turn_no = ?", (new.text, turn)
        yield Notify(key_topic(old))
    for (place,) in (yield "SELECT place FROM attached WHERE key = ?", (new.text,)):
        yield from carry(SessionKey.parse(place), old, new)
