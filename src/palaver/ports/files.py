"""Files: where their content is kept, and what a store knows of who has which."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from palaver.domain.attachment import Attachment
from palaver.domain.errors import PalaverError
from palaver.domain.key import SessionKey
from palaver.domain.session import Principal
from palaver.domain.turn import Received, Turn
from palaver.ports.work import Work

__all__ = ["Attachments", "Kept", "Shelf", "TooLarge"]


class TooLarge(PalaverError):
    """More came than is taken; nothing was kept."""


class Kept(NamedTuple):
    sha256: str
    size: int
    head: bytes
    """The first bytes, by which its type is known."""


class Shelf(Protocol):
    """Content by its hash: the same file is there once. It knows neither names nor people."""

    async def keep(self, chunks: AsyncIterator[bytes], limit: int) -> Kept:
        """Whole and durable, or not at all. Raises TooLarge beyond the limit, and whatever the chunks raise."""
        ...

    def place(self, sha256: str) -> Path | None:
        """Where it is; None where it is not, or not on this machine."""
        ...

    async def tidy(self, held: Collection[str], older_than: timedelta) -> int:
        """Remove what nobody has and nobody has put there lately; gives how much that was."""
        ...

    async def find(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """Of everything that is there, what is wanted."""
        ...

    async def remove(self, names: Collection[str], older_than: timedelta) -> int:
        """These, besides what somebody has put there lately; gives how many that were."""
        ...


class Attachments(Protocol):
    """Who has which file. To have content read, name the principal or the turn that it is for."""

    def unsettled(self, key: SessionKey) -> Work[list[Received]]: ...

    def settle_files(self, received: Received, files: Sequence[Attachment]) -> Work[None]: ...

    def find(self, name: str, principal: Principal) -> Work[Attachment]: ...

    def find_in(self, turn: Turn, name: str) -> Work[Attachment]: ...

    def let_go(self) -> Work[None]: ...

    def held(self, after: str, limit: int) -> Work[list[str]]: ...
