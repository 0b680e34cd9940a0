"""The page about commands says what the registry says."""

import re

from tests.commands.page import PAGE, written

PLANNED = {
    *("new", "reset", "resume", "sessions", "back", "undo", "redo", "retry", "branch", "title", "compress"),
    *(
        "search",
        "export",
        "model",
        "status",
        "usage",
        "stop",
        "queue",
        "steer",
        "approve",
        "deny",
        "platforms",
        "sethome",
    ),
    *("link", "unlink", "whoami", "help"),
}


async def test_the_table_is_that_of_the_registry() -> None:
    page = PAGE.read_text()
    assert page == await written(page), "python -m tests.commands.page writes the table anew"


def test_every_command_of_the_plan_is_there() -> None:
    assert set(re.findall(r"/([a-z]+)", PAGE.read_text())) >= PLANNED
