"""Standing: as what somebody acts in a conversation from beside its chat, by the grants of that very step."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from palaver.db.transaction import Statements, transaction
from palaver.model.access import Access, AccessRole, Grant, GrantIndex, Verdict, decide_access
from palaver.model.errors import NotAllowed, NotFound
from palaver.model.ids import decode_id
from palaver.model.key import canonical_id, canonical_source
from palaver.model.session import Principal, Session, identity_of, source_of_identity
from palaver.model.source import Source, Trust
from palaver.model.turn import Received
from palaver.model.value import value
from palaver.store.people.grants import GrantTable
from palaver.store.store import Store

__all__ = [
    "GrantCache",
    "Standing",
    "by_now",
    "standing",
]


@value
class Standing:
    session: Session
    source: Source
    """As whom they act there: nobody comes to take part by that."""
    role: AccessRole


@transaction
def standing(store: Store, fixed: Sequence[Grant], session: str, principal: Principal) -> Statements[Standing]:
    """Who sees everything is the owner; others are what they are in the chat, or else where they come from.

    `fixed` are the grants of the configuration. Raises NotAllowed for whoever is not let in, or is blocked in either.
    """
    found, source = yield from _voice(store, session, principal)
    if principal.sees_all or principal.speaks_as is None:
        role = AccessRole.OWNER if principal.sees_all else None
    else:
        come, rules = source_of_identity(principal.speaks_as), (yield from _rules(store, fixed))
        here, there = rules.decide(source if source.user_id else come), rules.decide(come)
        role = None if there.verdict is Verdict.REFUSE and there.grant else here.role
    if role is None:
        raise NotAllowed("Taking part in this conversation", AccessRole.GUEST.text)
    return Standing(session=found, source=source, role=role)


def _voice(store: Store, session: str, principal: Principal) -> Statements[tuple[Session, Source]]:
    found = yield from store.sessions.get_visible(session, principal)
    origin, place = found.origin, replace(found.origin, user_id=None, user_id_alt=None, message_id=None)
    mine = [name.partition(":")[2] for name in principal.identities if name.partition(":")[0] == origin.platform]
    if mine:
        return found, replace(place, user_id=decode_id(min(mine)))
    with suppress(NotFound):
        yield from store.sessions.get_visible(session, Principal.speaking(origin))
        return found, replace(origin, message_id=None) if principal.sees_all else place
    return found, place


@transaction
def by_now(store: Store, fixed: Sequence[Grant], messages: Sequence[Received]) -> Statements[list[Received]]:
    """Messages of earlier, each by whoever its sender is by now: nobody acts in a role that was taken from them."""
    found: list[Received] = []
    rules = yield from _rules(store, fixed)
    for each in messages:
        # What their adapter saw of them then is not kept: it is taken to be so still, for it gave them no more.
        person = rules.decide(each.inbound.source, _VOUCHED_FOR)
        bot = rules.decide(each.inbound.source, _BOT)
        now = max(person.role or AccessRole.GUEST, bot.role or AccessRole.GUEST)
        found.append(replace(each, role=min(each.role or AccessRole.GUEST, now)))
    return found


_UNKNOWN, _VOUCHED_FOR, _BOT = Trust(), Trust(has_role_grant=True, via_trusted_relay=True), Trust(is_bot=True)


def _rules(store: Store, fixed: Sequence[Grant]) -> Statements["_Rules"]:
    table = yield from store.grants.load_table(GrantTable())
    return _Rules(fixed, table, (yield from store.aliases.load_all()), GrantCache())


def _canonical(grants: Iterable[Grant], platform: str, aliases: Mapping[str, str]) -> Iterable[Grant]:
    """A grant to any form of an id is one to all of them; `aliases` are those of the platform."""
    if not aliases:
        return grants
    return [
        replace(grant, user_id=canonical_id(grant.user_id, aliases))
        if grant.user_id is not None and grant.user_id in aliases and grant.platform == platform
        else grant
        for grant in grants
    ]


@value(kw_only=False)
class _Kept:
    fixed: Sequence[Grant]
    table: GrantTable
    aliases: Mapping[str, str]
    index: GrantIndex

    def is_of(self, fixed: Sequence[Grant], table: GrantTable, aliases: Mapping[str, str]) -> bool:
        is_same_table = table is self.table and (fixed is self.fixed or fixed == self.fixed)
        return is_same_table and (aliases is self.aliases or aliases == self.aliases)


@value(kw_only=False)
class GrantCache:
    """What holds on each platform, made anew only where grants or aliases have changed."""

    _platforms: dict[str, _Kept] = field(default_factory=dict[str, _Kept])

    def of(self, platform: str, fixed: Sequence[Grant], table: GrantTable, aliases: Mapping[str, str]) -> GrantIndex:
        """`fixed` are the grants of the configuration."""
        kept = self._platforms.get(platform)
        if kept is None or not kept.is_of(fixed, table, aliases):
            here = [each for each in (*fixed, *table.grants.values()) if each.platform in {None, platform}]
            index = GrantIndex(_canonical(here, platform, aliases))
            self._platforms[platform] = kept = _Kept(fixed, table, aliases, index)
        return kept.index


@value(kw_only=False)
class _Rules:
    """Grants and aliases as they are in one step."""

    fixed: Sequence[Grant]
    table: GrantTable
    aliases: Mapping[str, Mapping[str, str]]
    kept: GrantCache

    def decide(self, source: Source, trust: Trust = _UNKNOWN) -> Access:
        aliases = self.aliases.get(source.platform, {})
        plain = canonical_source(source, aliases)
        person = self.table.people.get(identity_of(plain) or "")
        grants = self.kept.of(source.platform, self.fixed, self.table, aliases).candidates(plain, person)
        return decide_access(plain, trust, grants, person=person, pairing=False)
