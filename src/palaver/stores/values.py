"""Values as any database takes them."""

from palaver.ports.work import Value

__all__ = ["storable"]

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def storable(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """NUL and half surrogates, which not every text column holds, become the replacement character."""
    for value in values:
        # Neither is printable, and that is asked quickly.
        if type(value) is str and not value.isprintable():
            return tuple(_cleaned(each) if isinstance(each, str) else each for each in values)
    return values


def _cleaned(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _UNKNOWN)
