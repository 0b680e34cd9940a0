"""Access: one pure decision over a table of grants says who can talk to the agent and in which role.

`parse_grantee` and `describe_grantee` convert between a grant and the words for whom it is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from enum import Enum, IntEnum, StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from palaver.model.errors import BadArgument, UnknownPlatform
from palaver.model.source import (
    DM,
    Source,
    Trust,
    canonical_id,
    decode_id,
    identity_text,
    parse_participant,
    participant_text,
)
from palaver.model.value import FieldPath, value

if TYPE_CHECKING:
    from palaver.model.platform import Platform


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
        roles = {role.text: role for role in cls}
        if text.strip().lower() not in roles:
            raise BadArgument("Unknown role", found=text, allowed=", ".join(roles), example="member")
        return roles[text.strip().lower()]


def can_send_elsewhere(role: AccessRole | None) -> bool:
    """Tell whether jobs of somebody in this role can send to other chats and to files."""
    return (role or AccessRole.GUEST) >= AccessRole.ADMIN


class Effect(StrEnum):
    ALLOW = "allow"
    BLOCK = "block"


class Basis(StrEnum):
    """What the adapter must have seen about a sender for a grant to match."""

    IDENTITY = "identity"
    PLATFORM_ROLE = "platform-role"
    RELAY = "relay"
    BOT = "bot"


class ChatKind(StrEnum):
    """In which chats a grant holds: in direct chats, or in all others, which are groups, channels and threads."""

    DM = "dm"
    GROUP = "group"

    @classmethod
    def parse(cls, text: str) -> "ChatKind":
        if text not in set(cls):
            raise BadArgument("A grant cannot hold only in", found=text, allowed=", ".join(cls), example="group")
        return cls(text)


class Standing(Enum):
    """What the grants say about an account, in whichever chat it writes."""

    STRANGER = "stranger"
    BLOCKED = "blocked"
    SOMEWHERE = "somewhere"
    """Access depends on the chat, server or bot account."""
    EVERYWHERE = "everywhere"


class Verdict(StrEnum):
    ALLOW = "allow"
    REFUSE = "refuse"
    PAIR = "pair"


@value
class Grant:
    """Allow or block every sender that matches all given fields. Ids are only valid with their platform."""

    effect: Effect = Effect.ALLOW
    role: AccessRole = AccessRole.MEMBER
    basis: Basis = Basis.IDENTITY
    platform: str | None = None
    account: str | None = None
    scope_id: str | None = None
    """The server, on platforms whose ids are per server. A grant without it matches on every server."""
    kind: ChatKind | None = None
    chat_id: str | None = None
    user_id: str | None = None
    """A user id, or an alternate id as `alt:ID`: `participant_text` tells the two apart."""
    person: str | None = None
    """A person's id: the grant matches every account linked to that person."""
    origin: FieldPath = field(default=(), compare=False)
    """The field of the configuration that has it, or its number in the store: `("grant", 3)`."""
    actor: str = field(default="", compare=False)
    """Who gave or approved it, if it is in the store."""

    def __post_init__(self) -> None:
        if self.platform is None and (self.account or self.scope_id or self.chat_id or self.user_id):
            raise BadArgument(
                "A grant for one account, server, chat or user needs its platform.",
                found="every platform",
                allowed="the platform that the id belongs to",
                fix="Add the platform that the id belongs to",
                example="platform: telegram, user_id: 7",
            )

    def to_json(self) -> dict[str, str]:
        selectors = {name: value for name in _SELECTORS if (value := getattr(self, name)) is not None}
        return {"effect": self.effect.value, "role": self.role.text, "basis": self.basis.value, **selectors}

    @property
    def is_placed(self) -> bool:
        """Tell whether it holds only in some chats, servers or bot accounts."""
        return any((self.account, self.scope_id, self.kind, self.chat_id))

    def without_place(self) -> "Grant":
        return replace(self, account=None, scope_id=None, kind=None, chat_id=None) if self.is_placed else self

    def matches(self, source: Source, trust: Trust, person: str | None = None) -> bool:
        return (
            (self.platform is None or self.platform == source.platform)
            and (self.account is None or self.account == source.account)
            and (self.scope_id is None or self.scope_id == source.scope_id)
            and (self.kind is None or self.kind is (ChatKind.DM if source.chat_kind == DM else ChatKind.GROUP))
            and (self.chat_id is None or self.chat_id in {source.chat, source.parent_chat_id})
            and (self.user_id is None or self.user_id in source.names)
            and (self.person is None or self.person == person)
            and _meets(self.basis, trust)
            # Only a grant for bots admits a bot; a block applies to bots and people alike.
            and (not trust.is_bot or self.basis is Basis.BOT or self.effect is Effect.BLOCK)
        )


