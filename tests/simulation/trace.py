"""The trace: everything that happens in a run, in order; the same for the same seed."""

import asyncio
import hashlib
import sys

__all__ = ["Trace"]


class Trace:
    def __init__(self, *, aloud: bool = False) -> None:
        self.lines: list[str] = []
        self._aloud = aloud

    def note(self, who: str, what: str) -> None:
        line = f"{asyncio.get_running_loop().time():10.4f} {who:8} {what}"
        self.lines.append(line)
        if self._aloud:
            sys.stderr.write(line + "\n")

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
