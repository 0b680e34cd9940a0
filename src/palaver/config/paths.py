"""Places: where the files of Palaver are, known before any of them is read."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from palaver.model.errors import BadArgument

__all__ = [
    "DATABASE",
    "Files",
    "configuration_files",
    "data_directory",
    "expanded",
    "is_there",
]

DATABASE = "palaver.db"
_FILE = "palaver.yaml"


class Files(NamedTuple):
    user: Path
    project: Path
    is_named: bool
    """The user's file was asked for by name, so it has to be there."""


def configuration_files(cwd: Path, environment: Mapping[str, str] = os.environ) -> Files:
    named = environment.get("PALAVER_CONFIG")
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    user = cwd / expanded(named) if named else expanded(folder) / "palaver" / _FILE
    return Files(user=user, project=cwd / _FILE, is_named=bool(named))


def expanded(text: str) -> Path:
    """With the home directory in the place of `~`; raises BadArgument where there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadArgument(
            "Nobody knows the home directory in the path",
            found=text,
            allowed="a path without ~, in PALAVER_HOME and PALAVER_CONFIG or the configuration; or HOME, set",
            example="PALAVER_HOME=/var/lib/palaver PALAVER_CONFIG=/etc/palaver.yaml",
        ) from error


def is_there(file: Path) -> bool:
    """What may not even be looked at is there: reading it says why it cannot be read."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """PALAVER_HOME, else where this kind of machine keeps the data of its users."""
    if environment.get("PALAVER_HOME"):
        return expanded(environment["PALAVER_HOME"])
    if platform == "darwin":
        return expanded("~/Library/Application Support/palaver")
    if platform == "win32":
        return Path(environment.get("APPDATA") or expanded("~/AppData/Roaming")) / "palaver"
    return Path(environment.get("XDG_DATA_HOME") or expanded("~/.local/share")) / "palaver"
