"""Who has which role: the configured and the stored grants together, as one transaction reads them."""

from collections.abc import Mapping, Sequence

from palaver.db.transaction import Statements, transaction
from palaver.model.access import PAIRING_OFF, Access, AccessRole, Grant, GrantIndex, Reach, Standing, decide_access
from palaver.model.source import Source, Trust, canonical_source, identity_of, source_of_identity
from palaver.model.value import value
from palaver.store.people import aliases
from palaver.store.people.grants import GrantCache, GrantTable, load_table

WITHOUT = frozenset({Standing.STRANGER, Standing.BLOCKED})


@value(kw_only=False)
class AccessRules:
    configured: Sequence[Grant]
    table: GrantTable
    aliases: Mapping[str, Mapping[str, str]]
    cache: GrantCache

    @property
    def grants(self) -> Sequence[Grant]:
        return [*map(self.table.current, self.configured), *self.table.grants.values()]

    def decide(self, source: Source, trust: Trust) -> Access:
        """Decide about a sender whom the adapter saw so."""
        plain, person, index = self._find(source)
        candidates = index.candidates(plain, person)
        return decide_access(plain, trust, candidates, person=person, no_pairing=PAIRING_OFF)

    def standing(self, identity: str) -> Standing:
        """Return what the grants say about an account, in any chat."""
        plain, person, index = self._find(source_of_identity(identity))
        return index.standing(plain, person)

    def reach(self, identity: str) -> Reach:
        """Return in which chats an account has access."""
        plain, person, index = self._find(source_of_identity(identity))
        anywhere = index.standing(plain, person) not in WITHOUT
        return Reach(platform=plain.platform, ways=index.reach(plain, person), anywhere=anywhere)

    def _find(self, source: Source) -> tuple[Source, str | None, GrantIndex]:
        known = self.aliases.get(source.platform, {})
        plain = canonical_source(source, known)
        person = self.table.people.get(identity_of(plain) or "")
        return plain, person, self.cache.index(source.platform, self.configured, self.table, known)

    def role(self, source: Source, *possible: Trust) -> AccessRole | None:
        """Return the highest role that a sender can have if the adapter saw one of these about them."""
        found = (self.decide(source, trust).role for trust in possible)
        return max((role for role in found if role), default=None)


@transaction
def load(
    configured: Sequence[Grant], known: GrantTable | None = None, cache: GrantCache | None = None
) -> Statements[AccessRules]:
    """Return the rules of now. With the `known` grants and their index they are read only if they have changed."""
    table = yield from load_table(known or GrantTable(configured=configured))
    return AccessRules(configured, table, (yield from aliases.load_all()), cache or GrantCache())
