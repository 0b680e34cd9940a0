"""`palaver people export`, `forget`, `receipts` and `verify`."""

from dataclasses import asdict
from glob import escape
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.export import Plain, blob_store, cannot_use, note_missing, open_output, refuse_existing
from palaver.cli.output import (
    confirm,
    pick,
    print_facts,
    print_found,
    print_json,
    print_line,
    print_note,
    print_result,
    progress,
)
from palaver.cli.shared_options import (
    LARGEST_NUMBER,
    DryRun,
    Force,
    Json,
    Output,
    StoreOption,
    Yes,
    ask,
    store_url,
    vault_of,
)
from palaver.commands.formatting import ago
from palaver.config.loader import load
from palaver.gateway.backups import backup_folder
from palaver.gateway.erasures import with_outside
from palaver.model.errors import BadArgument, NotFound, SessionBusy, StoreError
from palaver.model.source import readable_identity, stored_identity
from palaver.model.text import counted, one_line
from palaver.processes.home import find_outputs
from palaver.store.archive.file_contents import FileContents
from palaver.store.backup.backups import backups_that_hold
from palaver.store.clock import store_time
from palaver.store.damage.leftovers import is_copy
from palaver.store.opening import sqlite_path
from palaver.store.privacy.digests import load_digests
from palaver.store.privacy.erasure import ErasurePreview, ErasureProgress, erasures
from palaver.store.privacy.person_export import FORMAT, check_export, export_person
from palaver.store.privacy.receipt import Receipt, Verification, delete_digests, get_receipt, read_receipt, verify
from palaver.store.store import Store

EXAMPLES = {
    "export": "palaver people export telegram:7 -o ann.jsonl",
    "forget": "palaver people forget telegram:7 --dry-run",
    "receipts": "palaver people receipts 3 -o receipt.json",
    "verify": "palaver people verify receipt.json",
}
_EXPORT = f'{{"format":"{FORMAT}"'.encode()
_FIRST_BYTES = 1024

Name = Annotated[str, typer.Argument(metavar="PERSON", help="A person id or an account, for example telegram:7.")]


