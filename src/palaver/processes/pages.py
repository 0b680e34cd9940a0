"""Pages of output: a secret, a character or a control sequence at the edge of one is treated as a whole."""

from palaver.model.value import value
from palaver.processes.directory import ProcessDirectory
from palaver.processes.output import is_binary, readable

_CONTEXT_BYTES = 4096
"""How much around a page is read to understand what stands at its edges."""


@value
class Page:
    start: int
    """Higher than asked for if that is no longer kept."""
    end: int
    """Where the next page begins."""
    size: int
    """Of all output so far."""
    text: str


def read_page(directory: ProcessDirectory, start: int | None, limit: int, *, is_growing: bool = False) -> Page:
    """Return output from an offset on, or else the last of it. It ends with a line if one ends within the limit.

    The last line of all is there even if it has no end yet, unless the output `is_growing`.
    """
    size = directory.size()
    start = max(size - limit, 0) if start is None else min(start, size)
    pieces = directory.read(start, min(start + limit, size))
    if not pieces:
        return Page(start=start, end=min(start + limit, size), size=size, text="")
    data, start, end = b"".join(piece for _, piece in pieces), pieces[0][0], pieces[-1][0] + len(pieces[-1][1])
    if end < size or is_growing:
        whole = data.rfind(b"\n") + 1 or (len(data) if end < size else 0)
        data, end = data[:whole], end - len(data) + whole
    before, after = _joined(directory, start - _CONTEXT_BYTES, start), _joined(directory, end, end + _CONTEXT_BYTES)
    return Page(start=start, end=end, size=size, text=_text_between(before, data, after))


def _joined(directory: ProcessDirectory, start: int, end: int) -> bytes:
    return b"".join(piece for _, piece in directory.read(max(start, 0), end))


def _text_between(before: bytes, data: bytes, after: bytes) -> str:
    """Return the text of data. What begins in it and ends after it belongs to what comes after."""
    if not data or is_binary(data) or is_binary(before + data):
        return readable(data)
    above, shown, everything = readable(before), readable(before + data), readable(before + data + after)
    end = _common(shown, everything)
    return everything[min(_common(above, everything), end) : end]


def _common(one: str, other: str) -> int:
    """Return how long both texts are the same."""
    if other.startswith(one):
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (this, that) in pairs if this != that), len(other))
