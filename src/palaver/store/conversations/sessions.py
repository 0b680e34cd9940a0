"""Sessions: at most one open per key; open, reset and switch. `visibility.py` finds and gets them."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.errors import SessionBusy
from palaver.model.firing import FiredJob
from palaver.model.key import SessionKey
from palaver.model.reset import ResetRule, decide_reset
from palaver.model.session import EndReason, ModelOverride, Principal, Session, owner_of
from palaver.model.source import Source, identity_of
from palaver.model.value import value
from palaver.store.conversations import undo_log
from palaver.store.conversations.attach import detach_all
from palaver.store.conversations.titles import free_title, suggest_title
from palaver.store.conversations.visibility import find, get, get_visible, lock_session, select_sessions
from palaver.store.records import SEQS, SESSION_COLUMNS, instant, json_text, micros, read_one, session_of, source_text
from palaver.store.results import Opened, Opening, OperationKind

AUTOMATIC_ENDS = frozenset({EndReason.IDLE, EndReason.DAILY, EndReason.SUSPENDED, EndReason.EXPIRED})
"""Reasons that nobody asked for: the next message starts fresh with a notice, and /back returns here."""
DELIBERATE_ENDS = frozenset({EndReason.RESET, EndReason.HANDED_OFF})
"""Reasons that a person asked for: the next message starts fresh."""
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(now: datetime) -> str:
    """Make an id that sorts by time: ten characters of milliseconds, then sixteen random ones."""
    return id_text((micros(now) // 1000 << 80) | secrets.randbits(80), 26)


def id_text(number: int, length: int) -> str:
    return "".join(_ID_ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(length)))


@transaction
def open_by_key(key: SessionKey) -> Statements[Session | None]:
    found = yield from select_sessions("s.key = ? AND s.ended IS NULL", key.text)
    return found[0] if found else None


@transaction
def routed_session(key: SessionKey) -> Statements[Session | None]:
    """Return the session that a key leads to, open or ended; None if it moved elsewhere or was left deliberately.

    A key without a route leads to the session used last, if that ended automatically.
    """
    return (yield from _find_routed(key, None))[0]


_TAKES_PART = "EXISTS (SELECT 1 FROM participants p WHERE p.identity = ? AND p.session_no = s.no AND p.left_at IS NULL)"
_ALONE = (
    "NOT EXISTS (SELECT 1 FROM participants o WHERE o.session_no = s.no AND o.left_at IS NULL AND o.identity <> ?)"
    " AND NOT EXISTS (SELECT 1 FROM attached_chats a WHERE a.key = s.key)"
)
_ROUTED = (
    f"SELECT {_TAKES_PART}, {_ALONE}, {SESSION_COLUMNS} FROM routes r"
    " LEFT JOIN sessions s ON s.no = r.session_no AND s.key = r.key WHERE r.key = ?"
)
_LATEST = (
    f"SELECT {_TAKES_PART}, {_ALONE}, {SESSION_COLUMNS} FROM sessions s WHERE s.key = ?"
    " ORDER BY s.last_active DESC, s.no DESC LIMIT 1"
)


def _find_routed(key: SessionKey, identity: str | None) -> Statements[tuple[Session | None, bool, bool]]:
    """Return the session that a key leads to, and whether the identity takes part in it and is alone there."""
    rows = yield _ROUTED, (identity, identity, key.text)
    is_routed = bool(rows)
    if not is_routed:
        rows = yield _LATEST, (identity, identity, key.text)
    found = read_one(session_of, [row[2:] for row in rows if row[2] is not None], "session")
    if found is None or (found.end_reason in DELIBERATE_ENDS if is_routed else found.end_reason not in AUTOMATIC_ENDS):
        return None, False, False
    takes_part, no_others = rows[0][:2]
    return found, bool(takes_part), bool(takes_part and no_others)


@transaction
def open_locked(
    key: SessionKey,
    source: Source,
    now: datetime,
    rule: ResetRule,
    *,
    sent: datetime,
    human: bool,
    is_sequel: bool = False,
) -> Statements[Opened]:
    """Get or create: reuse the open session, reset it if it is due, reopen the routed one, or create one.

    The caller holds the lock, and touches the session afterwards. The reset policy looks at the time when the message
    was `sent`. What belongs to the open session (`is_sequel`), such as the notice of its process, does not reset it.
    """
    sent = min(sent, now)
    spoken = sent if human else None
    plan = yield from plan_opening(key, source, sent, rule, is_sequel=is_sequel)
    current = plan.session
    if current is None:
        yield from _lock_contacts(source)
        is_first = yield from _is_first_contact(source)
        created = yield from create(key, source, now, spoken=spoken)
        return Opened(session=created, opening=plan.opening, is_first_contact=is_first)
    if plan.reason is not None:
        yield from _lock_contacts(source)
        is_first = yield from _is_first_contact(source)
        fresh = yield from _start_fresh(key, source, now, current, plan.reason, by="reset policy", spoken=spoken)
        return Opened(
            session=fresh,
            opening=plan.opening,
            reason=plan.reason,
            before=current.id,
            ended=current.id if current.ended is None else None,
            before_had_words=current.counters.entries > 0,
            is_first_contact=is_first,
        )
    is_first = False if plan.takes_part else (yield from join(current.number, source))
    if plan.opening is Opening.REUSED:
        return Opened(session=current, opening=plan.opening, is_first_contact=is_first, is_alone=plan.is_alone)
    yield from reopen(current.number, key, now, spoken=spoken)
    reopened = yield from get(current.number)
    return Opened(session=reopened, opening=plan.opening, is_first_contact=is_first)


@value
class OpeningPlan:
    """Which session a message continues, or why it starts a fresh one."""

    opening: Opening
    session: Session | None = None
    """The one that the key leads to; None if it leads to none."""
    reason: EndReason | None = None
    """Why the message starts fresh instead of continuing that session."""
    takes_part: bool = False
    is_alone: bool = False


@transaction
def plan_opening(
    key: SessionKey, source: Source, at: datetime, rule: ResetRule, *, is_sequel: bool = False
) -> Statements[OpeningPlan]:
    """Decide what a message that was sent `at` this time opens. Changes nothing."""
    current, takes_part, is_alone = yield from _find_routed(key, identity_of(source))
    if current is None:
        return OpeningPlan(opening=Opening.CREATED)
    reason = current.end_reason
    if current.ended is None and not is_sequel:
        reason = yield from reset_reason(current, at, rule)
    if reason in AUTOMATIC_ENDS:
        return OpeningPlan(opening=Opening.RESET, session=current, reason=reason)
    opening = Opening.REUSED if current.ended is None else Opening.REOPENED
    return OpeningPlan(opening=opening, session=current, takes_part=takes_part, is_alone=is_alone)


@transaction
def reset_reason(current: Session, at: datetime, rule: ResetRule) -> Statements[EndReason | None]:
    """Return why an open session has to be reset; None while it has a turn or a young process."""
    idle = decide_reset(rule.policy, current.last_human, at, rule.zone)
    if idle.reason is None or (yield from _is_busy(current)):
        return None
    rows = yield "SELECT started FROM processes WHERE session_no = ? AND ended IS NULL", (current.number,)
    started = [instant(row[0]) for row in rows]
    return decide_reset(
        rule.policy, current.last_human, at, rule.zone, processes=started, process_limit=rule.process_limit
    ).reason


def _lock_contacts(source: Source) -> Statements[None]:
    """Let one conversation at a time meet a sender: exactly one is the first."""
    yield Lock(f"contacts of {identity_of(source)}")


_WAS_SPOKEN_TO = (
    f"EXISTS (SELECT 1 FROM entries e WHERE e.id >= s.no * {SEQS} AND e.id < (s.no + 1) * {SEQS}"
    " AND e.role = 'user' AND e.observed = 0)"
)


def _is_first_contact(source: Source, besides: int = 0) -> Statements[bool]:
    """Return whether the sender took part in no other session of the profile in which somebody spoke to the agent."""
    identity = identity_of(source)
    if identity is None:
        return False
    rows = yield (
        "SELECT 1 FROM participants p JOIN sessions s ON s.no = p.session_no"
        f" WHERE p.identity = ? AND p.session_no <> ? AND s.profile = ? AND {_WAS_SPOKEN_TO} LIMIT 1",
        (identity, besides, source.profile),
    )
    return not rows


@transaction
def create(
    key: SessionKey,
    source: Source,
    now: datetime,
    *,
    title: str | None = None,
    parent: str | None = None,
    spoken: datetime | None = None,
) -> Statements[Session]:
    """Create a session for what a person said at the time `spoken`; by default it is used from now on."""
    owner = owner_of(key, source)
    moment = micros(now)
    rows = yield (
        "INSERT INTO sessions"
        " (id, key, profile, platform, owner, origin, title, parent, started, last_human, last_active)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no",
        (
            new_id(now),
            key.text,
            key.profile,
            source.platform,
            owner,
            source_text(source),
            title and (yield from free_title(owner, title)),
            parent,
            moment,
            micros(spoken or now),
            moment,
        ),
    )
    number = rows[0][0]
    yield from route(key, number, source)
    yield from join(number, source)
    return (yield from get(number))


@transaction
def join(number: int, source: Source) -> Statements[bool]:
    """Make the sender a participant, who can read the session. True at their first contact with the profile."""
    identity = identity_of(source)
    if identity is None:
        return False
    yield from _lock_contacts(source)
    joined = yield (
        "INSERT INTO participants (identity, session_no) VALUES (?, ?) ON CONFLICT (identity, session_no)"
        " DO UPDATE SET left_at = NULL WHERE participants.left_at IS NOT NULL RETURNING identity",
        (identity, number),
    )
    return bool(joined) and (yield from _is_first_contact(source, besides=number))


def _person_takes_part(number: int, identity: str | None) -> Statements[bool]:
    """Return whether a person takes part, under any identity. Only speaking makes the others take part as well."""
    rows = yield (
        "SELECT 1 FROM participants p JOIN identities i ON i.identity = p.identity"
        " JOIN identities me ON me.person = i.person"
        " WHERE p.session_no = ? AND p.left_at IS NULL AND me.identity = ? LIMIT 1",
        (number, identity),
    )
    return bool(rows)


@transaction
def route(key: SessionKey, number: int, source: Source, *, keep_address: bool = False) -> Statements[None]:
    """Route a key to a session. The address of a chat never changes; that of a person is where they spoke last."""
    address = "routes.address" if key.platform or keep_address else "excluded.address"
    yield (
        "INSERT INTO routes (key, session_no, address) VALUES (?, ?, ?)"
        f" ON CONFLICT (key) DO UPDATE SET session_no = excluded.session_no, address = {address}",
        (key.text, number, source_text(source)),
    )


@transaction
def end(number: int, reason: EndReason, now: datetime) -> Statements[None]:
    yield (
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE no = ? AND ended IS NULL",
        (micros(now), reason.value, number),
    )


@transaction
def reopen(number: int, key: SessionKey, now: datetime, *, spoken: datetime | None) -> Statements[None]:
    """Reopen a session. A person who returns to it counts as activity, or the next message would find it idle.

    In another conversation, it is no longer that of a job.
    """
    yield (
        "UPDATE sessions SET ended = NULL, end_reason = NULL, finalised = NULL, finalise_tries = 0,"
        " finalised_by = NULL, schedule_no = CASE WHEN key = ? THEN schedule_no END, key = ?, profile = ? WHERE no = ?",
        (key.text, key.text, key.profile, number),
    )
    yield from touch(number, now, spoken=spoken)


@transaction
def touch(number: int, now: datetime, *, spoken: datetime | None, entries: int = 0) -> Statements[int]:
    """Record activity, and reserve seqs for entries; return the first.

    Only people extend the idle time: `spoken` is when what they said was received, however long it waited.
    """
    heard = spoken and micros(min(spoken, now))
    rows = yield (
        "UPDATE sessions SET last_active = ?, next_seq = next_seq + ?,"
        " last_human = CASE WHEN last_human < ? THEN ? ELSE last_human END WHERE no = ? RETURNING next_seq",
        (micros(now), entries, heard, heard, number),
    )
    return rows[0][0] - entries


def _start_fresh(
    key: SessionKey,
    source: Source,
    now: datetime,
    current: Session,
    reason: EndReason,
    *,
    by: str,
    title: str | None = None,
    spoken: datetime | None = None,
) -> Statements[Session]:
    yield from end(current.number, reason, now)
    fresh = yield from create(key, source, now, title=title, spoken=spoken)
    details = {"because": reason.value}
    yield from undo_log.record(OperationKind.RESET, key, fresh.number, now, by, details, from_session=current.id)
    return fresh


@transaction
def reset(key: SessionKey, source: Source, now: datetime, *, by: str, title: str | None = None) -> Statements[Session]:
    """Start fresh because a person asked for it."""
    yield Lock(key.text)
    current = yield from routed_session(key)
    if current is None:
        return (yield from create(key, source, now, title=title))
    return (yield from _start_fresh(key, source, now, current, EndReason.RESET, by=by, title=title))


@transaction
def switch(
    key: SessionKey, source: Source, target: str, principal: Principal, now: datetime, *, by: str
) -> Statements[Session]:
    """Leave the current session and continue another one here, with its route."""
    wanted = yield from lock_session((yield from find(target, principal)), key, principal)
    if wanted.key == key and wanted.ended is None:
        return wanted
    if wanted.key != key:
        yield from check_not_busy(wanted)
    before = {"ended": wanted.ended and micros(wanted.ended), "reason": wanted.end_reason}
    yield from continue_here(key, source, wanted, now, by=by, details=before)
    if not (yield from _person_takes_part(wanted.number, identity_of(source))):
        yield from join(wanted.number, source)
    return (yield from get(wanted.number))


@transaction
def continue_here(
    key: SessionKey, source: Source, session: Session, now: datetime, *, by: str, details: Mapping[str, object]
) -> Statements[int]:
    """Move a session to a key whose own session ends; return the operation that undoes it. Both keys are locked."""
    current = yield from routed_session(key)
    if current is not None:
        yield from end(current.number, EndReason.SWITCHED, now)
    yield from detach_all(key, now, entering=session)
    yield from reopen(session.number, key, now, spoken=now)
    yield from route(key, session.number, source)
    left = current.id if current and current.number != session.number else None
    return (
        yield from undo_log.record(
            OperationKind.SWITCH, key, session.number, now, by, details, from_session=left, from_key=session.key.text
        )
    )


@transaction
def check_not_busy(session: Session) -> Statements[None]:
    """Raise SessionBusy during a turn: a second turn could write to a session that moves."""
    if (yield from _is_busy(session)):
        raise SessionBusy(session.id)


def _is_busy(session: Session) -> Statements[bool]:
    rows = yield (
        "SELECT 1 FROM turns WHERE key = ? AND session_no = ? AND state IN ('running', 'parked', 'interrupted')",
        (session.key.text, session.number),
    )
    return bool(rows)


# Settings


@transaction
def claim_for_job(session: Session, job: FiredJob) -> Statements[str | None]:
    """Record that a session is the conversation of a job, and give it the job's name. Return its title."""
    yield "UPDATE sessions SET schedule_no = ? WHERE no = ?", (job.number, session.number)
    return session.title or (yield from suggest_title(session.id, job.name))


@transaction
def set_override(session: str, override: ModelOverride | None, principal: Principal) -> Statements[Session]:
    found = yield from get_visible(session, principal)
    fields = asdict(override) if override else {}
    text = json_text({name: value for name, value in fields.items() if value is not None}) if fields else None
    yield "UPDATE sessions SET override = ? WHERE no = ?", (text, found.number)
    return (yield from get(found.number))
