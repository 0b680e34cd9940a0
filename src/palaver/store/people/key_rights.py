"""What the holder of a login or token can do now, and which keys end with a person's access."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.access import Grant, Standing
from palaver.model.errors import NoAccess
from palaver.model.session import Principal
from palaver.model.source import readable_identity
from palaver.store.people import access_rules, api_tokens, grants, people
from palaver.store.people.access_rules import WITHOUT, AccessRules
from palaver.store.people.api_tokens import OF_THE_WEB, Credential
from palaver.store.people.grants import ChangeKind

T = TypeVar("T")
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
    able = frozenset(each for each, standing in standings.items() if standing not in WITHOUT or each == identity)
    placed = sorted(each for each in able if standings[each] is not Standing.EVERYWHERE)
    return replace(principal, identities=able, placed=tuple((each, rules.reach(each)) for each in placed))


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
    return [key for key in found if key.identity and rules.standing(key.identity) not in WITHOUT]


def ended_text(ended: Sequence[Credential]) -> str:
    """Return a sentence that names the keys; nothing if there are none."""
    names = [f"{key.kind} {key.number}" + (f" ({key.name})" if key.name else "") for key in ended]
    return f" Ended for it: {', '.join(names)}." if names else ""
