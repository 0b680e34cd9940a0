"""Open a session without a turn, in one transaction."""

from datetime import datetime

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.reset import ResetRule
from palaver.model.source import Source
from palaver.store.conversations.sessions import open_locked, touch
from palaver.store.results import Opened, Opening

__all__ = ["open_session"]


@transaction
def open_session(
    key: SessionKey, source: Source, now: datetime, rule: ResetRule, *, human: bool = True
) -> Statements[Opened]:
    yield Lock(key.text)
    opened = yield from open_locked(key, source, now, rule, sent=now, human=human)
    if opened.opening is Opening.REUSED:
        yield from touch(opened.session.number, now, spoken=now if human else None)
    return opened
