"""The status of a message and its reply, for callers that wait for it."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.source import Source, identity_of, message_address
from palaver.model.tools import parse_question
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import InboxState, Received, Turn, TurnState, Usage, outbound_to
from palaver.model.value import value
from palaver.model.view import open_calls_of_turn
from palaver.store.conversations.sessions import open_by_key
from palaver.store.conversations.transcript import load_turn
from palaver.store.conversations.visibility import Filter, get_visible, messages_visible_to, select_sessions, visible_to
from palaver.store.queue.cause import CauseKind
from palaver.store.queue.inbox import ORIGINAL, SAME_MESSAGE, get_message
from palaver.store.queue.outbox import OPEN_SEND, has_pending
from palaver.store.queue.turn_control import record_answers
from palaver.store.queue.turns import resume
from palaver.store.records import (
    DELIVERY_COLUMNS,
    OPEN_TURN,
    REPLIES,
    SELECT_RECEIVED,
    delivery_of,
    entries_of,
    entry_span,
    placeholders,
    readable,
    received_of,
    reply_span,
)
from palaver.store.status.trace import visible_turn


@value
class Progress:
    """The status of a message, without its content."""

    number: int
    turn: int | None
    """The turn that answers it, if there is one yet."""
    is_settled: bool
    """It is answered or refused, or waits for a person."""


@value
class Reply:
    """A message and the reply to it so far."""

    received: Received
    turn: Turn | None = None
    """None if no turn answers it, or none that the principal may see."""
    ended: datetime | None = None
    usage: Usage = field(default_factory=Usage)
    entries: tuple[Entry, ...] = ()
    """The entries of the turn, in order, without what was undone. Those that a summary covers belong to it too."""
    notices: tuple[str, ...] = ()
    """Replies outside the transcript: the answer to a command, a question of the turn, why it failed."""

    @property
    def is_parked(self) -> bool:
        return self.turn is not None and self.turn.state is TurnState.PARKED

    @property
    def waits_for(self) -> str | None:
        """What a parked turn waits for: `tools` of the caller, an `answer` in words, or an `approval`."""
        if self.turn is None or not self.is_parked:
            return None
        if self.pending_tool_calls:
            return "tools"
        is_question = any(map(parse_question, open_calls_of_turn(self.entries, str(self.turn.number))))
        return "answer" if is_question else "approval"

    @property
    def pending_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of a parked turn that have no result and use tools that the caller offered."""
        offered = {tool.name for tool in self.received.inbound.client_tools}
        if self.turn is None or not self.is_parked:
            return ()
        return tuple(call for call in open_calls_of_turn(self.entries, str(self.turn.number)) if call.name in offered)


@transaction
def find_received(sources: Sequence[Source], principal: Principal) -> Statements[Received | None]:
    addresses = tuple(value for source in sources for value in message_address(source))
    same = " OR ".join([f"({SAME_MESSAGE})"] * len(sources)) or "i.no IS NULL"
    return (yield from _newest_visible(Filter(f"({same}) AND {ORIGINAL}", addresses), principal))


@transaction
def find_request(source: Source, key: str, principal: Principal) -> Statements[Received | None]:
    """Return the message that its sender sent under this request key, in any chat."""
    where = Filter("i.identity = ? AND i.request_key = ?", (identity_of(source), key))
    return (yield from _newest_visible(where, principal))


@transaction
def find_result_request(source: Source, key: str, principal: Principal) -> Statements[tuple[Received, str] | None]:
    """Return the message whose turn got tool results under this request key, and the digest of that request."""
    rows = yield (
        "SELECT digest, inbox_no FROM result_requests WHERE identity = ? AND request_key = ?",
        (identity_of(source), key),
    )
    received = (yield from _newest_visible(Filter("i.no = ?", (rows[0][1],)), principal)) if rows else None
    return (received, rows[0][0]) if received else None


@transaction
def record_result_request(source: Source, key: str, digest: str, message: int) -> Statements[None]:
    """Remember the key of a request. The first request keeps it."""
    yield (
        "INSERT INTO result_requests (identity, request_key, digest, inbox_no) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (identity_of(source), key, digest, message),
    )