_SELECTORS = tuple(each.name for each in fields(Grant) if each.compare)[3:]


def _meets(basis: Basis, trust: Trust) -> bool:
    if basis is Basis.IDENTITY:
        return True
    seen = {Basis.PLATFORM_ROLE: trust.has_role_grant, Basis.RELAY: trust.via_trusted_relay, Basis.BOT: trust.is_bot}
    return seen[basis]


def possible_trust(basis: Basis | None) -> Collection[Trust]:
    """Return the least that an adapter must see about a sender for a grant of this basis to match; all if unknown."""
    return _LEAST_TRUST.values() if basis is None else (_LEAST_TRUST[basis],)


_LEAST_TRUST = {
    Basis.IDENTITY: Trust(),
    Basis.PLATFORM_ROLE: Trust(has_role_grant=True),
    Basis.RELAY: Trust(via_trusted_relay=True),
    Basis.BOT: Trust(is_bot=True),
}


def canonical_grants(grants: Iterable[Grant], platform: str, aliases: Mapping[str, str]) -> Iterable[Grant]:
    """Return the grants with the canonical ids of a platform: a grant to one form of an id holds for all of them."""
    if not aliases:
        return grants
    return [
        replace(grant, user_id=canonical_id(grant.user_id, aliases))
        if grant.user_id is not None and grant.user_id in aliases and grant.platform == platform
        else grant
        for grant in grants
    ]


class Way(NamedTuple):
    """A sender has access where one of these allows and none of these blocks."""

    allows: tuple[Grant, ...]
    blocks: tuple[Grant, ...]


@value
class Reach:
    """In which chats an account has access."""

    platform: str
    ways: tuple[Way, ...]
    """On its platform."""
    anywhere: bool
    """Whether it has access in any chat: then it also reads what it took part in from another platform."""


