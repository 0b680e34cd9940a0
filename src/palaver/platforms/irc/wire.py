"""Lines of IRC: RFC 1459 with the message tags of IRCv3."""

import re
from collections.abc import Mapping
from dataclasses import field

from palaver.protocols import value

_BREAKS = re.compile(r"[\r\n\0]+")
_ESCAPES = {r"\:": ";", r"\s": " ", r"\\": "\\", r"\r": "\r", r"\n": "\n"}
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


@value
class Line:
    command: str
    params: tuple[str, ...] = ()
    nick: str = ""
    """Who sent it; a server or nobody, if it is empty or has a dot."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    def param(self, number: int) -> str:
        return self.params[number] if number < len(self.params) else ""


def read_line(text: str) -> Line:
    """Parse a line. Raise ValueError if it has no command."""
    tags: dict[str, str] = {}
    if text.startswith("@"):
        given, _, text = text[1:].partition(" ")
        for tag in given.split(";"):
            name, _, content = tag.partition("=")
            tags[name] = _unescape(content)
    prefix, text = "", text.lstrip(" ")
    if text.startswith(":"):
        prefix, _, text = text[1:].partition(" ")
    text, has_last, last = text.lstrip(" ").partition(" :")
    command, *params = text.split()
    return Line(
        command=command.upper(),
        params=(*params, last) if has_last else tuple(params),
        nick=prefix.partition("!")[0],
        tags=tags,
    )


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], found[1]), text)


def write_line(command: str, *params: str) -> bytes:
    """Return a line. Nothing in a parameter can end it, so nobody can make us send another command."""
    *middle, last = (_BREAKS.sub(" ", param) for param in params)
    if any(not each or " " in each or each.startswith(":") for each in middle):
        raise ValueError("Only the last parameter can have spaces.")
    return f"{' '.join([command, *middle])} :{last}\r\n".encode("utf-8", "replace")
