"""Where the data is: the store that a command works on."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

__all__ = ["StoreOption", "data_directory", "store_file", "store_url"]

StoreOption = Annotated[
    str,
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


def store_url(option: str, environment: Mapping[str, str] = os.environ) -> str:
    return option or environment.get("PALAVER_STORE") or str(data_directory(environment) / "palaver.db")


def store_file(url: str) -> Path | None:
    """The file of a SQLite store; None for a store that is no file."""
    text = unquote(url[len("sqlite:///") :]) if url.lower().startswith("sqlite:///") else url
    return None if "://" in text else Path(text).expanduser()
