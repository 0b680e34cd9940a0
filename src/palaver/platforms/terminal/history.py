"""The file with what was typed at terminals."""

from collections.abc import Callable
from pathlib import Path

_OWNER = "terminal:owner"


def history_file(data_dir: Path) -> Path:
    return data_dir / "history"


def history_eraser(data_dir: Path) -> Callable[[frozenset[str]], None]:
    def forget(identities: frozenset[str]) -> None:
        file = history_file(data_dir)
        if _OWNER in identities and file.exists():
            file.write_bytes(b"")

    return forget
