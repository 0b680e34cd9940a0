"""Access: who may talk to the agent and as what. One pure decision over one table of grants."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from enum import IntEnum, StrEnum
from operator import itemgetter

from palaver.model.errors import BadArgument
from palaver.model.source import DM, Source, Trust
from palaver.model.value import value

__all__ = [
    "Access",
    "AccessRole",
    "Basis",
    "Effect",
    "Grant",
    "GrantIndex",
    "Verdict",
    "decide_access",
    "keeps_an_owner",
    "replaced_grants",
]


class AccessRole(IntEnum):
    GUEST = 1
    MEMBER = 2
    ADMIN = 3
    OWNER = 4

    @property
    def text(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> "AccessRole":
        for role in cls:
            if role.text == text.strip().lower():
                return role
        known = ", ".join(role.text for role in cls)
        raise BadArgument("A role cannot be", found=text, allowed=known, example="member")


class Effect(StrEnum):
    ALLOW = "allow"
    BLOCK = "block"


class Basis(StrEnum):
    """What a sender must show for a grant to hold."""

    IDENTITY = "identity"
    PLATFORM_ROLE = "platform-role"
    RELAY = "relay"
    BOT = "bot"


class Verdict(StrEnum):
    ALLOW = "allow"
    REFUSE = "refuse"
    PAIR = "pair"


@value
class Grant:
    """Allows or blocks whoever matches all given fields. A user or chat id means something only on its platform."""

    effect: Effect = Effect.ALLOW
    role: AccessRole = AccessRole.MEMBER
    basis: Basis = Basis.IDENTITY
    platform: str | None = None
    account: str | None = None
    scope_id: str | None = None
    """Where chat and user ids mean something only on their server, a grant without it holds on every one."""
    chat_id: str | None = None
    user_id: str | None = None
    person: str | None = None
    """The id of a person: the grant holds for every account linked to it."""

    def __post_init__(self) -> None:
        if self.platform is None and (self.account or self.scope_id or self.chat_id or self.user_id):
            raise BadArgument(
                "A grant for one account, server, chat or user needs its platform, not",
                found="every platform",
                allowed="the platform that the id belongs to",
                example="platform: telegram, user_id: 7",
            )

    def to_json(self) -> dict[str, str]:
        """Whatever it says, as text."""
        said = {name: value for name in _PLACES if (value := getattr(self, name)) is not None}
        return {"effect": self.effect.value, "role": self.role.text, "basis": self.basis.value, **said}

    def matches(self, source: Source, trust: Trust, person: str | None = None) -> bool:
        return (
            self.platform in {None, source.platform}
            and self.account in {None, source.account}
            and self.scope_id in {None, source.scope_id}
            and self.chat_id in {None, source.chat, source.parent_chat_id}
            and self.user_id in {None, source.user_id, source.user_id_alt}
            and self.person in {None, person}
            and _shows(self.basis, trust)
            # Only a grant for bots lets a bot in, whatever else it shows; a block is for bots and people alike.
            and (not trust.is_bot or self.basis is Basis.BOT or self.effect is Effect.BLOCK)
        )


_PLACES = tuple(field.name for field in fields(Grant))[3:]


def _shows(basis: Basis, trust: Trust) -> bool:
    match basis:
        case Basis.IDENTITY:
            return True
        case Basis.PLATFORM_ROLE:
            return trust.has_role_grant
        case Basis.RELAY:
            return trust.via_trusted_relay
        case Basis.BOT:
            return trust.is_bot


class GrantIndex:
    """Grants in their order, kept so that of many only those are looked at that can hold for a sender."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._kept: dict[tuple[str | None, ...], list[tuple[int, Grant]]] = {}
        for place, grant in enumerate(grants):
            self._kept.setdefault(_narrowest(grant), []).append((place, grant))

    def candidates(self, source: Source, person: str | None = None) -> list[Grant]:
        """Whatever matches the sender is among them."""
        found = [each for name in _names(source, person) for each in self._kept.get(name, ())]
        return [grant for _, grant in sorted(found, key=itemgetter(0))]


def _narrowest(grant: Grant) -> tuple[str | None, ...]:
    """What a grant names that fewest have."""
    if grant.person is not None:
        return "person", grant.person
    if grant.user_id is not None:
        return "user", grant.platform, grant.user_id
    if grant.chat_id is not None:
        return "chat", grant.platform, grant.chat_id
    return "platform", grant.platform


def _names(source: Source, person: str | None) -> set[tuple[str | None, ...]]:
    """Under what grants can be kept that match a sender."""
    platform = source.platform
    return {
        ("person", person),
        ("user", platform, source.user_id),
        ("user", platform, source.user_id_alt),
        ("chat", platform, source.chat),
        ("chat", platform, source.parent_chat_id),
        ("platform", platform),
        ("platform", None),
    }


@value
class Access:
    """The decision and its reason, in words that hold no content."""

    verdict: Verdict
    reason: str
    role: AccessRole | None = None
    grant: Grant | None = None


def decide_access(
    source: Source, trust: Trust, grants: Iterable[Grant], *, person: str | None = None, pairing: bool = True
) -> Access:
    """A block wins over everything; then the highest role granted; a stranger may pair in a direct chat."""
    matching = [grant for grant in grants if grant.matches(source, trust, person)]
    for grant in matching:
        if grant.effect is Effect.BLOCK:
            return Access(verdict=Verdict.REFUSE, reason="a grant blocks this sender", grant=grant)
    if matching:
        best = max(matching, key=lambda grant: grant.role)
        return Access(
            verdict=Verdict.ALLOW,
            reason=f"allowed as {best.role.text} by a grant to this {best.basis.value}",
            role=best.role,
            grant=best,
        )
    return _stranger(source, trust, pairing=pairing)


def _stranger(source: Source, trust: Trust, *, pairing: bool) -> Access:
    if trust.is_bot:
        return Access(verdict=Verdict.REFUSE, reason="the sender is a bot and no grant names bots")
    if source.chat_kind != DM:
        return Access(verdict=Verdict.REFUSE, reason="a stranger in a group: no grant matches, and groups get silence")
    if source.participant is None:
        return Access(verdict=Verdict.REFUSE, reason="the sender has no id that a grant could name")
    if pairing:
        return Access(verdict=Verdict.PAIR, reason="a stranger in a direct chat: may ask to be paired")
    return Access(verdict=Verdict.REFUSE, reason="a stranger: no grant matches and pairing is off")


def replaced_grants(grant: Grant, grants: Iterable[Grant]) -> list[Grant]:
    """What a new grant takes the place of: the same effect for the same senders, in another role."""
    return [other for other in grants if replace(other, role=grant.role) == grant]


def keeps_an_owner(before: Sequence[Grant], after: Sequence[Grant]) -> bool:
    """False where a change would take the last owner away, be it by a block."""
    return bool(_owners(after)) or not _owners(before)


def _owners(grants: Sequence[Grant]) -> list[Grant]:
    blocks = [grant for grant in grants if grant.effect is Effect.BLOCK]
    return [
        grant
        for grant in grants
        if grant.effect is Effect.ALLOW
        and grant.role is AccessRole.OWNER
        and not any(_covers(block, grant) for block in blocks)
    ]


def _covers(block: Grant, grant: Grant) -> bool:
    """Whether everybody who matches the grant matches the block."""
    shows = block.basis in {Basis.IDENTITY, grant.basis}
    return shows and all(getattr(block, name) in {None, getattr(grant, name)} for name in _PLACES)
