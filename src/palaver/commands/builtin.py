"""The commands every gateway has."""

from typing import cast

from palaver.commands.handoff import handing
from palaver.commands.models import about_models, about_usage
from palaver.commands.people import about_people, about_privacy, linking
from palaver.commands.platforms import about_places, about_platforms
from palaver.commands.registry import Registry
from palaver.commands.search import exporting, searching
from palaver.commands.sessions import branching, finding, moving
from palaver.commands.transcripts import about_transcripts, compressing
from palaver.commands.turns import SAYINGS, about_tools, about_turns
from palaver.store.store import Store

__all__ = [
    "STANDARD_NAMES",
    "standard_commands",
]


def standard_commands(store: Store) -> Registry:
    return Registry(
        [
            *moving(store),
            *handing(store),
            *branching(store),
            *about_transcripts(store),
            *finding(store),
            *searching(store),
            *exporting(store),
            *about_turns(store),
            *about_places(store),
            *about_models(store),
            *about_platforms(store),
            *compressing(store),
            *about_tools(),
            *about_usage(store),
            *about_people(store),
            *linking(store),
            *about_privacy(store),
        ],
        SAYINGS,
    )


# What commands are called can be asked without a store: none is touched before something is said.
STANDARD_NAMES = standard_commands(cast("Store", None)).names
