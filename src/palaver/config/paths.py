"""Find the configuration files and the data directory."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from palaver.model.errors import BadArgument

DATABASE = "palaver.db"
_FILE = "palaver.yaml"


class Files(NamedTuple):
    user: Path
    project: Path
    is_named: bool
    """PALAVER_CONFIG names the user's file, so it must exist."""


def configuration_files(cwd: Path, environment: Mapping[str, str] = os.environ) -> Files:
    named = environment.get("PALAVER_CONFIG")
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    user = cwd / expand_home(named) if named else expand_home(folder) / "palaver" / _FILE
    return Files(user=user, project=cwd / _FILE, is_named=bool(named))


def expand_home(text: str) -> Path:
    """Replace `~` by the home directory; raise BadArgument if there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadArgument(
            "There is no home directory for the path",
            found=text,
            allowed="a path without ~ in PALAVER_HOME, PALAVER_CONFIG and the configuration, or set HOME",
            example="PALAVER_HOME=/var/lib/palaver PALAVER_CONFIG=/etc/palaver.yaml",
        ) from error


def exists(file: Path) -> bool:
    """Return whether the file exists. Without permission to look, assume so: reading it then reports why."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return PALAVER_HOME, else the usual folder for user data on this system."""
    if environment.get("PALAVER_HOME"):
        return expand_home(environment["PALAVER_HOME"])
    if platform == "darwin":
        return expand_home("~/Library/Application Support/palaver")
    if platform == "win32":
        return Path(environment.get("APPDATA") or expand_home("~/AppData/Roaming")) / "palaver"
    return Path(environment.get("XDG_DATA_HOME") or expand_home("~/.local/share")) / "palaver"
