"""Load the configuration: defaults, then the project's file, then your own file, then environment variables."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from pathlib import Path
from urllib.parse import quote, unquote

from palaver.config.accounts import (
    AgentOptions,
    DescribeAdapter,
    find_plugin_mistakes,
    platforms_with_accounts,
    read_secret_files,
)
from palaver.config.agents import WITH_INSTRUCTIONS
from palaver.config.errors import MalformedConfig, Mistake, mistake_at
from palaver.config.model import Config
from palaver.config.nodes import Node, Position, merge
from palaver.config.paths import DATABASE, configuration_files, data_directory, exists, expand_home
from palaver.config.reader import parse, read
from palaver.config.secrets import FILE as SECRET_FILE
from palaver.config.types import OFF, duration_text
from palaver.config.validation import find_schema_mistakes, find_unknown_names, find_user_only_fields
from palaver.config.variables import read_variables, setting_of
from palaver.model.platform import Platform
from palaver.model.value import value

_MAX_MISTAKES = 100
"""Report at most this many mistakes of one kind per file."""
_SQLITE = "sqlite:///"


@value
class Loaded:
    config: Config
    sources: Node
    """The merged values with their positions."""
    warnings: tuple[str, ...] = ()
    """Valid settings that should be improved."""


def load(cwd: Path = Path(), environ: Mapping[str, str] = os.environ, *, draft: str | None = None) -> Config:
    """Load the configuration of a process in `cwd`, as `load_with_sources` does; import nothing that it names."""
    return load_with_sources(cwd, environ, draft=draft).config


def load_with_sources(
    cwd: Path,
    environ: Mapping[str, str],
    platforms: Mapping[str, Platform] | None = None,
    describe_adapter: DescribeAdapter | None = None,
    agent_options: AgentOptions | None = None,
    *,
    draft: str | None = None,
) -> Loaded:
    """Load the configuration of a process in `cwd`; raise MalformedConfig with all mistakes.

    With `platforms`, other platform names are mistakes. With `describe_adapter` and `agent_options`, adapters, hooks
    and agents are imported and their options checked. With `draft`, your own file counts as if it said that.
    """
    defaults = _section(data_dir=str(data_directory(environ)), store=DATABASE)
    nodes, mistakes = [defaults], list[Mistake]()
    variables = read_variables(environ)
    for node, found in (*_files(cwd, environ, defaults, variables.node, draft), (variables.node, variables.mistakes)):
        named = (
            find_unknown_names(node, {**platforms, **platforms_with_accounts(node, describe_adapter)})
            if platforms
            else ()
        )
        mistakes += _first_per_field([*found, *islice(named, _MAX_MISTAKES)])
        nodes.append(node)
    sources = _with_default_store(reduce(merge, nodes))
    done = read_secret_files(sources, describe_adapter)
    mistakes = (
        mistakes
        or list(find_schema_mistakes(sources))
        or done.mistakes
        or list(find_plugin_mistakes(done.node, describe_adapter, agent_options))
    )
    if mistakes:
        unset = [each.mistake for each in sources.find_unset()]
        raise MalformedConfig([*mistakes, *(each for each in unset if each not in mistakes)])
    # A secret whose variable is not set is a mistake only where it is read: see `Config.check_variables`.
    config = Config.model_validate(done.node.plain()).written_in(done.node)
    refuse_missing_backups(config, done.node)
    return Loaded(config=config, sources=done.node, warnings=tuple(done.warnings))


def refuse_missing_backups(config: Config, sources: Node) -> None:
    """Raise MalformedConfig if backups of a store are wanted that Palaver does not copy."""
    if config.backup.every is None or "://" not in config.store or config.store.lower().startswith(_SQLITE):
        return
    path = ("backup", "every")
    mistake = mistake_at(
        sources.nearest(path),
        path,
        "{field}: Palaver makes no backups of a store on PostgreSQL.",
        found=duration_text(config.backup.every),
        allowed=OFF,
        example=f"every: {OFF}",
        fix="Set it to off. Run pg_dump on a schedule, then copy the folder files of each machine: see docs/backup.md.",
    )
    raise MalformedConfig([mistake])


def portable_settings(cwd: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are settings, with their paths absolute: for a process in another folder."""
    return {name: _portable(name, text, cwd) for name, text in environ.items() if text and setting_of(name)}


def _portable(name: str, text: str, cwd: Path) -> str:
    path = setting_of(name)
    node = _with_absolute_paths(read_variables({name: text}).node, cwd.absolute()).at(path)
    if node is None or not isinstance(node.value, str):
        return text
    return _absolute_path(node.value, cwd) if str(path[-1]).endswith(SECRET_FILE) else node.value


