"""The lines that were typed at the terminal: kept beside the store, and emptied when their owner is forgotten."""

from collections.abc import Callable
from pathlib import Path

__all__ = ["forgets_typed", "typed_lines"]

_OWNER = "terminal:owner"


def typed_lines(data_dir: Path) -> Path:
    return data_dir / "history"


def forgets_typed(data_dir: Path) -> Callable[[frozenset[str]], None]:
    def forget(identities: frozenset[str]) -> None:
        file = typed_lines(data_dir)
        if _OWNER in identities and file.exists():
            file.write_bytes(b"")

    return forget
