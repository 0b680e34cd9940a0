"""`palaver explain`: show how Palaver decides about keys, routes, access, resets, targets and schedules.

The gateway's own functions decide, on the configuration and the store in use.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from palaver.cli import shared_options
from palaver.cli.explain_subject import (
    Account,
    Chat,
    DescribedSource,
    Kind,
    Message,
    Parent,
    PlatformName,
    Result,
    Server,
    Thread,
    User,
    UserAlt,
    explained,
)
from palaver.cli.explain_target import explain_target
from palaver.cli.output import pick, print_facts, print_heading, print_json, print_line, print_note, print_rows
from palaver.cli.shared_options import Json, StoreOption
from palaver.config.loader import load
from palaver.engine.explain import AppliedRule, Explanation
from palaver.engine.settings import Settings
from palaver.model.access import Verdict, parse_identity
from palaver.model.addressing import Addressing
from palaver.model.key import DmScope, GroupScope, ScopedSetting
from palaver.model.local_time import parse_instant, parse_zone
from palaver.model.people import Reception
from palaver.model.reset import ResetDecision, ResetMode, decide_reset
from palaver.model.schedule import next_occurrences, parse_schedule
from palaver.model.source import DM, MAIN, Source, Trust, parse_participant, with_participant
from palaver.model.turn import InboxState
from palaver.model.value import FieldPath
from palaver.platforms.plugins import known_platforms
from palaver.store.results import Opening
from palaver.store.status.trace import InboundTrace

EXAMPLES = {
    "key": "palaver explain key --platform telegram --kind group --chat -100 --user 7",
    "route": "palaver explain route in:42",
    "reset": "palaver explain reset --policy daily --zone Europe/Berlin --last-active 2026-03-29T01:30:00+01:00",
    "target": 'palaver explain target "telegram:-100:42,local"',
    "access": "palaver explain access telegram:7 --kind group --chat -100",
    "schedule": 'palaver explain schedule "every 2h" --zone Europe/Berlin',
}

app = typer.Typer(help="Explain how Palaver decides.", rich_markup_mode=None)

# An argument can begin with a minus; report its own mistake, not an unknown option.
_MINUS = {"ignore_unknown_options": True}


def _rule_fields(rules: tuple[AppliedRule, ...]) -> list[dict[str, object]]:
    return [pick(rule, "name value field where") for rule in rules]


def _print_rules(rules: tuple[AppliedRule, ...]) -> None:
    print_line("")
    rows = [(rule.name, rule.value, f"{rule.where} ({rule.field})" if rule.field else rule.where) for rule in rules]
    print_rows(("rule", "value", "set in"), rows)


def _then(result: Result) -> dict[str, object] | None:
    """Return what is stored about the message: a later approval or refusal can have changed it."""
    received, turn = result.subject.received, result.subject.turn
    if received is None:
        return None
    return {
        **pick(received, "number state received key place reason"),
        "role": received.role and received.role.text,
        "session": turn and turn.turn.session,
        "reset": turn and turn.reset,
    }


def _print_then(result: Result) -> None:
    received, turn = result.subject.received, result.subject.turn
    if received is None:
        return
    print_line("")
    facts = [("key", received.key), ("access", _outcome(received))]
    if turn is not None:
        fresh = f", a new one (reset: {turn.reset})" if turn.reset else ""
        facts.append(("session", f"{turn.turn.session}{fresh}"))
    print_heading(f"Stored for in:{received.number}")
    print_facts(facts)


def _outcome(received: InboundTrace) -> str:
    if received.state is InboxState.REFUSED:
        return f"refused: {received.reason}"
    accepted = f"accepted as {received.role.text}" if received.role else "accepted"
    return f"{accepted}; the command failed: {received.reason}" if received.state is InboxState.FAILED else accepted


@app.command(help=f"Show which conversation a message belongs to, and why.\n\n{EXAMPLES['key']}")
def key(
    message: Message = "",
    platform: PlatformName = "",
    kind: Kind = DM,
    chat: Chat = "",
    thread: Thread = "",
    parent: Parent = "",
    user: User = "",
    user_alt: UserAlt = "",
    server: Server = "",
    account: Account = "",
    profile: Annotated[str | None, typer.Option(help="The profile that the sender asks for.")] = None,
    dm_scope: Annotated[DmScope | None, typer.Option(help="Override the configured scope of direct chats.")] = None,
    group_scope: Annotated[GroupScope | None, typer.Option(help="Override the configured scope of groups.")] = None,
    thread_scope: Annotated[GroupScope | None, typer.Option(help="Override the configured scope of threads.")] = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    described = DescribedSource(
        platform=platform,
        kind=kind,
        chat=chat,
        thread=thread,
        parent=parent,
        user=user,
        user_alt=user_alt,
        server=server,
        account=account,
        profile=MAIN if profile is None else profile,
    )
    scopes = {"dm": dm_scope, "group": group_scope, "thread": thread_scope}
    given = {name: scope for name, scope in scopes.items() if scope is not None}

    def change(settings: Settings) -> Settings:
        changed = settings.scopes.map(lambda scope: replace(scope, **given)) if given else settings.scopes
        return replace(settings, scopes=changed)

    result = explained(store, message, described.source, mention=True, change=change)
    rules = _replaced(result.explanation.key_rules, {f"scope.{name}" for name in given})
    _print_key(result, (*result.explanation.profile_rules, *rules), json=json)


def _print_key(result: Result, rules: tuple[AppliedRule, ...], *, json: bool) -> None:
    explanation = result.explanation
    found, sharing, parts = explanation.key
    attached_to = explanation.conversation.text if explanation.conversation != found else None
    if json:
        fields = {"key": found.text, "parts": [part._asdict() for part in parts], "shared": explanation.is_shared}
        print_json({**fields, "attached_to": attached_to, "rules": _rule_fields(rules), "then": _then(result)})
        return
    print_heading(found.text)
    print_rows(("part", "value", "rule"), [(part.name, part.value, part.rule) for part in parts])
    others = "several people take part" if explanation.is_shared and not found.shared else sharing.value
    print_facts([("shared", f"{'yes' if explanation.is_shared else 'no'} ({others})")])
    if attached_to:
        print_facts([("goes to", f"{attached_to} (this chat is attached to it; /detach leaves it)")])
    _print_rules(rules)
    _print_then(result)


def _replaced(rules: tuple[AppliedRule, ...], given: Collection[str]) -> tuple[AppliedRule, ...]:
    """Return the rules without the positions of those that an option replaces."""
    return tuple(replace(rule, field="", where="this command") if rule.name in given else rule for rule in rules)


_VERDICTS = {Verdict.ALLOW: "has access", Verdict.REFUSE: "refused", Verdict.PAIR: "gets a pairing code"}
_ADDRESSING = {
    Addressing.ADDRESSED: "for the agent",
    Addressing.OVERHEARD: "for others; the agent sees it later",
    Addressing.IGNORED: "for others; not stored",
}


@app.command("access", help=f"Show whether somebody has access somewhere, and why.\n\n{EXAMPLES['access']}")
def explain_access(
    who: Annotated[str, typer.Argument(help="The sender, for example telegram:7; or a message (in:42) or a session.")],
    *,
    kind: Kind = DM,
    chat: Chat = "",
    thread: Thread = "",
    parent: Parent = "",
    server: Server = "",
    account: Account = "",
    text: Annotated[str, typer.Option(help="The text they send.")] = "",
    mention: Annotated[bool, typer.Option("--mention", help="They mention the bot or reply to it.")] = False,
    bot: Annotated[bool, typer.Option("--bot", help="The sender is a bot.")] = False,
    platform_role: Annotated[
        bool, typer.Option("--platform-role", help="They have the required role on the platform.")
    ] = False,
    relay: Annotated[bool, typer.Option("--relay", help="The message comes through a trusted relay.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    def by_hand() -> Source:
        platform, participant = parse_identity(who, known_platforms())
        user = parse_participant(participant)[0] or ""
        where = chat or (user if kind == DM else "")
        described = DescribedSource(
            platform=platform, kind=kind, chat=where, thread=thread, parent=parent, server=server, account=account
        )
        return with_participant(described.source(), participant)

    trust = Trust(is_bot=bot, has_role_grant=platform_role, via_trusted_relay=relay)
    is_sender = ":" in who and not re.fullmatch(r"(in|turn|out):-?\d+", who.strip())
    result = explained(store, "" if is_sender else who, by_hand, text=text, mention=mention, trust=trust)
    explanation = result.explanation
    access, heard = explanation.admission.access, explanation.decision.addressing
    verdict, reason, received = access.verdict, access.reason, explanation.reception
    if received is not None and received is not Reception.CODE:
        verdict, reason = verdict if received.keeps else Verdict.REFUSE, received.value
    if json:
        grant = access.grant.to_json() if access.grant else None
        fields = {"verdict": verdict, "reason": reason, "grant": grant, "heard": heard}
        rules = _rule_fields(explanation.access_rules)
        print_json({**fields, "role": access.role and access.role.text, "rules": rules, "then": _then(result)})
        return
    print_heading("waits for approval" if received in {Reception.WAITS, Reception.LOCKED} else _VERDICTS[verdict])
    print_facts([("because", reason), ("message", _ADDRESSING[heard])])
    _print_rules(explanation.access_rules)
    _print_then(result)


@app.command(
    help=f"Show which profile answers a message, in which session, with which instructions.\n\n{EXAMPLES['route']}"
)
def route(
    message: Message = "",
    platform: PlatformName = "",
    kind: Kind = DM,
    chat: Chat = "",
    thread: Thread = "",
    parent: Parent = "",
    user: User = "",
    user_alt: UserAlt = "",
    server: Server = "",
    account: Account = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    described = DescribedSource(
        platform=platform,
        kind=kind,
        chat=chat,
        thread=thread,
        parent=parent,
        user=user,
        user_alt=user_alt,
        server=server,
        account=account,
    )
    result = explained(store, message, described.source, mention=True)
    explanation = result.explanation
    profile, opening = explanation.conversation.profile, explanation.opening
    own = result.config.profiles.get(profile)
    has_own = own is not None and "agent" in own.model_fields_set
    agent = (own if own and has_own else result.config).agent.name
    of_agent = ("profiles", profile, "agent") if has_own else ("agent",)
    rules = (*explanation.profile_rules, *_agent_instructions(result, of_agent), *explanation.instructions)
    session = opening.session.id if opening.session else None
    if json:
        fields = {"profile": profile, "agent": agent, "key": explanation.conversation.text, "opening": opening.opening}
        print_json({**fields, "session": session, "rules": _rule_fields(rules), "then": _then(result)})
        return
    print_heading(f"profile {profile}")
    facts = [("agent", agent), ("conversation", explanation.conversation.text), ("session", _opens(explanation))]
    print_facts(facts)
    _print_rules(rules)
    _print_then(result)


def _agent_instructions(result: Result, section: FieldPath) -> Iterator[AppliedRule]:
    """Name the instructions that the agent itself has, before those of the place."""
    written_at = result.config.settings().written_at
    for name in ("instructions", "instructions_file"):
        if where := written_at((*section, name)):
            field = ".".join(map(str, (*section, name)))
            yield AppliedRule(name=f"agent.{name}", value="those of the agent", field=field, where=where)


def _opens(explanation: Explanation) -> str:
    opening, session = explanation.opening, explanation.opening.session
    if session is None:
        return "a new one"
    if opening.opening is Opening.RESET:
        return f"a new one after {session.id} ({opening.reason})"
    return f"{session.id}, which ended, is reopened" if opening.opening is Opening.REOPENED else session.id


@app.command(help=f"Show whether a conversation starts fresh with the next message, and why.\n\n{EXAMPLES['reset']}")
def reset(
    message: Message = "",
    platform: PlatformName = "",
    kind: Kind = DM,
    chat: Chat = "",
    thread: Thread = "",
    parent: Parent = "",
    user: User = "",
    server: Server = "",
    account: Account = "",
    last_active: Annotated[str, typer.Option(help="When a person last wrote: ISO 8601 with an offset.")] = "",
    policy: Annotated[ResetMode | None, typer.Option(help="Override the configured policy.")] = None,
    idle_minutes: Annotated[int | None, typer.Option(help="Minutes without a message from a person.")] = None,
    at_hour: Annotated[int | None, typer.Option(help="Local hour of the daily reset.")] = None,
    zone_name: Annotated[str, typer.Option("--zone", help="Override the configured time zone (IANA name).")] = "",
    now: Annotated[str, typer.Option(help="ISO 8601 with an offset. Default: now.")] = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    described = DescribedSource(
        platform=platform,
        kind=kind,
        chat=chat,
        thread=thread,
        parent=parent,
        user=user,
        server=server,
        account=account,
    )
    changed = {"mode": policy, "idle_minutes": idle_minutes, "at_hour": at_hour}
    given = {name: value for name, value in changed.items() if value is not None}
    zone = parse_zone(zone_name) if zone_name else None

    def change(settings: Settings) -> Settings:
        resets = settings.resets.map(lambda found: replace(found, **given)) if given else settings.resets
        return replace(settings, resets=resets, zones=ScopedSetting(default=zone) if zone else settings.zones)

    present = _instant_or_now(now)
    if last_active and not message and not platform:
        rule = change(load(Path.cwd()).settings())
        spoken = parse_instant(last_active)
        where = rule.zones.default
        if present < spoken:
            print_note(f"It is {_iso(present, where)}, before --last-active, so no time has passed.")
        _print_decision(decide_reset(rule.resets.default, spoken, present, where), where, as_json=json)
        return
    result = explained(store, message, described.source, mention=True, change=change, now=present)
    names = {f"reset.{name}" for name in given} | ({"timezone"} if zone else set[str]())
    _print_reset(result, _replaced(result.explanation.reset_rules, names), json=json)


def _print_reset(result: Result, rules: tuple[AppliedRule, ...], *, json: bool) -> None:
    explanation = result.explanation
    opening, zone = explanation.opening, explanation.reset_rule.zone
    if json:
        fields = _decision_fields(replace(explanation.reset, reason=opening.reason), zone)
        session = opening.session and {"id": opening.session.id, "last_human": opening.session.last_human}
        shown = {"opening": opening.opening, "session": session, "rules": _rule_fields(rules)}
        print_json({**fields, **shown, "then": _then(result)})
        return
    if opening.session is None:
        print_heading("starts a conversation: there is none yet")
    else:
        print_heading(f"starts fresh: {opening.reason}" if opening.reason else "continues")
        held = explanation.reset.reason and not opening.reason
        facts = [("session", _opens(explanation)), ("last message", _iso(opening.session.last_human, zone) or "")]
        print_facts([*facts, *_boundaries(explanation.reset, zone)])
        if held:
            print_facts([("held back", "a turn or a background process is still running")])
    _print_rules(rules)
    _print_then(result)


def _print_decision(decision: ResetDecision, zone: ZoneInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(_decision_fields(decision, zone))
        return
    print_heading(f"starts fresh: {decision.reason}" if decision.reason else "continues")
    print_facts(_boundaries(decision, zone))


def _decision_fields(decision: ResetDecision, zone: ZoneInfo) -> dict[str, object]:
    return {
        "reset": decision.reason,
        "boundary": _iso(decision.boundary, zone),
        "next": _iso(decision.next, zone),
    }


def _boundaries(decision: ResetDecision, zone: ZoneInfo) -> list[tuple[str, str]]:
    boundary, following = _iso(decision.boundary, zone), _iso(decision.next, zone)
    return [("boundary crossed", boundary or "none"), ("next boundary", following or "never")]


app.command("target", context_settings=_MINUS, help=f"Show where a delivery target leads.\n\n{EXAMPLES['target']}")(
    explain_target
)


@app.command(context_settings=_MINUS, help=f"Show the next five times of a schedule.\n\n{EXAMPLES['schedule']}")
def schedule(
    text: Annotated[
        str,
        typer.Argument(
            help="30m, 18:00 or tomorrow at 9am (once), every 2h, every day at 18:00, five-field cron, or an ISO time."
        ),
    ],
    zone_name: Annotated[str, typer.Option("--zone", help="IANA time zone. Default: the configured one.")] = "",
    now: Annotated[str, typer.Option(help="ISO 8601 with an offset. Default: now.")] = "",
    json: Json = False,
) -> None:
    moment = _instant_or_now(now)
    zone = shared_options.find_zone(zone_name)
    parsed = parse_schedule(text, zone, moment)
    times = [_iso(time, zone) or "" for time in next_occurrences(parsed, moment, 5)]
    if json:
        print_json({"schedule": parsed.text, "description": parsed.describe(), "next": times})
        return
    print_heading(parsed.describe())
    print_facts([(str(number), time) for number, time in enumerate(times, 1)])


def _instant_or_now(text: str) -> datetime:
    return parse_instant(text) if text else shared_options.now()


def _iso(moment: datetime | None, zone: ZoneInfo) -> str | None:
    return moment and moment.astimezone(zone).isoformat()
