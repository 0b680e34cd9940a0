"""A line of the gateway's log as it is kept, and which lines somebody wants to see."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

from palaver.model.value import value


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_RANKS = {name: rank for rank, name in enumerate((*LogLevel, "critical"))}


@value
class LogLine:
    at: datetime
    level: str
    sentence: str
    action: str = ""
    fields: Mapping[str, object]
    """Everything that the line holds, as it was written."""

    @property
    def details(self) -> str:
        """The ids and numbers behind the sentence."""
        return " ".join(f"{name}={found}" for name, found in self.fields.items() if name not in _NAMED)


_NAMED = {"at", "level", "logger", "sentence", "action"}


def parse_log_line(text: str) -> LogLine | None:
    """Return None for a line that is none of ours, such as one that was cut off by a full disk."""
    try:
        found: Any = json.loads(text)
        at = datetime.fromisoformat(found["at"]).astimezone(UTC)
        fields = cast("dict[str, object]", found)
        level, sentence = str(fields["level"]), str(fields["sentence"])
    except (ValueError, TypeError, KeyError):
        return None
    return LogLine(at=at, level=level, sentence=sentence, action=str(fields.get("action", "")), fields=fields)


@value
class LogFilter:
    level: LogLevel = LogLevel.DEBUG
    """This level and above."""
    action: str = ""
    """One action such as `turn.failed`, or all that begin with its first word, such as `turn`."""
    since: datetime | None = None

    def keeps(self, line: LogLine) -> bool:
        return (
            _RANKS.get(line.level, len(_RANKS)) >= _RANKS[self.level]
            and (not self.action or line.action == self.action or line.action.startswith(f"{self.action}."))
            and (self.since is None or line.at >= self.since)
        )
