"""`palaver doctor --salvage`: copy everything readable of a damaged store into a new one."""

import asyncio
import shutil
from pathlib import Path

from palaver.cli.export import blob_store
from palaver.cli.output import print_json, print_line, print_verdict, progress_line
from palaver.cli.shared_options import database_key, load_config, local_now, store_url
from palaver.config.secrets import mask_secrets
from palaver.db.cipher import KEYS
from palaver.db.private_files import make_private_folder
from palaver.model.errors import BadArgument, StoreError
from palaver.model.text import counted
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.checks import find_damage
from palaver.store.damage.health_check import HealthCheck
from palaver.store.damage.leftovers import FILES
from palaver.store.damage.salvage import Files, Salvaged, salvage
from palaver.store.opening import check_url, open_store, sqlite_path

EXAMPLE = "palaver doctor --salvage /srv/salvaged/palaver.db"
_MAX_LINES = 20


def salvage_store(store: str | None, target: str, *, json: bool) -> bool:
    """Copy what can be read, and report what was left behind; return whether the new store is well."""
    url = store_url(store)
    check_url(target)
    if path := sqlite_path(target):
        path = path.resolve()
        target = str(path)
    shown_old, shown_new = mask_secrets(url), mask_secrets(target)
    _refuse(url, path)
    done, problems = asyncio.run(_salvage(url, target, path and path.parent, shown_old))
    left = [{"table": each.table, "row": each.row, "reason": each.reason} for each in done.left]
    if json:
        found = [f"{each.name}: {each.found}" for each in problems]
        print_json({"from": shown_old, "to": shown_new, "rows": done.rows, "left": left, "problems": found})
        return not problems
    for each in done.left[:_MAX_LINES]:
        print_line(f"left    {each.table} {each.row}: {each.reason}")
    if len(done.left) > _MAX_LINES:
        print_line(f"and {len(done.left) - _MAX_LINES} more: --json lists all")
    for each in problems:
        print_verdict(each.name, each.found, fix=each.fix, ok=False, is_warning=False)
    rows = counted(done.rows, "row")
    print_line(f"Copied {rows} that can be read. Left behind or changed: {len(done.left)}. The old store is as before.")
    folder = f"data_dir: {path.parent} and " if path else ""
    print_line(f"Now set {folder}store: {shown_new} in your configuration, and start the gateway.")
    return not problems


def _refuse(url: str, new: Path | None) -> None:
    old = sqlite_path(url)
    if old and not old.exists():
        raise StoreError(f"there is no store to salvage: {old} does not exist")
    taken = {load_config().data_dir.resolve(), *([old.resolve().parent] if old else [])}
    if new and new.parent in taken:
        raise BadArgument(
            "The new store needs a folder of its own: files and keys are copied there, too.",
            found=str(new),
            allowed="a path in another folder, or postgresql://user@host/database",
            example=EXAMPLE,
        )


async def _salvage(url: str, target: str, folder: Path | None, shown: str) -> tuple[Salvaged, list[HealthCheck]]:
    key = database_key(url)
    target_key = None if folder is None else key if sqlite_path(url) else database_key(target)
    blobs = blob_store()
    if folder:
        make_private_folder(folder)
        if (keys := load_config().data_dir / KEYS).is_file():
            shutil.copy2(keys, folder / KEYS)
    files = Files(blobs, folder and folder / FILES)
    with progress_line() as show:
        done = await salvage(
            url,
            target,
            shown,
            local_now(),
            key=key,
            target_key=target_key,
            files=files,
            progress=lambda what, rows: show(f"{what}: {rows}"),
        )
    async with await open_store(target, key=target_key) as new:
        kept = BlobStore(files.target, blobs.contents) if files.target else blobs
        return done, [check async for check in find_damage(new, kept) if not check.ok]
