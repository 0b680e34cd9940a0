"""`palaver explain`: show how Palaver decides about keys, access, resets, targets and schedules."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.output import print_facts, print_heading, print_json, print_note, print_rows
from palaver.cli.shared_options import Json, StoreOption, ask, store_url
from palaver.config.loader import load
from palaver.engine.options import Options, follow_moves
from palaver.model.access import Access, Verdict, decide_access, describe_grant_place, describe_grantee, parse_identity
from palaver.model.addressing import Addressing, classify_addressing
from palaver.model.errors import BadArgument, StoreError, UnknownPlatform
from palaver.model.key import (
    DmScope,
    GroupScope,
    KeyExplanation,
    Scope,
    SessionKey,
    Speaker,
    choose_profile,
    explain_key,
)
from palaver.model.local_time import format_instant, parse_instant, parse_zone
from palaver.model.platform import Platform
from palaver.model.reset import ResetDecision, ResetMode, ResetPolicy, decide_reset
from palaver.model.schedule import next_occurrences, parse_schedule
from palaver.model.source import DM, MAIN, STANDARD_KINDS, Source, Trust, identity_of
from palaver.model.target import All, Home, Local, Origin, Place, Target, parse_targets
from palaver.model.turn import Inbound
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.plugins import known_platforms
from palaver.store.conversations import chat_migration
from palaver.store.conversations.attach import conversation_of
from palaver.store.opening import sqlite_path
from palaver.store.people import grants
from palaver.store.people.grants import GrantTable

EXAMPLES = {
    "key": "palaver explain key --platform telegram --kind group --chat -100 --user 7",
    "reset": "palaver explain reset --policy daily --zone Europe/Berlin --last-active 2026-03-29T01:30:00+01:00",
    "target": 'palaver explain target "telegram:-100:42,local"',
    "access": "palaver explain access telegram:7 --kind group --chat -100",
    "schedule": 'palaver explain schedule "every 2h" --zone Europe/Berlin',
}

app = typer.Typer(help="Explain how Palaver decides.", rich_markup_mode=None)

# An argument can begin with a minus; report its own mistake, not an unknown option.
_MINUS = {"ignore_unknown_options": True}


def _platform(name: str) -> Platform:
    if name.strip().lower() not in PLATFORMS:
        raise UnknownPlatform(name, PLATFORMS, EXAMPLES["key"])
    return PLATFORMS[name.strip().lower()]


def _kind(name: str, platform: Platform) -> str:
    kinds = (*STANDARD_KINDS, *platform.extra_kinds)
    if name not in kinds:
        raise BadArgument("--kind cannot be", found=name, allowed=", ".join(kinds), example=EXAMPLES["key"])
    return name


def _chat(chat: str, kind: str) -> str:
    if not chat and kind != DM:
        raise BadArgument(
            f"A {kind} has a chat id, --chat cannot be", found=chat, allowed="any text", example=EXAMPLES["key"]
        )
    return chat


@app.command(help=f"Show which conversation a message belongs to, and why.\n\n{EXAMPLES['key']}")
def key(
    platform: Annotated[str, typer.Option(help="telegram, discord, …")],
    kind: Annotated[str, typer.Option(help="dm, group, channel or thread.")] = DM,
    chat: Annotated[str, typer.Option(help="Chat id; empty means none.")] = "",
    thread: Annotated[str, typer.Option(help="Thread id.")] = "",
    user: Annotated[str, typer.Option(help="User id.")] = "",
    user_alt: Annotated[str, typer.Option(help="Stable second user id (Signal UUID, Feishu union id).")] = "",
    server: Annotated[str, typer.Option(help="Guild, workspace or server id.")] = "",
    account: Annotated[str, typer.Option(help="Your bot account.")] = "",
    profile: Annotated[str | None, typer.Option(help="Use this profile instead of the configured one.")] = None,
    person: Annotated[str, typer.Option(help="The linked person behind the user, for --dm-scope per-person.")] = "",
    owner: Annotated[bool, typer.Option(help="Whether the user is the owner, for --dm-scope shared.")] = True,
    dm_scope: Annotated[DmScope, typer.Option(help="Which direct chats are one conversation.")] = DmScope.PER_CHAT,
    group_scope: Annotated[GroupScope, typer.Option(help="Who shares a group.")] = GroupScope.PER_USER,
    thread_scope: Annotated[GroupScope, typer.Option(help="Who shares a thread.")] = GroupScope.SHARED,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    known = _platform(platform)
    source = Source(
        platform=known.name,
        chat_kind=_kind(kind, known),
        chat_id=_chat(chat, kind),
        thread_id=thread,
        user_id=user,
        user_id_alt=user_alt,
        scope_id=server,
        account=account,
        profile=MAIN if profile is None else profile,
    )
    source = _routed(source) if profile is None else source
    scope = Scope(dm=dm_scope, group=group_scope, thread=thread_scope)
    explanation = explain_key(source, scope, Speaker(person or None, owner))
    _print_key(explanation, _attached_to(explanation.key, store), as_json=json)


def _routed(source: Source) -> Source:
    """Return the source with the profile that the configuration chooses."""
    return replace(source, profile=choose_profile(source, load(Path.cwd(), os.environ).options().profiles))


def _attached_to(place: SessionKey, store: str | None) -> SessionKey | None:
    """Return the conversation that this chat is attached to, if a store knows one."""
    file = sqlite_path(store_url(store))
    if file and not file.exists():
        return None
    try:
        led = ask(store, lambda opened: opened.read(conversation_of(place)))
    except StoreError as error:
        print_note(f"Cannot tell whether this chat is attached to another conversation: {error}.")
        return None
    return None if led == place else led


def _print_key(explanation: KeyExplanation, attached_to: SessionKey | None, *, as_json: bool) -> None:
    found, sharing, parts = explanation
    if as_json:
        fields = {"key": found.text, "parts": [part._asdict() for part in parts], "shared": found.shared}
        print_json({**fields, "attached_to": attached_to and attached_to.text})
        return
    print_heading(found.text)
    print_rows(("part", "value", "rule"), [(part.name, part.value, part.rule) for part in parts])
    print_facts([("shared", f"{'yes' if found.shared else 'no'} ({sharing.value})")])
    if attached_to:
        print_facts([("goes to", f"{attached_to.text} (this chat is attached to it; /detach leaves it)")])


_VERDICTS = {Verdict.ALLOW: "has access", Verdict.REFUSE: "refused", Verdict.PAIR: "gets a pairing code"}
_ADDRESSING = {
    Addressing.ADDRESSED: "for the agent",
    Addressing.OVERHEARD: "for others; the agent sees it later",
    Addressing.IGNORED: "for others; not stored",
}


@app.command("access", help=f"Show whether somebody has access somewhere, and why.\n\n{EXAMPLES['access']}")
def explain_access(
    who: Annotated[str, typer.Argument(help="The sender, for example telegram:7.")],
    *,
    kind: Annotated[str, typer.Option(help="Chat kind: dm, group, channel or thread.")] = DM,
    chat: Annotated[str, typer.Option(help="Chat id.")] = "",
    server: Annotated[str, typer.Option(help="Guild, workspace or server id.")] = "",
    account: Annotated[str, typer.Option(help="Your bot account.")] = "",
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
    platform, user = parse_identity(who, known_platforms())
    source = Source(
        platform=platform,
        chat_kind=kind,
        chat_id=chat or (user if kind == DM else None),
        scope_id=server,
        account=account,
        user_id=user,
    )
    trust = Trust(is_bot=bot, has_role_grant=platform_role, via_trusted_relay=relay)
    moved = ask(store, lambda opened: opened.read(chat_migration.moved()), {})
    options = follow_moves(load(Path(), os.environ).options(), moved)
    table = ask(store, lambda opened: opened.read(grants.load_table(GrantTable())), GrantTable())
    access = _access(source, trust, options, table)
    heard = _heard(source, text, options, mention=mention)
    if json:
        grant = access.grant.to_json() if access.grant else None
        fields = {"verdict": access.verdict, "reason": access.reason, "grant": grant, "heard": heard}
        print_json({**fields, "role": access.role.text if access.role else None})
        return
    print_heading(_VERDICTS[access.verdict])
    decisive = (
        [("grant", f"{describe_grantee(access.grant)}, {describe_grant_place(access.grant)}")] if access.grant else []
    )
    print_facts([("because", access.reason), *decisive, ("message", _ADDRESSING[heard])])


def _access(source: Source, trust: Trust, options: Options, table: GrantTable) -> Access:
    return decide_access(
        source,
        trust,
        (*options.grants, *table.grants.values()),
        person=table.people.get(identity_of(source) or ""),
        pairing=options.pairing.find(source),
    )


def _heard(source: Source, text: str, options: Options, *, mention: bool) -> Addressing:
    inbound = Inbound(source=source, text=text or "…", at=datetime(1970, 1, 1, tzinfo=UTC), mentions_us=mention)
    known = PLATFORMS.get(source.platform)
    has_mentions = known is not None and known.has_mentions
    return classify_addressing(inbound, options.attention.find(source), has_mentions=has_mentions, commands=False)


@app.command(help=f"Show whether a conversation resets, and when.\n\n{EXAMPLES['reset']}")
def reset(
    last_active: Annotated[str, typer.Option(help="When a person last spoke: ISO 8601 with an offset.")],
    policy: Annotated[ResetMode, typer.Option(help="What ends a conversation.")] = ResetMode.NEVER,
    idle_minutes: Annotated[int, typer.Option(help="Minutes without a person speaking.")] = 1440,
    at_hour: Annotated[int, typer.Option(help="Local hour of the daily reset.")] = 4,
    zone_name: Annotated[str, typer.Option("--zone", help="IANA time zone.")] = "UTC",
    now: Annotated[str, typer.Option(help="ISO 8601 with an offset; the present if not given.")] = "",
    json: Json = False,
) -> None:
    rules = ResetPolicy(mode=policy, idle_minutes=idle_minutes, at_hour=at_hour)
    spoken, present = parse_instant(last_active), _instant_or_now(now)
    if present < spoken:
        print_note(f"The present, {format_instant(present)}, is before --last-active: no time has passed yet.")
    decision = decide_reset(rules, spoken, present, parse_zone(zone_name))
    _print_reset(decision, zone_name, as_json=json)


def _print_reset(decision: ResetDecision, zone_name: str, *, as_json: bool) -> None:
    boundary, following = _iso(decision.boundary, zone_name), _iso(decision.next, zone_name)
    if as_json:
        print_json({"reset": decision.reason, "boundary": boundary, "next": following})
        return
    print_heading(f"starts fresh: {decision.reason}" if decision.reason else "continues")
    print_facts([("boundary crossed", boundary or "none"), ("next boundary", following or "never")])


@app.command(context_settings=_MINUS, help=f"Show where a delivery target leads.\n\n{EXAMPLES['target']}")
def target(
    text: Annotated[str, typer.Argument(help="origin, local, all, platform, platform:chat[:thread], or a list.")],
    json: Json = False,
) -> None:
    targets = parse_targets(text, PLATFORMS)
    if json:
        print_json({"targets": [_target_fields(each) for each in targets]})
        return
    print_rows(("target", "leads to"), [(each.text, _target_words(each)) for each in targets])


def _target_fields(target: Target) -> dict[str, str | None]:
    match target:
        case Home(platform):
            return {"kind": "home", "platform": platform}
        case Place(platform=platform, chat=chat, thread=thread):
            return {"kind": "place", "platform": platform, "chat": chat, "thread": thread}
        case Origin() | Local() | All():
            return {"kind": target.text}


def _target_words(target: Target) -> str:
    match target:
        case Origin():
            return "the chat the request came from"
        case Local():
            return "a file in the data directory"
        case All():
            return "the home channel of every connected platform"
        case Home(platform):
            return f"the home channel of {platform}"
        case Place(platform=platform, chat=chat, thread=thread):
            place = f"chat {chat} on {platform}"
            return f"{place}, thread {thread}" if thread else place


@app.command(context_settings=_MINUS, help=f"Show the next five times of a schedule.\n\n{EXAMPLES['schedule']}")
def schedule(
    text: Annotated[str, typer.Argument(help="30m, 2h (once), every 2h, five-field cron, or an ISO time.")],
    zone_name: Annotated[str, typer.Option("--zone", help="IANA time zone.")] = "UTC",
    now: Annotated[str, typer.Option(help="ISO 8601 with an offset; the present if not given.")] = "",
    json: Json = False,
) -> None:
    moment = _instant_or_now(now)
    parsed = parse_schedule(text, parse_zone(zone_name), moment)
    times = [_iso(time, zone_name) or "" for time in next_occurrences(parsed, moment, 5)]
    if json:
        print_json({"schedule": parsed.text, "description": parsed.describe(), "next": times})
        return
    print_heading(parsed.describe())
    print_facts([(str(number), time) for number, time in enumerate(times, 1)])


def _instant_or_now(text: str) -> datetime:
    return parse_instant(text) if text else datetime.now(UTC)


def _iso(moment: datetime | None, zone_name: str) -> str | None:
    return moment and moment.astimezone(parse_zone(zone_name)).isoformat()
