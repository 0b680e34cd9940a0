"""Marks: words of the gateway inside what the model reads. Nobody else's text can contain or imitate one."""

from palaver.model.label import Label

__all__ = [
    "CLOSE",
    "OPEN",
    "gap_marker",
    "marker",
    "note_marker",
    "quote_label",
    "strip_markers",
]

OPEN = "⟦"
CLOSE = "⟧"


def marker(words: str) -> str:
    return f"{OPEN}{words}{CLOSE}"


def strip_markers(text: str) -> str:
    """Foreign text in which no bracket of ours is left."""
    return text if text.isascii() else text.replace(OPEN, "[[").replace(CLOSE, "]]")


def quote_label(label: Label) -> str:
    """A stranger's words in quotes, as they may stand inside a mark."""
    return strip_markers(label.quoted())


def note_marker(text: str) -> str:
    return marker(f"note: {strip_markers(text.strip())}")


def gap_marker(seconds: float) -> str:
    """`3 days later`: the largest unit that fits, rounded down."""
    for unit, size in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600)):
        if count := int(seconds // size):
            return marker(f"{count} {unit}{'s' if count > 1 else ''} later")
    return marker("some minutes later")
