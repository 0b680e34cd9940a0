"""Hooks and events: what the gateway reports when something happens."""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum

from palaver.model.turn import Outbound
from palaver.model.value import value


class EventKind(StrEnum):
    SESSION_STARTED = "session started"
    SESSION_RESET = "session reset"
    SESSION_ENDED = "session ended"
    SESSION_FINALISED = "session finalised"
    TURN_STARTED = "turn started"
    TURN_FINISHED = "turn finished"
    TURN_FAILED = "turn failed"
    MESSAGE_DELIVERED = "message delivered"


def event_name(kind: EventKind) -> str:
    """Return the name of an event in JSON: `turn.finished`."""
    return kind.value.replace(" ", ".")


@value
class GatewayEvent:
    """Something that happened, by ids; it holds no content."""

    kind: EventKind
    at: datetime
    key: str | None = None
    session: str | None = None
    turn: int | None = None
    delivery: int | None = None
    delivery_id: str | None = None
    """The id of this send for programs."""
    reason: str | None = None
    platform: str | None = None
    """Where a message was delivered."""
    chat: str | None = None
    """The id of the chat there."""

    def to_json(self, text: str = "") -> str:
        """Encode an event by ids, with its text if given."""
        data = {
            "key": self.key,
            "session": self.session,
            "turn": self.turn and f"turn:{self.turn}",
            "delivery": self.delivery_id,
            "reason": self.reason,
            "text": text or None,
        }
        known = {name: value for name, value in data.items() if value is not None}
        event = {"type": event_name(self.kind), "timestamp": self.at.isoformat(), "data": known}
        return json.dumps(event, separators=(",", ":"))


@value
class EventSubscription:
    """An account that gets events of some kinds."""

    platform: str
    account: str | None
    kinds: frozenset[EventKind]
    has_text: bool = False
    """Send the text of a delivered answer too."""

    def message(self, event: GatewayEvent, text: str = "") -> Outbound | None:
        if event.kind not in self.kinds:
            return None
        return Outbound(
            platform=self.platform,
            account=self.account,
            # One chat for each conversation: its events keep their order, and do not wait for those of others.
            chat_id=f"events {event.session or event.turn or event.delivery}",
            text=event.to_json(text if self.has_text else ""),
            is_news=True,
        )


Hook = Callable[[GatewayEvent], Awaitable[None]]
"""If it raises, the error is logged; only for SESSION_FINALISED is it called again, at most twice."""
