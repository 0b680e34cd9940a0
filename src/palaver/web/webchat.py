"""Talking: the web chat as its page sees it."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from palaver.model.attachment import Attachment
from palaver.model.source import Source

__all__ = [
    "WebChat",
]


class WebChat(Protocol):
    async def say(
        self,
        user: str,
        chat: str,
        message: str,
        text: str,
        *,
        name: str = "",
        files: Sequence[Attachment] = (),
        talk_only: bool = False,
    ) -> Source:
        """Safe when it returns; said again under the same id it is the same message.

        Whoever only talks gives no commands.
        """
        ...

    def source(self, user: str, chat: str, message: str | None = None) -> Source: ...

    async def keep(self, name: str, media_type: str, chunks: AsyncIterator[bytes], limit: int) -> Attachment:
        """A file that comes with the next message. Raises TooLarge."""
        ...