def _files(
    cwd: Path, environ: Mapping[str, str], defaults: Node, variables: Node, draft: str | None
) -> list[tuple[Node, list[Mistake]]]:
    """Return each file's values and mistakes, the one with the lowest priority first.

    A project's file, like variables, can set a part of the agent, which only the rest makes whole.
    """

    def shapes(node: Node) -> list[Mistake]:
        return list(islice(find_schema_mistakes(merge(defaults, node)), _MAX_MISTAKES))

    files, found = configuration_files(cwd, environ), list[tuple[Node, list[Mistake]]]()
    own = variables
    if files.is_named or draft is not None or exists(files.user):
        reading = read(files.user, environ) if draft is None else parse(files.user, draft, environ)
        node = _with_absolute_paths(reading.node, files.user.parent)
        found.append((node, [*reading.mistakes[:_MAX_MISTAKES], *shapes(node)]))
        own = merge(node, variables)
    if exists(files.project) and os.path.realpath(files.user) != os.path.realpath(files.project):
        reading = read(files.project, None)
        refused = [*reading.mistakes, *find_user_only_fields(reading.node, files.user)][:_MAX_MISTAKES]
        found.insert(0, (_with_fitting_agent(reading.node, own), [*refused, *shapes(_without_agent(reading.node))]))
    return found


def _with_fitting_agent(project: Node, own: Node) -> Node:
    """Keep the project's agent only if you have set none, and its instructions only for agents that take some."""
    agent, chosen = project.at(("agent",)), own.at(("agent", "name"))
    if agent is None or not isinstance(project.value, dict) or not isinstance(agent.value, dict):
        return project
    fields = {name: node for name, node in agent.value.items() if name in {"name", "instructions"}}
    if own.at(("agent",)):
        fields.pop("name", None)
    name = chosen or fields.get("name")
    if name is None or name.value not in WITH_INSTRUCTIONS:
        fields.pop("instructions", None)
    rest = _without_agent(project)
    return merge(rest, replace(project, value={"agent": replace(agent, value=fields)})) if fields else rest


def _without_agent(node: Node) -> Node:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: inner for name, inner in node.value.items() if name != "agent"})


def _first_per_field(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Keep the first mistake of each field, ordered by line."""
    first = {mistake.field: mistake for mistake in reversed(mistakes)}
    return sorted(first.values(), key=lambda mistake: mistake.position.line or 0)


def _section(**fields: str) -> Node:
    """Build a node from default values."""
    nodes = {name: Node(position=Position(), value=value, raw=value) for name, value in fields.items()}
    return Node(position=Position(), value=dict[str, Node](nodes))


def _with_default_store(sources: Node) -> Node:
    """Put the store into the data directory unless it was set."""
    folder, store = sources.at(("data_dir",)), sources.at(("store",))
    if folder is None or store is None or not isinstance(folder.value, str) or str(store.position) != "default":
        return sources
    return merge(sources, _section(store=str(expand_home(folder.value) / DATABASE)))


def _with_absolute_paths(node: Node, folder: Path) -> Node:
    """Resolve paths relative to the folder of their file."""
    if isinstance(node.value, list):
        return replace(node, value=[_with_absolute_paths(each, folder) for each in node.value])
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: _with_absolute_path(name, inner, folder) for name, inner in node.value.items()})


def _with_absolute_path(name: str, node: Node, folder: Path) -> Node:
    if isinstance(node.value, str):
        return replace(node, value=_PATH_FIELDS[name](node.value, folder)) if name in _PATH_FIELDS else node
    inside = {
        **dict.fromkeys(
            ("agent", "fallback", "backup", "encryption", "jobs", "tools", "terminal", "ssh"), _with_absolute_paths
        ),
        **dict.fromkeys(
            ("profiles", "platforms", "kinds", "servers", "chats", "threads"), _with_absolute_paths_by_name
        ),
    }
    return inside[name](node, folder) if name in inside else node


def _with_absolute_paths_by_name(node: Node, folder: Path) -> Node:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={name: _with_absolute_paths(inner, folder) for name, inner in node.value.items()})


def _absolute_path(text: str, folder: Path) -> str:
    return str((folder / expand_home(text)).absolute()) if text else text


def _absolute_url(text: str, folder: Path) -> str:
    if text.lower().startswith(_SQLITE):
        return _SQLITE + quote(_absolute_path(unquote(text[len(_SQLITE) :]), folder))
    return text if "://" in text else _absolute_path(text, folder)


_PATH_FIELDS = {
    "data_dir": _absolute_path,
    "store": _absolute_url,
    **dict.fromkeys(
        ("key_file", "known_hosts_file", "instructions_file", "prices", "file", "folder", "scripts"), _absolute_path
    ),
}
"""Fields that hold paths, of the gateway, of agents, of jobs and of the terminal."""
