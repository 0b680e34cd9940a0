"""`palaver doctor`: is everything well, and if not, how to mend it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.asking import ask
from palaver.cli.output import print_json, print_line, print_verdict
from palaver.cli.place import StoreOption, store_url
from palaver.stores.health import Check, check_store
from palaver.stores.opening import sqlite_path
from palaver.stores.store import Store

__all__ = ["EXAMPLES", "app", "doctor"]

EXAMPLES = {"doctor": "palaver doctor --rebuild-search"}

app = typer.Typer(rich_markup_mode=None)

Rebuild = Annotated[bool, typer.Option("--rebuild-search", help="Throw the search index away and make it anew.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command(
    help=f"Check the database, the promises, the disk, the clock and the search index.\n\n{EXAMPLES['doctor']}"
)
def doctor(*, store: StoreOption = None, rebuild_search: Rebuild = False, json: Json = False) -> None:
    async def examine(opened: Store) -> list[Check]:
        return [check async for check in _examined(opened, rebuild=rebuild_search)]

    # To open an empty file would make a new store of it.
    checks = _emptied(sqlite_path(store_url(store))) or ask(store, examine, absent=[])
    well = all(check.ok for check in checks)
    if json:
        print_json({"ok": well, "checks": [_fields(check) for check in checks]})
    else:
        for check in checks:
            print_verdict(check.name, check.found, mend="" if check.ok else check.mend, ok=check.ok)
        print_line("All is well." if well else "Something needs mending.")
    if not well:
        raise typer.Exit(1)


def _emptied(file: Path | None) -> list[Check]:
    """Something where the database is empty, but its search index is there."""
    if file is None or not file.is_file() or file.stat().st_size or not file.with_name(f"{file.name}.search").exists():
        return []
    return [
        Check(
            name="database",
            ok=False,
            found=f"{file} is empty, though an old search index lies beside it",
            mend="bring the database back from a backup; to begin anew, remove both files",
        )
    ]


async def _examined(store: Store, *, rebuild: bool) -> AsyncIterator[Check]:
    if rebuild:
        count = await store.search.rebuild()
        yield Check(name="search index", ok=True, found=f"made anew from {count} entries")
    async for check in check_store(store, datetime.now(UTC)):
        yield check


def _fields(check: Check) -> dict[str, object]:
    fields: dict[str, object] = {"name": check.name, "ok": check.ok, "found": check.found}
    return fields if check.ok else fields | {"mend": check.mend}
