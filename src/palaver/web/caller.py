"""Visitors: whoever showed a key, and on whose behalf they read."""

import hashlib

from palaver.db.transaction import Statements, transaction
from palaver.model.ids import decode_id
from palaver.model.session import Principal
from palaver.model.value import value
from palaver.store.people.api_tokens import Credential, Right
from palaver.store.store import Store

__all__ = [
    "OWNER",
    "Caller",
    "digest_of",
    "principal_of",
]

OWNER = "owner"
"""What the owner of the gateway is called on the web."""


@value
class Caller:
    key: Credential
    csrf: str | None = None
    """What every form of theirs carries; None for a program, which no page can make speak."""

    @property
    def identity(self) -> str:
        """Under which they speak."""
        return f"web:{OWNER}" if self.key.identity is None else self.key.identity

    @property
    def user(self) -> str | None:
        """What they are called in the web chat; None for somebody who is at home elsewhere."""
        platform, _, user = self.identity.partition(":")
        return decode_id(user) if platform == "web" else None

    @property
    def is_owner(self) -> bool:
        return self.key.identity is None

    @property
    def talk_only(self) -> bool:
        """What they say is never a command, and never the word of more than a member."""
        return not self.may(Right.MANAGE)

    def may(self, right: Right) -> bool:
        return right in self.key.rights


def digest_of(secret: str) -> str:
    """Secrets of ours are long and left to chance: a quick hash keeps them."""
    return hashlib.sha256(secret.encode()).hexdigest()


@transaction
def principal_of(caller: Caller, store: Store) -> Statements[Principal]:
    """Read it in the step that it is used in: the owner sees everything, others what they took part in."""
    if caller.key.identity is None:
        return Principal.operator()
    return (yield from store.people.principal_of(caller.key.identity))
