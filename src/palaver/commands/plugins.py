"""Load chat commands of plugins; a broken plugin is skipped and logged."""

import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint

from palaver.commands.registry import CommandHandler, Registry
from palaver.engine.retry import describe_error
from palaver.protocols.entry_points import find_plugins
from palaver.store.store import Store

log = logging.getLogger(__name__)

GROUP = "palaver.commands"
"""A distribution adds `name = "module:function"`; the function takes the store and returns command handlers."""


def with_plugins(registry: Registry, store: Store) -> Registry:
    """Add the commands of installed plugins."""
    for found in sorted(find_plugins(GROUP), key=lambda each: each.name):
        try:
            handlers = [_checked(each) for each in found.load()(store)]
        except Exception as error:  # noqa: BLE001 - the gateway starts without a plugin that fails
            _log_skipped(found, describe_error(error))
        else:
            registry = _with_handlers(registry, found, handlers)
    return registry


def _checked(given: object) -> CommandHandler:
    if not isinstance(given, CommandHandler):
        raise TypeError(f"a plugin returns CommandHandler objects, not {type(given).__name__}")
    return given


def _with_handlers(registry: Registry, found: EntryPoint, handlers: Iterable[CommandHandler]) -> Registry:
    try:
        return registry.plus(handlers)
    except ValueError as clash:
        _log_skipped(found, str(clash))
        return registry


def _log_skipped(found: EntryPoint, why: str) -> None:
    log.error("Skipped the commands of plugin %s: %s", found.name, why, extra={"action": "plugin.rejected"})
