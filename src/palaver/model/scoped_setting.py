"""Layered settings: one value found by chat, then platform, then chat kind, then profile, then default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from palaver.model.source import Source

__all__ = [
    "ChatSelector",
    "ResolvedSetting",
    "ScopedSetting",
]

T = TypeVar("T")


class ChatSelector(NamedTuple):
    """A chat that has a setting of its own; without `scope_id`, the chat of that id on every server."""

    platform: str
    chat_id: str
    scope_id: str | None = None

    def __str__(self) -> str:
        return f"{self.platform}:{self.chat_id}" + (f" on {self.scope_id}" if self.scope_id else "")


class ResolvedSetting(NamedTuple, Generic[T]):
    value: T
    layer: str
    """Where it was set, in words: `chat telegram:-100`, `platform telegram`, `default`."""


@dataclass(frozen=True, kw_only=True)
class ScopedSetting(Generic[T]):
    default: T
    chats: Mapping[ChatSelector, T] = field(default_factory=dict[ChatSelector, T])
    platforms: Mapping[str, T] = field(default_factory=dict[str, T])
    kinds: Mapping[str, T] = field(default_factory=dict[str, T])
    profiles: Mapping[str, T] = field(default_factory=dict[str, T])

    def values(self) -> Iterator[T]:
        """Everything that is set anywhere."""
        yield self.default
        for layer in (self.chats, self.platforms, self.kinds, self.profiles):
            yield from layer.values()

    def find(self, source: Source) -> ResolvedSetting[T]:
        """A chat's setting also holds in its threads, unless the thread has its own."""
        return self._everywhere or self._narrowest(source)

    @cached_property
    def _everywhere(self) -> ResolvedSetting[T] | None:
        """The default, where nothing else is set."""
        is_set = self.chats or self.platforms or self.kinds or self.profiles
        return None if is_set else ResolvedSetting(self.default, "default")

    def _narrowest(self, source: Source) -> ResolvedSetting[T]:
        for chat in _chats(source) if self.chats else ():
            if chat in self.chats:
                return ResolvedSetting(self.chats[chat], f"chat {chat}")
        if source.platform in self.platforms:
            return ResolvedSetting(self.platforms[source.platform], f"platform {source.platform}")
        if source.chat_kind in self.kinds:
            return ResolvedSetting(self.kinds[source.chat_kind], f"kind {source.chat_kind}")
        if source.profile in self.profiles:
            return ResolvedSetting(self.profiles[source.profile], f"profile {source.profile}")
        return ResolvedSetting(self.default, "default")


def _chats(source: Source) -> Iterator[ChatSelector]:
    """Under which names settings for this place may stand, the narrowest first."""
    for chat_id in (source.chat, source.parent_chat_id):
        if chat_id is not None:
            yield ChatSelector(source.platform, chat_id, source.scope_id)
            yield ChatSelector(source.platform, chat_id)
