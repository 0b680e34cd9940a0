"""`palaver doctor`: is everything well, and if not, how to mend it."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from palaver.cli.output import print_json, print_line, print_verdict
from palaver.cli.place import StoreOption, store_url
from palaver.stores.health import Check, check_store
from palaver.stores.opening import open_store

__all__ = ["EXAMPLES", "app", "doctor"]

EXAMPLES = {"doctor": "palaver doctor --rebuild-search"}

app = typer.Typer(rich_markup_mode=None)

Rebuild = Annotated[bool, typer.Option("--rebuild-search", help="Throw the search index away and make it anew.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command(
    help=f"Check the database, the promises, the disk, the clock and the search index.\n\n{EXAMPLES['doctor']}"
)
def doctor(*, store: StoreOption = "", rebuild_search: Rebuild = False, json: Json = False) -> None:
    checks = asyncio.run(_examine(store_url(store), rebuild=rebuild_search, quiet=json))
    well = all(check.ok for check in checks)
    if json:
        print_json({"ok": well, "checks": [_fields(check) for check in checks]})
    elif well:
        print_line("All is well.")
    if not well:
        raise typer.Exit(1)


async def _examine(url: str, *, rebuild: bool, quiet: bool) -> list[Check]:
    checks: list[Check] = []
    async with await open_store(url) as store:
        if rebuild:
            count = await store.search.rebuild()
            checks.append(Check(name="search index", ok=True, found=f"made anew from {count} entries"))
        checks += [check async for check in check_store(store, datetime.now(UTC))]
    if not quiet:
        for check in checks:
            print_verdict(check.name, check.found, mend="" if check.ok else check.mend, ok=check.ok)
    return checks


def _fields(check: Check) -> dict[str, object]:
    fields: dict[str, object] = {"name": check.name, "ok": check.ok, "found": check.found}
    return fields if check.ok else fields | {"mend": check.mend}
