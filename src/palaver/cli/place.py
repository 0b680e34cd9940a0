"""Where the data is: the store that a command works on."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["StoreOption", "data_directory", "store_url"]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="A path, sqlite:///path or postgresql://…; else PALAVER_STORE, else palaver.db in the data directory.",
        show_default=False,
    ),
]


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """PALAVER_HOME, else where this kind of machine keeps the data of its users."""
    if environment.get("PALAVER_HOME"):
        return Path(environment["PALAVER_HOME"]).expanduser()
    if platform == "darwin":
        return Path("~/Library/Application Support/palaver").expanduser()
    if platform == "win32":
        return Path(environment.get("APPDATA") or Path("~/AppData/Roaming").expanduser()) / "palaver"
    return Path(environment.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()) / "palaver"


def store_url(option: str | None, environment: Mapping[str, str] = os.environ) -> str:
    if option is not None:
        return option
    return environment.get("PALAVER_STORE") or str(data_directory(environment) / "palaver.db")
