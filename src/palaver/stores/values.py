"""Values as any database takes them."""

from palaver.ports.work import Value

__all__ = ["storable"]

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def storable(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """NUL and half surrogates, which no text column of PostgreSQL holds, become the replacement character."""
    for value in values:
        if isinstance(value, str) and not _is_storable(value):
            return tuple(_cleaned(each) if isinstance(each, str) else each for each in values)
    return values


def _is_storable(text: str) -> bool:
    return "\0" not in text and (text.isascii() or _cleaned(text) == text)


def _cleaned(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _UNKNOWN)
