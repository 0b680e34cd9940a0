"""Refusals: what only a provider understands of what its model said, and the provider does not take back any more."""

from collections.abc import Sequence
from dataclasses import field
from hashlib import blake2b

from palaver.domain.value import value
from palaver.domain.view import Message

__all__ = ["Refusals"]

_MOST = 4_096
"""So many are known; one that was forgotten is refused, and known, again."""


@value(kw_only=False)
class Refusals:
    _known: dict[bytes, None] = field(default_factory=dict[bytes, None])

    def add(self, messages: Sequence[Message]) -> None:
        """Which of them was refused nobody says, so it was all of them."""
        self._known.update(dict.fromkeys(_digest(blob) for message in messages for blob in message.blobs))
        for oldest in list(self._known)[:-_MOST]:
            del self._known[oldest]

    def without(self, messages: Sequence[Message]) -> list[Message]:
        """Of a message with one that was refused, the words alone are left."""
        return [
            message._replace(blobs=()) if any(_digest(blob) in self._known for blob in message.blobs) else message
            for message in messages
        ]


def _digest(blob: bytes) -> bytes:
    return blake2b(blob, digest_size=16).digest()
