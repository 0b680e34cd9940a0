"""What we post: messages as JSON."""

import hashlib
import json

from palaver.protocols import Outbound


def message_json(outbound: Outbound) -> str:
    """Encode a message to the account."""
    message = {"type": "message", "data": {"text": outbound.text, "account": outbound.account}}
    return json.dumps(message, separators=(",", ":"))


def message_id(idempotency_key: str, body: bytes) -> str:
    """Return an id that stays the same when posted again. It has no dot, which separates the signed parts."""
    return f"msg_{hashlib.sha256(idempotency_key.encode() + b' ' + body).hexdigest()[:32]}"
