"""`palaver restore`: put a backup into an empty place."""

import typer

from palaver.cli.backup import Archive, KeyFile, backup_key
from palaver.cli.output import print_line, print_result, progress
from palaver.cli.shared_options import Json
from palaver.config.loader import load
from palaver.config.paths import DATABASE
from palaver.gateway.backups import CONFIGURATION
from palaver.model.errors import StoreError
from palaver.model.text import counted
from palaver.store.backup.restore import restore
from palaver.store.opening import sqlite_path

EXAMPLES = {"restore": "palaver restore palaver.tar"}

app = typer.Typer(rich_markup_mode=None)


@app.command("restore", help=f"Restore a backup into the data directory, which must be empty.\n\n{EXAMPLES['restore']}")
def restore_backup(file: Archive, *, key_file: KeyFile = None, json: Json = False) -> None:
    config = load()
    place, database = config.data_dir, sqlite_path(config.store)
    if database is None or database.absolute() != (place / DATABASE).absolute():
        raise StoreError(
            f"the configured store is not {place / DATABASE}: restore with PALAVER_STORE={place / DATABASE}, then move"
            " the database"
        )
    key = backup_key(key_file)
    with progress("files restored") as show:
        manifest = restore(file.absolute(), place, key, progress=show)
    made = f"{manifest.made:%Y-%m-%d %H:%M:%S} UTC"
    done = f"Restored {place} as of {made}, with {counted(len(manifest.files), 'file')}."
    fields = {"place": place, "made": manifest.made, "schema": manifest.schema, "files": len(manifest.files)}
    print_result(fields, done, as_json=json)
    if CONFIGURATION in manifest.members and not json:
        print_line(f"The configuration without its secrets is in {place / CONFIGURATION}.")