def export_everything(
    person: Name,
    *,
    output: Output = "",
    plain: Plain = False,
    force: Force = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    contents, vault = FileContents(blob_store()), None if plain else vault_of(store_url(store))

    async def export(opened: Store) -> int:
        lines, outputs = 0, await find_outputs(opened, load().data_dir)
        with open_output(output, force=force, example=EXAMPLES["export"], vault=vault) as file:
            async for line in export_person(opened.database, stored_identity(person), contents, outputs):
                file.write(line)
                lines += 1
        return lines

    lines = ask(store, export)
    note_missing(contents)
    if output:
        done = f"{counted(lines, 'line')} in {one_line(output, 200)}"
        print_result({"lines": lines, "file": output}, done, as_json=json)


# Forget


def forget_person(
    person: Name,
    *,
    keep_access: Annotated[
        bool, typer.Option("--keep-access", help="Keep their access: they can continue as a new person.")
    ] = False,
    dry_run: DryRun = False,
    receipt: Annotated[
        str, typer.Option("--receipt", help="Write the receipt to this file instead of the store.")
    ] = "",
    yes: Yes = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    name = stored_identity(person)
    if receipt:
        refuse_existing(Path(receipt), EXAMPLES["forget"], allowed="a new name")
    found = ask(store, lambda opened: opened.erasures.preview(name))
    if not json:
        _print_found(found)
    if dry_run:
        if json:
            print_json({"found": asdict(found)})
        return
    who = ", ".join(map(readable_identity, found.identities))
    confirm(f"Permanently delete everything about {who}?", EXAMPLES["forget"], yes=yes)

    async def forget(opened: Store) -> ErasureProgress:
        opened.erasures = with_outside(opened, load().data_dir)
        # By the database's time: by a clock that is ahead, the workers of running turns would look dead.
        now = await store_time(opened.database, shared_options.now())
        asked = opened.erasures.request(name, now, by="operator", keeps_access=keep_access)
        number = await opened.transact(asked)
        done = await opened.erasures.run(number, now, blobs=blob_store(), progress=lambda so_far: show(so_far.total()))
        if done.done and receipt:
            await _write_receipt(opened, number, receipt, force=False)
        return done

    with progress("rows deleted") as show:
        outcome = ask(store, forget)
    _report(outcome, found, receipt, _backups(store), as_json=json)


def _print_found(found: ErasurePreview) -> None:
    print_line(", ".join(map(readable_identity, found.identities)))
    print_facts(
        [
            ("alone", f"{counted(found.own, 'conversation')} with {counted(found.own_entries, 'entry')}"),
            ("with others", f"{counted(found.said, 'entry')} in {counted(found.shared, 'conversation')}"),
            ("answers there", f"{counted(found.answers, 'entry')}, including summaries"),
            ("messages", str(found.messages)),
            ("sends", str(found.sends)),
            ("jobs", str(found.jobs)),
            ("processes", str(found.processes)),
            ("notes", str(found.notes)),
            ("files", str(found.files)),
        ]
    )


def _backups(store: str | None) -> list[str]:
    """Return the backups, and the copies that migrations made: they still hold the old data."""
    file = sqlite_path(store_url(store))
    if file is None:
        return []
    copies = (each for each in file.parent.glob(f"{escape(file.name)}.*-*") if is_copy(each, file))
    return sorted(map(str, (*copies, *backups_that_hold(backup_folder(load())))))


def _report(
    outcome: ErasureProgress, found: ErasurePreview, receipt: str, backups: list[str], *, as_json: bool
) -> None:
    if as_json:
        fields = {"erasure": outcome.number, "done": outcome.done, "found": asdict(found)}
        print_json({**fields, "busy": outcome.busy, "receipt": receipt or None, "backups": backups})
    elif outcome.done:
        kept = f"the receipt is in {one_line(receipt, 200)}" if receipt else f"the receipt is number {outcome.number}"
        who = ", ".join(map(readable_identity, found.identities))
        print_line(f"Deleted everything about {who}; {kept}")
        if outcome.failed:
            print_note(f"Traces stay in the database until a gateway removes them: {outcome.failed}")
        for backup in backups:
            print_note(f"A backup still holds the old data: {one_line(backup, 300)}")
    if not outcome.done:
        unfinished = SessionBusy(", ".join(outcome.busy[:3])) if outcome.busy else StoreError(_MORE)
        unfinished.add_note("Everything that could be deleted now is gone. Run this again for the rest.")
        raise unfinished


_MORE = "New messages from them arrived while this ran."


# Receipts


async def _write_receipt(opened: Store, number: int, output: str, *, force: bool) -> Receipt:
    found = await opened.transact(get_receipt(number))
    if found is None:
        raise NotFound("receipt", str(number))
    receipt, text = found
    with open_output(output, force=force, example=EXAMPLES["receipts"]) as file:
        file.write(text.encode())
    if output:
        await opened.transact(delete_digests(number))
    return receipt


def list_receipts(
    number: Annotated[int | None, typer.Argument(min=1, max=LARGEST_NUMBER, help="Write this receipt.")] = None,
    *,
    output: Output = "",
    force: Force = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    if number is not None:
        ask(store, lambda opened: _write_receipt(opened, number, output, force=force))
        return
    found = ask(store, lambda opened: opened.read(erasures()), [], nothing="No person has been deleted yet.")
    fields = [dict(zip(("erasure", "asked", "ended", "by"), each, strict=True)) for each in found]
    now = shared_options.now()
    rows = [(str(no), ago(asked, now), ago(ended, now) if ended else "not yet", by) for no, asked, ended, by in found]
    print_found({"erasures": fields}, ("receipt", "asked", "done", "by"), rows, as_json=json)


def verify_file(
    file: Annotated[str, typer.Argument(help="A receipt or an export of a person.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    found = _read(file)
    if isinstance(found, int):
        print_result({"lines": found, "whole": True}, f"Complete and unchanged: {found} lines.", as_json=json)
        return

    async def look(opened: Store) -> tuple[Receipt, Verification]:
        receipt = read_receipt(found, await opened.transact(load_digests()))
        return receipt, await verify(opened.database, opened.search, receipt, blobs=blob_store(), progress=show)

    with progress("rows checked") as show:
        receipt, verdict = ask(store, look)
    _print_verdict(receipt, verdict, as_json=json)
    if not verdict.holds:
        raise typer.Exit(1)


def _read(file: str) -> int | str:
    """Return the number of lines of an export, or the text of any other file."""
    try:
        with Path(file).open("rb") as stream:
            if stream.peek(len(_EXPORT))[: len(_EXPORT)] == _EXPORT:
                return check_export(stream)
            # Do not read a file to its end if it does not begin like a receipt.
            return (stream.read() if stream.peek(1)[:1] == b"{" else stream.read(_FIRST_BYTES)).decode()
    except OSError as error:
        raise cannot_use(file, error, EXAMPLES["verify"]) from error
    except UnicodeDecodeError:
        raise BadArgument(
            "Cannot verify this file: it is", found="not text", allowed="a receipt", example=EXAMPLES["verify"]
        ) from None


def _print_verdict(receipt: Receipt, verdict: Verification, *, as_json: bool) -> None:
    if as_json:
        fields = {"erasure": receipt.number, "holds": verdict.holds, "counts": receipt.counts}
        print_json({**fields, **pick(verdict, "back named strays")})
        return
    if verdict.holds:
        print_line(f"All {counted(sum(receipt.counts.values()), 'row')} that were deleted are gone.")
    else:
        strays = [f"{counted(verdict.strays, 'entry')} in the search index"] if verdict.strays else []
        print_line(f"Deleted data is back: {', '.join((*verdict.back[:10], *strays))}")
    if verdict.named:
        print_note(f"The person has come back: {', '.join(verdict.named)}")
