"""Turn a message into a letter. Pigeons know no markup."""

from palaver.protocols import Outbound

__all__ = ["render"]


def render(outbound: Outbound, key: str) -> dict[str, object]:
    return {"do": "fly", "roost": outbound.chat_id, "text": outbound.text, "key": key}
