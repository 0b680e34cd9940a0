"""The commands that every gateway has."""

from typing import cast

from palaver.commands.handoff import handoff_commands
from palaver.commands.models import model_commands, usage_commands
from palaver.commands.people import link_commands, person_commands, privacy_commands
from palaver.commands.platforms import home_commands, platform_commands
from palaver.commands.registry import Registry
from palaver.commands.search import export_commands, search_commands
from palaver.commands.sessions import branch_commands, session_commands, session_list_commands
from palaver.commands.transcripts import compress_commands, transcript_commands
from palaver.commands.turns import BUSY_MODE_COMMANDS, tool_commands, turn_commands
from palaver.store.store import Store


def builtin_commands(store: Store) -> Registry:
    return Registry(
        [
            *session_commands(store),
            *handoff_commands(store),
            *branch_commands(store),
            *transcript_commands(store),
            *session_list_commands(store),
            *search_commands(store),
            *export_commands(store),
            *turn_commands(store),
            *home_commands(store),
            *model_commands(store),
            *platform_commands(store),
            *compress_commands(store),
            *tool_commands(),
            *usage_commands(store),
            *person_commands(store),
            *link_commands(store),
            *privacy_commands(store),
        ],
        BUSY_MODE_COMMANDS,
    )


# The names need no store: no handler runs.
BUILTIN_NAMES = builtin_commands(cast("Store", None)).names
