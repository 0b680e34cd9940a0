"""Export sessions as JSONL, Markdown or HTML."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, tzinfo
from enum import StrEnum

from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.transcript import Entry
from palaver.model.value import value
from palaver.store.archive.collector import collect
from palaver.store.archive.file_contents import FileContents
from palaver.store.archive.format import HEADER, SessionRecord, session_lines
from palaver.store.archive.render import HTML_FOOT, HTML_HEAD, render_html, render_markdown
from palaver.store.results import OperationKind


class ExportFormat(StrEnum):
    JSONL = "jsonl"
    """Complete, can be imported again."""
    MARKDOWN = "markdown"
    HTML = "html"


@value
class SessionExport:
    content: bytes
    files: int
    """How many files it names without their contents."""


@transaction
def export_session(
    session: str, form: ExportFormat, principal: Principal, zone: tzinfo = UTC
) -> Statements[SessionExport]:
    """Return one session as a file, with only what its participants are shown. Times for people are in the zone."""
    record = yield from collect(session, principal)
    shown = replace(record, entries=[entry for entry in record.entries if _is_shown(entry, record)])
    content = b"".join((_HEADS[form], *_pieces(shown, form, hidden=False, zone=zone), _FEET[form]))
    return SessionExport(content=content, files=sum(len(entry.files) for entry in shown.entries))


def _is_shown(entry: Entry, record: SessionRecord) -> bool:
    """Compacted entries are still part of the conversation."""
    if entry.hidden_by is None:
        return True
    hiding = record.session.operations[int(entry.hidden_by) - 1] if int(entry.hidden_by) else None
    return hiding is not None and hiding.kind == OperationKind.COMPACTION.value and hiding.undone_at is None


_HEADS = {ExportFormat.JSONL: HEADER, ExportFormat.MARKDOWN: b"", ExportFormat.HTML: HTML_HEAD.encode()}
_FEET = {ExportFormat.JSONL: b"", ExportFormat.MARKDOWN: b"", ExportFormat.HTML: HTML_FOOT.encode()}


async def write_archive(
    records: AsyncIterator[SessionRecord],
    form: ExportFormat,
    *,
    hidden: bool = False,
    contents: FileContents | None = None,
    zone: tzinfo = UTC,
) -> AsyncIterator[bytes]:
    """Yield the pieces of the file, one session at a time. JSONL includes hidden entries and contents of files."""
    yield _HEADS[form]
    async for record in records:
        if contents and form is ExportFormat.JSONL:
            async for line in contents.lines(file for entry in record.entries for file in entry.files):
                yield line
        for piece in _pieces(record, form, hidden=hidden, zone=zone):
            yield piece
    yield _FEET[form]


def _pieces(record: SessionRecord, form: ExportFormat, *, hidden: bool, zone: tzinfo) -> Iterable[bytes]:
    match form:
        case ExportFormat.JSONL:
            return session_lines(record)
        case ExportFormat.MARKDOWN:
            return map(str.encode, render_markdown(record, hidden=hidden, zone=zone))
        case ExportFormat.HTML:
            return map(str.encode, render_html(record, hidden=hidden, zone=zone))
