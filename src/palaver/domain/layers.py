"""Layered settings: one value found by chat, then platform, then chat kind, then profile, then default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from palaver.domain.source import Source

__all__ = ["Found", "Layers"]

T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    value: T
    layer: str
    """Where it was set, in words: `chat telegram:-100`, `platform telegram`, `default`."""


@dataclass(frozen=True, kw_only=True)
class Layers(Generic[T]):
    default: T
    chats: Mapping[tuple[str, str], T] = field(default_factory=dict[tuple[str, str], T])
    platforms: Mapping[str, T] = field(default_factory=dict[str, T])
    kinds: Mapping[str, T] = field(default_factory=dict[str, T])
    profiles: Mapping[str, T] = field(default_factory=dict[str, T])

    def find(self, source: Source) -> Found[T]:
        """A chat's setting also holds in its threads, unless the thread has its own."""
        for chat in (source.chat, source.parent_chat_id):
            if chat is not None and (source.platform, chat) in self.chats:
                return Found(self.chats[source.platform, chat], f"chat {source.platform}:{chat}")
        named = (
            ("platform", self.platforms, source.platform),
            ("kind", self.kinds, source.chat_kind),
            ("profile", self.profiles, source.profile),
        )
        for layer, values, name in named:
            if name in values:
                return Found(values[name], f"{layer} {name}")
        return Found(self.default, "default")
