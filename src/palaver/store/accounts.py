"""Accounts: which worker serves which bot account, how far it has read, and how it is doing."""

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from palaver.db.transaction import ACCOUNTS, Lock, Notify, Row, Statements, Transaction, transaction
from palaver.model.access import AccessRole, Grant, possible_trust
from palaver.model.errors import StaleFence
from palaver.model.label import Label
from palaver.model.source import DM, Source, Trust, account_name, decode_id, encode_id, identity_text
from palaver.model.split import ReplyRoutes
from palaver.model.text import one_line
from palaver.model.turn import Outbound
from palaver.model.value import value
from palaver.store.conversations.visibility import Filter
from palaver.store.meta import SET_META
from palaver.store.people.access_rules import AccessRules
from palaver.store.people.access_rules import load as load_rules
from palaver.store.people.grants import GrantTable
from palaver.store.records import (
    chat_columns,
    from_json,
    inbound_of,
    instant,
    instant_or_none,
    json_text,
    micros,
    placeholders,
    readable,
    source_in,
    source_of,
    source_text,
)

GATEWAY = "gateway"
"""Platform name under which gateways agree who does maintenance."""


@value
class AccountHealth:
    """The state of one account."""

    platform: str
    account: str | None
    worker: str | None = None
    """None while no worker serves it."""
    connected_since: datetime | None = None
    last_error: str | None = None
    failed_at: datetime | None = None
    is_refused: bool = False
    """The platform refuses us; the last error says what to do."""
    down_since: datetime | None = None
    """When the connection was lost or first refused; None while it is up, or was not tried yet."""
    held_until: datetime | None = None
    """When it can be served again, while it is held by a worker that is gone."""

    @property
    def name(self) -> str:
        return account_name(self.platform, self.account)

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
    """Serve an account or extend its lease; return the fence, or None while another worker serves it.

    The only gateway (`alone`) takes it from any other worker.
    """
    rows = yield (
        "INSERT INTO accounts (platform, account, worker, fence, lease_until) VALUES (?, ?, ?, 1, ?)"
        " ON CONFLICT (platform, account) DO UPDATE SET worker = excluded.worker, lease_until = excluded.lease_until,"
        " fence = CASE WHEN accounts.worker = excluded.worker THEN accounts.fence ELSE accounts.fence + 1 END,"
        " connected_since = CASE WHEN accounts.worker = excluded.worker THEN accounts.connected_since END,"
        " down_since = CASE WHEN accounts.worker = excluded.worker THEN accounts.down_since END"
        " WHERE accounts.worker = excluded.worker OR accounts.lease_until < ? OR ? = 1 RETURNING fence",
        (platform, encode_id(account or ""), worker, micros(now + lease), micros(now), int(alone)),
    )
    return rows[0][0] if rows else None


@transaction
def release(platform: str, account: str | None, worker: str) -> Statements[None]:
    """Let another worker serve the account at once."""
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
    """Save how far the platform was read. Raise StaleFence if another worker serves the account."""
    rows = yield (
        "UPDATE accounts SET position = ? WHERE platform = ? AND account = ? AND fence = ? RETURNING fence",
        (text, platform, encode_id(account or ""), fence),
    )
    if not rows:
        raise StaleFence(f"account {platform}", 0, fence)


@transaction
def recent_chats(platform: str, account: str | None, limit: int, *, server: str | None) -> Statements[list[str]]:
    """Return the chats on this server, or on none, of the messages that came last. The newest is the first."""
    rows: list[Row] = yield (
        "SELECT chat FROM inbox WHERE platform = ? AND account = ? AND server = ? AND chat <> ''"
        " GROUP BY chat ORDER BY max(no) DESC LIMIT ?",
        (platform, encode_id(account or ""), encode_id(server or ""), limit),
    )
    return [decode_id(row[0]) for row in rows]


@transaction
def mark_connected(platform: str, account: str | None, fence: int, now: datetime) -> Statements[None]:
    yield (
        "UPDATE accounts SET connected_since = ?, down_since = NULL WHERE platform = ? AND account = ? AND fence = ?",
        (micros(now), platform, encode_id(account or ""), fence),
    )
    yield Notify(ACCOUNTS)


