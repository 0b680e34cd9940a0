"""Settings from environment variables: `PALAVER_RESET__MODE=idle` sets `reset.mode`."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from palaver.config.errors import Mistake
from palaver.config.nodes import Node, Position, merge
from palaver.config.reader import ParseResult, parse_variable
from palaver.model.value import FieldPath

_PREFIX = "PALAVER_"
_SEPARATOR = "__"
_SHORT_NAMES = {"PALAVER_HOME": ("data_dir",)}
_NOT_SETTINGS = frozenset({"PALAVER_CONFIG", "PALAVER_TOKEN"})
_SIMILAR = 0.8


def read_variables(environ: Mapping[str, str], fields: Iterable[str]) -> ParseResult:
    """Return the settings in the environment, with names like these fields; empty variables set nothing."""
    result, mistakes = Node(position=Position(), value={}), list[Mistake]()
    for name, text in sorted(environ.items()):
        path = setting_of(name, fields)
        if not path or not text:
            continue
        read = parse_variable(name, path, text)
        mistakes += read.mistakes
        node = read.node
        for step in reversed(path):
            node = Node(position=Position(variable=name), value={str(step): node})
        result = merge(result, node)
    return ParseResult(node=result, mistakes=mistakes)


def setting_of(name: str, fields: Iterable[str]) -> FieldPath:
    """Return the field that a variable sets; empty if it is no setting, as many programs share one environment."""
    if name in _SHORT_NAMES:
        return _SHORT_NAMES[name]
    if not name.startswith(_PREFIX) or name in _NOT_SETTINGS:
        return ()
    first, *rest = (part.lower() if part.isupper() else part for part in name.removeprefix(_PREFIX).split(_SEPARATOR))
    is_setting = rest or resembles(first, fields)
    return (first, *rest) if is_setting else ()


def resembles(name: str, fields: Iterable[str]) -> bool:
    """Return whether a name is one of these fields, or like one: it can be a mistake for it."""
    return bool(get_close_matches(name, list(fields), n=1, cutoff=_SIMILAR))
