"""What a store does for the window: the keys that open it, and what happened to transcripts, in order."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from palaver.domain.session import Principal
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = ["EVERY_RIGHT", "START", "WINDOW", "Change", "Changes", "Key", "KeyKind", "Keys", "News", "Right"]

WINDOW = "window"
"""Something happened at another gateway that people may be looking at."""


class Right(StrEnum):
    """What a key is good for: to look, to talk, to change what others see."""

    READ = "read"
    CHAT = "chat"
    MANAGE = "manage"


EVERY_RIGHT = frozenset(Right)


class KeyKind(StrEnum):
    LINK = "link"
    """The code of a login link: good once."""
    LOGIN = "login"
    """A browser that has logged in."""
    TOKEN = "token"  # noqa: S105 - a kind, no secret
    """A program."""


@value
class Key:
    number: int
    kind: KeyKind
    name: str
    rights: frozenset[Right]
    created: datetime
    last_used: datetime
    identity: str | None = None
    """On whose behalf it opens; None for the owner of the gateway."""
    expires: datetime | None = None


class Keys(Protocol):
    """Secrets are known by their digests only."""

    def add(
        self,
        digest: str,
        kind: KeyKind,
        now: datetime,
        *,
        name: str = "",
        rights: Collection[Right] = EVERY_RIGHT,
        identity: str | None = None,
        expires: datetime | None = None,
    ) -> Work[Key]:
        """What has expired is forgotten then."""
        ...

    def find(self, digest: str, kind: KeyKind, now: datetime) -> Work[Key | None]:
        """None where there is no such key, or not any more."""
        ...

    def exchange(self, link: str, login: str, now: datetime, *, name: str, expires: datetime) -> Work[Key | None]:
        """A link becomes a login, once; None where it is none, or has been used."""
        ...

    def stands(self, number: int, now: datetime) -> Work[bool]: ...

    def touch(self, number: int, now: datetime) -> Work[None]: ...

    def all(self, kind: KeyKind, now: datetime) -> Work[list[Key]]: ...

    def revoke(self, number: int) -> Work[Key | None]: ...


START = "0.0"
"""Before everything that ever happened."""


@value
class Change:
    """Something happened to entries of a transcript: `append`, `hide`, `show`, `delete`, or a turn did `settle`."""

    position: str
    """Where it stands among all that happened: the same on every worker, also after a restart."""
    session: str | None
    """None where the session is gone."""
    kind: str
    first: int
    last: int


@value
class News:
    changes: tuple[Change, ...]
    position: str
    """How far was read; what nobody may see is passed over."""
    is_all: bool
    """Nothing more was committed when it was read."""


class Changes(Protocol):
    """What happened to transcripts, in an order to which nothing is added behind a position that was given."""

    def after(self, position: str, principal: Principal, limit: int) -> Work[News]:
        """Raises InvalidInput for what is no position."""
        ...

    def newest(self) -> Work[str]:
        """The position behind everything so far."""
        ...
