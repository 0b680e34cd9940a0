"""Decide whether a message is for us and who may speak, and accept it into the inbox."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.high_water import Seen
from palaver.db.transaction import Lock, Statements, Transaction, keyed, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.delivery.owner import Reporting, notify_owner
from palaver.engine.intake.revisions import Revisions
from palaver.engine.settings import ChatMoves, Settings, follow_move
from palaver.model.access import (
    ACCESS_ENDED,
    PAIRING_OFF,
    Access,
    AccessRole,
    Basis,
    Verdict,
    decide_access,
    possible_trust,
)
from palaver.model.addressing import Addressing, classify_addressing
from palaver.model.key import DmScope, SessionKey, Speaker, chat_key, choose_profile, derive_key
from palaver.model.people import MAX_ANNOUNCED_STRANGERS, make_code
from palaver.model.platform import Platform
from palaver.model.source import (
    Source,
    Trust,
    account_name,
    account_text,
    canonical_source,
    identity_of,
    named_identity,
    readable_identity,
    source_of_identity,
)
from palaver.model.tools import ApprovalMode
from palaver.model.turn import Cause, Inbound, Received, outbound_to
from palaver.model.value import value
from palaver.store.conversations import chat_migration
from palaver.store.people import access_rules, aliases, grants, people
from palaver.store.people.access_rules import AccessRules
from palaver.store.people.grants import GrantCache, GrantTable
from palaver.store.people.pairing import PAIRING_LOCK, Requested
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.results import BusyNotices

log = logging.getLogger(__name__)

CODE_BYTES = 16


@value(kw_only=False)
class Directory:
    """What keys depend on: aliases of ids, links between identities, and chats that have a new id."""

    aliases: Mapping[str, Mapping[str, str]]
    linked: Mapping[str, str]
    """The person behind every linked identity."""
    identities: Mapping[str, Sequence[str]]
    """The identities of every such person."""
    moves: ChatMoves

    def aliases_of(self, source: Source) -> Mapping[str, str]:
        return self.aliases.get(source.platform, {})


@transaction
def load_directory() -> Statements[Directory]:
    known = yield from aliases.load_all()
    linked = yield from people.linked_people()
    identities: dict[str, list[str]] = {}
    for identity, person in linked.items():
        identities.setdefault(person, []).append(identity)
    return Directory(known, linked, identities, (yield from chat_migration.moved()))


@value(kw_only=False)
class Rules:
    """All that decides about a message before it is stored. The gateway and `palaver explain` decide with the same."""

    settings: Settings
    accounts: Mapping[str, Platform]
    """The platform of each of our accounts."""
    directory: Directory
    table: GrantTable
    grants: GrantCache

    def platform_of(self, source: Source) -> Platform | None:
        return self.accounts.get(account_text(source.platform, source.account))

    def canonical(self, source: Source) -> Source:
        """Return the source under canonical ids, with the profile that the rules choose."""
        plain = canonical_source(source, self.directory.aliases_of(source))
        if not self.settings.profiles:
            return plain
        profile = choose_profile(plain, self.settings.profiles)
        return plain if profile == plain.profile else replace(plain, profile=profile)

    def addressing(self, message: Inbound, *, is_command: bool = False) -> Addressing:
        platform = self.platform_of(message.source)
        has_mentions = platform is not None and platform.has_mentions
        attention = self.settings.attention.find(message.source)
        return classify_addressing(message, attention, has_mentions=has_mentions, commands=is_command)

    def decide(self, message: Inbound, trust: Trust) -> "AdmissionDecision":
        """Decide about a message from a canonical source under the current id of its chat."""
        source = message.source
        access = self._access(source, trust, no_pairing=self._no_pairing(message))
        role = min(access.role, AccessRole.MEMBER) if access.role and trust.talk_only else access.role
        # A part of a burst waits for those that may be for us, so it moves to the chat only when its turn comes.
        is_of_chat = message.observed and message.burst is None
        speaker = self.speaker(source, access.role)
        return AdmissionDecision(source, access, role, speaker, self, is_of_chat=is_of_chat)

    def current_role(self, received: Received) -> AccessRole | None:
        """Return the role that the sender of an accepted message has now, never higher than then; None for none."""
        source = follow_move(self.canonical(received.inbound.source), self.directory.moves)
        # What the adapter saw of the sender is not stored, only which basis of a grant was decisive.
        seen = (self._access(source, trust).role for trust in possible_trust(received.basis))
        now = max((role for role in seen if role), default=None)
        return now and min(now, received.role or AccessRole.GUEST)

    def role_of(self, source: Source) -> AccessRole | None:
        """Return the role that the identity of a source alone gives."""
        return self._access(source, Trust()).role

    def refusal(self, received: Received) -> str:
        """Return why the sender of an accepted message has no role now."""
        source = follow_move(self.canonical(received.inbound.source), self.directory.moves)
        access = self._access(source, next(iter(possible_trust(received.basis))))
        return access.reason if access.grant else ACCESS_ENDED

    def _access(self, source: Source, trust: Trust, *, no_pairing: str = PAIRING_OFF) -> Access:
        """Decide access. A grant to one form of an id holds for all its aliases."""
        person = _find_person(source, self.table.people)
        known = self.directory.aliases_of(source)
        index = self.grants.index(source.platform, self.settings.grants, self.table, known)
        return decide_access(source, trust, index.candidates(source, person), person=person, no_pairing=no_pairing)

    def _no_pairing(self, message: Inbound) -> str:
        """Return why the sender of a message cannot pair; nothing if they can."""
        source, platform = message.source, self.platform_of(message.source)
        if message.cause is not Cause.HUMAN or message.observed:
            return "pairing is only for what people write to the agent"
        if platform is None:
            return "no account of this gateway is there"
        if not platform.for_people or not (source.chat or source.participant):
            return "pairing is only for chats with people"
        section, pairs = self.settings.pairing.locate(source)
        if pairs and platform.anybody_writes and section[:1] != ("platforms",):
            return f"{PAIRING_OFF} unless platforms.{platform.name}.pairing is true"
        return "" if pairs else PAIRING_OFF

    def speaker(self, source: Source, role: AccessRole | None) -> Speaker:
        scope = self.settings.scopes.find(source)
        person = _find_person(source, self.directory.linked)
        is_owner = role is AccessRole.OWNER or (scope.dm is DmScope.SHARED and self._is_owner(person))
        return Speaker(person=person, is_owner=is_owner)

    def _is_owner(self, person: str | None) -> bool:
        """Tell whether any identity of a linked person is the owner's, at any of our accounts."""
        identities = self.directory.identities.get(person or "", ())
        grants = (*self.settings.grants, *self.table.grants.values()) if identities else ()
        places = {(grant.account, grant.scope_id) for grant in grants if grant.role is AccessRole.OWNER}
        return any(
            self.role_of(replace(source_of_identity(identity), account=account, scope_id=server)) is AccessRole.OWNER
            for identity in identities
            for account, server in places
        )

    def key(self, source: Source, speaker: Speaker) -> SessionKey:
        return derive_key(source, self.settings.scopes.find(source), speaker)