@transaction
def mark_down(
    platform: str, account: str | None, fence: int, now: datetime, error: str, *, refused: bool = False
) -> Statements[datetime]:
    """Record that the connection was lost or refused, with one line of the error. Return since when it is down."""
    rows = yield (
        "UPDATE accounts SET connected_since = NULL, last_error = ?, failed_at = ?, refused = ?,"
        " down_since = coalesce(down_since, ?) WHERE platform = ? AND account = ? AND fence = ? RETURNING down_since",
        (
            *(one_line(error, _LONGEST_ERROR), micros(now), int(refused), micros(now)),
            *(platform, encode_id(account or ""), fence),
        ),
    )
    yield Notify(ACCOUNTS)
    return instant(rows[0][0]) if rows else now


@transaction
def list_health(now: datetime) -> Statements[list[AccountHealth]]:
    """Return the state of every account that was ever served, sorted by name."""
    rows = yield (
        "SELECT platform, account, worker, lease_until, connected_since, last_error, failed_at, refused, down_since"
        " FROM accounts WHERE platform <> ? ORDER BY platform, account",
        (GATEWAY,),
    )
    return [_health(row, micros(now)) for row in rows]


def _health(row: Row, now: int) -> AccountHealth:
    platform, account, worker, lease_until, since, error, failed_at, refused, down_since = row
    is_held = lease_until >= now
    is_served = is_held and may_be_alive(worker)
    return AccountHealth(
        platform=platform,
        account=decode_id(account) or None,
        worker=worker if is_served else None,
        connected_since=instant_or_none(since) if is_served else None,
        last_error=error,
        failed_at=instant_or_none(failed_at),
        is_refused=bool(refused),
        down_since=instant_or_none(down_since),
        held_until=instant(lease_until) if is_held and not is_served else None,
    )


def may_be_alive(worker: str) -> bool:
    """A killed gateway holds its accounts until the lease ends. Only processes of this machine can be checked."""
    host, _, process = worker.partition(":")
    pid = process.partition(":")[0]
    if host != socket.gethostname() or not (pid.isascii() and pid.isdecimal()):
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs as another user
    return True


@transaction
def count_start(now: datetime, window: timedelta) -> Statements[int]:
    """Count this start; return how many there were within the window without a stable run."""
    yield Lock("starts")
    rows = yield "SELECT value FROM meta WHERE name = 'starts'", ()
    earlier = next(readable(_moments, rows), list[int]())
    starts = [*(moment for moment in earlier if moment > micros(now - window)), micros(now)]
    yield SET_META, ("starts", json_text(starts))
    return len(starts)


def _moments(row: Row) -> list[int]:
    return from_json(row[0])


@transaction
def reset_start_count() -> Statements[None]:
    """Forget earlier starts, because the gateway runs stably."""
    yield "DELETE FROM meta WHERE name = 'starts'", ()


@transaction
def set_home(profile: str, address: Source, now: datetime, *, by: str, name: Label | None = None) -> Statements[None]:
    """Set the home channel of a platform, where output without an address goes."""
    yield (
        "INSERT INTO home_channels (profile, platform, address, set_at, actor, name) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (profile, platform) DO UPDATE SET address = excluded.address, set_at = excluded.set_at,"
        " actor = excluded.actor, name = excluded.name",
        (profile, address.platform, source_text(address), micros(now), by, name and name.stored()),
    )


class NamedHome(NamedTuple):
    """A home channel, with the chat's name when it became one."""

    place: Source
    name: Label | None


@transaction
def list_named_homes(profile: str, rules: Transaction[AccessRules]) -> Statements[list[NamedHome]]:
    """Return the homes of a profile, without the direct chats of people who have no access by these rules."""
    rows = yield "SELECT platform, name, address FROM home_channels WHERE profile = ? ORDER BY platform", (profile,)
    return (yield from _with_access(list(readable(_named_home, rows)), rules))


def _named_home(row: Row) -> NamedHome:
    _, name, address = row
    return NamedHome(source_of(address), None if name is None else Label(name))


def _with_access(homes: list[NamedHome], rules: Transaction[AccessRules]) -> Statements[list[NamedHome]]:
    if all(home.place.chat_kind != DM for home in homes):
        return homes
    found = yield from rules
    return [home for home in homes if home.place.chat_kind != DM or found.role(home.place, *possible_trust(None))]


@transaction
def list_homes(profile: str, rules: Transaction[AccessRules]) -> Statements[list[Source]]:
    return [home.place for home in (yield from list_named_homes(profile, rules))]


