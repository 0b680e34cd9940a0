"""Decide whether a message is for us and who may speak, and accept it into the inbox."""

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from palaver.db.transaction import Transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.intake.revisions import Revisions
from palaver.model.access import Access, AccessRole, Grant, GrantIndex, Verdict, decide_access
from palaver.model.addressing import Addressing, classify_addressing
from palaver.model.key import SessionKey
from palaver.model.people import make_code
from palaver.model.source import Source, Trust, canonical_id, identity_of
from palaver.model.turn import Cause, Inbound
from palaver.model.value import value
from palaver.store.people.grants import GrantTable
from palaver.store.results import BusyNotices

log = logging.getLogger(__name__)

CODE_BYTES = 16


@value(kw_only=False)
class AdmissionDecision:
    access: Access
    table: GrantTable
    """The grants by which it was decided."""
    role: AccessRole | None
    """The role under which the message is accepted. The sender's key depends on `access.role` instead."""


@value(kw_only=False)
class AcceptResult:
    number: int | None
    """The inbox number; None if the message was already there."""
    refused: str | None = None
    is_ignored: bool = False


class Admission:
    """Decides by cached grants, and learns in the accepting transaction whether they are still current."""

    def __init__(self, ctx: EngineContext, revisions: Revisions) -> None:
        self._ctx = ctx
        self._revisions = revisions
        self._table = GrantTable()
        self._cache = GrantCache()

    def address(self, message: Inbound, *, is_command: bool) -> Inbound | None:
        """Return the message, marked if it is only overheard, or None if it is not for us."""
        addressing = self._addressing(message, is_command=is_command)
        if addressing is Addressing.IGNORED:
            self._ctx.meter.count("messages_ignored")
            return None
        return replace(message, observed=True) if addressing is Addressing.OVERHEARD else message

    def _addressing(self, message: Inbound, *, is_command: bool = False) -> Addressing:
        source = message.source
        adapter = self._ctx.replies.adapter_for(source.platform, source.account)
        has_mentions = adapter is not None and adapter.platform.has_mentions
        attention = self._ctx.options.attention.find(source)
        return classify_addressing(message, attention, has_mentions=has_mentions, commands=is_command)

    def decide(self, message: Inbound, trust: Trust, aliases: Mapping[str, str]) -> AdmissionDecision:
        """Decide access. `aliases` are those of the platform: a grant to one form of an id holds for all forms."""
        source, person = message.source, self._person(message.source)
        grants = self._grants(source, person, aliases)
        access = decide_access(source, trust, grants, person=person, pairing=self._offers_pairing(message))
        role = min(access.role, AccessRole.MEMBER) if access.role and trust.talk_only else access.role
        return AdmissionDecision(access, self._table, role)

    def role_of(self, source: Source, aliases: Mapping[str, str]) -> AccessRole | None:
        """Return the role that the identity of a source alone gives."""
        person = self._person(source)
        grants = self._grants(source, person, aliases)
        return decide_access(source, Trust(), grants, person=person, pairing=False).role

    def _person(self, source: Source) -> str | None:
        return self._table.people.get(identity_of(source) or "")

    def _grants(self, source: Source, person: str | None, aliases: Mapping[str, str]) -> list[Grant]:
        index = self._cache.index(source.platform, self._ctx.options.grants, self._table, aliases)
        return index.candidates(source, person)

    def _offers_pairing(self, message: Inbound) -> bool:
        if message.cause is not Cause.HUMAN or message.observed:
            return False
        return self._ctx.options.pairing.find(message.source) and self._ctx.replies.routes.reaches_people(
            message.source
        )

    async def accept(
        self, message: Inbound, key: SessionKey, decision: AdmissionDecision, busy_notices: BusyNotices | None
    ) -> AcceptResult | None:
        """Put a message into the inbox as decided. Return None if the grants have changed: then decide again."""
        access = decision.access
        is_ignored = access.verdict is Verdict.REFUSE and self._ctx.options.is_undecided(message)
        step = None if is_ignored and not message.revision else self._step(message, key, decision, busy_notices)
        # Strangers of all platforms are counted together, under a lock of their own.
        lock = None if key.platform and access.verdict is Verdict.PAIR else key
        found = await self._ctx.store.transact(self._ctx.store.grants.run_if_current(decision.table, lock, step))
        if isinstance(found, GrantTable):
            self._table = found
            return None
        if isinstance(found, tuple):
            result = AcceptResult(*found)
        else:
            is_refused = access.verdict is Verdict.REFUSE and step is not None and not message.revision
            result = AcceptResult(found, access.reason if is_refused else None, is_ignored=step is None)
        self._report(result, key)
        return result

    def _step(
        self, message: Inbound, key: SessionKey, decision: AdmissionDecision, busy_notices: BusyNotices | None
    ) -> Transaction[int | None] | Transaction[tuple[int, str] | None]:
        store, access, now = self._ctx.store, decision.access, self._ctx.clock.now()
        if message.revision is not None:
            expected = self._addressing(replace(message, burst=None)) is not Addressing.IGNORED
            return self._revisions.accept(message, key, access, now, expected=expected)
        if access.verdict is Verdict.PAIR:
            code = make_code(secrets.token_bytes(CODE_BYTES))
            answer = self._ctx.replies.to(message.source, texts.pairing_code(code))
            return store.pairing.request(message, key, now, code=code, answer=answer)
        if access.verdict is Verdict.REFUSE:
            # Store no content of refused senders, only that they tried.
            return store.inbox.accept(replace(message, text=""), key, now, refused=access.reason)
        return store.inbox.accept(message, key, now, role=decision.role, busy_notices=busy_notices)

    def _report(self, result: AcceptResult, key: SessionKey) -> None:
        if result.is_ignored:
            self._ctx.meter.count("messages_ignored")
            return
        if result.number is None:
            self._ctx.meter.count("messages_repeated")
        elif result.refused:
            self._ctx.meter.count("messages_refused")
        outcome = "already known" if result.number is None else result.refused or "accepted"
        extra = {"action": "message.accepted", "key": key.text, "inbox": result.number, "refused": bool(result.refused)}
        log.info("message %s", outcome, extra=extra)


