"""`palaver explain`: show how Palaver decides about keys, access, resets, targets and schedules."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.access_explain import explain_access
from palaver.cli.output import print_facts, print_heading, print_json, print_note, print_rows
from palaver.cli.shared_options import StoreOption, ask, store_url
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
from palaver.model.source import DM, MAIN, STANDARD_KINDS, Source
from palaver.model.target import All, Home, Local, Origin, Place, Target, parse_targets
from palaver.platforms.catalog import PLATFORMS
from palaver.store.conversations.attach import conversation_of
from palaver.store.opening import sqlite_path

EXAMPLES = {
    "key": "palaver explain key --platform telegram --kind group --chat -100 --user 7",
    "reset": "palaver explain reset --policy daily --zone Europe/Berlin --last-active 2026-03-29T01:30:00+01:00",
    "target": 'palaver explain target "telegram:-100:42,local"',
    "access": "palaver explain access telegram:7 --kind group --chat -100",
    "schedule": 'palaver explain schedule "every 2h" --zone Europe/Berlin',
}

app = typer.Typer(
    help="Explain how Palaver decides.",
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
# An argument may begin with a minus: then it is wrong for its own reason, not as an option.
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
    from palaver.config.loader import load  # noqa: PLC0415 - slow to import, and often not needed

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
        print_facts([("goes to", f"{attached_to.text} (/attach was said in this place; /detach there ends it)")])


app.command("access", help=f"Show whether somebody has access somewhere, and why.\n\n{EXAMPLES['access']}")(
    explain_access
)


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
    print_heading(f"starts fresh: {decision.reason}" if decision.reason else "goes on")
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
