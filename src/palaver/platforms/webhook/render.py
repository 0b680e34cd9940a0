"""What we post: messages and what happened, as JSON."""

import hashlib
import json

from palaver.model.turn import Outbound
from palaver.platforms.webhook.options import event_name
from palaver.protocols.hooks import GatewayEvent

__all__ = ["event", "lane", "message", "message_id"]


def message(outbound: Outbound) -> str:
    """A message to the account as a place."""
    data = {"text": outbound.text, "account": outbound.account}
    return _json({"type": "message", "data": data})


def event(happening: GatewayEvent, text: str) -> str:
    """What happened, by ids; with what was said where that is given."""
    data = {
        "key": happening.key,
        "session": happening.session,
        "turn": happening.turn and f"turn:{happening.turn}",
        "delivery": happening.delivery and f"out:{happening.delivery}",
        "reason": happening.reason,
        "text": text or None,
    }
    told = {name: value for name, value in data.items() if value is not None}
    return _json({"type": event_name(happening.kind), "timestamp": happening.at.isoformat(), "data": told})


def lane(happening: GatewayEvent) -> str:
    """Events of one conversation go one after the other; a receiver that fails at one still gets those of others."""
    return f"events {happening.session or happening.turn or happening.delivery}"


def message_id(idempotency_key: str, body: bytes) -> str:
    """The same however often it is posted. It has no dot, which would part what is signed."""
    return f"msg_{hashlib.sha256(idempotency_key.encode() + b' ' + body).hexdigest()[:32]}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
