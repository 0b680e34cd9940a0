"""The tally: what became of everything people said, counted from what they saw."""

import re
from collections.abc import Callable, Iterable

from palaver.domain.value import value
from palaver.platforms.kit.chat import Chat
from palaver.platforms.kit.messages import Message

__all__ = ["Tally", "tally"]


@value
class Tally:
    """Messages of people by what went wrong with their answers."""

    lost: tuple[Message, ...] = ()
    """Never answered."""
    twice: tuple[Message, ...] = ()
    """Answered more than once."""
    out_of_order: tuple[Message, ...] = ()
    """Answered before something that the same person had said earlier in the same place."""


def _repeats(said: Message, shown: Message) -> bool:
    """The answer has the whole text in it: `m1` is not answered by `m10`."""
    return said.text in shown.text and bool(re.search(rf"(?<!\w){re.escape(said.text)}(?!\w)", shown.text))


def tally(chats: Iterable[Chat], *, answers: Callable[[Message, Message], bool] = _repeats) -> Tally:
    """Count over some chats. `answers` says whether the second message answers the first."""
    lost: list[Message] = []
    twice: list[Message] = []
    out_of_order: list[Message] = []
    for chat in chats:
        latest: dict[tuple[str, str | None], int] = {}
        shown = chat.shown
        for said in chat.said:
            places = [place for place, reply in enumerate(shown) if answers(said, reply)]
            if not places:
                lost.append(said)
                continue
            if len(places) > 1:
                twice.append(said)
            who = (said.author, said.thread)
            if places[0] < latest.get(who, 0):
                out_of_order.append(said)
            latest[who] = max(places[0], latest.get(who, 0))
    return Tally(lost=tuple(lost), twice=tuple(twice), out_of_order=tuple(out_of_order))
