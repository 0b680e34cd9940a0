"""Prompt markers: the gateway's own words inside model input. No other text can contain or imitate one."""

from palaver.model.label import Label

OPEN = "⟦"
CLOSE = "⟧"


def marker(words: str) -> str:
    return f"{OPEN}{words}{CLOSE}"


def strip_markers(text: str) -> str:
    """Replace marker brackets in text from people, tools and models."""
    return text if text.isascii() else text.replace(OPEN, "[[").replace(CLOSE, "]]")


def quote_label(label: Label) -> str:
    """Quote a label for use inside a marker."""
    return strip_markers(label.quoted())


def note_marker(text: str) -> str:
    return marker(f"note: {strip_markers(text.strip())}")


def gap_marker(seconds: float) -> str:
    """Return a marker such as `3 days later`: the largest unit that fits, rounded down."""
    for unit, size in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600)):
        if count := int(seconds // size):
            return marker(f"{count} {unit}{'s' if count > 1 else ''} later")
    return marker("some minutes later")
