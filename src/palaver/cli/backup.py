"""`palaver backup`: make, list and check backups."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.export import refuse_existing
from palaver.cli.output import FAILED, print_facts, print_json, print_line, print_result, print_rows, progress
from palaver.cli.shared_options import Force, Json, StoreOption, store_url, vault_of
from palaver.commands.formatting import ago
from palaver.config.editor import ConfigFile
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.gateway.backups import CONFIGURATION, added_parts, backup_folder, find_backups
from palaver.gateway.vault import read_key
from palaver.model.attachment import format_size
from palaver.model.errors import StoreError
from palaver.model.text import counted
from palaver.settings.gateway import EncryptionConfig
from palaver.store.backup.archive import Manifest, read_manifest
from palaver.store.backup.restore import Verified, verify

EXAMPLES = {
    "backup": "palaver backup -o palaver.tar",
    "list": "palaver backup list",
    "verify": "palaver backup verify palaver.tar",
}

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
Archive = Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="The key of an encrypted backup. Default: the configured one.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Write one file with everything in it, instead of adding to the folder."),
]


@app.callback(help=f"Back up the database, files and configuration, also while a gateway runs.\n\n{EXAMPLES['backup']}")
def backup(
    context: typer.Context,
    *,
    output: Output = None,
    force: Force = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    if context.invoked_subcommand:
        return
    config = _config(store)
    backups, now = find_backups(config, vault_of(config.store)), shared_options.now()
    if not backups.database.exists():
        raise StoreError(f"there is no store yet: {backups.database} does not exist")
    parts = added_parts(ConfigFile(folder=Path(), environ=os.environ, store=store))
    with progress("files backed up") as show:
        if output is not None:
            refuse_existing(Path(output), EXAMPLES["backup"], force=force)
            path = Path(output).absolute()
            manifest = backups.make_single(path, parts, now, progress=show)
        else:
            made, manifest = backups.make(parts, now, keep=config.backup.keep, progress=show)
            path = made.path
    size = path.stat().st_size
    done = f"{path} ({format_size(size)}) with {counted(len(manifest.files), 'file')}"
    warnings = [*_missing(manifest), *_misdated(manifest)]
    fields = {"file": path, "bytes": size, **_fields(manifest), "misdated": manifest.is_misdated}
    print_result(fields, done, *warnings, as_json=json)


@app.command("list", help=f"List the backups in the configured folder, newest first.\n\n{EXAMPLES['list']}")
def list_backups(*, store: StoreOption = None, json: Json = False) -> None:
    config = _config(store)
    found = find_backups(config).list_all()
    if json:
        print_json({"backups": [{"file": each.path, "made": each.at, "bytes": each.size} for each in found]})
    elif not found:
        print_line(f"There are no backups in {backup_folder(config)}.")
    else:
        now = shared_options.now()
        rows = [(each.path.name, ago(each.at, now), format_size(each.size)) for each in found]
        print_rows(("backup", "made", "size"), rows)
        print_line(f"They are in {backup_folder(config)}.")


@app.command("verify", help=f"Restore a backup into a temporary folder, and say what is in it.\n\n{EXAMPLES['verify']}")
def verify_backup(file: Archive, *, key_file: KeyFile = None, json: Json = False) -> None:
    read_manifest(file)
    with progress("files checked") as show:
        found = asyncio.run(verify(file, backup_key(key_file), progress=show))
    if json:
        print_json({"ok": not found.problems, **_facts(found), "problems": list(found.problems)})
    else:
        print_facts([(name, str(value)) for name, value in _facts(found).items()])
        for problem in found.problems:
            print_line(problem)
        print_line(_verdict(found))
    if found.problems:
        raise typer.Exit(FAILED)


def _verdict(found: Verified) -> str:
    if found.problems:
        return "Something is wrong with this backup."
    if missing := len(found.manifest.missing):
        return f"The backup restores, but {counted(missing, 'file')} could not be backed up."
    return "The backup is complete and restores."


def backup_key(file: Path | None) -> bytes | None:
    """Return the key in a file, or else the configured one: a backup can be older than that."""
    config = load()
    if file:
        config = config.model_copy(update={"encryption": EncryptionConfig(key_file=file.absolute())})
    return read_key(config)


def _facts(found: Verified) -> dict[str, object]:
    counts = {"conversations": found.conversations, "entries": found.entries, "people": found.people}
    return {**_fields(found.manifest), **counts}


def _fields(manifest: Manifest) -> dict[str, object]:
    return {
        "made": f"{manifest.made:%Y-%m-%d %H:%M:%S} UTC",
        "palaver": manifest.palaver,
        "schema": manifest.schema,
        "files": len(manifest.files),
        "missing files": len(manifest.missing),
        "configuration": "yes" if CONFIGURATION in manifest.members else "no",
    }


def _missing(manifest: Manifest) -> list[str]:
    if not manifest.missing:
        return []
    return [f"{counted(len(manifest.missing), 'file')} could not be backed up: palaver doctor names them."]


def _misdated(manifest: Manifest) -> list[str]:
    if not manifest.is_misdated or not manifest.newest:
        return []
    made, newest = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (manifest.made, manifest.newest))
    dated = f"this backup is dated {made}, and a conversation in it was last used at {newest}"
    return [f"The clock is wrong, or was: {dated}. Set the clock, then make another backup."]


def _config(store: str | None) -> Config:
    config = load()
    return config.model_copy(update={"store": store_url(store)})
