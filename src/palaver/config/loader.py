"""Load the configuration: defaults, then the project's file, then your own file, then environment variables."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from pathlib import Path

from palaver.config.accounts import (
    AgentOptions,
    DescribeAdapter,
    find_plugin_mistakes,
    platforms_with_accounts,
    read_secret_files,
)
from palaver.config.errors import MalformedConfig, Mistake, mistake_at
from palaver.config.model import Config
from palaver.config.nodes import Node, merge
from palaver.config.paths import (
    SQLITE,
    absolute_path,
    configuration_files,
    default_places,
    exists,
    with_absolute_paths,
    with_default_store,
)
from palaver.config.reader import parse, read
from palaver.config.secrets import FILE as SECRET_FILE
from palaver.config.validation import find_schema_mistakes, find_unknown_names, find_user_only_fields
from palaver.config.variables import read_variables, setting_of
from palaver.model.platform import Platform
from palaver.model.value import value
from palaver.settings.agents import WITH_INSTRUCTIONS
from palaver.settings.types import OFF, duration_text

_MAX_MISTAKES = 100
"""Report at most this many mistakes of one kind per file."""


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
    defaults = default_places(environ)
    nodes, mistakes = [defaults], list[Mistake]()
    variables = read_variables(environ, Config.model_fields)
    for node, found in (*_files(cwd, environ, defaults, variables.node, draft), (variables.node, variables.mistakes)):
        named = (
            find_unknown_names(node, {**platforms, **platforms_with_accounts(node, describe_adapter)})
            if platforms
            else ()
        )
        mistakes += _first_per_field([*found, *islice(named, _MAX_MISTAKES)])
        nodes.append(node)
    sources = with_default_store(reduce(merge, nodes))
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
    if config.backup.every is None or "://" not in config.store or config.store.lower().startswith(SQLITE):
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


def is_setting(name: str) -> bool:
    """Return whether an environment variable is a setting."""
    return bool(setting_of(name, Config.model_fields))


def portable_settings(cwd: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are settings, with their paths absolute: for a process in another folder."""
    return {name: _portable(name, text, cwd) for name, text in environ.items() if text and is_setting(name)}


def _portable(name: str, text: str, cwd: Path) -> str:
    path = setting_of(name, Config.model_fields)
    node = with_absolute_paths(read_variables({name: text}, Config.model_fields).node, cwd.absolute()).at(path)
    if node is None or not isinstance(node.value, str):
        return text
    return absolute_path(node.value, cwd) if str(path[-1]).endswith(SECRET_FILE) else node.value


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
        node = with_absolute_paths(reading.node, files.user.parent)
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
