"""Loading: the user's file over the project's file over the defaults, and the variables of this process over all."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from pathlib import Path
from urllib.parse import quote, unquote

from palaver.config.accounts import AgentOptions, Describe, described_platforms, unfit, with_secrets
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.model import Config
from palaver.config.nodes import Node, Spot, merged
from palaver.config.paths import DATABASE, configuration_files, data_directory, expanded, is_there
from palaver.config.validation import misplaced, misshapen, unknown_names
from palaver.config.yaml import read
from palaver.model.platform import Platform
from palaver.model.value import value

__all__ = [
    "Loaded",
    "load",
    "survey",
]

_ENOUGH = 100
"""Nobody reads more mistakes of one kind in one file."""
_SQLITE = "sqlite:///"


@value
class Loaded:
    config: Config
    said: Node
    """What was said, and where."""
    cautions: tuple[str, ...] = ()
    """What is right and should be better all the same."""


def load(
    cwd: Path,
    environ: Mapping[str, str],
    platforms: Mapping[str, Platform] | None = None,
    describe: Describe | None = None,
    agent_options: AgentOptions | None = None,
) -> Config:
    """The configuration of a process in `cwd`.

    With `platforms`, the names of any others are mistakes. With `describe`, adapters and hooks that are named are
    loaded, with `agent_options` agents, and whatever they do not take is a mistake.
    """
    return survey(cwd, environ, platforms, describe, agent_options).config


def survey(
    cwd: Path,
    environ: Mapping[str, str],
    platforms: Mapping[str, Platform] | None = None,
    describe: Describe | None = None,
    agent_options: AgentOptions | None = None,
) -> Loaded:
    defaults = _section(data_dir=(str(data_directory(environ)), ""), store=(DATABASE, ""))
    nodes, mistakes = [defaults], list[Mistake]()
    for node, found in _files(cwd, environ):
        named = unknown_names(node, {**platforms, **described_platforms(node, describe)}) if platforms else ()
        shapes = islice(misshapen(merged(defaults, node)), _ENOUGH)
        mistakes += _one_for_each_field([*found[:_ENOUGH], *shapes, *islice(named, _ENOUGH)])
        nodes.append(node)
    said = _with_a_store(reduce(merged, [*nodes, _variables(environ)]))
    done = with_secrets(said, describe)
    mistakes = mistakes or list(misshapen(said)) or done.mistakes or list(unfit(done.node, describe, agent_options))
    if mistakes:
        raise MalformedConfig(mistakes)
    config = Config.model_validate(done.node.plain())
    return Loaded(config=config, said=done.node, cautions=tuple(done.cautions))


def _files(cwd: Path, environ: Mapping[str, str]) -> Iterator[tuple[Node, list[Mistake]]]:
    """What each file says, the weakest first."""
    files = configuration_files(cwd, environ)
    is_one = os.path.realpath(files.user) == os.path.realpath(files.project)
    if is_there(files.project) and not is_one:
        reading = read(files.project, None)
        yield (
            _with_whole_paths(reading.node, files.project.parent),
            [
                *reading.mistakes,
                *misplaced(reading.node, files.user),
            ],
        )
    if files.is_named or is_there(files.user):
        reading = read(files.user, environ)
        yield _with_whole_paths(reading.node, files.user.parent), reading.mistakes


def _one_for_each_field(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """In the order of the lines. What follows from a mistake in the same field is not worth a sentence."""
    first = {mistake.field: mistake for mistake in reversed(mistakes)}
    return sorted(first.values(), key=lambda mistake: mistake.spot.line or 0)


def _variables(environ: Mapping[str, str]) -> Node:
    names = {"data_dir": "PALAVER_HOME", "store": "PALAVER_STORE"}
    said = {field: (environ[name], name) for field, name in names.items() if environ.get(name)}
    return _section(**said)


def _section(**fields: tuple[str, str]) -> Node:
    """Fields with their values, and the variables that say so."""
    nodes = {
        name: Node(spot=Spot(variable=variable), value=value, written=value)
        for name, (value, variable) in fields.items()
    }
    return Node(spot=Spot(), value=dict[str, Node](nodes))


def _with_a_store(said: Node) -> Node:
    """A store that nobody named is in the data directory."""
    folder, store = said.at(("data_dir",)), said.at(("store",))
    if folder is None or store is None or not isinstance(folder.value, str) or str(store.spot) != "default":
        return said
    return merged(said, _section(store=(str(expanded(folder.value) / DATABASE), "")))


def _with_whole_paths(node: Node, folder: Path) -> Node:
    """A path in a file counts from the folder of the file on."""
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: _with_whole_path(name, inner, folder) for name, inner in node.value.items()})


def _with_whole_path(name: str, node: Node, folder: Path) -> Node:
    if isinstance(node.value, str):
        return replace(node, value=_WHOLE[name](node.value, folder)) if name in _WHOLE else node
    inside = {"agent": _with_whole_paths, "profiles": _with_whole_profiles}
    return inside[name](node, folder) if name in inside else node


def _with_whole_profiles(node: Node, folder: Path) -> Node:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: _with_whole_paths(inner, folder) for name, inner in node.value.items()})


def _whole_path(text: str, folder: Path) -> str:
    return str((folder / expanded(text)).absolute()) if text else text


def _whole_url(text: str, folder: Path) -> str:
    if text.lower().startswith(_SQLITE):
        return _SQLITE + quote(_whole_path(unquote(text[len(_SQLITE) :]), folder))
    return text if "://" in text else _whole_path(text, folder)


_WHOLE = {
    "data_dir": _whole_path,
    "store": _whole_url,
    **dict.fromkeys(("key_file", "instructions_file", "prices", "file", "folder"), _whole_path),
}
"""The fields that are paths, of the gateway and of agents."""
