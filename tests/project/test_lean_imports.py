"""A command imports only what it uses: what is slow to import, or belongs to an extra, waits until it is needed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.platforms.plugins import PLATFORMS
from palaver.store.opening import open_database

LIBRARIES = (
    "aiohttp",
    "asyncpg",
    "discord",
    "markdown_it",
    "openai",
    "pydantic_ai",
    "slack_sdk",
    "telegram",
)
SERVES = ("agents", "commands.builtin", "engine.engine", "gateway.gateway", "tools", "web")
ADAPTERS = tuple(each.adapter.partition(":")[0] for each in PLATFORMS.values() if each.adapter)
PARTS = tuple(f"palaver.platforms.{name}.{part}" for name in PLATFORMS for part in ("options", "parse", "render"))


SHORT_COMMANDS = (
    "jobs list",
    "platforms list",
    "sessions list",
    "sessions show 1",
    "trace in:1",
    "usage",
)
"""Commands that look something up, and print it at once."""
SLOW = (
    *SERVES,
    "config.loader",
    "config.model",
    "engine.jobs.creation",
    "engine.settings",
    "gateway",
    "store.privacy.eraser",
    "store.search.search",
    "store.store",
)
"""What takes a short command as long as all that it needs: the model of the configuration, and the whole store."""


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    async def make() -> None:
        await (await open_database(str(file))).close()

    file = tmp_path_factory.mktemp("store") / "given.db"
    asyncio.run(make())
    return file


@pytest.mark.parametrize(
    ("program", "spared"),
    [
        (
            "main(['--help'])",
            ("msgspec", "palaver.config", "palaver.platforms", "palaver.store", "pydantic", "sqlite3", "yaml"),
        ),
        *((f"main({words.split()})", tuple(f"palaver.{each}" for each in SLOW)) for words in SHORT_COMMANDS),
        ("import palaver.gateway.gateway; from palaver.platforms.plugins import *; known_platforms()", ()),
    ],
    ids=["help", *SHORT_COMMANDS, "gateway.gateway"],
)
def test_what_is_not_used_is_not_imported(
    program: str, spared: tuple[str, ...], tmp_path: Path, empty_store: Path
) -> None:
    names = (*LIBRARIES, *ADAPTERS, *PARTS, *spared)
    code = (
        f"import sys; from palaver.cli.main import main; {program};"
        f"print([name for name in {names} if name in sys.modules], file=sys.stderr)"
    )
    configuration = tmp_path / "palaver.yaml"
    configuration.write_text(f"timezone: Europe/Berlin\nstore: {empty_store}\n")
    environment = os.environ | {"PALAVER_HOME": "", "PALAVER_STORE": "", "PALAVER_CONFIG": str(configuration)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.splitlines()[-1] == "[]"
