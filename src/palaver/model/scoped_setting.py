"""Layered settings: one value found by chat, then platform, then chat kind, then profile, then default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from palaver.model.source import Source

__all__ = [
    "Chat",
    "Found",
    "Layers",
]

T = TypeVar("T")


class Chat(NamedTuple):
    """A chat that has a setting of its own; without `scope_id`, the chat of that id on every server."""

    platform: str
    chat_id: str
    scope_id: str | None = None

    def __str__(self) -> str:
        return f"{self.platform}:{self.chat_id}" + (f" on {self.scope_id}" if self.scope_id else "")


class Found(NamedTuple, Generic[T]):
    value: T
    layer: str
    """Where it was set, in words: `chat telegram:-100`, `platform telegram`, `default`."""


@dataclass(frozen=True, kw_only=True)
class Layers(Generic[T]):
    default: T
    chats: Mapping[Chat, T] = field(default_factory=dict[Chat, T])
    platforms: Mapping[str, T] = field(default_factory=dict[str, T])
    kinds: Mapping[str, T] = field(default_factory=dict[str, T])
    profiles: Mapping[str, T] = field(default_factory=dict[str, T])

    def values(self) -> Iterator[T]:
        """Everything that is set anywhere."""
        yield self.default
        for layer in (self.chats, self.platforms, self.kinds, self.profiles):
            yield from layer.values()

    def find(self, source: Source) -> Found[T]:
        """A chat's setting also holds in its threads, unless the thread has its own."""
        return self._everywhere or self._narrowest(source)

    @cached_property
    def _everywhere(self) -> Found[T] | None:
        """The default, where nothing else is set."""
        is_set = self.chats or self.platforms or self.kinds or self.profiles
        return None if is_set else Found(self.default, "default")

    def _narrowest(self, source: Source) -> Found[T]:
        for chat in _chats(source) if self.chats else ():
            if chat in self.chats:
                return Found(self.chats[chat], f"chat {chat}")
        if source.platform in self.platforms:
            return Found(self.platforms[source.platform], f"platform {source.platform}")
        if source.chat_kind in self.kinds:
            return Found(self.kinds[source.chat_kind], f"kind {source.chat_kind}")
        if source.profile in self.profiles:
            return Found(self.profiles[source.profile], f"profile {source.profile}")
        return Found(self.default, "default")


def _chats(source: Source) -> Iterator[Chat]:
    """Under which names settings for this place may stand, the narrowest first."""
    for chat_id in (source.chat, source.parent_chat_id):
        if chat_id is not None:
            yield Chat(source.platform, chat_id, source.scope_id)
            yield Chat(source.platform, chat_id)
