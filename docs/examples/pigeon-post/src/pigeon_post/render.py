"""From a message to a letter. Pigeons know no markup, so there is nothing to translate."""

from palaver.model.turn import Outbound

__all__ = ["render"]


def render(outbound: Outbound, key: str) -> dict[str, object]:
    return {"do": "fly", "roost": outbound.chat_id, "text": outbound.text, "key": key}