def _newest_visible(where: Filter, principal: Principal) -> Statements[Received | None]:
    seen = messages_visible_to(principal)
    rows = yield (
        f"{SELECT_RECEIVED} WHERE {where.sql} AND {seen.sql} AND length(i.body) > 0 ORDER BY i.no DESC LIMIT 1",
        (*where.values, *seen.values),
    )
    return next(readable(received_of, rows), None)


_PARKED = f"EXISTS (SELECT 1 FROM turns p WHERE p.key = i.key AND p.state IN {OPEN_TURN} AND p.state = 'parked')"
# Naming all open states first lets SQLite use their index.
_SETTLED = f"(i.turn_no IS NULL OR t.state NOT IN ('running', 'interrupted')) AND (i.state <> 'waiting' OR {_PARKED})"


@transaction
def progress(numbers: Sequence[int]) -> Statements[list[Progress]]:
    rows = yield (
        f"SELECT i.no, i.turn_no, CASE WHEN {_SETTLED} THEN 1 ELSE 0 END"
        f" FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no IN ({placeholders(numbers)})",
        tuple(numbers),
    )
    return [Progress(number=number, turn=turn, is_settled=bool(settled)) for number, turn, settled in rows]


@transaction
def load_reply(number: int, principal: Principal) -> Statements[Reply]:
    received = yield from get_message(number, principal)
    if received is None:
        raise NotFound("message", f"in:{number}")
    if received.turn is None:
        answer = yield from _notices(CauseKind.COMMAND, number)
        return Reply(received=received, notices=answer or _failure_notice(received))
    found = yield from visible_turn(received.turn, principal)
    if found is None:
        return Reply(received=received)
    turn = found.turn
    return Reply(
        received=received,
        turn=turn,
        ended=found.ended,
        usage=found.usage,
        entries=tuple((yield from load_turn(turn.session_number, turn.number))),
        notices=(yield from _notices_of_turn(turn)),
    )


def _failure_notice(received: Received) -> tuple[str, ...]:
    """Return what the chat was sent, for callers that read no chat."""
    return (f"This message will not be answered: {received.reason}.",) if received.state is InboxState.FAILED else ()


def _notices_of_turn(turn: Turn) -> Statements[tuple[str, ...]]:
    """Return the question of a parked turn, or what a failed one sent instead of an answer."""
    if turn.state is TurnState.PARKED:
        return (yield from _notices(CauseKind.HALT, turn.number, str(turn.fence)))
    if turn.state is not TurnState.FAILED:
        return ()
    rows = yield f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id >= ? AND id < ? ORDER BY id", reply_span(turn.number)
    return tuple(each.outbound.text for each in readable(delivery_of, rows))


def _notices(kind: CauseKind, id_: int, detail: str = "") -> Statements[tuple[str, ...]]:
    """Return texts whether or not they were delivered: a program reads them here."""
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE cause_kind = ? AND cause_id = ? AND cause_detail = ?"
        " ORDER BY id DESC",
        (kind.value, str(id_), detail),
    )
    return tuple(each.outbound.text for each in readable(delivery_of, rows))


@transaction
def last_message_of_turn(turn: int, principal: Principal) -> Statements[Received | None]:
    return (yield from _newest_visible(Filter("i.turn_no = ? AND i.answers IS NULL", (turn,)), principal))


@transaction
def submit_tool_results(turn: int, results: Mapping[str, str], now: datetime, principal: Principal) -> Statements[bool]:
    received = yield from last_message_of_turn(turn, principal)
    if received is None:
        return False
    yield Lock(received.key.text)
    waiting = {call.id for call in (yield from load_reply(received.number, principal)).pending_tool_calls}
    given = {call: text for call, text in results.items() if call in waiting}
    taken = (yield from resume(turn, "nobody", now, timedelta())) if given else None
    if taken is None:
        return False
    entries = [Entry(seq=0, role=Role.TOOL, at=now, text=text, answers=call) for call, text in given.items()]
    yield from record_answers(taken, entries, dict.fromkeys(given, True), now)
    return True


