"""A command imports only what it uses: what is slow to import, or belongs to an extra, waits until it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.platforms.catalog import PLATFORMS

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
ADAPTERS = tuple(f"palaver.platforms.{name}" for name in PLATFORMS if name not in {"api", "terminal", "web"})


@pytest.mark.parametrize(
    ("program", "spared"),
    [
        ("main(['--help'])", ("msgspec", "palaver.config", "palaver.store", "pydantic", "sqlite3", "yaml")),
        ("main(['sessions', 'list'])", tuple(f"palaver.{each}" for each in SERVES)),
        ("import palaver.gateway.gateway; from palaver.platforms.plugins import *; known_platforms()", ()),
    ],
    ids=["help", "list", "gateway.gateway"],
)
def test_what_is_not_used_is_not_imported(program: str, spared: tuple[str, ...], tmp_path: Path) -> None:
    names = (*LIBRARIES, *ADAPTERS, *spared)
    code = (
        f"import sys; from palaver.cli.main import main; {program};"
        f"print([name for name in {names} if name in sys.modules], file=sys.stderr)"
    )
    environment = os.environ | {"PALAVER_HOME": str(tmp_path), "PALAVER_STORE": "", "PALAVER_CONFIG": os.devnull}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.splitlines()[-1] == "[]"
