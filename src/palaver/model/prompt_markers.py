"""Marks: words of the gateway inside what the model reads. Nobody else's text can contain or imitate one."""

from palaver.model.label import Label

__all__ = [
    "CLOSE",
    "OPEN",
    "gap_mark",
    "mark",
    "note_mark",
    "quote",
    "without_marks",
]

OPEN = "⟦"
CLOSE = "⟧"


def mark(words: str) -> str:
    return f"{OPEN}{words}{CLOSE}"


def without_marks(text: str) -> str:
    """Foreign text in which no bracket of ours is left."""
    return text if text.isascii() else text.replace(OPEN, "[[").replace(CLOSE, "]]")


def quote(label: Label) -> str:
    """A stranger's words in quotes, as they may stand inside a mark."""
    return without_marks(label.quoted())


def note_mark(text: str) -> str:
    return mark(f"note: {without_marks(text.strip())}")


def gap_mark(seconds: float) -> str:
    """`3 days later`: the largest unit that fits, rounded down."""
    for unit, size in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600)):
        if count := int(seconds // size):
            return mark(f"{count} {unit}{'s' if count > 1 else ''} later")
    return mark("some minutes later")
