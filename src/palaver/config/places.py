"""Places: where this kind of machine keeps the files of Palaver's users."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["DATABASE", "data_directory"]

DATABASE = "palaver.db"


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """PALAVER_HOME, else where this kind of machine keeps the data of its users."""
    if environment.get("PALAVER_HOME"):
        return Path(environment["PALAVER_HOME"]).expanduser()
    if platform == "darwin":
        return Path("~/Library/Application Support/palaver").expanduser()
    if platform == "win32":
        return Path(environment.get("APPDATA") or Path("~/AppData/Roaming").expanduser()) / "palaver"
    return Path(environment.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()) / "palaver"
