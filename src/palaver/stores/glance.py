"""A glance at a conversation: whether a message is answered, and what was said last. Looking changes nothing."""

from palaver.domain.ids import encode_id
from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import InboxState, TurnState
from palaver.domain.session import Principal
from palaver.domain.source import Source
from palaver.domain.transcript import Entry
from palaver.domain.turn import account_text
from palaver.domain.value import value
from palaver.ports.work import Steps, work
from palaver.stores.inbox import dedup_name
from palaver.stores.outbox import REPLIES
from palaver.stores.records import entries_of
from palaver.stores.sessions import open_by_key
from palaver.stores.transcript import SEQS
from palaver.stores.visibility import get_visible

__all__ = ["Answered", "answered", "last_words"]


@value
class Answered:
    """Nothing more will come in answer to a message, unless somebody allows it."""

    refused: str | None = None
    """Why it was not let in."""
    failed: bool = False
    """What it commanded could not be done, or the agent failed at it; the chat was told so."""


_PARKED = "EXISTS (SELECT 1 FROM turns p WHERE p.key = i.key AND p.state = 'parked')"
_MADE = "SELECT 1 FROM mentions m JOIN sessions s ON s.no = m.session_no"
_ITS = "r.dedup LIKE 'retry:' || s.id || ':%' WHERE m.inbox_no = i.no"
_SAID_AGAIN = (
    f"{_MADE} JOIN inbox r ON r.key = s.key AND r.state = 'waiting' AND {_ITS}"
    f" UNION ALL {_MADE} JOIN turns w ON w.session_no = s.no AND w.state IN ('running', 'interrupted')"
    f" JOIN inbox r ON r.turn_no = w.no AND {_ITS}"
)


@work
def answered(source: Source) -> Steps[Answered | None]:
    """None while the message waits or is worked on, or what it has said again, or while anything is owed to its chat.

    Where the conversation itself waits for somebody's permission, nothing will come either.
    """
    rows = yield (
        "SELECT i.state, i.reason, t.state FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.dedup = ?"
        " AND (i.turn_no IS NULL OR t.state NOT IN ('running', 'interrupted')) AND (i.state <> 'waiting'"
        f" OR {_PARKED}) AND ({_PARKED} OR NOT EXISTS ({_SAID_AGAIN}))",
        (dedup_name(source),),
    )
    if not rows:
        return None
    owed = yield (
        "SELECT 1 FROM outbox WHERE account = ? AND chat = ? AND state IN ('due', 'claimed') LIMIT 1",
        (account_text(source.platform, source.account), encode_id(source.chat or source.participant or "")),
    )
    if owed:
        return None
    state, reason, turn_state = rows[0]
    return Answered(
        refused=reason if state == InboxState.REFUSED.value else None,
        failed=state == InboxState.FAILED.value or turn_state == TurnState.FAILED.value,
    )


@work
def last_words(key: SessionKey, principal: Principal, limit: int) -> Steps[list[Entry]]:
    """What people and the agent said last in a conversation, oldest first; not what is still owed to the chat."""
    session = yield from open_by_key(key)
    if session is None:
        return []
    session = yield from get_visible(session.id, principal)
    rows = yield (
        "SELECT body FROM entries e WHERE id >= ? AND id < ? AND hidden_by IS NULL AND observed = 0"
        " AND (role = 'user' OR (role = 'assistant' AND NOT EXISTS (SELECT 1 FROM outbox o"
        "  WHERE o.id >= e.turn_no * ? AND o.id < (e.turn_no + 1) * ? AND o.state IN ('due', 'claimed'))))"
        " ORDER BY id DESC LIMIT ?",
        (session.number * SEQS, (session.number + 1) * SEQS, REPLIES, REPLIES, limit),
    )
    return entries_of(row[0] for row in reversed(rows))
