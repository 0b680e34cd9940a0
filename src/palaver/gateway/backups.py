"""Backups of a configured gateway: what goes into them, and the schedule on which a running gateway makes them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from palaver.config.editor import ConfigFile
from palaver.config.model import Config
from palaver.config.shared import without_secrets
from palaver.db.cipher import KEYS
from palaver.model.errors import PalaverError, StoreError
from palaver.protocols.clock import Clock
from palaver.store.backup.archive import Manifest
from palaver.store.backup.backups import Backup, Backups
from palaver.store.opening import sqlite_path

if TYPE_CHECKING:
    from palaver.store.encryption.vault import Vault

log = logging.getLogger(__name__)

CONFIGURATION = "configuration.yaml"
LOOK_EVERY_SECONDS = 60.0
RETRY_SECONDS = 600.0


class NotOnPostgres(StoreError):
    """The store is on PostgreSQL, which has its own tools for backups."""

    def __init__(self, files: Path) -> None:
        super().__init__(
            "this store is on PostgreSQL, so Palaver does not copy it: run pg_dump --format=custom for the database,"
            f" and copy the folder {files} of each machine after that, with {KEYS} beside it if it is encrypted"
        )


def find_backups(config: Config, vault: "Vault | None" = None) -> Backups:
    """Return the backups of a configuration. Raises NotOnPostgres."""
    files, database = config.data_dir / "files", sqlite_path(config.store)
    if database is None:
        raise NotOnPostgres(files)
    return Backups(database=database, files=files, folder=backup_folder(config), vault=vault)


def backup_folder(config: Config) -> Path:
    return config.backup.folder or config.data_dir / "backups"


def added_parts(file: ConfigFile | None) -> Mapping[str, bytes]:
    """Return what goes into a backup besides the database and its files."""
    text = without_secrets(file) if file else ""
    return {CONFIGURATION: text.encode()} if text else {}


async def make_backup(
    config: Config, file: ConfigFile | None, now: datetime, vault: "Vault | None" = None
) -> tuple[Backup, Manifest]:
    """Make a backup in the configured folder, and remove those beyond the number to keep."""
    backups, parts = find_backups(config, vault), added_parts(file)
    return await asyncio.to_thread(lambda: backups.make(parts, now, keep=config.backup.keep))


async def serve_backups(
    config: Callable[[], Config], file: ConfigFile | None, clock: Clock, vault: "Vault | None" = None
) -> None:
    """Make backups when they are due, until cancelled. A reload can change when."""
    while True:
        await asyncio.sleep(LOOK_EVERY_SECONDS)
        current = config()
        if current.backup.every is None:
            continue
        try:
            now, found = clock.now(), await asyncio.to_thread(find_backups(current, vault).list_all)
            if any(timedelta() <= now - backup.at < current.backup.every for backup in found):
                continue  # one from the future does not count: a clock was wrong
            made, manifest = await make_backup(current, file, now, vault)
        except (PalaverError, OSError) as error:
            log.error("a backup failed and is tried again: %s", error, extra={"action": "backup.failed"})  # noqa: TRY400
            await asyncio.sleep(RETRY_SECONDS)
        else:
            extra = {"action": "backup.made", "bytes": made.size, "files": len(manifest.files)}
            log.info("made a backup", extra=extra)
            if manifest.is_misdated:
                problem = "the backup is dated before what is in it: set the clock of this machine"
                log.warning(problem, extra={"action": "backup.misdated"})
