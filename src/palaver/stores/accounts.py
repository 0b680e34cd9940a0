"""Accounts in the store: which worker serves which account of ours, and how far it has read there."""

from datetime import datetime, timedelta

from palaver.domain.errors import StaleFence
from palaver.domain.ids import decode_id, encode_id
from palaver.domain.text import one_line
from palaver.ports.places import GATEWAY, AccountHealth
from palaver.ports.store import ACCOUNTS
from palaver.ports.work import Lock, Notify, Row, Steps, work
from palaver.stores.records import from_json, instant, json_text, micros

__all__ = ["calm", "connected", "count_start", "down", "health", "hold", "keep_position", "position", "release"]

_LONGEST_ERROR = 300


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
        " fence = CASE WHEN accounts.worker = excluded.worker THEN accounts.fence ELSE accounts.fence + 1 END,"
        " connected_since = CASE WHEN accounts.worker = excluded.worker THEN accounts.connected_since END"
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
def connected(platform: str, account: str | None, fence: int, now: datetime) -> Steps[None]:
    yield (
        "UPDATE accounts SET connected_since = ? WHERE platform = ? AND account = ? AND fence = ?",
        (micros(now), platform, encode_id(account or ""), fence),
    )
    yield Notify(ACCOUNTS)


@work
def down(
    platform: str, account: str | None, fence: int, now: datetime, error: str, *, refused: bool = False
) -> Steps[None]:
    """The connection is lost, or not granted. What is kept of the error is one line."""
    yield (
        "UPDATE accounts SET connected_since = NULL, last_error = ?, failed_at = ?, refused = ?"
        " WHERE platform = ? AND account = ? AND fence = ?",
        (one_line(error, _LONGEST_ERROR), micros(now), int(refused), platform, encode_id(account or ""), fence),
    )
    yield Notify(ACCOUNTS)


@work
def health(now: datetime) -> Steps[list[AccountHealth]]:
    """How every account is doing that was ever served, by name."""
    rows = yield (
        "SELECT platform, account, worker, lease_until, connected_since, last_error, failed_at, refused FROM accounts"
        " WHERE platform <> ? ORDER BY platform, account",
        (GATEWAY,),
    )
    return [_health(row, micros(now)) for row in rows]


def _health(row: Row, now: int) -> AccountHealth:
    platform, account, worker, lease_until, since, error, failed_at, refused = row
    is_served = lease_until >= now
    return AccountHealth(
        platform=platform,
        account=decode_id(account) or None,
        worker=worker if is_served else None,
        connected_since=instant(since) if is_served and since is not None else None,
        last_error=error,
        failed_at=instant(failed_at) if failed_at is not None else None,
        is_refused=bool(refused),
    )


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
