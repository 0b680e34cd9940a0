"""YAML as far as a configuration needs it: names, texts and lists. Nothing in it can run, multiply or hide."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from palaver.config.errors import Mistake
from palaver.config.nodes import Node, Spot, Way, dotted
from palaver.model.value import value

__all__ = [
    "EXAMPLE",
    "Reading",
    "parse",
    "read",
]

_PARSE: Any = getattr(yaml, "parse")  # noqa: B009 - the types are not ours
EXAMPLE = "busy: queue"
_PLAIN_YAML = "plain YAML: fields, values and lists in one document"
_DEEPEST = 20
_LONGEST = 2_000
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@value
class Reading:
    node: Node
    mistakes: list[Mistake]


def parse(file: Path, text: str, environ: Mapping[str, str] | None) -> Reading:
    """What the text says. Only where an environment is given may values refer to it."""
    walk = _Walk(file=file, environ=environ)
    empty = Node(spot=Spot(file=file, line=1), value={})
    try:
        node = walk.document(_events(text)) or empty
    except _Refused as refused:
        walk.complain((), refused.line, "not plain YAML:", refused.found, _PLAIN_YAML)
        node = empty
    if not isinstance(node.value, dict):
        walk.complain((), node.spot.line or 1, "a configuration is fields with values, not", node.kind, _PLAIN_YAML)
        node = empty
    return Reading(node=node, mistakes=walk.mistakes)


class _Refused(Exception):
    def __init__(self, line: int, found: str) -> None:
        super().__init__(found)
        self.line = line
        self.found = found


def _events(text: str) -> Iterator[Any]:
    """The events of one document, without those around it."""
    line, documents = 1, 0
    try:
        for event in _PARSE(text, yaml.SafeLoader):
            line = _line(event)
            documents += isinstance(event, yaml.DocumentStartEvent)
            _refuse(event, line, documents)
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                yield event
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Refused(mark.line + 1 if mark else line, error.problem or "a mistake") from error
    except ReaderError as error:
        raise _Refused(text.count("\n", 0, error.position) + 1, f"character {error.character}") from error
    except (ValueError, OverflowError) as error:
        # The scanner makes numbers and characters of what it reads without looking at them first.
        raise _Refused(line, "an impossible number or character") from error


def _refuse(event: Any, line: int, documents: int) -> None:  # noqa: ANN401 - the types are not ours
    if documents > 1:
        raise _Refused(line, "a second document")
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise _Refused(line, "an anchor or alias")
    if getattr(event, "tag", None) is not None:
        raise _Refused(line, "a tag")


def _line(event: Any) -> int:  # noqa: ANN401 - the types are not ours
    return int(event.start_mark.line) + 1


def _is_null(event: Any) -> bool:  # noqa: ANN401 - the types are not ours
    return isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value in _NULLS


@dataclass(frozen=True, kw_only=True)
class _Walk:
    file: Path
    environ: Mapping[str, str] | None
    mistakes: list[Mistake] = field(default_factory=list[Mistake])

    def complain(self, way: Way, line: int, problem: str, found: str, allowed: str, *, example: str = EXAMPLE) -> None:
        name = dotted(way)
        self.mistakes.append(
            Mistake(
                spot=Spot(file=self.file, line=line),
                field=name,
                problem=f"{name} {problem}" if name else problem,
                found=found,
                allowed=allowed,
                example=example,
            )
        )

    def document(self, events: Iterator[Any]) -> Node | None:
        """None where nothing is said."""
        first = next(events, None)
        if first is None or _is_null(first):
            return None
        node = self._node(first, events, (), _line(first))
        # To the end: whatever stands behind the fields may be a mistake, too.
        for _ in events:
            pass
        return node

    def _node(self, event: Any, events: Iterator[Any], way: Way, line: int) -> Node:  # noqa: ANN401
        if len(way) > _DEEPEST:
            raise _Refused(line, "something nested too deep")
        spot = Spot(file=self.file, line=line)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(spot=spot, value=self._fields(events, way))
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(spot=spot, value=self._items(events, way))
        if _is_null(event):
            # No value is not the default: a grant whose user was forgotten would be a grant to everybody.
            self.complain(way, line, "has a value that is", "nothing", "a value; else leave the line out")
        return self._text(event.value, way, line)

    def _items(self, events: Iterator[Any], way: Way) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(event, events, (*way, len(items)), _line(event)))
        return items

    def _fields(self, events: Iterator[Any], way: Way) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            line = _line(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise _Refused(line, "a name that is no text")
            name: str = key.value
            inner = (*way, name)
            node = self._node(next(events), events, inner, line)
            if name in fields:
                self.complain(inner, line, "is said twice, first", f"in line {fields[name].spot.line}", "once")
            elif not name:
                self.complain(way, line, "has a field whose name is", "", "any text")
            elif self._is_one_line(name, (*way, name[:_LONGEST]), line):
                fields[name] = node
        return fields

    def _text(self, text: str, way: Way, line: int) -> Node:
        text = text if self._is_one_line(text, way, line) else ""
        secret = "${" in text
        value = self._filled(text, way, line) if secret else text
        self._is_one_line(value, way, line)
        return Node(spot=Spot(file=self.file, line=line, secret=secret), value=value, written=text)

    def _is_one_line(self, text: str, way: Way, line: int) -> bool:
        if len(text) > _LONGEST:
            self.complain(way, line, "is too long:", f"{len(text)} characters", f"up to {_LONGEST}")
            return False
        unseen = next((c for c in text if unicodedata.category(c) in {"Cc", "Cs"}), None)
        if unseen is not None:
            self.complain(way, line, "has a character that cannot be seen:", f"U+{ord(unseen):04X}", "one line of text")
        return unseen is None

    def _filled(self, text: str, way: Way, line: int) -> str:
        """With the values of the variables that it names, which no mistake repeats."""
        if self.environ is None:
            allowed = "in the user's own file, as a folder must not read its user's environment"
            self.complain(way, line, "refers to the environment:", "${…}", allowed)
            return text
        if "${" in _REFERENCE.sub("", text):
            self.complain(way, line, "has a reference that is not", "${NAME}", "letters, digits and _ in the name")
        for name in _REFERENCE.findall(text):
            if name not in self.environ:
                problem, allowed = (
                    "needs an environment variable that is not set:",
                    "one that is set where Palaver runs",
                )
                self.complain(way, line, problem, name, allowed, example=f"export {name}=…")
        environ = self.environ
        return _REFERENCE.sub(lambda found: environ.get(found[1], ""), text)


_LARGEST = 256 * 1024


def read(file: Path, environ: Mapping[str, str] | None) -> Reading:
    """What `file` says. Only where an environment is given may values refer to it."""
    content = _content(file)
    if isinstance(content, Mistake):
        return Reading(node=Node(spot=Spot(file=file, line=1), value={}), mistakes=[content])
    return parse(file, content, environ)


def _content(file: Path) -> str | Mistake:
    try:
        if not file.is_file() and (file.is_dir() or file.is_fifo() or file.is_socket()):
            return _mistake(file, "not a file but", "a folder" if file.is_dir() else "a pipe", "a YAML file")
        with file.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        return _mistake(
            file,
            "cannot be read:",
            error.strerror or str(error),
            "a file that you may read; PALAVER_CONFIG names another",
        )
    if len(content) > _LARGEST:
        return _mistake(file, "too large:", f"more than {_LARGEST} bytes", f"up to {_LARGEST} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _mistake(file, "not UTF-8:", f"byte {content[error.start]:#04x}", "text in UTF-8", line)


def _mistake(file: Path, problem: str, found: str, allowed: str, line: int | None = None) -> Mistake:
    return Mistake(spot=Spot(file=file, line=line), problem=problem, found=found, allowed=allowed, example=EXAMPLE)
