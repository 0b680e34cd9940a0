"""Instructions of a place: written in the configuration, in a file that is read again when it changes, or both."""

import logging
from pathlib import Path

from palaver.model.errors import InvalidInput

log = logging.getLogger(__name__)

MAX_BYTES = 100_000


class PlaceInstructions:
    """Call it for the text as it is now."""

    def __init__(self, text: str, file: Path | None = None) -> None:
        self._text = text
        self._file = file
        self._version: tuple[int, int, int] | None = None
        self._read = ""

    def __call__(self) -> str:
        """Return the text. If the file cannot be read, what it said last still counts."""
        try:
            return self.read()
        except InvalidInput as error:
            log.warning("instructions are not read: %s", error, extra={"action": "instructions.unreadable"})
            return self._joined()

    def read(self) -> str:
        """Return the text; raise InvalidInput if the file cannot be read."""
        if self._file is None:
            return self._text
        try:
            facts = self._file.stat()
            version = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            if version != self._version:
                if facts.st_size > MAX_BYTES:
                    raise _unreadable(self._file, f"{facts.st_size} bytes, more than {MAX_BYTES}")
                self._read, self._version = self._file.read_text("utf-8", "replace").strip(), version
        except OSError as error:
            raise _unreadable(self._file, error.strerror or str(error)) from error
        return self._joined()

    def _joined(self) -> str:
        return "\n\n".join(filter(None, (self._text, self._read)))


def _unreadable(file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{file} cannot be read:",
        found=why,
        allowed="a text file that the gateway can read",
        example="~/palaver/agent.md",
    )
