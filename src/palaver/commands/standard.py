"""The commands every gateway has."""

from typing import cast

from palaver.commands.branching import branching
from palaver.commands.compressing import compressing
from palaver.commands.exporting import exporting
from palaver.commands.finding import finding
from palaver.commands.handing import handing
from palaver.commands.linking import linking
from palaver.commands.models import about_models
from palaver.commands.moving import moving
from palaver.commands.people import about_people
from palaver.commands.places import about_places
from palaver.commands.platforms import about_platforms
from palaver.commands.privacy import about_privacy
from palaver.commands.registry import Registry
from palaver.commands.searching import searching
from palaver.commands.tools import about_tools
from palaver.commands.transcripts import about_transcripts
from palaver.commands.turns import SAYINGS, about_turns
from palaver.commands.usage import about_usage
from palaver.ports.repositories import Store

__all__ = ["STANDARD_NAMES", "standard_commands"]


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
