"""What the holder of a login or token can do now, and which keys end with a person's access."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TypeVar

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.access import Grant, Standing, possible_trust
from palaver.model.errors import NoAccess
from palaver.model.session import Principal
from palaver.model.source import Source, decode_id, readable_identity, with_participant
from palaver.store.conversations.visibility import Filter
from palaver.store.people import access_rules, api_tokens, grants, people
from palaver.store.people.access_rules import AccessRules
from palaver.store.people.api_tokens import OF_THE_WEB, Credential
from palaver.store.people.grants import ChangeKind
from palaver.store.records import readable, source_of

T = TypeVar("T")
_WITHOUT = frozenset({Standing.STRANGER, Standing.BLOCKED})
LoadRules = Callable[[], Transaction[AccessRules]]


@transaction
def check_access(identity: str, rules: AccessRules, *, can_ask: bool) -> Statements[None]:
    """Raise NoAccess if the account has no access anywhere now. A stranger who can ask for it is let in to do so."""
    yield from ()
    standing = rules.standing(identity)
    if standing is Standing.BLOCKED or (standing is Standing.STRANGER and not can_ask):
        raise NoAccess(readable_identity(identity))


@transaction
def principal_now(identity: str, rules: AccessRules, *, can_ask: bool) -> Statements[Principal]:
    """Return the principal of a key's person, limited to what their accounts have access to now.

    Raises NoAccess if the account that the key names has none. A stranger who can ask for access reads nothing.
    """
    yield from check_access(identity, rules, can_ask=can_ask)
    principal = yield from people.principal_of(identity)
    standings = {each: rules.standing(each) for each in principal.identities}
    able = frozenset(each for each, standing in standings.items() if standing not in _WITHOUT or each == identity)
    if all(standings[each] is Standing.EVERYWHERE for each in able):
        return replace(principal, identities=able)
    return replace(principal, identities=able, barred=(yield from _barred_sessions(able, standings, rules)))


def _barred_sessions(
    able: Iterable[str], standings: Mapping[str, Standing], rules: AccessRules
) -> Statements[frozenset[int]]:
    """Return the sessions of chats that none of the accounts that took part has access to."""
    theirs = Filter.among("p.identity", able)
    rows = yield (
        "SELECT s.no, p.identity, s.origin FROM participants p JOIN sessions s ON s.no = p.session_no"
        f" WHERE p.left_at IS NULL AND {theirs.sql}",
        theirs.values,
    )

    @cache
    def has_role(identity: str, place: Source) -> bool:
        """Tell whether the account has access in the chat, or anywhere if it took part from another platform."""
        sender = _sender_in(place, identity)
        if sender is None:
            return standings[identity] not in _WITHOUT
        return rules.role(sender, *possible_trust(None)) is not None

    placed = readable(lambda row: (row[0], row[1], _place_of(source_of(row[2]))), rows)
    return frozenset(row[0] for row in rows) - {
        number for number, identity, place in placed if has_role(identity, place)
    }


def _place_of(origin: Source) -> Source:
    return replace(with_participant(origin, None), message_id=None)


def _sender_in(place: Source, identity: str) -> Source | None:
    platform, _, participant = identity.partition(":")
    return with_participant(place, decode_id(participant)) if platform == place.platform else None


@transaction
def end_lost_keys(
    change: Transaction[T], configured: Sequence[Grant], now: datetime, *, by: str
) -> Statements[tuple[T, list[Credential]]]:
    """Change access, and end the logins and tokens of everybody who had access before and has none after."""
    yield grants.GRANTS_LOCK
    held = yield from _keys_with_access(configured, now)
    result = yield from change
    left = {key.number for key in (yield from _keys_with_access(configured, now))}
    ended = [key for key in held if key.number not in left]
    for key in ended:
        yield from api_tokens.revoke(key.number)
        yield from grants.record(ChangeKind.KEY_ENDED, now, by, key.identity, {"key": f"{key.kind} {key.number}"})
    return result, ended


def _keys_with_access(configured: Sequence[Grant], now: datetime) -> Statements[list[Credential]]:
    rules = yield from access_rules.load(configured)
    found: list[Credential] = []
    for kind in OF_THE_WEB:
        found += yield from api_tokens.list_valid(kind, now)
    return [key for key in found if key.identity and rules.standing(key.identity) not in _WITHOUT]


def ended_text(ended: Sequence[Credential]) -> str:
    """Return a sentence that names the keys; nothing if there are none."""
    names = [f"{key.kind} {key.number}" + (f" ({key.name})" if key.name else "") for key in ended]
    return f" Ended for it: {', '.join(names)}." if names else ""
