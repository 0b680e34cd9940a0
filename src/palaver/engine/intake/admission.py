"""Admission: whose words are heard, who is let in and as what, and what strangers are told."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from palaver.db.transaction import Lock, Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.intake.effective_role import GrantCache
from palaver.model.access import Access, AccessRole, Grant, Verdict, decide_access
from palaver.model.addressing import Addressing, classify_addressing
from palaver.model.codes import make_code
from palaver.model.key import SessionKey
from palaver.model.reset import Cause
from palaver.model.session import identity_of
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound
from palaver.model.value import value
from palaver.store.people.grants import GrantTable
from palaver.store.results import BusyNotices

__all__ = [
    "Admission",
    "Admitted",
    "Revise",
    "Taken",
]

log = logging.getLogger(__name__)

_CHANCE = 16


@value(kw_only=False)
class Admitted:
    """What was decided, and what was known when it was."""

    access: Access
    table: GrantTable
    role: AccessRole | None
    """As what it is accepted; where the sender's place is depends on who they are alone."""


class Revise(Protocol):
    """What is done about a change of a message; where its message may still come, it is kept for that."""

    def __call__(
        self, message: Inbound, key: SessionKey, access: Access, now: datetime, *, expected: bool
    ) -> Transaction[int | None]: ...


@value(kw_only=False)
class Taken:
    """A message that is in the inbox."""

    number: int | None
    """None for one that was there already."""
    refused: str | None = None
    is_ignored: bool = False


class Admission:
    """Knows the grants of the store, and learns in the step that accepts a message whether they are still the same."""

    def __init__(self, ctx: EngineContext, revise: Revise) -> None:
        self._ctx = ctx
        self._revise = revise
        self._table = GrantTable()
        self._kept = GrantCache()

    def hear(self, message: Inbound, *, commands: bool) -> Inbound | None:
        """The message, marked if it is only overheard; None for what is none of our business."""
        heard = self._attends(message, commands=commands)
        if heard is Addressing.IGNORED:
            self._ctx.meter.count("messages_ignored")
            return None
        return replace(message, observed=True) if heard is Addressing.OVERHEARD else message

    def _attends(self, message: Inbound, *, commands: bool = False) -> Addressing:
        source = message.source
        adapter = self._ctx.replies.adapter_for(source.platform, source.account)
        has_mentions = adapter is not None and adapter.platform.has_mentions
        attention = self._ctx.options.attention.find(source).value
        return classify_addressing(message, attention, has_mentions=has_mentions, commands=commands)

    def decide(self, message: Inbound, trust: Trust, aliases: Mapping[str, str]) -> Admitted:
        """`aliases` are those of the platform: a grant to any form of an id is one to all of them."""
        source, person = message.source, self._person(message.source)
        grants = self._grants(source, person, aliases)
        access = decide_access(source, trust, grants, person=person, pairing=self._pairs(message))
        role = min(access.role, AccessRole.MEMBER) if access.role and trust.talk_only else access.role
        return Admitted(access, self._table, role)

    def role_of(self, source: Source, aliases: Mapping[str, str]) -> AccessRole | None:
        """As what somebody who shows nothing but their identity is let in."""
        person = self._person(source)
        grants = self._grants(source, person, aliases)
        return decide_access(source, Trust(), grants, person=person, pairing=False).role

    def _person(self, source: Source) -> str | None:
        return self._table.people.get(identity_of(source) or "")

    def _grants(self, source: Source, person: str | None, aliases: Mapping[str, str]) -> list[Grant]:
        kept = self._kept.of(source.platform, self._ctx.options.grants, self._table, aliases)
        return kept.candidates(source, person)

    def _pairs(self, message: Inbound) -> bool:
        speaks = message.cause is Cause.HUMAN and not message.observed
        return speaks and self._ctx.options.pairing.find(message.source).value and self._reaches(message)

    def _reaches(self, message: Inbound) -> bool:
        return self._ctx.replies.reaches_people(message.source)

    async def accept(
        self,
        message: Inbound,
        key: SessionKey,
        admitted: Admitted,
        busy_notices: BusyNotices,
    ) -> Taken | None:
        """Put a message into the inbox as it was decided. None if the grants have changed: then decide again."""
        taken = await self._ctx.store.transact(
            self._accept(message, key, admitted, busy_notices, self._ctx.clock.now())
        )
        if isinstance(taken, GrantTable):
            self._table = taken
            return None
        self._tell(taken, key)
        return taken

    @transaction
    def _accept(
        self,
        message: Inbound,
        key: SessionKey,
        admitted: Admitted,
        busy_notices: BusyNotices,
        now: datetime,
    ) -> Statements[Taken | GrantTable]:
        store, access, known = self._ctx.store, admitted.access, admitted.table
        if not key.platform or access.verdict is not Verdict.PAIR:
            # Whoever parts the people of a key or moves its chat holds it, and afterwards that is known.
            yield Lock(key.text)
        table = yield from store.grants.load_table(known)
        if table is not known:
            return table
        if message.revision is not None:
            expected = self._attends(replace(message, burst=None)) is not Addressing.IGNORED
            return Taken((yield from self._revise(message, key, access, now, expected=expected)))
        if access.verdict is Verdict.PAIR:
            code = make_code(secrets.token_bytes(_CHANCE))
            asked = yield from store.pairing.ask(
                message,
                key,
                now,
                code=code,
                answer=self._ctx.replies.to(message.source, texts.pairing_code(code)),
            )
            return Taken(*asked) if asked else Taken(None)
        if access.verdict is Verdict.REFUSE and self._ctx.options.is_undecided(message):
            return Taken(None, is_ignored=True)
        if access.verdict is Verdict.REFUSE:
            # Of somebody who is not let in nothing is kept but that they tried.
            unheard = replace(message, text="")
            return Taken((yield from store.inbox.accept(unheard, key, now, refused=access.reason)), access.reason)
        number = yield from store.inbox.accept(message, key, now, role=admitted.role, busy_notices=busy_notices)
        return Taken(number)

    def _tell(self, taken: Taken, key: SessionKey) -> None:
        if taken.is_ignored:
            self._ctx.meter.count("messages_ignored")
            return
        if taken.number is None:
            self._ctx.meter.count("messages_repeated")
        elif taken.refused:
            self._ctx.meter.count("messages_refused")
        what = "known already" if taken.number is None else taken.refused or "accepted"
        told = {"action": "message.accepted", "key": key.text, "inbox": taken.number, "refused": bool(taken.refused)}
        log.info("message %s", what, extra=told)
