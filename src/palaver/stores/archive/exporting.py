"""One conversation as a file for those who take part in it: only what is shown to them."""

from dataclasses import replace

from palaver.domain.session import Principal
from palaver.domain.transcript import Entry
from palaver.ports.archives import Form
from palaver.ports.store import OperationKind
from palaver.ports.work import Steps, work
from palaver.stores.archive.collecting import collect
from palaver.stores.archive.form import Record
from palaver.stores.archive.writing import whole

__all__ = ["written"]


@work
def written(session: str, form: Form, principal: Principal) -> Steps[bytes]:
    record = yield from collect(session, principal)
    shown = [entry for entry in record.entries if _is_shown(entry, record)]
    return whole(replace(record, entries=shown), form)


def _is_shown(entry: Entry, record: Record) -> bool:
    """What a summary stands for is still part of the conversation."""
    if entry.hidden_by is None:
        return True
    hiding = record.session.operations[int(entry.hidden_by) - 1] if int(entry.hidden_by) else None
    return hiding is not None and hiding.kind == OperationKind.COMPACTION.value and hiding.undone_at is None
