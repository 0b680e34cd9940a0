"""Templates: what is said because of a call, with values of its payload put in. They look values up and do nothing."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from palaver.model.label import LABEL_LIMIT, Label
from palaver.model.text import one_line
from palaver.model.value import value

__all__ = ["MISSING", "WHOLE", "Lacking", "Path", "Template", "looked_up", "path_of", "written"]

Path = tuple[str, ...]
WHOLE: Final = "."
"""The path of the whole payload."""
_NAME = r"[A-Za-z0-9_@$-]+"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*|\.")
_FIELD = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_CUT = " …[cut]"
MISSING: Final = object()


class Lacking(Exception):
    """The payload has no value there."""


def path_of(text: str) -> Path:
    """`build.steps.0.name`; raises ValueError."""
    if not _PATH.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no path into a payload; write names and numbers with dots: build.status")
    return () if text == WHOLE else tuple(text.split("."))


def looked_up(payload: object, path: Path) -> object:
    """The value there; MISSING where there is none, or null."""
    found: Any = payload
    for step in path:
        if isinstance(found, dict):
            found = found.get(step, MISSING)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and len(step) <= _LONGEST_INDEX:
            found = next(iter(found[int(step) :]), MISSING)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        else:
            return MISSING
    return MISSING if found is None else found  # pyright: ignore[reportUnknownVariableType]


_LONGEST_INDEX = 6


@value(kw_only=False)
class Template:
    """Words of the operator's, and paths between them."""

    parts: Sequence[str | Path]

    @classmethod
    def parse(cls, text: str) -> "Template":
        """`Build {{ build.status }}`. Raises ValueError where braces lead nowhere."""
        pieces = _FIELD.split(text)
        for words in pieces[::2]:
            if "{{" in words or "}}" in words:
                raise ValueError("a field is written {{ build.status }}, with two braces on both sides")
        return cls(tuple(path_of(piece) if place % 2 else piece for place, piece in enumerate(pieces)))

    def filled(self, payload: object, *, demands: bool, fences: bool, longest: int) -> str:
        """With the values in their places; one that is not there is empty, or raises Lacking if it is demanded."""
        return "".join(
            part if isinstance(part, str) else _value(payload, part, demands=demands, fences=fences, longest=longest)
            for part in self.parts
        ).strip()


def _value(payload: object, path: Path, *, demands: bool, fences: bool, longest: int) -> str:
    found = looked_up(payload, path)
    if found is MISSING:
        if demands:
            raise Lacking(".".join(path) or WHOLE)
        return ""
    text = written(found)
    cut = text if len(text) <= longest else text[:longest] + _CUT
    return _fenced(cut) if fences and not isinstance(found, (bool, int, float)) else cut


def written(value: object) -> str:
    """A value as text: text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text.encode("utf-8", "replace").decode()


def _fenced(text: str) -> str:
    """Text from outside, as data: in quotes it cannot end, or between fences it cannot close."""
    if len(text) <= LABEL_LIMIT and one_line(text, LABEL_LIMIT) == text:
        return Label(text).quoted()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"\n{fence}data\n{text}\n{fence}\n"
