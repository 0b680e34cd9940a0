"""`palaver sessions export` and `import`."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from palaver.cli.output import pick, print_note, print_result, progress, progress_line
from palaver.cli.shared_options import (
    EXAMPLES,
    OPERATOR,
    STANDARD_STREAM,
    Force,
    Json,
    Output,
    Person,
    Platform,
    Profile,
    Since,
    StoreOption,
    Until,
    ask,
    find,
    find_zone,
    help_of,
    moment,
    store_url,
    vault_of,
)
from palaver.config.loader import load
from palaver.gateway.vault import find_blob_store, find_files_vault, read_key
from palaver.model.errors import BadArgument, StoreError
from palaver.model.text import counted, one_line
from palaver.store.archive.collector import collect_all, collect_some
from palaver.store.archive.exporter import ExportFormat, write_archive
from palaver.store.archive.file_contents import FileContents
from palaver.store.archive.format import SessionRecord
from palaver.store.archive.importer import Imported, ImportOutcome, import_sessions
from palaver.store.archive.reader import check_header
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.encryption.contents import SEALED_EXPORT
from palaver.store.status.session_list import NO_FILTER, ListFilter
from palaver.store.store import Store

if TYPE_CHECKING:
    from palaver.store.encryption.stream import SealedWriter
    from palaver.store.encryption.vault import Vault

app = typer.Typer(rich_markup_mode=None)

Plain = Annotated[bool, typer.Option("--plain", help="Do not encrypt the file, though the store is encrypted.")]
_SUFFIXES = {
    ".jsonl": ExportFormat.JSONL,
    ".md": ExportFormat.MARKDOWN,
    ".html": ExportFormat.HTML,
    ".htm": ExportFormat.HTML,
}
_FORMATS = {**{form.value: form for form in ExportFormat}, "md": ExportFormat.MARKDOWN}


@app.command("export", help=help_of("export", "Export sessions to a file: JSONL, Markdown or HTML."))
def export_sessions(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SESSION]...", help="Session ids or titles.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Export every session.")] = False,
    platform: Platform = "",
    profile: Profile = "",
    person: Person = "",
    since: Since = "",
    until: Until = "",
    output: Output = "",
    form: Annotated[
        str,
        typer.Option("--format", metavar="|".join(_FORMATS), help="File format. Default: from the file name."),
    ] = "",
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Include hidden entries, marked. JSONL always has them.")
    ] = False,
    plain: Plain = False,
    force: Force = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    wanted = ListFilter(
        platform=platform or None,
        profile=profile or None,
        person=person or None,
        since=moment("--since", since, EXAMPLES["export"]),
        until=moment("--until", until, EXAMPLES["export"]),
    )
    _check_selection(names or [], wanted, everything=everything)
    chosen = _form_named(form) if form else _form_of(output)
    contents, vault, zone = FileContents(blob_store()), None if plain else vault_of(store_url(store)), find_zone()
    report = _ExportReport()

    async def export(opened: Store) -> None:
        records = report.follow(await _collect(opened, names or [], wanted, report.unreadable), show)
        with open_output(output, force=force, example=EXAMPLES["export"], vault=vault) as file:
            async for piece in write_archive(records, chosen, hidden=hidden, contents=contents, zone=zone):
                file.write(piece)

    with progress("sessions") as show:
        ask(store, export)
    note_missing(contents)
    report.print()
    if output:
        done = f"{counted(report.sessions, 'session')} in {one_line(output, 200)}"
        print_result({"sessions": report.sessions, "file": output}, done, as_json=json)


async def _collect(
    opened: Store, names: Sequence[str], wanted: ListFilter, unreadable: Counter[str]
) -> AsyncIterator[SessionRecord]:
    if names:
        ids = [(await find(opened, name)).id for name in names]
        return collect_some(opened.database, dict.fromkeys(ids), OPERATOR)
    return collect_all(opened.database, OPERATOR, wanted, report=lambda _: unreadable.update(["session"]))


class _ExportReport:
    """Count the exported sessions, and what cannot be read."""

    def __init__(self) -> None:
        self.sessions = 0
        self.unreadable: Counter[str] = Counter()

    async def follow(
        self, records: AsyncIterator[SessionRecord], show: Callable[[int], None]
    ) -> AsyncIterator[SessionRecord]:
        async for record in records:
            self.sessions += 1
            self.unreadable["entry"] += record.unreadable
            show(self.sessions)
            yield record

    def print(self) -> None:
        for what, number in self.unreadable.items():
            if number:
                print_note(f"{counted(number, what)} could not be exported: palaver doctor names what is damaged.")


def blob_store() -> BlobStore:
    """Return the files of this machine, which are encrypted if that is configured."""
    config = load()
    return find_blob_store(config, find_files_vault(config))


def note_missing(contents: FileContents) -> None:
    if contents.missing:
        print_note(
            f"{counted(len(contents.missing), 'file')} could not be exported: the content is not on this machine. "
            "palaver doctor lists such files."
        )


def _form_named(name: str) -> ExportFormat:
    if name.lower() not in _FORMATS:
        raise BadArgument("--format cannot be", found=name, allowed=", ".join(_FORMATS), example=EXAMPLES["export"])
    return _FORMATS[name.lower()]


def _form_of(output: str) -> ExportFormat:
    suffix = Path(output).suffix.lower()
    if output and suffix not in _SUFFIXES:
        raise BadArgument(
            "Unknown file extension",
            found=suffix,
            allowed=f"{', '.join(_SUFFIXES)}, or any with --format",
            example=EXAMPLES["export"],
        )
    return _SUFFIXES[suffix] if output else ExportFormat.JSONL


def _check_selection(names: Sequence[str], wanted: ListFilter, *, everything: bool) -> None:
    ways = sum((bool(names), everything or wanted != NO_FILTER))
    if ways != 1:
        raise BadArgument(
            "Choose what to export." if not ways else "Choose sessions by name or by filter, not both.",
            found="names and filters" if ways else "nothing",
            allowed="the names of sessions, --all, or a filter such as --platform",
            example=EXAMPLES["export"],
        )


@contextmanager
def open_output(
    output: str, *, force: bool, example: str, vault: "Vault | None" = None
) -> Generator["IO[bytes] | SealedWriter"]:
    """Open the output. A file appears only when it is complete, readable only by its owner, sealed with a vault."""
    if not output:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(output)
    refuse_existing(target, example, force=force)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".palaver-")
    except OSError as error:
        raise cannot_use(output, error, example) from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            sealed = vault.export_writer(file) if vault else None
            yield sealed or file
            if sealed:
                sealed.finish()
            file.flush()
            os.fsync(handle)
        part.replace(target)
    except OSError as error:
        raise cannot_use(output, error, example) from error
    finally:
        part.unlink(missing_ok=True)


def refuse_existing(file: Path, example: str, *, force: bool = False, allowed: str = "a new name, or --force") -> None:
    if str(file) == STANDARD_STREAM:
        raise BadArgument("This cannot go to", found="standard output", allowed="the name of a file", example=example)
    if file.exists() and not file.is_file():  # to replace a device would harm the system
        raise BadArgument("This is no regular file:", found=str(file), allowed="a new name", example=example)
    if file.exists() and not force:
        raise BadArgument("This file already exists:", found=str(file), allowed=allowed, example=example)


def cannot_use(file: str, error: OSError, example: str) -> BadArgument:
    return BadArgument(
        f"Cannot use {{found}}: {one_line(error.strerror or str(error), 80)}",
        found=file,
        allowed="another file",
        example=example,
    )


# Import


@app.command("import", help=help_of("import", "Import sessions from a JSONL file."))
def import_archive(
    file: Annotated[str, typer.Argument(help="A JSONL file from an export, or - for standard input.")],
    *,
    as_copy: Annotated[bool, typer.Option("--as-copy", help="Import as a copy if the id already exists.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:

    async def bring(opened: Store) -> None:
        with _lines(file) as lines:
            async for imported in import_sessions(opened.database, lines, as_copy=as_copy, blobs=blob_store()):
                report.add(imported)

    _check_archive(file)
    with progress_line() as show:
        report = _ImportReport(show, as_json=json)
        ask(store, bring, make=True)
    report.print()
    if report.outcomes[ImportOutcome.REFUSED]:
        raise typer.Exit(1)


_LONGEST_HEADER = 1000


def _check_archive(file: str) -> None:
    """Refuse a file that is no archive before creating a store."""
    if file != STANDARD_STREAM:
        with _lines(file) as lines:
            check_header(lines.readline(_LONGEST_HEADER))


@contextmanager
def _lines(file: str) -> Generator[IO[bytes]]:
    if file == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise cannot_use(file, error, EXAMPLES["import"]) from error
    with opened:
        yield open_sealed(opened)


def open_sealed(opened: IO[bytes]) -> IO[bytes]:
    """Return the content of a sealed export, opened with the configured key; or a file as it is."""
    if opened.read(len(SEALED_EXPORT)) != SEALED_EXPORT:
        opened.seek(0)
        return opened
    key = read_key(load())
    if key is None:
        raise StoreError("this export is encrypted: set encryption.key_file in the configuration to open it")
    from palaver.store.encryption.vault import open_export  # noqa: PLC0415 - an extra

    return open_export(opened, key)


_WORDS = {
    ImportOutcome.IMPORTED: "imported",
    ImportOutcome.UNCHANGED: "already there, unchanged",
    ImportOutcome.COPIED: "imported as a copy",
    ImportOutcome.REFUSED: "refused",
}
_MAX_NOTES = 1000


class _ImportReport:
    """Count the outcomes; print notes as they come, or collect them for JSON."""

    def __init__(self, show: Callable[[str], None], *, as_json: bool) -> None:
        self.outcomes: Counter[ImportOutcome] = Counter()
        self._as_json = as_json
        self._notes: list[dict[str, object]] = []
        self._show = show

    def add(self, imported: Imported) -> None:
        self.outcomes[imported.outcome] += 1
        self._show(f"{self.outcomes.total()} sessions ")
        if imported.notes and self._as_json and len(self._notes) < _MAX_NOTES:
            self._notes.append(pick(imported, "outcome line session id notes"))
        elif imported.notes and not self._as_json:
            self._show("")
            for note in imported.notes:
                told = note if imported.outcome is ImportOutcome.REFUSED else f"session {imported.id}: {note}"
                print_note(one_line(told, 500))

    def print(self) -> None:
        counts = {outcome.value: self.outcomes[outcome] for outcome in ImportOutcome}
        words = [f"{self.outcomes[outcome]} {_WORDS[outcome]}" for outcome in ImportOutcome if self.outcomes[outcome]]
        summary = ", ".join(words) or "The archive has no sessions."
        print_result({**counts, "notes": self._notes}, summary, as_json=self._as_json)
