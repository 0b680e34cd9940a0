"""The link: how an adapter reaches the fake platform, in its own process or in another one."""

from collections.abc import Sequence
from typing import Protocol

from palaver.domain.turn import Outbound
from palaver.platforms.kit.messages import Update
from palaver.ports.adapter import MenuLine

__all__ = ["Line", "Link"]


class Line(Protocol):
    """One connection for updates."""

    async def next(self) -> Update:
        """Raises PlatformDown when the connection is lost."""
        ...

    async def acknowledge(self, number: int) -> None:
        """Raises PlatformDown when the connection is lost; then the update may come again."""
        ...

    async def close(self) -> None: ...


class Link(Protocol):
    """A `World` is one; `SocketLink` is one to a world in another process. They raise what adapters raise."""

    async def open(self, account: str) -> Line: ...
    async def send(self, account: str, outbound: Outbound, key: str) -> str: ...
    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str: ...
    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None: ...
    async def typing(self, account: str, outbound: Outbound) -> None: ...
    async def show_menu(self, account: str, lines: Sequence[MenuLine]) -> None: ...
    async def fetch(self, account: str, handle: str) -> bytes: ...
    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str: ...
