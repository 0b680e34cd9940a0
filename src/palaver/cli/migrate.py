"""`palaver migrate`: move a store between SQLite and PostgreSQL, or from an older schema into a new store."""

import asyncio
from typing import Annotated

import typer

from palaver.cli.output import print_line, print_result, progress_line
from palaver.cli.shared_options import Json, database_key, store_url
from palaver.config.secrets import mask_secrets
from palaver.model.errors import BadArgument, StoreError
from palaver.model.text import counted
from palaver.store.opening import check_url, is_older, sqlite_path
from palaver.store.transfer import transfer

EXAMPLES = {"migrate": "palaver migrate postgresql://palaver@db.example/palaver"}

app = typer.Typer(rich_markup_mode=None)
Target = Annotated[str, typer.Argument(metavar="TO", help="The new store: sqlite:///path or postgresql://…, empty.")]
Source = Annotated[str, typer.Option("--from", metavar="URL", help="The old store. Default: the configured one.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin an incomplete copy anew.")]


@app.command("migrate", help=f"Copy the store to another database and compare every row.\n\n{EXAMPLES['migrate']}")
def migrate(to: Target, *, source: Source = "", restart: Restart = False, json: Json = False) -> None:
    old = source or store_url(None)
    check_url(to)
    _refuse(old, to)
    if file := sqlite_path(to):
        to = str(file.absolute())  # a relative path means another file in the configuration
    shown_old, shown_new = mask_secrets(old), mask_secrets(to)
    with progress_line() as show:
        copied = asyncio.run(
            transfer(
                old,
                to,
                shown_old,
                restart=restart,
                key=_key(old, to),
                progress=lambda table, rows: show(f"{table}: {rows} rows"),
            )
        )
    print_result(
        {
            "from": shown_old,
            "to": shown_new,
            "tables": copied.tables,
            "rows": copied.rows,
            "left_out": list(copied.left),
        },
        f"Copied {counted(copied.rows, 'row')} of {counted(copied.tables, 'table')} and compared each.",
        as_json=json,
    )
    if not json:
        for left in copied.left:
            print_line(f"Left out: {left}")
        print_line(
            f"Now set store: {shown_new} in your configuration, and start the gateway. Files stay where they are."
        )
        print_line(f"The old store {shown_old} is as before. Remove it when you no longer need it.")


def _key(old: str, new: str) -> bytes | None:
    """Return the key of the one that is on SQLite."""
    return database_key(old if sqlite_path(old) else new)


def _refuse(old: str, new: str) -> None:
    file = sqlite_path(old)
    if file and not file.exists():
        raise StoreError(f"there is no store yet: {file} does not exist")
    is_same_kind = (file is None) == (sqlite_path(new) is None)
    if is_same_kind and not asyncio.run(is_older(old, key=_key(old, new))):
        raise BadArgument(
            "Both stores are on the same kind of database.",
            found="",
            allowed="one on SQLite and one on PostgreSQL. To copy a SQLite store, use palaver backup and restore",
            example=EXAMPLES["migrate"],
        )
