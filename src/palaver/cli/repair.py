"""`palaver doctor --repair`: mend what is damaged, after making a copy."""

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from palaver.cli.export import blob_store
from palaver.cli.output import confirm, print_line, print_note, print_verdict
from palaver.cli.shared_options import database_key, local_now, store_url
from palaver.db.file_lock import FileLock
from palaver.model.errors import StoreError
from palaver.model.text import counted
from palaver.store.damage.health_check import HealthCheck
from palaver.store.damage.leftovers import copy_database
from palaver.store.damage.repair import Repair, repair
from palaver.store.damage.version import check_version, correct_version
from palaver.store.opening import open_store, sqlite_path
from palaver.store.status.permissions import PERMISSIONS, data_files, make_private, readable_by_others


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    repair: Repair
    copy: str | None = None
    """The copy of the database as it was."""

    @property
    def fields(self) -> dict[str, object]:
        return {"mended": self.repair.mended, "failed": self.repair.failed, "copy": self.copy}

    def print(self) -> None:
        for each in self.repair.mended:
            print_line(f"mended  {each}")
        for each in self.repair.failed:
            print_line(f"failed  {each}")
        if self.copy:
            print_note(f"{self.copy} is the database as it was before the repair.")


def repair_store(
    store: str | None, checks: Sequence[HealthCheck], *, yes: bool, lists: bool, example: str
) -> RepairReport | None:
    """List what was found, ask, copy and repair; None if nothing can be repaired."""
    url = store_url(store)
    file = sqlite_path(url)
    broken = [check for check in checks if not check.ok and (check.mends or check.name == "schema version")]
    open_files = readable_by_others(data_files(file.resolve())) if file else []
    exposed = [check for check in checks if check.is_warning and check.name == PERMISSIONS] if open_files else []
    if not (broken or exposed):
        return None
    for check in (*broken, *exposed) if lists else ():
        print_verdict(check.name, check.found, fix=check.fix, ok=check.ok, is_warning=check.is_warning)
    backup = "A copy of the database is made first." if file else "Make a backup with pg_dump first."
    question = f"Repair {counted(len(broken) + len(exposed), 'finding')}?"
    confirm(f"{question} {backup}" if broken else question, example, yes=yes)
    done = [_make_private(each) for each in open_files]
    if not broken:
        return RepairReport(repair=Repair(mended=tuple(done)))
    report = asyncio.run(_repair(url, file and file.resolve(), database_key(url)))
    return replace(report, repair=replace(report.repair, mended=(*done, *report.repair.mended)))


def _make_private(file: Path) -> str:
    try:
        make_private(file)
    except OSError as error:
        raise StoreError(
            f"the permissions of {file} could not be changed ({error.strerror}), so nothing was repaired: run palaver"
            " doctor --repair as its owner"
        ) from error
    return f"{PERMISSIONS}: others can no longer read {file}"


async def _repair(url: str, file: Path | None, key: bytes | None) -> RepairReport:
    now = local_now()
    copy = file and file.with_name(f"{file.name}.repair-{now:%Y%m%dT%H%M%S}")
    version = check_version(file, key) if file else None
    if file and copy and version:
        with FileLock(file).keep_free():
            _copy(file, copy, key)
            correct_version(file, key)
    # Exclusively: nothing changes while it is repaired, and no gateway starts.
    async with await open_store(url, key=key, exclusive=True, repairs=True) as opened:
        if file and copy and not copy.exists():
            _copy(file, copy, key)
        done = await repair(opened, now, blob_store())
    corrected = (f"{version.name}: {version.found}",) if version else ()
    return RepairReport(repair=replace(done, mended=(*corrected, *done.mended)), copy=copy and copy.name)


def _copy(file: Path, copy: Path, key: bytes | None) -> None:
    try:
        copy_database(file, copy, key=key)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"The database could not be copied, so nothing was repaired: {error}. Make room on its disk, and run"
            " palaver doctor --repair again."
        ) from error