@value(kw_only=False)
class _CachedIndex:
    configured: Sequence[Grant]
    table: GrantTable
    aliases: Mapping[str, str]
    index: GrantIndex

    def is_current(self, configured: Sequence[Grant], table: GrantTable, aliases: Mapping[str, str]) -> bool:
        is_same_table = table is self.table and (configured is self.configured or configured == self.configured)
        return is_same_table and (aliases is self.aliases or aliases == self.aliases)


@value(kw_only=False)
class GrantCache:
    """Grants by platform, indexed anew only when grants or aliases change."""

    _platforms: dict[str, _CachedIndex] = field(default_factory=dict[str, _CachedIndex])

    def index(
        self, platform: str, configured: Sequence[Grant], table: GrantTable, aliases: Mapping[str, str]
    ) -> GrantIndex:
        """Return the index of the configured and the stored grants that can apply on a platform."""
        cached = self._platforms.get(platform)
        if cached is None or not cached.is_current(configured, table, aliases):
            here = [grant for grant in (*configured, *table.grants.values()) if grant.platform in {None, platform}]
            index = GrantIndex(_canonical_grants(here, platform, aliases))
            self._platforms[platform] = cached = _CachedIndex(configured, table, aliases, index)
        return cached.index


def _canonical_grants(grants: Iterable[Grant], platform: str, aliases: Mapping[str, str]) -> Iterable[Grant]:
    if not aliases:
        return grants
    return [
        replace(grant, user_id=canonical_id(grant.user_id, aliases))
        if grant.user_id is not None and grant.user_id in aliases and grant.platform == platform
        else grant
        for grant in grants
    ]
