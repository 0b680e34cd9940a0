"""One conversation as a file for those who take part in it: only what is shown to them."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from enum import StrEnum

from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.transcript import Entry
from palaver.store.archive.collector import collect
from palaver.store.archive.format import HEADER, Record, lines
from palaver.store.archive.render import FOOT, HEAD, html, markdown
from palaver.store.results import OperationKind

__all__ = [
    "Form",
    "whole",
    "write_archive",
    "written",
]


class Form(StrEnum):
    JSONL = "jsonl"
    """Everything, to be imported again."""
    MARKDOWN = "markdown"
    HTML = "html"


@transaction
def written(session: str, form: Form, principal: Principal) -> Statements[bytes]:
    record = yield from collect(session, principal)
    shown = [entry for entry in record.entries if _is_shown(entry, record)]
    return whole(replace(record, entries=shown), form)


def _is_shown(entry: Entry, record: Record) -> bool:
    """What a summary stands for is still part of the conversation."""
    if entry.hidden_by is None:
        return True
    hiding = record.session.operations[int(entry.hidden_by) - 1] if int(entry.hidden_by) else None
    return hiding is not None and hiding.kind == OperationKind.COMPACTION.value and hiding.undone_at is None


_HEADS = {Form.JSONL: HEADER, Form.MARKDOWN: b"", Form.HTML: HEAD.encode()}
_FEET = {Form.JSONL: b"", Form.MARKDOWN: b"", Form.HTML: FOOT.encode()}


async def write_archive(records: AsyncIterator[Record], form: Form, *, hidden: bool = False) -> AsyncIterator[bytes]:
    """The pieces of the file. Only one session is held at a time. In JSONL hidden entries are always there."""
    yield _HEADS[form]
    async for record in records:
        for piece in _pieces(record, form, hidden=hidden):
            yield piece
    yield _FEET[form]


def whole(record: Record, form: Form) -> bytes:
    """One session in one piece."""
    return b"".join((_HEADS[form], *_pieces(record, form, hidden=False), _FEET[form]))


def _pieces(record: Record, form: Form, *, hidden: bool) -> Iterable[bytes]:
    match form:
        case Form.JSONL:
            return lines(record)
        case Form.MARKDOWN:
            return map(str.encode, markdown(record, hidden=hidden))
        case Form.HTML:
            return map(str.encode, html(record, hidden=hidden))
