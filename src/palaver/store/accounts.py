"""Accounts in the store: which worker serves which account of ours, and how far it has read there."""

from datetime import datetime, timedelta

from palaver.db.database import ACCOUNTS
from palaver.db.transaction import Lock, Notify, Row, Statements, Value, transaction
from palaver.model.errors import StaleFence
from palaver.model.ids import decode_id, encode_id
from palaver.model.source import Source
from palaver.model.text import one_line
from palaver.model.turn import Outbound, account_text
from palaver.model.value import value
from palaver.store.records import from_json, instant, json_text, micros, source_text

__all__ = [
    "GATEWAY",
    "AccountHealth",
    "acquire",
    "count_start",
    "get_home",
    "list_all_homes",
    "list_health",
    "list_homes",
    "mark_chat_gone",
    "mark_chat_reachable",
    "mark_connected",
    "mark_down",
    "read_position",
    "release",
    "reset_start_count",
    "save_position",
    "set_home",
]

GATEWAY = "gateway"
"""Stands for a platform where gateways agree among themselves who does what."""


@value
class AccountHealth:
    """How an account of ours is doing."""

    platform: str
    account: str | None
    worker: str | None = None
    """Who serves it; None while nobody does."""
    connected_since: datetime | None = None
    last_error: str | None = None
    failed_at: datetime | None = None
    is_refused: bool = False
    """The platform does not take us; the last error says what somebody has to do."""

    @property
    def name(self) -> str:
        """`telegram:helper`; where there can be only one, `terminal`."""
        return account_text(self.platform, self.account).removesuffix(":")

    @property
    def state(self) -> str:
        if self.worker is None:
            return "not served"
        if self.connected_since is not None:
            return "connected"
        return "refused" if self.is_refused else "connecting"


_LONGEST_ERROR = 300


@transaction
def acquire(
    platform: str, account: str | None, worker: str, now: datetime, lease: timedelta, *, alone: bool = False
) -> Statements[int | None]:
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


@transaction
def release(platform: str, account: str | None, worker: str) -> Statements[None]:
    """Let another worker serve it at once."""
    yield (
        "UPDATE accounts SET lease_until = 0 WHERE platform = ? AND account = ? AND worker = ?",
        (platform, encode_id(account or ""), worker),
    )


@transaction
def read_position(platform: str, account: str | None) -> Statements[str | None]:
    rows = yield (
        "SELECT position FROM accounts WHERE platform = ? AND account = ?",
        (platform, encode_id(account or "")),
    )
    return rows[0][0] if rows else None


@transaction
def save_position(platform: str, account: str | None, fence: int, text: str) -> Statements[None]:
    """How far the platform's stream was read. One who serves the account no longer cannot move it."""
    rows = yield (
        "UPDATE accounts SET position = ? WHERE platform = ? AND account = ? AND fence = ? RETURNING fence",
        (text, platform, encode_id(account or ""), fence),
    )
    if not rows:
        raise StaleFence(f"account {platform}", 0, fence)


@transaction
def mark_connected(platform: str, account: str | None, fence: int, now: datetime) -> Statements[None]:
    yield (
        "UPDATE accounts SET connected_since = ? WHERE platform = ? AND account = ? AND fence = ?",
        (micros(now), platform, encode_id(account or ""), fence),
    )
    yield Notify(ACCOUNTS)


@transaction
def mark_down(
    platform: str, account: str | None, fence: int, now: datetime, error: str, *, refused: bool = False
) -> Statements[None]:
    """The connection is lost, or not granted. What is kept of the error is one line."""
    yield (
        "UPDATE accounts SET connected_since = NULL, last_error = ?, failed_at = ?, refused = ?"
        " WHERE platform = ? AND account = ? AND fence = ?",
        (one_line(error, _LONGEST_ERROR), micros(now), int(refused), platform, encode_id(account or ""), fence),
    )
    yield Notify(ACCOUNTS)


@transaction
def list_health(now: datetime) -> Statements[list[AccountHealth]]:
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


@transaction
def count_start(now: datetime, window: timedelta) -> Statements[int]:
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


@transaction
def reset_start_count() -> Statements[None]:
    """The gateway stands: earlier starts do not count against it any more."""
    yield "DELETE FROM meta WHERE name = 'starts'", ()


@transaction
def set_home(profile: str, address: Source, now: datetime, *, by: str) -> Statements[None]:
    """From now on what goes to a platform without further address goes here."""
    yield (
        "INSERT INTO homes (profile, platform, address, set_at, by_whom) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (profile, platform) DO UPDATE SET address = excluded.address, set_at = excluded.set_at,"
        " by_whom = excluded.by_whom",
        (profile, address.platform, source_text(address), micros(now), by),
    )


@transaction
def list_homes(profile: str) -> Statements[list[Source]]:
    rows = yield "SELECT address FROM homes WHERE profile = ? ORDER BY platform", (profile,)
    return [_address(row[0]) for row in rows]


@transaction
def list_all_homes() -> Statements[list[Source]]:
    """Of every profile, the one set first in front."""
    rows = yield "SELECT address FROM homes ORDER BY set_at, profile, platform", ()
    return [_address(row[0]) for row in rows]


@transaction
def get_home(profile: str, platform: str) -> Statements[Source | None]:
    rows = yield "SELECT address FROM homes WHERE profile = ? AND platform = ?", (profile, platform)
    return _address(rows[0][0]) if rows else None


def _address(text: str) -> Source:
    data = from_json(text)
    return Source.from_json(data, known=(data["platform"],))


@transaction
def mark_chat_gone(outbound: Outbound, now: datetime, error: str) -> Statements[bool]:
    """Remember that we cannot write there; True if that is news."""
    rows = yield (
        "INSERT INTO gone_chats (account, chat, since, error) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        " RETURNING since",
        (*_place(outbound), micros(now), error),
    )
    return bool(rows)


@transaction
def mark_chat_reachable(outbound: Outbound) -> Statements[None]:
    """A send succeeded: the chat is not gone after all."""
    yield "DELETE FROM gone_chats WHERE account = ? AND chat = ?", _place(outbound)


def _place(outbound: Outbound) -> tuple[Value, ...]:
    return account_text(outbound.platform, outbound.account), encode_id(outbound.chat_id)
