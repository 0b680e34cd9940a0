"""Where the store is, and the time zone: what most commands need of the configuration, read without its model."""

import os
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

from palaver.config.nodes import Node, merge
from palaver.config.paths import configuration_files, default_places, exists, with_absolute_paths, with_default_store
from palaver.config.reader import NOTHING, read
from palaver.config.variables import read_variables, resembles
from palaver.model.errors import InvalidInput
from palaver.model.local_time import parse_zone
from palaver.model.value import value
from palaver.store.opening import check_url

FIELDS = ("data_dir", "store", "timezone")


@value
class Essentials:
    store: str
    timezone: ZoneInfo


def load_essentials(cwd: Path = Path(), environ: Mapping[str, str] = os.environ) -> Essentials:
    """Read these few settings. Where one could be wrong, load the whole configuration: it raises MalformedConfig."""
    if found := _read_essentials(cwd, environ):
        return found
    from palaver.config.loader import load  # noqa: PLC0415 - slow to import, and often not needed

    config = load(cwd, environ)
    return Essentials(store=config.store, timezone=config.timezone)


def _read_essentials(cwd: Path, environ: Mapping[str, str]) -> Essentials | None:
    """Return what is written, or the defaults; None if anything about it needs the whole configuration."""
    sources = _read_sources(cwd, environ)
    fields = sources.value if sources else None
    if not isinstance(fields, dict) or any(resembles(name, FIELDS) for name in fields.keys() - set(FIELDS)):
        return None
    written = {name: fields[name] for name in FIELDS if name in fields}
    texts = {name: node.value for name, node in written.items() if isinstance(node.value, str) and not node.unset}
    if len(texts) < len(written) or not texts["data_dir"].strip():
        return None
    try:
        check_url(texts["store"])
        return Essentials(store=texts["store"], timezone=parse_zone(texts.get("timezone", "UTC")))
    except InvalidInput:
        return None


def _read_sources(cwd: Path, environ: Mapping[str, str]) -> Node | None:
    """Return the values of your own file and of the environment; None if there is a mistake, or a project's file."""
    files, defaults = configuration_files(cwd, environ), default_places(environ)
    variables = read_variables(environ, FIELDS)
    own = read(files.user, environ) if files.is_named or exists(files.user) else NOTHING
    is_own = os.path.realpath(files.user) == os.path.realpath(files.project)
    if own.mistakes or variables.mistakes or (exists(files.project) and not is_own):
        return None
    in_file = with_absolute_paths(own.node, files.user.parent)
    return with_default_store(merge(merge(defaults, in_file), variables.node))
