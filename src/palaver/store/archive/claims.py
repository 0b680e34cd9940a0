"""Check what an archived session claims about people against what is known here.

An archive can name anybody as participant of any conversation, lead anybody's next message into it, and send its
answers anywhere. So a session is open here, and can be gone back to, only where all its people are people of that
conversation: its key names them, or they have spoken there here. Any other is imported as ended, in a conversation of
its own; if one person is left in that, it is theirs. In a shared chat where nobody has spoken here yet, it keeps its
conversation and its people, but is ended: what is said there next is not for everybody whom an archive names.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from palaver.db.transaction import Statements, Value, transaction
from palaver.model.errors import BadArgument
from palaver.model.key import ARCHIVE, JOB, SessionKey
from palaver.model.session import EndReason
from palaver.model.source import DM, Source, decode_id, identity_of, participant_text
from palaver.model.text import counted
from palaver.store.archive.format import ArchivedOperation, ArchivedRoute, ArchivedSession, SessionRecord
from palaver.store.records import placeholders
from palaver.store.results import OperationKind

IMPORTER = "import"
"""The worker of imported turns, which prove nothing about who is in a chat."""
_MAX_NAMED = 5
_MOVING = frozenset({OperationKind.SWITCH, OperationKind.RESET, OperationKind.BRANCH})


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What is believed of an archived session."""

    key: SessionKey
    participants: list[str]
    owner: str
    ended: datetime | None
    end_reason: str | None
    routes: list[ArchivedRoute]
    operations: list[ArchivedOperation | None]
    """None for those that would lead into a conversation of others."""
    notes: list[str] = field(default_factory=list[str])


@transaction
def check_claims(record: SessionRecord) -> Statements[Accepted]:
    session, key = record.session, SessionKey.parse(record.session.key)
    claimed, origin = set(session.participants), Source.from_json(session.origin, known=(session.origin["platform"],))
    belonging = yield from _people_among(claimed, key)
    strangers, is_silent = sorted(claimed - belonging), (yield from _is_silent(key))
    notes: list[str] = []
    if strangers and not is_silent:
        # The sender of its first message can read it and continue it in a chat of their own.
        belonging |= {each for each in strangers if each == identity_of(origin) and _may_begin(origin, key)}
        notes.append(_own_note(strangers, belonging))
        own = SessionKey(key.profile, session.platform, ARCHIVE, session.id, user=IMPORTER)
        return Accepted(
            key=own,
            participants=sorted(belonging),
            owner=next(iter(belonging)) if len(belonging) == 1 else own.text,
            ended=session.ended or session.last_active,
            end_reason=session.end_reason or EndReason.SWITCHED.value,
            routes=[],
            operations=[None if OperationKind(each.kind) in _MOVING else each for each in session.operations],
            notes=notes,
        )
    routes = yield from _own_routes(session, key, claimed)
    if len(routes) < len(session.routes):
        notes.append("routes of chats that are not its people's, or that lead elsewhere, were left out")
    ended, reason = session.ended, session.end_reason
    if claimed and is_silent:
        routes = []
        if ended is None:
            ended, reason = session.last_active, EndReason.SWITCHED.value
            notes.append("it was imported as ended, since nobody has spoken in that chat here yet")
    if ended is None and not _lies_in(origin, key) and key.text not in {route.key for route in routes}:
        ended, reason = session.last_active, EndReason.SWITCHED.value
        notes.append("it was imported as ended, since it does not say where its answers go")
    operations: list[ArchivedOperation | None] = []
    for each in session.operations:
        is_theirs = yield from _is_theirs(each, session, claimed)
        operations.append(each if is_theirs else None)
    owner = session.owner if session.owner in {*claimed, key.text} else key.text
    return Accepted(
        key=key,
        participants=sorted(claimed),
        owner=owner,
        ended=ended,
        end_reason=reason,
        routes=routes,
        operations=operations,
        notes=notes,
    )


def _may_begin(origin: Source, key: SessionKey) -> bool:
    """Tell whether the sender of the first message can be of the conversation: nothing in its key says otherwise."""
    return _lies_in(origin, key) and not _first_part(key.chat)


def _own_note(strangers: Iterable[str], kept: Collection[str]) -> str:
    left_out = [each for each in strangers if each not in kept]
    named = ", ".join(left_out[:_MAX_NAMED])
    who = f"; left out as unknown there: {counted(len(left_out), 'participant')} ({named})" if left_out else ""
    return f"it was imported as ended and apart, since nothing here shows that its people are in that chat{who}"


