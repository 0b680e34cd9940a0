"""What we post: messages and events, as JSON."""

import hashlib
import json

from palaver.platforms.webhook.options import event_name
from palaver.protocols import GatewayEvent, Outbound


def message_json(outbound: Outbound) -> str:
    """Encode a message to the account."""
    return _json({"type": "message", "data": {"text": outbound.text, "account": outbound.account}})


def event_json(event: GatewayEvent, text: str) -> str:
    """Encode an event by ids, with its text if given."""
    data = {
        "key": event.key,
        "session": event.session,
        "turn": event.turn and f"turn:{event.turn}",
        "delivery": event.delivery and f"out:{event.delivery}",
        "reason": event.reason,
        "text": text or None,
    }
    known = {name: value for name, value in data.items() if value is not None}
    return _json({"type": event_name(event.kind), "timestamp": event.at.isoformat(), "data": known})


def event_chat(event: GatewayEvent) -> str:
    """Return a chat id per conversation: its events keep their order, and do not wait for those of others."""
    return f"events {event.session or event.turn or event.delivery}"


def message_id(idempotency_key: str, body: bytes) -> str:
    """Return an id that stays the same when posted again. It has no dot, which separates the signed parts."""
    return f"msg_{hashlib.sha256(idempotency_key.encode() + b' ' + body).hexdigest()[:32]}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
