"""What a store knows about people: who is who, and under which names."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from palaver.domain.session import Principal
from palaver.ports.work import Work

__all__ = ["People"]


class People(Protocol):
    """Who is who, and under which names."""

    def person_of(self, identity: str, now: datetime, *, name: str | None = None) -> Work[str]: ...

    def principal_of(self, identity: str) -> Work[Principal]: ...

    def link(self, identity: str, other: str, now: datetime) -> Work[str]: ...

    def unlink(self, identity: str, now: datetime) -> Work[str]: ...

    def add_alias(self, platform: str, alias: str, canonical: str) -> Work[None]: ...

    def aliases(self, platform: str) -> Work[Mapping[str, str]]: ...

    def all_aliases(self) -> Work[Mapping[str, Mapping[str, str]]]: ...