class GrantIndex:
    """Grants in order, indexed by their narrowest selector, so that few are checked for each sender."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._buckets: dict[tuple[str | None, ...], list[tuple[int, Grant]]] = {}
        self._of_chats: list[Grant] = []
        for position, grant in enumerate(grants):
            bucket = _bucket_of(grant)
            self._buckets.setdefault(bucket, []).append((position, grant))
            if bucket[0] == "chat":
                self._of_chats.append(grant)

    def candidates(self, source: Source, person: str | None = None) -> list[Grant]:
        """Return the grants that can match the sender, in order. Every grant that matches is among them."""
        found = [entry for bucket in _buckets_for(source, person) for entry in self._buckets.get(bucket, ())]
        return [grant for _, grant in sorted(found, key=itemgetter(0))]

    def standing(self, source: Source, person: str | None = None) -> Standing:
        """Return what all grants together say about the sender, in any chat and with anything an adapter can see."""
        candidates = [*self.candidates(source, person), *self._of_chats]
        matching = [grant for grant in candidates if _can_match(grant.without_place(), source, person)]
        blocks = [grant for grant in matching if grant.effect is Effect.BLOCK and grant.basis is Basis.IDENTITY]
        allows = [grant for grant in matching if grant.effect is Effect.ALLOW]
        if not all(block.is_placed for block in blocks):
            return Standing.BLOCKED
        if not allows:
            return Standing.STRANGER
        return Standing.SOMEWHERE if blocks or all(each.is_placed for each in allows) else Standing.EVERYWHERE

    def reach(self, source: Source, person: str | None = None) -> tuple[Way, ...]:
        """Return what decides about the sender in each chat, for each thing that an adapter can see about them."""
        anywhere = [(grant, grant.without_place()) for grant in (*self.candidates(source, person), *self._of_chats)]
        ways: list[Way] = []
        for trust in possible_trust(None):
            found = [grant for grant, plain in anywhere if plain.matches(source, trust, person)]
            allows, blocks = (
                tuple(grant for grant in found if grant.effect is effect) for effect in (Effect.ALLOW, Effect.BLOCK)
            )
            ways += [Way(allows, blocks)] if allows else []
        return tuple(dict.fromkeys(ways))


def _can_match(grant: Grant, source: Source, person: str | None) -> bool:
    return any(grant.matches(source, trust, person) for trust in possible_trust(None))


def _bucket_of(grant: Grant) -> tuple[str | None, ...]:
    if grant.person is not None:
        return "person", grant.person
    if grant.user_id is not None:
        return "user", grant.platform, grant.user_id
    if grant.chat_id is not None:
        return "chat", grant.platform, grant.chat_id
    return "platform", grant.platform


def _buckets_for(source: Source, person: str | None) -> set[tuple[str | None, ...]]:
    platform = source.platform
    return {
        ("person", person),
        *(("user", platform, name) for name in source.names),
        ("chat", platform, source.chat),
        ("chat", platform, source.parent_chat_id),
        ("platform", platform),
        ("platform", None),
    }


@value
class Access:
    """The decision and its reason. The reason never quotes content."""

    verdict: Verdict
    reason: str
    role: AccessRole | None = None
    grant: Grant | None = None

    @property
    def basis(self) -> Basis:
        return self.grant.basis if self.grant else Basis.IDENTITY


PAIRING_OFF = "pairing is off"
BLOCKED = "a grant blocks this sender"
ACCESS_ENDED = "no grant matches this sender any more"
"""Why a message that was accepted is refused later."""


def decide_access(
    source: Source, trust: Trust, grants: Iterable[Grant], *, person: str | None = None, no_pairing: str = ""
) -> Access:
    """Decide access: a block wins, then the highest granted role; a stranger can pair in a direct chat.

    `no_pairing` says why nobody can pair.
    """
    matching = [grant for grant in grants if grant.matches(source, trust, person)]
    for grant in matching:
        if grant.effect is Effect.BLOCK:
            return _refuse(BLOCKED, grant)
    if matching:
        best = max(matching, key=lambda grant: grant.role)
        return Access(
            verdict=Verdict.ALLOW,
            reason=_describe_match(best),
            role=best.role,
            grant=best,
        )
    return _decide_stranger(source, trust, no_pairing)


@lru_cache(1 << 8)
def _describe_match(grant: Grant) -> str:
    """Return why a grant admits a sender. Cached: the same few grants admit every message."""
    return f"a grant to {_describe_senders(grant)} gives the {grant.role.text} role"


def _describe_senders(grant: Grant) -> str:
    """Return whom a grant is for, without ids."""
    if grant.user_id or grant.person:
        return "this sender" if grant.user_id else "this person"
    places = (
        ("in this chat", grant.chat_id),
        ("on this server", grant.scope_id),
        ("at this account", grant.account),
        ("on this platform", grant.platform if grant.basis in {Basis.IDENTITY, Basis.BOT} else None),
    )
    where = next((f" {text}" for text, given in places if given), "")
    return f"{_BASIS_TEXTS.get(grant.basis, EVERYBODY)}{where}"


def _decide_stranger(source: Source, trust: Trust, no_pairing: str) -> Access:
    if trust.is_bot:
        return _refuse("the sender is a bot and no grant covers bots")
    if source.chat_kind != DM:
        return _refuse("no grant matches, and strangers in groups get no answer")
    if source.participant is None:
        return _refuse("the sender has no id that a grant could name")
    if no_pairing:
        return _refuse(f"no grant matches and {no_pairing}")
    return Access(verdict=Verdict.PAIR, reason="no grant matches; a stranger in a direct chat can pair")


def _refuse(reason: str, grant: Grant | None = None) -> Access:
    return Access(verdict=Verdict.REFUSE, reason=reason, grant=grant)


def replaced_grants(grant: Grant, grants: Iterable[Grant]) -> list[Grant]:
    """Return the grants that a new one replaces: the same effect for the same senders, in any role."""
    return [other for other in grants if replace(other, role=grant.role) == grant]


def keeps_an_owner(before: Sequence[Grant], after: Sequence[Grant]) -> bool:
    """Return False if a change would remove or block the last owner."""
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
    """Return whether the block matches every sender that the grant matches."""
    same_basis = block.basis in {Basis.IDENTITY, grant.basis}
    return same_basis and all(getattr(block, name) in {None, getattr(grant, name)} for name in _SELECTORS)


EVERYBODY = "everybody"
GRANTEE_FORMS = f"platform:ID, a whole platform, person:ID, or {EVERYBODY}"
_PERSON = "person:"


class GranteeFields(TypedDict, total=False):
    person: str
    platform: str
    user_id: str


def parse_grantee(text: str, known: Collection[str]) -> GranteeFields:
    """Return the fields of a grant for a grantee such as `telegram:7`; `known` are the platforms."""
    text = text.strip()
    if text == EVERYBODY:
        return {}
    if text.startswith(_PERSON) and text != _PERSON:
        return {"person": text.removeprefix(_PERSON)}
    if ":" not in text:
        return {"platform": _platform(text, known)}
    platform, user = parse_identity(text, known)
    return {"platform": platform, "user_id": user}


def parse_identity(text: str, known: Collection[str]) -> tuple[str, str]:
    """Return platform and participant in `telegram:7`, `matrix:@ann:example.org` or `irc:alt:ann`, in canonical form.

    `known` are the platforms: names, or what each declares. Raises BadArgument for what cannot be an id there.
    """
    platform, _, user = text.strip().partition(":")
    if not user:
        raise BadArgument("{found} has no user id", found=text, allowed="platform:ID", example="telegram:7")
    name, participant = _platform(platform.strip(), known), decode_id(user)
    declared = cast("Mapping[str, Platform]", known)[name] if isinstance(known, Mapping) else None
    user = declared.canonical_user(participant) if declared else participant
    return name, participant_text(*parse_participant(user)) or ""


def normalize_identity(text: str, known: Collection[str]) -> str:
    """Return the identity in its stored form."""
    platform, user = parse_identity(text, known)
    return identity_text(platform, user)


def _platform(name: str, known: Collection[str]) -> str:
    if name.lower() not in known:
        raise UnknownPlatform(name, known, "telegram:7")
    return name.lower()


_BASIS_TEXTS = {
    Basis.PLATFORM_ROLE: "people with the role on the platform",
    Basis.RELAY: "people who come through the relay",
    Basis.BOT: "bots",
}


_KIND_TEXTS = {ChatKind.DM: "in direct chats only", ChatKind.GROUP: "in groups only"}


def describe_grantee(grant: Grant) -> str:
    named = f"user {grant.user_id}" if grant.user_id else f"person {grant.person}" if grant.person else ""
    return ", ".join(filter(None, (named, _BASIS_TEXTS.get(grant.basis)))) or EVERYBODY


def describe_grant(grant: Grant) -> str:
    role = f", as {grant.role.text}" if grant.effect is Effect.ALLOW else ""
    return f"{describe_grantee(grant)}, {describe_grant_place(grant)}{role}"


def describe_grant_place(grant: Grant) -> str:
    parts = (("account", grant.account), ("server", grant.scope_id), ("chat", grant.chat_id))
    named = (f"{name} {value}" for name, value in parts if value)
    kind = () if grant.kind is None else (_KIND_TEXTS[grant.kind],)
    place = ", ".join([grant.platform or "everywhere", *kind, *named])
    return f"{place} (blocked)" if grant.effect is Effect.BLOCK else place
