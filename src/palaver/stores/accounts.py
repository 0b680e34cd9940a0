"""Accounts in the store: which worker serves which account of ours, and how far it has read there."""

from datetime import datetime, timedelta

from palaver.domain.errors import StaleFence
from palaver.domain.ids import encode_id
from palaver.ports.work import Lock, Steps, work
from palaver.stores.records import from_json, json_text, micros

__all__ = ["calm", "count_start", "hold", "keep_position", "position", "release"]


@work
def hold(
    platform: str, account: str | None, worker: str, now: datetime, lease: timedelta, *, alone: bool = False
) -> Steps[int | None]:
    """Serve an account, or go on serving it; gives the fence. None while another worker does.

    For the only gateway no other worker does, whatever it has left behind.
    """
    rows = yield (
        "INSERT INTO accounts (platform, account, worker, fence, lease_until) VALUES (?, ?, ?, 1, ?)"
        " ON CONFLICT (platform, account) DO UPDATE SET worker = excluded.worker, lease_until = excluded.lease_until,"
        " fence = CASE WHEN accounts.worker = excluded.worker THEN accounts.fence ELSE accounts.fence + 1 END"
        " WHERE accounts.worker = excluded.worker OR accounts.lease_until < ? OR ? = 1 RETURNING fence",
        (platform, encode_id(account or ""), worker, micros(now + lease), micros(now), int(alone)),
    )
    return rows[0][0] if rows else None


@work
def release(platform: str, account: str | None, worker: str) -> Steps[None]:
    """Let another worker serve it at once."""
    yield (
        "UPDATE accounts SET lease_until = 0 WHERE platform = ? AND account = ? AND worker = ?",
        (platform, encode_id(account or ""), worker),
    )


@work
def position(platform: str, account: str | None) -> Steps[str | None]:
    rows = yield (
        "SELECT position FROM accounts WHERE platform = ? AND account = ?",
        (platform, encode_id(account or "")),
    )
    return rows[0][0] if rows else None


@work
def keep_position(platform: str, account: str | None, fence: int, text: str) -> Steps[None]:
    """How far the platform's stream was read. One who serves the account no longer cannot move it."""
    rows = yield (
        "UPDATE accounts SET position = ? WHERE platform = ? AND account = ? AND fence = ? RETURNING fence",
        (text, platform, encode_id(account or ""), fence),
    )
    if not rows:
        raise StaleFence(f"account {platform}", 0, fence)


@work
def count_start(now: datetime, window: timedelta) -> Steps[int]:
    """How many gateways have started within the window without having stood for as long; this one is one of them."""
    yield Lock("starts")
    rows = yield "SELECT value FROM meta WHERE name = 'starts'", ()
    earlier: list[int] = from_json(rows[0][0]) if rows else []
    starts = [*(moment for moment in earlier if moment > micros(now - window)), micros(now)]
    yield (
        "INSERT INTO meta (name, value) VALUES ('starts', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (json_text(starts),),
    )
    return len(starts)


@work
def calm() -> Steps[None]:
    """The gateway stands: earlier starts do not count against it any more."""
    yield "DELETE FROM meta WHERE name = 'starts'", ()