def _find_person(source: Source, people: Mapping[str, str]) -> str | None:
    """Return the person behind a source. Most gateways know of none."""
    return people.get(identity_of(source) or "") if people else None


_MAX_REMEMBERED = 10_000
"""Another gateway can begin the turn of a message that this one accepted, so some are never asked for."""


class AccessLost(Exception):
    """Senders of accepted messages have no access any more."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(f"no access: {sorted(reasons)}")
        self.reasons = reasons
        """By the number of the message."""


class OutputLost(Exception):
    """Waiting notices have output of processes whose starters cannot use the terminal any more."""

    def __init__(self, notices: Sequence[Received]) -> None:
        super().__init__(f"no terminal: {[each.number for each in notices]}")
        self.notices = notices


class Overheard(Exception):
    """What begins was only overheard, so each message belongs to the whole chat that it came from."""

    def __init__(self, messages: Sequence[tuple[Received, SessionKey]]) -> None:
        super().__init__(f"overheard: {[received.number for received, _ in messages]}")
        self.messages = messages
        """Each with the key of its chat."""


class CurrentRights:
    """What the senders of accepted messages can do now: rights hold when a thing is done."""

    def __init__(self, ctx: EngineContext) -> None:
        self._ctx = ctx
        self._cache = GrantCache()
        self._table = GrantTable()
        self.directory: Directory | None = None
        """As intake last loaded them. Only what they grant is believed; before refusing anybody, load them again."""
        self._accepted: dict[int, Rules] = {}

    @property
    def table(self) -> GrantTable:
        """The stored grants as they were last loaded, for the configured ones of now."""
        if self._table.configured != self._ctx.settings.grants:
            self._table = GrantTable(configured=self._ctx.settings.grants)
        return self._table

    @table.setter
    def table(self, loaded: GrantTable) -> None:
        self._table = loaded

    def remember(self, number: int, rules: Rules) -> None:
        """Remember by what a message was accepted: while that is unchanged, the role of its sender is, too."""
        if len(self._accepted) >= _MAX_REMEMBERED:
            self._accepted.clear()
        self._accepted[number] = rules

    def _is_unchanged(self, number: int, table: GrantTable) -> bool:
        rules = self._accepted.pop(number, None)
        return (
            rules is not None
            and rules.settings is self._ctx.settings
            and rules.directory is self.directory
            and rules.table is table
        )

    def rules(self) -> Transaction[AccessRules]:
        """Return the grants of now, read again only after a change."""
        return access_rules.load(self._ctx.settings.grants, self.table, self._cache)

    @transaction
    def sees_output(self, source: Source, role: AccessRole | None, basis: Basis | None) -> Statements[bool]:
        """Tell whether the sender of an accepted message can use the terminal now."""
        rules = yield from self.rules()
        now = rules.role(source, *possible_trust(basis))
        if now is None:
            return False
        tools, current = self._ctx.settings.tools, min(now, role or AccessRole.GUEST)
        mode = tools.approval_mode("terminal", current, source.platform, needs_approval=True)
        return mode is not ApprovalMode.NEVER

    @transaction
    def find_outputs(self, messages: Sequence[Received]) -> Statements[list[Received]]:
        """Return the waiting notices with output of a process that its starter cannot have any more."""
        found: list[Received] = []
        for each in messages:
            if each.inbound.has_process_output:
                sees = yield from self.sees_output(each.inbound.source, each.role, each.basis)
                found += [] if sees else [each]
        return found

    @transaction
    def check(self, messages: Sequence[Received]) -> Statements[Sequence[Received]]:
        """Return the messages with the roles of now. Raise AccessLost if somebody has none."""
        current, reasons = yield from self.split(messages)
        if reasons:
            raise AccessLost(reasons)
        return current

    @transaction
    def split(self, messages: Sequence[Received]) -> Statements[tuple[Sequence[Received], dict[int, str]]]:
        """Return the messages of those who have access, with the roles of now, and why others have none."""
        table = yield from grants.load_table(self.table)
        if all(self._is_unchanged(each.number, table) for each in messages):
            return messages, {}
        if table is self.table and self.directory is not None:
            rules = Rules(self._ctx.settings, {}, self.directory, table, self._cache)
            if all(rules.current_role(each) is each.role for each in messages):
                return messages, {}
        rules = Rules(self._ctx.settings, {}, (yield from load_directory()), table, GrantCache())
        roles = {each.number: rules.current_role(each) for each in messages}
        lost = {each.number: rules.refusal(each) for each in messages if roles[each.number] is None}
        kept = [replace(each, role=roles[each.number]) for each in messages if each.number not in lost]
        return kept, lost


@value(kw_only=False)
class AdmissionDecision:
    source: Source
    """The source that was decided about: canonical, under the current id of its chat."""
    access: Access
    role: AccessRole | None
    """The role under which the message is accepted. The sender's key depends on `access.role` instead."""
    speaker: Speaker
    rules: Rules
    """What it was decided by."""
    is_of_chat: bool = False
    """It was overheard, so it belongs to the whole chat."""

    @property
    def key(self) -> SessionKey:
        key = self.rules.key(self.source, self.speaker)
        return (self.is_of_chat and chat_key(key)) or key


