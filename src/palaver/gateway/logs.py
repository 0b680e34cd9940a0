"""The log: one line for each thing that happens, for people or for machines, without content."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from palaver.engine.retry import describe_error
from palaver.model.redact import redact
from palaver.model.text import one_line

__all__ = [
    "FIELDS",
    "HumanFormat",
    "JsonFormat",
    "configure_logs",
]

FIELDS = (
    "action",
    "account",
    "key",
    "session",
    "inbox",
    "turn",
    "delivery",
    "kind",
    "tool",
    "seconds",
    "refused",
    "failed",
)
"""What a line may say besides its sentence: names and numbers of ours. Whatever else a record carries is left out."""
_OURS = "palaver"
_LONGEST = 500
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def configure_logs(level: str, form: str, stream: TextIO) -> None:
    """From now on everything is logged to the stream: ours from `level` on, of libraries only warnings and worse.

    `form` is `human` or `json`.
    """
    handler = _Lines(stream)
    handler.setFormatter(JsonFormat() if form == "json" else HumanFormat(colours=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(level.upper())


class _Lines(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - overrides
        """A line that cannot be written is lost, and everything else goes on. The usual complaint would quote it."""


class JsonFormat(logging.Formatter):
    """One object per line. The names are stable."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _moment(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "sentence": _sentence(record),
        }
        return json.dumps(line | dict(_fields(record)))


class HumanFormat(logging.Formatter):
    """The time here, the level, a sentence, and the details behind it."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        time = f"{_moment(record).astimezone():%Y-%m-%d %H:%M:%S}"
        level = self._painted(f"{record.levelname.lower():<8}", _COLOURS.get(record.levelname, "0"))
        details = " ".join(f"{name}={value}" for name, value in _fields(record))
        return f"{self._painted(time, '2')} {level} {_sentence(record)} {self._painted(details, '2')}".rstrip()

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and text else text


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _sentence(record: logging.LogRecord) -> str:
    """Libraries put whatever they have into the lines after the first, and into the words of errors."""
    sentence = record.getMessage()
    if not _is_ours(record):
        sentence = redact(sentence.partition("\n")[0])
    error = record.exc_info[1] if record.exc_info else None
    return one_line(sentence if error is None else f"{sentence}: {describe_error(error)}", _LONGEST)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    found = ((name, getattr(record, name, None)) for name in FIELDS)
    return ((name, value) for name, value in found if value is not None and _is_ours(record))


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OURS
