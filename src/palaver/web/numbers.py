"""Numbers in addresses and fields, where anybody may write anything."""

__all__ = ["number"]

_LONGEST = 18


def number(text: str) -> int | None:
    """None for what is no number, or none that a store has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST else None
