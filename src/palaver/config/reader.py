"""Read plain YAML with positions: fields, text and lists; no anchors, tags, duplicate keys or deep nesting."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from palaver.config.errors import Mistake, UnsetSecret
from palaver.config.nodes import Node, Position, dotted_path
from palaver.model.value import FieldPath, value

_PARSE: Any = getattr(yaml, "parse")  # noqa: B009 - the types are not ours
EXAMPLE = "busy: queue"
_PLAIN_YAML = "plain YAML: fields, values and lists in one document"
_MAX_DEPTH = 20
_MAX_TEXT_CHARS = 2_000
_MAX_PROSE_CHARS = 100_000
_PROSE = frozenset({"instructions", "text"})
"""Fields whose value can have several lines."""
_LINE_BREAKS = frozenset("\n\t")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def named_variables(node: Node) -> set[str]:
    """Return the environment variables that the values of a configuration refer to."""
    if isinstance(node.value, str):
        return set(_REFERENCE.findall(node.raw)) if node.position.secret and node.position.file else set()
    inner = node.value.values() if isinstance(node.value, dict) else node.value
    return set[str]().union(*map(named_variables, inner))


@value
class ParseResult:
    node: Node
    mistakes: list[Mistake]


NOTHING = ParseResult(node=Node(position=Position(), value={}), mistakes=[])
"""What a file that does not exist says."""


def parse(file: Path, text: str, environ: Mapping[str, str] | None) -> ParseResult:
    """Parse `text`. Values can refer to environment variables only if `environ` is given."""
    parser = _Parser(file=file, environ=environ)
    empty = Node(position=Position(file=file, line=1), value={})
    try:
        node = parser.document(_events(text)) or empty
    except _NotPlainYaml as error:
        parser.add_mistake((), error.line, "This is not plain YAML:", error.found, _PLAIN_YAML)
        node = empty
    if not isinstance(node.value, dict):
        parser.add_mistake(
            (), node.position.line or 1, "A configuration consists of fields with values, not", node.kind, _PLAIN_YAML
        )
        node = empty
    return ParseResult(node=node, mistakes=parser.mistakes)


def parse_variable(name: str, path: FieldPath, text: str) -> ParseResult:
    """Parse the value of an environment variable: plain text, or YAML in brackets for a list or a section."""
    parser = _Parser(file=None, environ={}, variable=name)
    node = Node(position=parser.position(1), value=text, raw=text)
    is_prose = path[-1] in _PROSE
    if is_prose or not text.lstrip().startswith(("[", "{")):
        parser.is_valid_text(text, path, 1, is_prose=is_prose)
        return ParseResult(node=node, mistakes=parser.mistakes)
    try:
        node = parser.document(_events(text), path) or node
    except _NotPlainYaml as error:
        parser.add_mistake(path, error.line, "is not plain YAML:", error.found, _PLAIN_YAML)
    return ParseResult(node=node, mistakes=parser.mistakes)


class _NotPlainYaml(Exception):
    def __init__(self, line: int, found: str) -> None:
        super().__init__(found)
        self.line = line
        self.found = found


def _events(text: str) -> Iterator[Any]:
    """Yield the events of the only document."""
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
        raise _NotPlainYaml(mark.line + 1 if mark else line, error.problem or "a mistake") from error
    except ReaderError as error:
        raise _NotPlainYaml(text.count("\n", 0, error.position) + 1, f"character {error.character}") from error
    except (ValueError, OverflowError) as error:
        # The scanner converts escapes such as \\UFFFFFFFF without checking their range.
        raise _NotPlainYaml(line, "an impossible number or character") from error


def _refuse(event: Any, line: int, documents: int) -> None:  # noqa: ANN401 - the types are not ours
    if documents > 1:
        raise _NotPlainYaml(line, "a second document")
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise _NotPlainYaml(line, "an anchor or alias")
    if getattr(event, "tag", None) is not None:
        raise _NotPlainYaml(line, "a tag")


def _line(event: Any) -> int:  # noqa: ANN401 - the types are not ours
    return int(event.start_mark.line) + 1


def _is_null(event: Any) -> bool:  # noqa: ANN401 - the types are not ours
    return isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value in _NULLS


@dataclass(frozen=True, kw_only=True)
class _Parser:
    file: Path | None
    environ: Mapping[str, str] | None
    variable: str = ""
    mistakes: list[Mistake] = field(default_factory=list[Mistake])

    def position(self, line: int, *, secret: bool = False) -> Position:
        return Position(file=self.file, line=line if self.file else None, variable=self.variable, secret=secret)

    def add_mistake(
        self, path: FieldPath, line: int, problem: str, found: str, allowed: str, *, example: str = EXAMPLE
    ) -> None:
        name = dotted_path(path)
        self.mistakes.append(
            Mistake(
                position=self.position(line),
                field=name,
                problem=f"{name} {problem}" if name else problem,
                found=found,
                allowed=allowed,
                example=example,
            )
        )

    def document(self, events: Iterator[Any], path: FieldPath = ()) -> Node | None:
        """Return None for an empty document."""
        first = next(events, None)
        if first is None or _is_null(first):
            return None
        node = self._node(first, events, path, _line(first))
        # Read to the end: text after the fields can be a mistake too.
        for _ in events:
            pass
        return node

    def _node(self, event: Any, events: Iterator[Any], path: FieldPath, line: int) -> Node:  # noqa: ANN401
        if len(path) > _MAX_DEPTH:
            raise _NotPlainYaml(line, "something nested too deeply")
        position = self.position(line)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(position=position, value=self._fields(events, path))
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(position=position, value=self._items(events, path))
        if _is_null(event):
            # An empty value is not the default: a grant without its user would be a grant to everybody.
            self.add_mistake(path, line, "has no value.", "nothing", "a value, or delete the line")
        return self._text(event.value, path, line)

    def _items(self, events: Iterator[Any], path: FieldPath) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(event, events, (*path, len(items)), _line(event)))
        return items

    def _fields(self, events: Iterator[Any], path: FieldPath) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            line = _line(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise _NotPlainYaml(line, "a name that is not text")
            name: str = key.value
            inner = (*path, name)
            node = self._node(next(events), events, inner, line)
            if name in fields:
                self.add_mistake(
                    inner, line, f"is set twice, first on line {fields[name].position.line}.", name, "it once"
                )
            elif not name:
                self.add_mistake(path, line, "has a field with an empty name.", "", "any text")
            elif self.is_valid_text(name, (*path, name[:_MAX_TEXT_CHARS]), line):
                fields[name] = node
        return fields

    def _text(self, text: str, path: FieldPath, line: int) -> Node:
        is_prose = path[-1] in _PROSE if path else False
        text = text if self.is_valid_text(text, path, line, is_prose=is_prose) else ""
        secret = "${" in text
        unset = self._find_unset(text, path, line)
        filled = self._filled(text, path, line) if secret else text
        value = text if unset else filled
        self.is_valid_text(value, path, line, is_prose=is_prose)
        return Node(position=self.position(line, secret=secret), value=value, raw=text, unset=unset)

    def _find_unset(self, text: str, path: FieldPath, line: int) -> UnsetSecret | None:
        """Note a variable that is not set. That is a mistake where the value is read: a secret often is not."""
        environ = self.environ or {}
        name = next((name for name in _REFERENCE.findall(text) if name not in environ), None)
        if name is None or self.environ is None:
            return None
        mistake = Mistake(
            position=self.position(line),
            field=dotted_path(path),
            problem=f"{dotted_path(path)} needs an environment variable that is not set:",
            found=name,
            allowed="a variable that is set where Palaver runs",
            example=f"export {name}=…",
        )
        return UnsetSecret(text, mistake)

    def is_valid_text(self, text: str, path: FieldPath, line: int, *, is_prose: bool = False) -> bool:
        limit = _MAX_PROSE_CHARS if is_prose else _MAX_TEXT_CHARS
        if len(text) > limit:
            self.add_mistake(path, line, "is too long:", f"{len(text)} characters", f"up to {limit}")
            return False
        breaks = _LINE_BREAKS if is_prose else frozenset[str]()
        unseen = next((c for c in text if c not in breaks and unicodedata.category(c) in {"Cc", "Cs"}), None)
        if unseen is not None:
            allowed = "text" if is_prose else "one line of text"
            self.add_mistake(path, line, "has an invisible character:", f"U+{ord(unseen):04X}", allowed)
        return unseen is None

    def _filled(self, text: str, path: FieldPath, line: int) -> str:
        """Fill in environment variables. Mistakes never repeat their values."""
        if self.environ is None:
            allowed = "environment variables only in your own file"
            self.add_mistake(path, line, "refers to the environment:", "${…}", allowed)
            return text
        if "${" in _REFERENCE.sub("", text):
            self.add_mistake(path, line, "has a bad reference, unlike", "${NAME}", "letters, digits and _ in names")
        environ = self.environ
        return _REFERENCE.sub(lambda found: environ.get(found[1], ""), text)


_MAX_FILE_BYTES = 256 * 1024


def read(file: Path, environ: Mapping[str, str] | None) -> ParseResult:
    """Read and parse `file`. Values can refer to environment variables only if `environ` is given."""
    content = _content(file)
    if isinstance(content, Mistake):
        return ParseResult(node=Node(position=Position(file=file, line=1), value={}), mistakes=[content])
    return parse(file, content, environ)


def _content(file: Path) -> str | Mistake:
    try:
        if not file.is_file() and (file.is_dir() or file.is_fifo() or file.is_socket()):
            return _mistake(file, "This is not a file but", "a folder" if file.is_dir() else "a pipe", "a YAML file")
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        return _mistake(
            file,
            "The file cannot be read:",
            error.strerror or str(error),
            "a file that you can read; PALAVER_CONFIG names another",
        )
    if len(content) > _MAX_FILE_BYTES:
        return _mistake(
            file, "The file is too large:", f"more than {_MAX_FILE_BYTES} bytes", f"up to {_MAX_FILE_BYTES} bytes"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _mistake(file, "The file is not UTF-8:", f"byte {content[error.start]:#04x}", "text in UTF-8", line)


def _mistake(file: Path, problem: str, found: str, allowed: str, line: int | None = None) -> Mistake:
    return Mistake(
        position=Position(file=file, line=line), problem=problem, found=found, allowed=allowed, example=EXAMPLE
    )
