"""Turn a letter into a message."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from palaver.protocols import Inbound, Label, Labels, Source

__all__ = ["parse"]


def parse(letter: Mapping[str, Any], account: str) -> Inbound:
    """Put ids into the source and names into the labels: nothing is ever decided by a name."""
    source = Source(
        platform="pigeon",
        account=account,
        chat_id=_text(letter, "roost"),
        user_id=_text(letter, "from"),
        message_id=str(letter["letter"]),
    )
    labels = Labels(user=Label(_text(letter, "called")))
    return Inbound(
        source=source, text=_text(letter, "text"), at=datetime.fromtimestamp(letter["at"], UTC), labels=labels
    )


def _text(letter: Mapping[str, Any], name: str) -> str:
    text = letter[name]
    if not isinstance(text, str):
        raise TypeError(name)
    return text
