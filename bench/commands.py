"""How long a person waits for the command line itself."""

import subprocess
import sys
from collections.abc import Iterator

from bench.measure import Figure, compare

__all__ = ["help_page"]


def help_page() -> Iterator[Figure]:
    yield compare(
        "cli.help",
        lambda: _run("-m", "palaver", "--help"),
        "a bare interpreter",
        lambda: _run("-c", "pass"),
        limit=0.3,
        calls=1,
        rounds=11,
    )


def _run(*args: str) -> None:
    subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
