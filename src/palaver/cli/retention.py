"""`palaver retention`: show and delete what is over its age, count or size."""

from datetime import datetime

import typer

from palaver.cli import shared_options
from palaver.cli.delete import wipe
from palaver.cli.export import blob_store
from palaver.cli.output import confirm, print_json, print_line, print_rows, progress
from palaver.cli.shared_options import Json, StoreOption, Yes, ask
from palaver.config.loader import load
from palaver.model.attachment import format_size
from palaver.model.retention import RetentionClass, RetentionRules
from palaver.model.text import counted
from palaver.platforms.local.adapter import output_folder
from palaver.store.retention.retention import Expired, Retention
from palaver.store.store import Store

EXAMPLES = {"preview": "palaver retention preview", "run": "palaver retention run --yes"}

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
_WHAT = {
    RetentionClass.CHAT: "conversations",
    RetentionClass.CRON: "conversations of jobs",
    RetentionClass.API: "conversations of programs",
    RetentionClass.OBSERVED: "overheard messages",
    RetentionClass.ATTACHMENTS: "files",
    RetentionClass.SETTLED: "contents of inbox and outbox",
    RetentionClass.OUTPUT: "files written by jobs",
}


@app.command(help=f"Show what the configured retention would delete now.\n\n{EXAMPLES['preview']}")
def preview(*, store: StoreOption = None, json: Json = False) -> None:
    found = _preview(store, shared_options.now())
    if json:
        print_json({"found": [_fields(each) for each in found]})
    else:
        _print(found)


@app.command(help=f"Delete what the configured retention allows to go.\n\n{EXAMPLES['run']}")
def run(*, yes: Yes = False, store: StoreOption = None, json: Json = False) -> None:
    now = shared_options.now()
    found = _preview(store, now)
    if not json:
        _print(found)
    total = sum(each.items for each in found)
    if total:
        confirm(f"Permanently delete {counted(total, 'item')}?", EXAMPLES["run"], yes=yes)

    async def carry_out(opened: Store) -> list[Expired]:
        gone = await _retention(opened).run(_rules(), now, progress=show)
        await wipe(opened)
        return gone

    with progress("items deleted") as show:
        gone = ask(store, carry_out) if total else []
    if json:
        print_json({"deleted": [{"class": each.kind.value, "items": each.items} for each in gone]})
    elif gone:
        print_line(f"{counted(sum(each.items for each in gone), 'item')} deleted.")


def _preview(store: str | None, now: datetime) -> list[Expired]:
    rules = _rules()  # a wrong limit is an error without a store, too
    return ask(store, lambda opened: _retention(opened).preview(rules, now), [])


def _retention(store: Store) -> Retention:
    return Retention(database=store.database, blobs=blob_store(), outputs=output_folder(load().data_dir))


def _rules() -> RetentionRules:
    return load().retention.rules()


def _print(found: list[Expired]) -> None:
    going = [each for each in found if each.items]
    if not going:
        print_line("Nothing is over its limits.")
        return
    print_rows(
        ("class", "would go", "size", "last used before"),
        [
            (
                each.kind.value,
                f"{each.items} {_WHAT[each.kind]}",
                format_size(each.size),
                f"{each.cutoff:%Y-%m-%d %H:%M}",
            )
            for each in going
        ],
    )


def _fields(each: Expired) -> dict[str, object]:
    return {"class": each.kind.value, "items": each.items, "bytes": each.size, "before": each.cutoff}
