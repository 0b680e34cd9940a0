"""Commands of others: found by their Python entry points; what is wrong with one harms nobody else."""

import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from palaver.commands.registry import Performance, Registry
from palaver.engine.retry import describe_error
from palaver.store.store import Store

__all__ = [
    "GROUP",
    "with_plugins",
]

log = logging.getLogger(__name__)

GROUP = "palaver.commands"
"""A distribution adds `name = "module:function"`; the function is given the store and gives performances."""


def with_plugins(registry: Registry, store: Store) -> Registry:
    """The registry with the commands of whatever is installed. One that cannot be used is named in the log."""
    for found in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            performances = [_checked(each) for each in found.load()(store)]
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises, the gateway starts without it
            _leave_out(found, describe_error(error))
        else:
            registry = _joined(registry, found, performances)
    return registry


def _checked(given: object) -> Performance:
    if not isinstance(given, Performance):
        raise TypeError(f"a plugin gives performances, not {type(given).__name__}")
    return given


def _joined(registry: Registry, found: EntryPoint, performances: Iterable[Performance]) -> Registry:
    try:
        return registry.plus(performances)
    except ValueError as clash:
        _leave_out(found, str(clash))
        return registry


def _leave_out(found: EntryPoint, why: str) -> None:
    log.error("the commands of %s are left out: %s", found.name, why, extra={"action": "plugin.rejected"})
