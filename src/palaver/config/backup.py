"""Backups: how often, where, and how many to keep."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field

from palaver.config.types import DurationOrOff, Section, Syntax


class BackupConfig(Section):
    every: DurationOrOff = Field(
        default=None,
        ge=timedelta(minutes=10),
        le=timedelta(days=365),
        description="Make a backup this often while the gateway runs.",
    )
    folder: Annotated[Path | None, Syntax("a folder, absolute or relative to this file", "~/palaver-backups")] = Field(
        default=None, description="Where backups go. Default: the folder backups in the data directory."
    )
    keep: int = Field(default=7, ge=1, le=10_000, description="Keep this many backups, the newest.")
