"""Places in the store: home channels, and chats that are gone."""

from datetime import datetime

from palaver.domain.ids import encode_id
from palaver.domain.source import Source
from palaver.domain.turn import Outbound, account_text
from palaver.ports.work import Steps, Value, work
from palaver.stores.records import from_json, micros, source_text

__all__ = ["all_homes", "chat_gone", "chat_there", "home", "homes", "set_home"]


@work
def set_home(profile: str, address: Source, now: datetime, *, by: str) -> Steps[None]:
    """From now on what goes to a platform without further address goes here."""
    yield (
        "INSERT INTO homes (profile, platform, address, set_at, by_whom) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (profile, platform) DO UPDATE SET address = excluded.address, set_at = excluded.set_at,"
        " by_whom = excluded.by_whom",
        (profile, address.platform, source_text(address), micros(now), by),
    )


@work
def homes(profile: str) -> Steps[list[Source]]:
    rows = yield "SELECT address FROM homes WHERE profile = ? ORDER BY platform", (profile,)
    return [_address(row[0]) for row in rows]


@work
def all_homes() -> Steps[list[Source]]:
    """Of every profile, the one set first in front."""
    rows = yield "SELECT address FROM homes ORDER BY set_at, profile, platform", ()
    return [_address(row[0]) for row in rows]


@work
def home(profile: str, platform: str) -> Steps[Source | None]:
    rows = yield "SELECT address FROM homes WHERE profile = ? AND platform = ?", (profile, platform)
    return _address(rows[0][0]) if rows else None


def _address(text: str) -> Source:
    data = from_json(text)
    return Source.from_json(data, known=(data["platform"],))


@work
def chat_gone(outbound: Outbound, now: datetime, error: str) -> Steps[bool]:
    """Remember that we cannot write there; True if that is news."""
    rows = yield (
        "INSERT INTO gone_chats (account, chat, since, error) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        " RETURNING since",
        (*_place(outbound), micros(now), error),
    )
    return bool(rows)


@work
def chat_there(outbound: Outbound) -> Steps[None]:
    """A send succeeded: the chat is not gone after all."""
    yield "DELETE FROM gone_chats WHERE account = ? AND chat = ?", _place(outbound)


def _place(outbound: Outbound) -> tuple[Value, ...]:
    return account_text(outbound.platform, outbound.account), encode_id(outbound.chat_id)
