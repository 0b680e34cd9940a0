"""Places: where the files of Palaver are, known before any of them is read."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["DATABASE", "Files", "configuration_files", "data_directory", "is_there"]

DATABASE = "palaver.db"
_FILE = "palaver.yaml"


class Files(NamedTuple):
    user: Path
    project: Path
    is_named: bool
    """The user's file was asked for by name, so it has to be there."""


def configuration_files(cwd: Path, environment: Mapping[str, str] = os.environ) -> Files:
    named = environment.get("PALAVER_CONFIG")
    folder = Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "palaver"
    user = cwd / Path(named).expanduser() if named else folder / _FILE
    return Files(user=user, project=cwd / _FILE, is_named=bool(named))


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
        return Path(environment["PALAVER_HOME"]).expanduser()
    if platform == "darwin":
        return Path("~/Library/Application Support/palaver").expanduser()
    if platform == "win32":
        return Path(environment.get("APPDATA") or Path("~/AppData/Roaming").expanduser()) / "palaver"
    return Path(environment.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()) / "palaver"