@value(kw_only=False)
class AcceptResult:
    number: int | None
    """The inbox number; None if the message was already there."""
    refused: str | None = None
    is_ignored: bool = False


class Admission:
    """Decides by cached grants, and learns in the accepting transaction whether they are still current."""

    def __init__(self, ctx: EngineContext, revisions: Revisions, rights: CurrentRights) -> None:
        self._ctx = ctx
        self._revisions = revisions
        self._rights = rights
        self._cache = GrantCache()
        self.accounts = {name: adapter.platform for name, adapter in ctx.replies.adapters.items()}

    def rules(self, directory: Directory) -> Rules:
        return Rules(self._ctx.settings, self.accounts, directory, self._rights.table, self._cache)

    async def accept(
        self, message: Inbound, key: SessionKey, decision: AdmissionDecision, busy_notices: BusyNotices | None
    ) -> AcceptResult | None:
        """Put a message into the inbox as decided. Return None if the grants have changed: then decide again."""
        access = decision.access
        is_ignored = access.verdict is Verdict.REFUSE and self._ctx.settings.is_undecided(message)
        step = None if is_ignored and not message.revision else self._step(message, key, decision, busy_notices)
        # Approving a stranger takes the first lock, unlinking people and moving a chat the second.
        locks = [PAIRING_LOCK] if access.verdict is Verdict.PAIR else []
        run = grants.run_if_current(decision.rules.table, [*locks, Lock(key.text)], step)
        if access.verdict is Verdict.ALLOW and not message.revision:
            run = keyed(key.text, run)
        found = await self._ctx.store.transact(run)
        if isinstance(found, GrantTable):
            self._rights.table = found
            return None
        if isinstance(found, tuple):
            result = AcceptResult(*found)
        else:
            is_refused = access.verdict is Verdict.REFUSE and step is not None and not message.revision
            result = AcceptResult(found, access.reason if is_refused else None, is_ignored=step is None)
            if found is not None and access.verdict is Verdict.ALLOW and message.revision is None:
                self._rights.remember(found, decision.rules)
        if result.number is not None:
            self._ctx.store.saw(Seen("in", result.number, key.text, self._ctx.clock.now()))
        self._report(result, key)
        return result

    def _step(
        self, message: Inbound, key: SessionKey, decision: AdmissionDecision, busy_notices: BusyNotices | None
    ) -> Transaction[int | None] | Transaction[tuple[int, str] | None]:
        store, access, now = self._ctx.store, decision.access, self._ctx.clock.now()
        if message.revision is not None:
            expected = decision.rules.addressing(replace(message, burst=None)) is not Addressing.IGNORED
            withdraw = busy_notices and busy_notices.withdraw
            return self._revisions.accept(message, key, access, now, expected=expected, withdraw_question=withdraw)
        if access.verdict is Verdict.PAIR:
            code = make_code(secrets.token_bytes(CODE_BYTES))
            with_code, without = (
                self._ctx.replies.routes.notices(message.source, text)
                for text in (texts.pairing_code(code), texts.NO_PAIRING_CODE)
            )
            request = store.pairing.request(message, key, now, code=code, answer=with_code, without_code=without)
            return self._ask_for_access(message, request, now)
        if access.verdict is Verdict.REFUSE:
            return store.inbox.accept(message.without_content(), key, now, refused=access.reason)
        return store.inbox.accept(message, key, now, role=decision.role, basis=access.basis, busy_notices=busy_notices)

    @transaction
    def _ask_for_access(
        self, message: Inbound, request: Transaction[Requested | None], now: datetime
    ) -> Statements[tuple[int, str] | None]:
        """Give a stranger a code, and tell the owner once who waits."""
        requested = yield from request
        if requested is None:
            return None
        if requested.rank is not None and requested.rank <= MAX_ANNOUNCED_STRANGERS + 1:
            source, identity = message.source, identity_of(message.source) or ""
            at, who = account_name(source.platform, source.account), named_identity(identity, message.labels.user)
            is_one_of_many = requested.rank > MAX_ANNOUNCED_STRANGERS
            asked = texts.access_asked(who, at, readable_identity(identity))
            yield from notify_owner(
                outbound_to(source, ""),
                texts.more_access_asked(at) if is_one_of_many else asked,
                SendCause(CauseKind.ACCESS_ASKED, requested.number),
                Reporting(self._ctx.replies.routes, self._ctx.settings.grants),
                now,
            )
        return requested.number, requested.reason

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
