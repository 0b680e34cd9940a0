"""The commands every gateway has."""

from palaver.commands.moving import moving
from palaver.commands.places import about_places
from palaver.commands.registry import Registry
from palaver.commands.turns import about_turns
from palaver.commands.usage import about_usage
from palaver.ports.repositories import Store

__all__ = ["standard_commands"]


def standard_commands(store: Store) -> Registry:
    return Registry(
        [
            *moving(store),
            *about_turns(store),
            *about_places(store),
            *about_usage(store),
        ]
    )