@transaction
def list_all_homes(rules: Transaction[AccessRules]) -> Statements[list[Source]]:
    """Return the home channels of every profile, the oldest first, without those of people who have no access."""
    homes = [NamedHome(place, None) for place in (yield from list_configured_homes())]
    return [home.place for home in (yield from _with_access(homes, rules))]


@transaction
def list_configured_homes() -> Statements[list[Source]]:
    """Return every home channel that was set, to show them; nothing is sent there by this list."""
    rows = yield "SELECT platform, address FROM home_channels ORDER BY set_at, profile, platform", ()
    return list(readable(source_in, rows))


_RECENT_CHATS = 500


@transaction
def owner_chats(configured: Sequence[Grant], routes: ReplyRoutes) -> Statements[list[Source]]:
    """Return the direct chats in which owners can be reached, in the order in which they were used last.

    `configured` are the grants beside the stored ones. Commands count as use: they open no session.
    """
    rules = yield from load_rules(configured)
    owners = [grant for grant in rules.grants if grant.role is AccessRole.OWNER]
    platforms = sorted({name.partition(":")[0] for name, account in routes.accounts.items() if account.for_people})
    chats: list[Source] = []
    for identity, recent in (("i.identity", _RECENT_MESSAGES), ("p.identity", _RECENT_SESSIONS)):
        named = [_identities_of(grant, rules.table, identity) for grant in owners]
        rows = yield (
            recent.format(whose=" OR ".join(each.sql for each in named) or "1 = 0", platforms=placeholders(platforms)),
            (*(value for each in named for value in each.values), *platforms, _RECENT_CHATS),
        )
        chats += readable(_place_of if recent is _RECENT_MESSAGES else source_in, rows)
    used = {chat.address: chat for chat in reversed(chats) if chat.chat_kind == DM and routes.reaches_people(chat)}
    return [chat for chat in reversed(used.values()) if rules.role(chat, Trust()) is AccessRole.OWNER]


_RECENT_MESSAGES = (
    "SELECT i.no, i.body FROM inbox i WHERE ({whose}) AND i.platform IN ({platforms}) AND i.body <> ''"
    " ORDER BY i.no DESC LIMIT ?"
)
_RECENT_SESSIONS = (
    "SELECT s.no, s.origin FROM participants p JOIN sessions s ON s.no = p.session_no WHERE ({whose})"
    " AND s.platform IN ({platforms}) ORDER BY s.last_human DESC, s.no DESC LIMIT ?"
)


def _place_of(row: Row) -> Source:
    """Return the place of a message, from the second column."""
    return replace(inbound_of(row[1])[0].source, message_id=None)


def _identities_of(grant: Grant, table: GrantTable, column: str) -> Filter:
    """Match the identities that a grant names, as far as it names any."""
    if grant.person is not None:
        return Filter.among(column, (name for name, person in table.people.items() if person == grant.person))
    if grant.platform is None:
        return Filter("1 = 1")
    if grant.user_id is None:
        start = f"{grant.platform}:"
        return Filter(f"substr({column}, 1, ?) = ?", (len(start), start))
    return Filter(f"{column} = ?", (identity_text(grant.platform, grant.user_id),))


@transaction
def take_home_hint() -> Statements[bool]:
    """Return whether home channels were not mentioned before. They are from now on."""
    rows = yield "INSERT INTO meta (name, value) VALUES ('home_hint', '1') ON CONFLICT DO NOTHING RETURNING name", ()
    return bool(rows)


@transaction
def mark_chat_gone(outbound: Outbound, now: datetime, error: str) -> Statements[bool]:
    """Record that we cannot write to a chat; return whether that is new."""
    rows = yield (
        "INSERT INTO gone_chats (account, server, chat, since, error) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        " RETURNING since",
        (*chat_columns(outbound), micros(now), error),
    )
    return bool(rows)


@transaction
def is_chat_gone(outbound: Outbound) -> Statements[bool]:
    rows = yield "SELECT 1 FROM gone_chats WHERE account = ? AND server = ? AND chat = ?", chat_columns(outbound)
    return bool(rows)


@transaction
def mark_chat_reachable(outbound: Outbound) -> Statements[None]:
    """Record that a send to the chat succeeded."""
    yield "DELETE FROM gone_chats WHERE account = ? AND server = ? AND chat = ?", chat_columns(outbound)
