"""Writing archives: one, many or all sessions in one of three forms, piece by piece."""

from collections.abc import AsyncIterator, Iterable

from palaver.ports.archives import Form
from palaver.stores.archive.form import HEADER, Record, lines
from palaver.stores.archive.html import FOOT, HEAD, html
from palaver.stores.archive.markdown import markdown

__all__ = ["Form", "whole", "write_archive"]


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
