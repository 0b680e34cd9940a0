"""The conversations of a person as the web chat lists them: named, marked, and one line for all versions of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.feedback import Feedback, format_ratings
from palaver.model.problem import is_agent_problem
from palaver.model.redact import redact
from palaver.model.session import Principal, Session
from palaver.model.usage import Spent, format_cost
from palaver.model.value import value
from palaver.model.versions import Choice, Version
from palaver.store.conversations.feedback import list_feedback
from palaver.store.conversations.visibility import get_visible, select_sessions, visible_to
from palaver.store.records import OPEN_TURN, SEQS, USAGE_COLUMNS, entry_of, micros, placeholders, readable
from palaver.store.status.session_list import CONVERSATIONS, first_said, list_sessions

_MAX_PINNED = 50
_PAGE_CHATS = 40


@value
class ListedChat:
    session: Session
    first_said: str = ""
    is_pinned: bool = False
    is_archived: bool = False
    """It was archived, and nothing was said in it since."""
    is_unread: bool = False
    is_running: bool = False
    asks: bool = False
    """It waits for an approval."""

    @property
    def title(self) -> str:
        return self.session.name_after(self.first_said)


@value
class ChatPage:
    chats: tuple[ListedChat, ...]
    after: str | None = None
    """The cursor of the next page; None on the last one."""


@transaction
def list_chats(
    principal: Principal, identity: str, *, archived: bool = False, after: str | None = None, limit: int = _PAGE_CHATS
) -> Statements[ChatPage]:
    """Return a page of conversations, last used first, the pinned ones before all others."""
    whose = {"archived_by" if archived else "not_archived_by": identity}
    found = yield from list_sessions(principal, wanted=replace(CONVERSATIONS, **whose), after=after, limit=limit)
    seen = visible_to(principal)
    pinned = [] if after else (yield from select_sessions(f"{_PINNED} AND {seen.sql}", identity, *seen.values))
    listed = yield from describe(identity, [*pinned, *(preview.session for preview in found.previews)])
    kept = [each for each in listed if each.is_archived == archived and not (after and each.is_pinned)]
    return ChatPage(chats=tuple(kept), after=found.after)


_PINNED = (
    "s.ended IS NULL AND s.no IN (WITH pinned AS (SELECT session_no FROM session_marks WHERE identity = ?"
    f" AND pinned IS NOT NULL ORDER BY pinned DESC LIMIT {_MAX_PINNED}) SELECT session_no FROM pinned"
    " UNION SELECT v.no FROM pinned JOIN sessions v ON v.version_root = pinned.session_no)"
)


@transaction
def describe(identity: str, sessions: Iterable[Session]) -> Statements[list[ListedChat]]:
    """Return sessions as the list shows them: of several versions the one that is open or was last used."""
    chosen: dict[int, Session] = {}
    for session in sessions:
        known = chosen.get(session.root)
        if known is None or (known.ended is not None and session.ended is None):
            chosen[session.root] = session
    marks = yield (
        "SELECT session_no, pinned, archived, seen_seq FROM session_marks"
        f" WHERE identity = ? AND session_no IN ({placeholders(chosen)})",
        (identity, *chosen),
    )
    marked = {row[0]: row[1:] for row in marks}
    numbers = [session.number for session in chosen.values()]
    open_turns = yield (
        f"SELECT session_no, state, pending_call FROM turns WHERE state IN {OPEN_TURN}"
        f" AND session_no IN ({placeholders(numbers)})",
        tuple(numbers),
    )
    turns = {row[0]: row[1:] for row in open_turns}
    words = yield from first_said(numbers)
    listed: list[ListedChat] = []
    for root, session in chosen.items():
        pinned, put_away, seen = marked.get(root, (None, None, None))
        state, asked = turns.get(session.number, (None, None))
        is_unread = seen is not None and session.counters.entries > seen
        listed.append(
            ListedChat(
                session=session,
                first_said=words.get(session.number, ""),
                is_pinned=pinned is not None,
                is_archived=put_away is not None and not is_unread and micros(session.last_active) <= put_away,
                is_unread=is_unread,
                is_running=state is not None and state != "parked",
                asks=state == "parked" and asked is not None,
            )
        )
    return listed


@transaction
def mark(
    session: str,
    identity: str,
    principal: Principal,
    now: datetime,
    *,
    pinned: bool | None = None,
    archived: bool | None = None,
    seen: int | None = None,
) -> Statements[bool]:
    """Keep how a person wants to see a conversation in their list; return whether that changes something."""
    found = yield from get_visible(session, principal)
    at = micros(now)
    given: dict[str, Value] = {}
    if pinned is not None:
        given["pinned"] = at if pinned else None
    if archived is not None:
        # All that was said until now goes into the archive, even by a clock that was ahead.
        given["archived"] = max(at, micros(found.last_active)) if archived else None
    rows = yield "SELECT seen_seq FROM session_marks WHERE identity = ? AND session_no = ?", (identity, found.root)
    known = rows[0][0] if rows else None
    if archived and known is not None:
        seen = found.counters.entries
    if seen is not None:
        # A mark that arrives late takes nothing back; another version can be shorter.
        given["seen_seq"] = min(max(seen, known or 0), found.counters.entries)
        # What came back from the archive with news stays back once the news is read.
        yield (
            "UPDATE session_marks SET archived = NULL WHERE identity = ? AND session_no = ?"
            " AND archived IS NOT NULL AND seen_seq < ?",
            (identity, found.root, given["seen_seq"]),
        )
    changed = False
    for column, value_ in given.items():
        rows = yield (
            f"INSERT INTO session_marks (identity, session_no, {column}) VALUES (?, ?, ?)"
            f" ON CONFLICT (identity, session_no) DO UPDATE SET {column} = excluded.{column}"
            f" WHERE coalesce(session_marks.{column}, -1) <> coalesce(excluded.{column}, -1) RETURNING session_no",
            (identity, found.root, value_),
        )
        changed = changed or bool(rows)
    return changed


@transaction
def list_versions(session: Session) -> Statements[list[Version]]:
    """Return all versions of a conversation; nothing if it has only one."""
    root = session.root
    rows = yield (
        "SELECT no, id, CASE WHEN version_root IS NULL THEN NULL ELSE parent END, parent_seq, last_active"
        " FROM sessions WHERE no = ? OR version_root = ? ORDER BY no",
        (root, root),
    )
    versions = [
        Version(number=no, id=id_, parent=parent, parent_seq=seq or 0, last_active=active)
        for no, id_, parent, seq, active in rows
    ]
    return versions if len(versions) > 1 else []


@transaction
def mark_edits(choices: Mapping[int, Choice]) -> Statements[dict[int, Choice]]:
    """Return the choices with what they are about: another message, or only another answer to it; and which message."""
    marked: dict[int, Choice] = {}
    for seq, choice in choices.items():
        later = f"FROM entries e WHERE e.role = 'user' AND e.id > s.no * {SEQS} + ? AND e.id < (s.no + 1) * {SEQS}"
        rows: list[Row] = yield (
            f"SELECT s.id, (SELECT e.body {later} ORDER BY e.id LIMIT 1),"
            f" (SELECT min(e.id) {later} AND e.hidden_by IS NULL) FROM sessions s"
            f" WHERE s.id IN ({placeholders(choice.sessions)})",
            (seq, seq, *choice.sessions),
        )
        said = {entry.text for entry in readable(entry_of, [row for row in rows if row[1] is not None])}
        shown = next((row[2] or 0 for row in rows if row[0] == choice.sessions[choice.position - 1]), 0)
        marked[seq] = replace(choice, is_edit=len(said) > 1, message=shown % SEQS)
    return marked


@transaction
def find_open_version(session: Session) -> Statements[Session]:
    """Return the version of a conversation that is open, or else the given one."""
    if session.ended is None:
        return session
    root = session.root
    found = yield from select_sessions("(s.no = ? OR s.version_root = ?) AND s.ended IS NULL", root, root)
    return found[0] if found else session


@transaction
def set_instructions(session: str, text: str, principal: Principal) -> Statements[None]:
    """Set what the model is to heed in this conversation; an empty text removes it."""
    found = yield from get_visible(session, principal)
    yield "UPDATE sessions SET instructions = ? WHERE no = ?", (redact(text.strip()) or None, found.number)


@value
class AnswerFacts(Spent):
    """What the answer of a turn took."""

    model: str | None
    seconds: float | None
    is_failed: bool
    is_stopped: bool = False
    failure: str | None = None
    feedback: tuple[Feedback, ...] = ()

    @property
    def ratings(self) -> str:
        """What people think of it: `👍 2, 👎`."""
        return format_ratings([each.rating for each in self.feedback])

    def rating_by(self, identity: str) -> int:
        """Return what somebody thinks of it; 0 for nothing."""
        return next((int(each.rating) for each in self.feedback if each.identity == identity), 0)

    @property
    def has_model_problem(self) -> bool:
        """Return whether it failed for a reason that other messages meet too."""
        return self.failure is not None and is_agent_problem(self.failure)

    @property
    def cost(self) -> str:
        """Return the cost for people. That of no tokens is unknown, too: the provider did not tell them."""
        return format_cost(self) if self.tokens else "unknown"


@transaction
def answer_facts(turns: Sequence[int]) -> Statements[dict[int, AnswerFacts]]:
    """Return what the answers of some turns took, and what people think of them."""
    feedback: dict[int, list[Feedback]] = {}
    for each in (yield from list_feedback(turns)):
        feedback.setdefault(each.turn, []).append(each)
    rows = yield (
        f"SELECT no, model, started, ended, state, failure, stopped_by, {', '.join(USAGE_COLUMNS)}"
        f" FROM turns WHERE no IN ({placeholders(turns)})",
        tuple(turns),
    )
    return {
        number: AnswerFacts(
            model=model,
            seconds=None if ended is None else (ended - started) / 1_000_000,
            is_failed=state == "failed",
            failure=failure,
            is_stopped=stopped_by is not None and ended is not None,
            feedback=tuple(feedback.get(number, ())),
            **dict(zip(USAGE_COLUMNS, used, strict=True)),
        )
        for number, model, started, ended, state, failure, stopped_by, *used in rows
    }
