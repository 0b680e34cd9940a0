"""The caller of a request: the key it was authenticated with, and on whose behalf it reads."""

from dataclasses import replace

from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.model.source import source_of_identity
from palaver.model.value import value
from palaver.store.people.api_tokens import Credential, Right
from palaver.store.store import Store

OWNER = "owner"
"""The user id of the gateway's owner on the platforms `web` and `api`."""


@value
class Caller:
    key: Credential
    csrf: str | None = None
    """The token every form of theirs carries. None for API tokens, which no foreign page can use."""

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
    """Return whom the caller reads as: the owner sees everything, others what they took part in, in their profile.

    Call it in the transaction that uses the result, so that a change of rights takes effect at once.
    """
    if caller.key.identity is None:
        return Principal.operator()
    return replace((yield from store.people.principal_of(caller.key.identity)), profile=caller.key.profile)