@transaction
def sessions_by_key(
    keys: Sequence[SessionKey], principal: Principal, *, with_suffixes: bool = False
) -> Statements[list[Session]]:
    """Return the sessions of some keys, newest first; with `with_suffixes` also of longer keys that end in -HEX."""
    seen, texts = visible_to(principal), [key.text for key in keys]
    longer = [(f"{text}-", f"{text}-g", len(text) + 1, f"{text}-") for text in texts if with_suffixes]
    # The range finds them in the index, under any collation; the comparison keeps only what begins with the key.
    either = " OR ".join([f"s.key IN ({placeholders(keys)})", *([_BEGINS_ALIKE] * len(longer))])
    return (
        yield from select_sessions(
            f"({either}) AND {seen.sql} ORDER BY s.last_active DESC, s.no DESC LIMIT 100",
            *(*texts, *(each for values in longer for each in values), *seen.values),
        )
    )


_BEGINS_ALIKE = "(s.key >= ? AND s.key < ? AND substr(s.key, 1, ?) = ?)"


@value
class FinalOutcome:
    """No further answer to a message comes, unless a person approves something."""

    refused: str | None = None
    """Why it was refused."""
    failed: bool = False
    """The command or the agent failed, and the chat has a notice of it."""


_MENTIONED = "SELECT 1 FROM mentions m JOIN sessions s ON s.no = m.session_no"
_RETRY_OF_IT = "r.retried_in = s.no WHERE m.inbox_no = i.no"
_OPEN_RETRY = (
    f"{_MENTIONED} JOIN inbox r ON r.key = s.key AND r.state = 'waiting' AND {_RETRY_OF_IT}"
    f" UNION ALL {_MENTIONED} JOIN turns w ON w.session_no = s.no AND w.state IN ('running', 'interrupted')"
    f" JOIN inbox r ON r.turn_no = w.no AND {_RETRY_OF_IT}"
)


# A command that answers a question is in no turn, but the turn that asked goes on with it.
_CONTINUED = (
    f"SELECT 1 FROM turns a WHERE i.answers IS NOT NULL AND a.key = i.key AND a.state IN {OPEN_TURN}"
    " AND a.state <> 'parked' AND a.started <= i.received"
)


@transaction
def final_outcome(source: Source) -> Statements[FinalOutcome | None]:
    """Return None while the message is open, or a retry that it asked for, or a turn whose question it answered.

    Return None also while its chat has sends to come. A conversation that waits for approval sends nothing either.
    """
    rows = yield (
        f"SELECT i.state, i.reason, t.state FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE {SAME_MESSAGE}"
        f" AND {ORIGINAL} AND {_SETTLED}"
        f" AND ({_PARKED} OR NOT (EXISTS ({_OPEN_RETRY}) OR EXISTS ({_CONTINUED})))",
        message_address(source),
    )
    if not rows:
        return None
    if (yield from has_pending(outbound_to(source, ""))):
        return None
    state, reason, turn_state = rows[0]
    return FinalOutcome(
        refused=reason if state == InboxState.REFUSED.value else None,
        failed=state == InboxState.FAILED.value or turn_state == TurnState.FAILED.value,
    )


@transaction
def recent_entries(key: SessionKey, principal: Principal, limit: int) -> Statements[list[Entry]]:
    """Return the last entries of people and agent, oldest first, without answers that are still to be sent."""
    session = yield from open_by_key(key)
    if session is None:
        return []
    session = yield from get_visible(session.id, principal)
    rows = yield (
        "SELECT id, body FROM entries e WHERE id >= ? AND id < ? AND hidden_by IS NULL AND observed = 0"
        " AND (role = 'user' OR (role = 'assistant' AND NOT EXISTS (SELECT 1 FROM outbox o"
        f"  WHERE o.id >= e.turn_no * ? AND o.id < (e.turn_no + 1) * ? AND o.state IN {OPEN_SEND})))"
        " ORDER BY id DESC LIMIT ?",
        (*entry_span(session.number), REPLIES, REPLIES, limit),
    )
    return entries_of(rows[::-1])
