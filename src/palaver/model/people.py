"""People: how a stranger gets access, which identities are one person, and the one-time codes for both."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from palaver.model.access import normalize_identity
from palaver.model.errors import BadArgument
from palaver.model.source import stored_identity
from palaver.model.value import value

CODE_ALPHABET = "ACDEFGHJKMNPQRTUVWXY34679"
"""Without characters that look alike: 0 and O, 1, I and L, 2 and Z, 5 and S, 8 and B."""
CODE_LENGTH = 8
_SEPARATORS = str.maketrans("", "", " -")
_HASH_ROUNDS = 50_000


def make_code(random_bytes: bytes) -> str:
    """Make a code from random bytes: with sixteen of them every code is about equally likely."""
    number, letters = int.from_bytes(random_bytes, "big"), ""
    for _ in range(CODE_LENGTH):
        number, at = divmod(number, len(CODE_ALPHABET))
        letters += CODE_ALPHABET[at]
    return letters


def parse_code(text: str) -> str:
    """Read a code as people type it: in any case, with spaces or hyphens."""
    code = text.translate(_SEPARATORS).upper()
    if len(code) != CODE_LENGTH or not set(code) <= set(CODE_ALPHABET):
        raise BadArgument(
            "This is not a code:",
            found=text,
            allowed=f"{CODE_LENGTH} of the characters {CODE_ALPHABET}",
            example="K7QM3XPR",
        )
    return code


def parse_code_or_identity(text: str, known: Collection[str]) -> str:
    """Read how a stranger is named: by their code, or by their identity such as `telegram:7`, in any form of it."""
    if ":" not in text:
        return parse_code(text)
    is_known = text.strip().partition(":")[0].lower() in known
    return normalize_identity(text, known) if is_known else stored_identity(text)


def code_hash(code: str, salt: str) -> str:
    """Hash a code, slowly: it is short, and must not be guessed from the hash while it is valid."""
    return hashlib.pbkdf2_hmac("sha256", code.encode(), salt.encode(errors="surrogatepass"), _HASH_ROUNDS).hex()


CODE_LIFETIME = timedelta(hours=1)
REQUEST_INTERVAL = timedelta(minutes=10)
"""How long a stranger who got a code waits for the next one."""
MAX_NEW_STRANGERS = 30
"""Strangers who get their first code at one account within `REQUEST_INTERVAL`.

Those who ask again do not count, and who was turned away gets theirs after that time, even if strangers never cease
to come. So throwaway accounts hold up others once and not for good.
"""
MAX_ANNOUNCED_STRANGERS = 5
"""New strangers at one account within `REQUEST_INTERVAL` of whom the owner learns one by one."""
MAX_KEPT_MESSAGES = 10
"""Messages of one stranger that are kept until they are approved."""
MAX_FAILURES = 5
LOCKOUT = timedelta(hours=1)


@value
class PairingRequest:
    """A stranger's last request for access at one of our accounts."""

    identity: str
    first: datetime
    """When they first asked."""
    at: datetime
    expires: datetime
    kept: int = 0


class Reception(StrEnum):
    """What happens to a stranger's message. The value is the reason why it is not answered."""

    CODE = "a stranger: got a code; the message waits until the owner approves it"
    WAITS = "a stranger: the message waits until the owner approves their code"
    LOCKED = "a stranger: wrong codes locked all codes; the message waits until the owner approves the account"
    TOO_OFTEN = "a stranger: asked for access only a short while ago"
    TOO_MANY = "a stranger: too many others have just asked this account for access"

    @property
    def keeps(self) -> bool:
        """Whether the message is kept, to be answered after approval."""
        return self in {Reception.CODE, Reception.WAITS, Reception.LOCKED}


def receive_stranger(
    identity: str,
    requests: Iterable[PairingRequest],
    now: datetime,
    *,
    locked: bool = False,
    turned_away: datetime | None = None,
) -> Reception:
    """Decide about a stranger's message, given all requests at the account they write to.

    `locked` says that everybody who would enter their code is locked out. `turned_away` is when they first came while
    there were too many others: however many still come, they do not wait a second time.
    """
    known = {request.identity: request for request in requests}
    mine = known.get(identity)
    # abs(): a clock that was set back must not keep anyone waiting.
    if mine and (abs(now - mine.at) < REQUEST_INTERVAL or (locked and now < mine.expires)):
        return Reception.WAITS if now < mine.expires and mine.kept < MAX_KEPT_MESSAGES else Reception.TOO_OFTEN
    new = [each for each in known.values() if abs(now - each.first) < REQUEST_INTERVAL]
    has_waited = turned_away is not None and now - turned_away >= REQUEST_INTERVAL
    if not mine and not has_waited and len(new) >= MAX_NEW_STRANGERS:
        return Reception.TOO_MANY
    return Reception.LOCKED if locked else Reception.CODE


def locked_until(failures: Sequence[datetime]) -> datetime | None:
    """Return until when codes are refused, given the times of wrong codes since the last right one, newest first."""
    if len(failures) < MAX_FAILURES or failures[0] - failures[MAX_FAILURES - 1] > LOCKOUT:
        return None
    return failures[0] + LOCKOUT


OFFER_LIFETIME = timedelta(minutes=10)
"""How long a code can be entered and, once it was entered, how long both sides have to agree."""


class Link(NamedTuple):
    """Proof, given under both identities, that they are one person."""

    number: int
    one: str
    other: str


def group_identities(identities: Iterable[str], links: Iterable[Link]) -> list[frozenset[str]]:
    """Return the people: identities joined by a chain of links are one. Each identity is in exactly one group."""
    group = {identity: frozenset({identity}) for identity in identities}
    for link in links:
        joined = group[link.one] | group[link.other]
        group.update(dict.fromkeys(joined, joined))
    return list(dict.fromkeys(group.values()))


def replacement_links(identity: str, links: Sequence[Link]) -> list[tuple[str, str]]:
    """Return the pairs to link so that the others stay together when `identity` is taken out."""
    neighbours = [link.other if link.one == identity else link.one for link in links if identity in link[1:]]
    return list(pairwise(neighbours))
