"""From a letter to a message."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from palaver.domain.label import Label
from palaver.domain.source import Labels, Source
from palaver.domain.turn import Inbound

__all__ = ["parse"]


def parse(letter: Mapping[str, Any], account: str) -> Inbound:
    """Ids go into the source as they are, names into the labels: nothing is ever decided by a name."""
    source = Source(
        platform="pigeon",
        account=account,
        chat_id=letter["roost"],
        user_id=letter["from"],
        message_id=str(letter["letter"]),
    )
    labels = Labels(user=Label(letter["called"]))
    return Inbound(source=source, text=letter["text"], at=datetime.fromtimestamp(letter["at"], UTC), labels=labels)
