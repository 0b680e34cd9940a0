"""What a store knows about places: our accounts, home channels, and chats that are gone."""

from datetime import datetime, timedelta
from typing import Protocol

from palaver.domain.source import Source
from palaver.domain.turn import Outbound
from palaver.ports.work import Work

__all__ = ["Accounts", "Places"]


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
