"""Templates: the message made of a webhook's payload. They only look values up."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.model.label import LABEL_LIMIT
from palaver.protocols import Label, one_line, value

Path = tuple[str, ...]
WHOLE_PAYLOAD: Final = "."
HEADERS: Final = "@headers"
"""The first step of a path that leads to a header of the request: `@headers.x-github-event`."""
MISSING: Final = object()
_NAME = r"[A-Za-z0-9_@$-]+"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*|\.")
_FIELD = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_CUT_MARK = " …[cut]"
_MAX_INDEX_DIGITS = 6


class FieldMissing(Exception):
    """The payload has no value at this path."""


def parse_path(text: str) -> Path:
    """Parse `build.steps.0.name`. Raises ValueError."""
    if not _PATH.fullmatch(text):
        raise ValueError(f"names and numbers with dots, like build.status, instead of {text[:80]!r}")
    return () if text == WHOLE_PAYLOAD else tuple(text.split("."))


def look_up(payload: object, path: Path, headers: Mapping[str, str]) -> object:
    """Return the value at the path; MISSING if there is none or it is null."""
    if path[:1] == (HEADERS,):
        return headers.get(".".join(path[1:]).lower(), MISSING)
    found: Any = payload
    for step in path:
        if isinstance(found, dict):
            found = found.get(step, MISSING)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and len(step) <= _MAX_INDEX_DIGITS:
            found = next(iter(found[int(step) :]), MISSING)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        else:
            return MISSING
    return MISSING if found is None else found  # pyright: ignore[reportUnknownVariableType]


@value(kw_only=False)
class Template:
    """The operator's text, with field paths in between."""

    parts: Sequence[str | Path]

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Parse `Build {{ build.status }}`. Raises ValueError for unbalanced braces."""
        pieces = _FIELD.split(text)
        if any("{{" in words or "}}" in words for words in pieces[::2]):
            raise ValueError("fields like {{ build.status }}, with two braces on each side")
        return cls(tuple(parse_path(piece) if index % 2 else piece for index, piece in enumerate(pieces)))

    def fill(
        self,
        payload: object,
        *,
        required: bool,
        fences: bool,
        max_length: int,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Put the values in. A missing one is empty, or raises FieldMissing if fields are `required`."""

        def text_of(part: str | Path) -> str:
            if isinstance(part, str):
                return part
            found = look_up(payload, part, headers or {})
            if found is MISSING and required:
                raise FieldMissing(".".join(part) or WHOLE_PAYLOAD)
            text = "" if found is MISSING else to_text(found)
            cut = text if len(text) <= max_length else text[:max_length] + _CUT_MARK
            is_data = fences and found is not MISSING and not isinstance(found, (bool, int, float))
            return _fenced(cut) if is_data else cut

        return "".join(map(text_of, self.parts)).strip()


def to_text(value: object) -> str:
    """Return text as it is, and anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text.encode("utf-8", "replace").decode()


def _fenced(text: str) -> str:
    """Mark untrusted text as data: in quotes that it cannot end, or between fences that it cannot close."""
    if len(text) <= LABEL_LIMIT and one_line(text, LABEL_LIMIT) == text:
        return Label(text).quoted()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"\n{fence}data\n{text}\n{fence}\n"
