"""Audit: which messages were never answered, answered twice, or answered out of order."""

import re
from collections.abc import Callable, Iterable

from palaver.protocols import value
from palaver.testkit.chat import Chat
from palaver.testkit.updates import Message

__all__ = ["AnswerAudit", "audit_answers"]


@value
class AnswerAudit:
    """Messages of people, by what went wrong with their answers."""

    lost: tuple[Message, ...] = ()
    """Never answered."""
    twice: tuple[Message, ...] = ()
    """Answered more than once."""
    out_of_order: tuple[Message, ...] = ()
    """Answered before an earlier message of the same person in the same thread."""


def _quotes(said: Message, shown: Message) -> bool:
    """Return whether the answer contains the whole text as words: `m10` does not answer `m1`."""
    return said.text in shown.text and bool(re.search(rf"(?<!\w){re.escape(said.text)}(?!\w)", shown.text))


def audit_answers(chats: Iterable[Chat], *, answers: Callable[[Message, Message], bool] = _quotes) -> AnswerAudit:
    """Audit some chats. `answers` decides whether the second message answers the first."""
    lost: list[Message] = []
    twice: list[Message] = []
    out_of_order: list[Message] = []
    for chat in chats:
        latest: dict[tuple[str, str | None], int] = {}
        shown = chat.shown
        for said in chat.said:
            positions = [position for position, reply in enumerate(shown) if answers(said, reply)]
            if not positions:
                lost.append(said)
                continue
            if len(positions) > 1:
                twice.append(said)
            author = (said.author, said.thread)
            if positions[0] < latest.get(author, 0):
                out_of_order.append(said)
            latest[author] = max(positions[0], latest.get(author, 0))
    return AnswerAudit(lost=tuple(lost), twice=tuple(twice), out_of_order=tuple(out_of_order))