def _people_among(claimed: Collection[str], key: SessionKey) -> Statements[set[str]]:
    """Return those of the claimed identities that are people of the conversation."""
    if not claimed:
        return set()
    if key.person:
        rows = yield "SELECT identity FROM identities WHERE person = ?", (key.person,)
        return set(claimed) & {row[0] for row in rows} if rows else set(claimed)
    found = {each for each in claimed if _is_named_by(key, each)} | (yield from _known_in(key))
    if set(claimed) - found:
        found |= yield from _heard_in(key)
    return set(claimed) & (yield from _with_linked(found))


def _is_named_by(key: SessionKey, identity: str) -> bool:
    """Tell whether the key itself says that the conversation is this account's."""
    platform, _, participant = identity.partition(":")
    if platform != key.platform or key.kind == JOB:
        return False
    person = decode_id(participant)
    if key.user:
        return person == key.user
    return key.kind == DM and person in {participant_text(name) for name in (key.chat, _first_part(key.chat)) if name}


def _first_part(chat: str) -> str:
    """Return the user in the id of a chat that names them: `alice/plans`."""
    user, slash, _ = chat.partition("/")
    return decode_id(user) if slash else ""


def _known_in(key: SessionKey) -> Statements[set[str]]:
    """Return who took part here, in something that was not imported."""
    where, values = _is_there(key)
    rows = yield (
        f"SELECT DISTINCT p.identity FROM sessions s JOIN participants p ON p.session_no = s.no WHERE {where}"
        " AND EXISTS (SELECT 1 FROM turns t WHERE t.session_no = s.no AND t.worker <> ?)",
        (*values, IMPORTER),
    )
    return {row[0] for row in rows}


def _is_silent(key: SessionKey) -> Statements[bool]:
    """Tell whether it is a shared chat in which nobody has said anything here."""
    if not (key.shared and key.platform):
        return False
    return not ((yield from _known_in(key)) or (yield from _heard_in(key)))


def _heard_in(key: SessionKey) -> Statements[set[str]]:
    """Return who sent something here: messages outlast the conversation that was deleted."""
    where, values = _is_there(key)
    rows = yield (
        f"SELECT DISTINCT identity FROM inbox s WHERE {where} AND identity IS NOT NULL AND state <> 'refused'",
        values,
    )
    return {row[0] for row in rows}


def _is_there(key: SessionKey) -> tuple[str, tuple[Value, ...]]:
    """Return the condition for rows `s` of a conversation, or of its whole chat if that shares it."""
    if not (key.shared and key.platform):
        return "s.key = ?", (key.text,)
    prefix = key._replace(thread="", user="", person="").text
    return "(s.key = ? OR substr(s.key, 1, ?) = ?)", (prefix, len(prefix) + 1, f"{prefix}:")


def _with_linked(identities: Collection[str]) -> Statements[set[str]]:
    if not identities:
        return set()
    names = tuple(sorted(identities))
    rows = yield (
        "SELECT identity FROM identities WHERE person IN"
        f" (SELECT person FROM identities WHERE identity IN ({placeholders(names)}))",
        names,
    )
    return {*identities, *(row[0] for row in rows)}


def _own_routes(session: ArchivedSession, key: SessionKey, people: Collection[str]) -> Statements[list[ArchivedRoute]]:
    """Return the routes of conversations that all its people belong to, with answers going to that very chat."""
    kept: list[ArchivedRoute] = []
    for route in session.routes:
        there = SessionKey.parse(route.key)
        address = Source.from_json(route.address, known=(route.address["platform"],))
        belonging = yield from _people_among(people, there)
        is_theirs = there == key or belonging == set(people)
        if is_theirs and _lies_in(address, there) and (not there.person or identity_of(address) in people):
            kept.append(route)
    return kept


def _lies_in(source: Source, key: SessionKey) -> bool:
    """Tell whether a source is in the chat of a key. The keys of persons and owners name no chat."""
    if not key.platform:
        return source.chat_kind == DM and source.profile == key.profile and key.kind != JOB
    there = (key.platform, key.kind, key.chat, key.scope, key.account, key.thread)
    here = (source.platform, source.chat_kind, source.chat_id, source.scope_id, source.account, source.thread_id)
    return tuple(part or "" for part in here) == there and key.user in {"", source.participant}


def _is_theirs(operation: ArchivedOperation, session: ArchivedSession, people: Collection[str]) -> Statements[bool]:
    """Tell whether going back by an operation stays among conversations of its people."""
    named = [operation.key, *(operation.details.get(name) for name in ("key", "to"))]
    for text in {each for each in named if isinstance(each, str)} - {session.key}:
        with suppress(BadArgument):  # what is no key leads nowhere
            there = SessionKey.parse(text)
            if set(people) - (yield from _people_among(people, there)):
                return False
    return True
