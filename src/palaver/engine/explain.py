"""Explain what the gateway decides about a message, with the functions that decide it and the rules by name."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import cast

from palaver.db.transaction import Statements, transaction
from palaver.engine.intake.admission import AdmissionDecision, Rules, load_directory
from palaver.engine.intake.command_dispatch import read_message
from palaver.engine.intake.receiver import Decision, decide
from palaver.engine.settings import Settings, follow_move, follow_moves
from palaver.model.access import Grant, Verdict, describe_grant
from palaver.model.command import Command
from palaver.model.key import (
    KeyExplanation,
    SessionKey,
    chat_key,
    choose_profile_rule,
    explain_chat_key,
    explain_job_key,
    explain_key,
    overruled_profile_rule,
)
from palaver.model.people import Reception
from palaver.model.platform import Platform
from palaver.model.reset import ResetDecision, ResetMode, ResetRule, decide_reset
from palaver.model.source import DM, MAIN, THREAD, Source, Trust, canonical_source, readable_identity
from palaver.model.text import one_line
from palaver.model.turn import Inbound
from palaver.model.value import FieldPath, value
from palaver.store.conversations import attach, sessions
from palaver.store.conversations.sessions import OpeningPlan
from palaver.store.people import grants, pairing
from palaver.store.people.grants import GrantCache, GrantTable

DEFAULT = "default"
_SHOWN_CHARACTERS = 60
_INSTRUCTION_FIELDS = ("instructions", "instructions_file")


@value
class AppliedRule:
    """A setting or grant that took part in a decision."""

    name: str
    """What it decides: `scope.group`, `grant`."""
    value: str
    field: str = ""
    """The field of the configuration that has it."""
    where: str = DEFAULT
    """File and line, a variable, or `default`."""


@value
class Explanation:
    """What happens to a message if it arrives now."""

    decision: Decision
    admission: AdmissionDecision
    """For a message that is not for us: what would be decided if it were."""
    reception: Reception | None
    """What happens to the message of a stranger who can pair."""
    key: KeyExplanation
    """The conversation of the chat."""
    conversation: SessionKey
    """The same, or the one that the chat is attached to."""
    is_shared: bool
    """Whether several people take part in it, or can."""
    opening: OpeningPlan
    reset: ResetDecision
    """By the clock alone: a running turn also keeps a conversation open."""
    reset_rule: ResetRule
    profile_rules: tuple[AppliedRule, ...]
    key_rules: tuple[AppliedRule, ...]
    access_rules: tuple[AppliedRule, ...]
    reset_rules: tuple[AppliedRule, ...]
    instructions: tuple[AppliedRule, ...]
    """Those that the agent gets for this place and conversation, from general to specific."""


@transaction
def explain(
    inbound: Inbound,
    trust: Trust,
    now: datetime,
    *,
    settings: Settings,
    accounts: Mapping[str, Platform],
    commands: Mapping[str, Command],
) -> Statements[Explanation]:
    """Decide about a message as the gateway would now, and name the rules."""
    directory = yield from load_directory()
    table = yield from grants.load_table(GrantTable(configured=settings.grants))
    rules = Rules(follow_moves(settings, directory.moves), accounts, directory, table, GrantCache())
    decision = decide(rules, read_message(inbound, commands, rules.platform_of(inbound.source)), trust)
    source = decision.message.source
    current = replace(decision.message, source=follow_move(source, directory.moves))
    admission = decision.admission or rules.decide(current, trust)
    placed = admission.source
    is_stranger = admission.access.verdict is Verdict.PAIR
    reception = (yield from pairing.receive(placed, now)) if is_stranger else None
    key = explain_key(placed, rules.settings.scopes.find(placed), admission.speaker)
    if admission.is_of_chat and (chat := chat_key(key.key)):
        key = explain_chat_key(chat)
    if (job := inbound.job) and not job.attached:
        key = explain_job_key(placed.profile, job.number)
    conversation = yield from attach.conversation_of(key.key)
    rule = rules.settings.reset_rule(source)
    opening = yield from sessions.plan_opening(conversation, source, now, rule)
    is_shared = conversation.shared or key.key.shared
    if not is_shared and opening.session and opening.reason is None:
        is_shared = yield from attach.is_shared(opening.session)
    last_human = opening.session.last_human if opening.session else now
    named = _NamedRules(rules, placed)
    return Explanation(
        decision=decision,
        admission=admission,
        reception=reception,
        key=key,
        conversation=conversation,
        is_shared=is_shared,
        opening=opening,
        reset=decide_reset(rule.policy, last_human, now, rule.zone),
        reset_rule=rule,
        profile_rules=tuple(named.profile(inbound.source)),
        key_rules=tuple(named.key()),
        access_rules=tuple(named.access(admission)),
        reset_rules=tuple(_NamedRules(rules, source).reset()),
        instructions=tuple(named.instructions(opening)),
    )


@value(kw_only=False)
class _NamedRules:
    """Names the rules that apply to a source."""

    rules: Rules
    source: Source

    def profile(self, asked: Source) -> Iterator[AppliedRule]:
        plain = canonical_source(asked, self.rules.directory.aliases_of(asked))
        profiles = self.rules.settings.profiles
        rule, overruled = choose_profile_rule(plain, profiles), overruled_profile_rule(plain, profiles)
        if rule is not None:
            yield self._at("profile", rule.profile, rule.origin)
        else:
            where = DEFAULT if plain.profile == MAIN else "the sender asked for it"
            where += ", which wins over the configuration" if overruled else ""
            yield AppliedRule(name="profile", value=plain.profile, where=where)
        if overruled is not None:
            yield self._at("overruled profile", overruled.profile, overruled.origin)

    def key(self) -> Iterator[AppliedRule]:
        kind = self.source.chat_kind
        name = "dm" if kind == DM else "thread" if self.source.thread_id or kind == THREAD else "group"
        yield self._setting("scope", self.rules.settings.scopes.locate(self.source, name), name)

    def access(self, admission: AdmissionDecision) -> Iterator[AppliedRule]:
        settings, grant = self.rules.settings, admission.access.grant
        if grant is not None:
            yield self._grant(grant)
        elif self.source.chat_kind == DM and (
            admission.access.verdict is Verdict.PAIR or not settings.pairing.find(self.source)
        ):
            yield self._setting("pairing", settings.pairing.locate(self.source))
        if self.source.chat_kind != DM:
            for name in ("answers", "wake_words", "observes"):
                yield self._setting("attention", settings.attention.locate(self.source, name), name)

    def instructions(self, opening: OpeningPlan) -> Iterator[AppliedRule]:
        settings = self.rules.settings
        for section, found in settings.instructions.matching(self.source):
            value = one_line(found(), _SHOWN_CHARACTERS) if found else ""
            named = ((*outer, name) for outer in self._sections(section) for name in _INSTRUCTION_FIELDS)
            yield from (self._at(path[-1], value, path) for path in named if value and settings.written_at(path))
        if opening.reason is None and opening.session and (text := opening.session.instructions):
            value = one_line(text, _SHOWN_CHARACTERS)
            yield AppliedRule(name="instructions", value=value, where="this conversation, in the web chat")

    def reset(self) -> Iterator[AppliedRule]:
        settings = self.rules.settings
        mode = settings.resets.find(self.source).mode
        yield self._setting("reset", settings.resets.locate(self.source, "mode"), "mode")
        if mode in {ResetMode.IDLE, ResetMode.BOTH}:
            yield self._setting("reset", settings.resets.locate(self.source, "idle_minutes"), "idle_minutes")
        if mode in {ResetMode.DAILY, ResetMode.BOTH}:
            yield self._setting("reset", settings.resets.locate(self.source, "at_hour"), "at_hour")
            yield self._setting("timezone", settings.zones.locate(self.source))

    def _setting(self, name: str, located: tuple[FieldPath, object], part: str = "") -> AppliedRule:
        """Name a setting, or a part of one, with the section that has it."""
        section, found = located
        path: FieldPath = (name, part) if part else (name,)
        text = getattr(found, part) if part else found
        named = ".".join(map(str, path))
        for outer in self._sections(section):
            if self.rules.settings.written_at((*outer, *path)):
                return self._at(named, _text(text), (*outer, *path))
        return AppliedRule(name=named, value=_text(text))

    def _sections(self, section: FieldPath) -> list[FieldPath]:
        """Return the section of a chat under its current id and those it had before."""
        if "threads" in section[-2:-1]:
            return [(*chat, *section[-2:]) for chat in self._sections(section[:-2])]
        moves = self.rules.directory.moves
        chats = [old for chats in moves.values() for old, new in chats.items() if section[-1:] == (new,)]
        before = [(*section[:-1], chat) for chat in chats]
        # A setting of the chat id on every server moved along as one of this server.
        wider = [(*each[:2], *each[4:]) for each in before if each[2] == "servers"]
        return [section, *before, *wider]

    def _grant(self, grant: Grant) -> AppliedRule:
        text, origin = describe_grant(grant), grant.origin
        if origin[:1] != ("grant",):
            return self._at("grant", text, origin)
        where = f"grant {origin[1]} of palaver grants list, given by {readable_identity(grant.actor)}"
        return AppliedRule(name="grant", value=text, where=where)

    def _at(self, name: str, text: str, path: FieldPath) -> AppliedRule:
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
        where = self.rules.settings.written_at(path) if path else "built in"
        return AppliedRule(name=name, value=text, field=field, where=where or DEFAULT)


def _text(found: object) -> str:
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, frozenset):
        return ", ".join(sorted(map(str, cast("frozenset[str]", found)))) or "none"
    return str(getattr(found, "value", found))
