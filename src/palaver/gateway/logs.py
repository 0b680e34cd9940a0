"""Log formats: one line per record, for people or machines, without content."""

import json
import logging
from datetime import UTC, datetime
from time import localtime, strftime
from typing import TextIO

from palaver.engine.retry import describe_error
from palaver.model.redact import redact
from palaver.model.text import one_line

FIELDS = (
    "action",
    "account",
    "key",
    "session",
    "inbox",
    "job",
    "turn",
    "number",
    "delivery",
    "kind",
    "tool",
    "seconds",
    "failure",
    "class",
    "items",
    "files",
    "bytes",
    "refused",
    "failed",
)
"""The fields that a line may have besides its sentence: our names and numbers. All others are dropped."""
_OURS = "palaver"
MAX_CHARACTERS = 500
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def configure_logs(level: str, form: str, stream: TextIO, *kept: logging.Handler) -> None:
    """Log to the stream: our records from `level` on, and warnings of libraries. `form` is `human` or `json`.

    `kept` are further handlers.
    """
    handler = _Lines(stream)
    handler.setFormatter(JsonFormat() if form == "json" else HumanFormat(colours=stream.isatty()))
    handler.addFilter(OutageFilter())
    # For the whole process: no line of ours shows what these find out for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler, *kept]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(level.upper())


class OutageFilter(logging.Filter):
    """Log what an outage repeats only a few times in a while: it must not fill the disk, which may be its cause."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, str], list[float]] = {}
        """When the last lines were logged, by action and account."""

    def filter(self, record: logging.LogRecord) -> bool:
        action = str(getattr(record, "action", ""))
        if action not in _REPEATED:
            return True
        key = action, str(getattr(record, "account", ""))
        recent = [at for at in self._logged.get(key, ()) if at > record.created - _WINDOW_SECONDS]
        is_shown = len(recent) < _LINES_PER_WINDOW
        self._logged[key] = [*recent, record.created] if is_shown else recent
        return is_shown


_REPEATED = frozenset({"store.unavailable", "message.not_stored", "terminal.detached"})
_WINDOW_SECONDS = 60.0
_LINES_PER_WINDOW = 10


class _Lines(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - overrides
        """Drop a line that cannot be written: the default handler would print its content."""


class JsonFormat(logging.Formatter):
    """One JSON object per line, with stable names."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "sentence": _sentence(record),
        }
        return json.dumps(line | _fields(record))


class HumanFormat(logging.Formatter):
    """Local time, level, sentence and fields."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        time = strftime("%Y-%m-%d %H:%M:%S", localtime(record.created))
        level = self._painted(f"{record.levelname.lower():<8}", _COLOURS.get(record.levelname, "0"))
        details = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        return f"{self._painted(time, '2')} {level} {_sentence(record)} {self._painted(details, '2')}".rstrip()

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and text else text


def _sentence(record: logging.LogRecord) -> str:
    """Return the message: of libraries only the first line, and of errors only type and place. The rest may quote."""
    sentence = record.getMessage()
    if not _is_ours(record):
        sentence = redact(sentence.partition("\n")[0])
    error = record.exc_info[1] if record.exc_info else None
    return one_line(sentence if error is None else f"{sentence}: {describe_error(error)}", MAX_CHARACTERS)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found = vars(record) if _is_ours(record) else {}
    return {name: value for name in FIELDS if (value := found.get(name)) is not None}


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OURS
