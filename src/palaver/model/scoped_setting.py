"""Scoped settings: one value looked up by chat, then platform, chat kind, profile and default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from palaver.model.source import Source

T = TypeVar("T")


class ChatSelector(NamedTuple):
    """A chat with its own setting. Without `scope_id` it matches that chat id on every server."""

    platform: str
    chat_id: str
    scope_id: str | None = None

    def __str__(self) -> str:
        return f"{self.platform}:{self.chat_id}" + (f" on {self.scope_id}" if self.scope_id else "")


class ResolvedSetting(NamedTuple, Generic[T]):
    value: T
    layer: str
    """Where it was set: `chat telegram:-100`, `platform telegram`, `default`."""


@dataclass(frozen=True, kw_only=True)
class ScopedSetting(Generic[T]):
    default: T
    chats: Mapping[ChatSelector, T] = field(default_factory=dict[ChatSelector, T])
    platforms: Mapping[str, T] = field(default_factory=dict[str, T])
    kinds: Mapping[str, T] = field(default_factory=dict[str, T])
    profiles: Mapping[str, T] = field(default_factory=dict[str, T])

    def values(self) -> Iterator[T]:
        """Yield every value set in any scope."""
        yield self.default
        for layer in (self.chats, self.platforms, self.kinds, self.profiles):
            yield from layer.values()

    def find(self, source: Source) -> ResolvedSetting[T]:
        """Return the narrowest value for a source. A chat's value also holds in its threads without their own."""
        return self._only_default or self._find_narrowest(source)

    @cached_property
    def _only_default(self) -> ResolvedSetting[T] | None:
        is_set = self.chats or self.platforms or self.kinds or self.profiles
        return None if is_set else ResolvedSetting(self.default, "default")

    def _find_narrowest(self, source: Source) -> ResolvedSetting[T]:
        for chat in _selectors(source) if self.chats else ():
            if chat in self.chats:
                return ResolvedSetting(self.chats[chat], f"chat {chat}")
        if source.platform in self.platforms:
            return ResolvedSetting(self.platforms[source.platform], f"platform {source.platform}")
        if source.chat_kind in self.kinds:
            return ResolvedSetting(self.kinds[source.chat_kind], f"kind {source.chat_kind}")
        if source.profile in self.profiles:
            return ResolvedSetting(self.profiles[source.profile], f"profile {source.profile}")
        return ResolvedSetting(self.default, "default")


def _selectors(source: Source) -> Iterator[ChatSelector]:
    """Yield the selectors that match a source, narrowest first."""
    for chat_id in (source.chat, source.parent_chat_id):
        if chat_id is not None:
            yield ChatSelector(source.platform, chat_id, source.scope_id)
            yield ChatSelector(source.platform, chat_id)
