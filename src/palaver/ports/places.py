"""What a store knows about places: our accounts, home channels, and chats that are gone or have another id."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

from palaver.domain.source import Source
from palaver.domain.turn import Outbound, account_text
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = ["GATEWAY", "AccountHealth", "Accounts", "Chats", "Places"]

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


class Accounts(Protocol):
    """Which worker serves which account of ours, and how gateways start."""

    def hold(
        self,
        platform: str,
        account: str | None,
        worker: str,
        now: datetime,
        lease: timedelta,
        *,
        alone: bool = False,
    ) -> Work[int | None]: ...

    def release(self, platform: str, account: str | None, worker: str) -> Work[None]: ...

    def position(self, platform: str, account: str | None) -> Work[str | None]: ...

    def keep_position(self, platform: str, account: str | None, fence: int, text: str) -> Work[None]: ...

    def connected(self, platform: str, account: str | None, fence: int, now: datetime) -> Work[None]: ...

    def down(
        self, platform: str, account: str | None, fence: int, now: datetime, error: str, *, refused: bool = False
    ) -> Work[None]: ...

    def health(self, now: datetime) -> Work[list[AccountHealth]]: ...

    def count_start(self, now: datetime, window: timedelta) -> Work[int]: ...

    def calm(self) -> Work[None]: ...


class Places(Protocol):
    """Home channels, and chats that are gone."""

    def set_home(self, profile: str, address: Source, now: datetime, *, by: str) -> Work[None]: ...

    def homes(self, profile: str) -> Work[list[Source]]: ...

    def all_homes(self) -> Work[list[Source]]: ...

    def home(self, profile: str, platform: str) -> Work[Source | None]: ...

    def chat_gone(self, outbound: Outbound, now: datetime, error: str) -> Work[bool]: ...

    def chat_there(self, outbound: Outbound) -> Work[None]: ...


class Chats(Protocol):
    """Chats that have another id by now."""

    def moved(self) -> Work[Mapping[str, Mapping[str, str]]]:
        """Of every account, the ids that chats had before, each with the one it has now."""
        ...

    def move(self, platform: str, account: str | None, old: str, new: str, now: datetime) -> Work[bool]:
        """Conversations, and what is owed, go on under the new id. False where this is known already."""
        ...
