"""The caller of a request: the key it was authenticated with, and on whose behalf it reads."""

from dataclasses import field, replace
from functools import partial

from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.source import source_of_identity
from palaver.model.value import value
from palaver.store.people import access_rules, key_rights
from palaver.store.people.api_tokens import Credential, Right
from palaver.store.people.key_rights import LoadRules
from palaver.store.store import Store

OWNER = "owner"
"""The user id of the gateway's owner on the platforms `web` and `api`."""


@value
class Caller:
    key: Credential
    csrf: str | None = None
    """The token every form of theirs carries. None for API tokens, which no foreign page can use."""
    rules: LoadRules = field(default=partial(access_rules.load, ()), compare=False)
    """Loads the grants of now."""

    @property
    def identity(self) -> str:
        return f"web:{OWNER}" if self.key.identity is None else self.key.identity

    @property
    def web_user(self) -> str | None:
        """Their user id in the web chat; None if their identity is on another platform."""
        source = source_of_identity(self.identity)
        return source.user_id if source.platform == "web" else None

    @property
    def is_owner(self) -> bool:
        return self.key.identity is None

    @property
    def talk_only(self) -> bool:
        """Their messages are never commands, and carry no more than a member's rights."""
        return not self.has(Right.MANAGE)

    def has(self, right: Right) -> bool:
        return right in self.key.rights


@transaction
def principal_of(caller: Caller, store: Store) -> Statements[Principal]:
    """Return whom the caller reads as: the owner sees everything, others what they took part in and have access to.

    Call it in the transaction that uses the result, so that a change of rights takes effect at once. Raises NoAccess
    if their person has no access now.
    """
    if caller.key.identity is None:
        return Principal.operator()
    return replace((yield from person_of(caller, store)), profile=caller.key.profile)


@transaction
def person_of(caller: Caller, store: Store) -> Statements[Principal]:
    """Return the caller as a person: even the owner reads only their own chats so."""
    if caller.key.identity is None:
        return (yield from store.people.principal_of(caller.identity))
    can_ask = can_ask_for_access(caller.key.identity)
    return (yield from key_rights.principal_now(caller.key.identity, (yield from caller.rules()), can_ask=can_ask))


def can_ask_for_access(identity: str) -> bool:
    """Tell whether a person can ask for access with their login: in the web chat."""
    return source_of_identity(identity).platform == "web"
