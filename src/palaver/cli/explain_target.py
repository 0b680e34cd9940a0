"""`palaver explain target`: where a delivery target leads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.explain_subject import account_platforms, find_subject, with_any_store
from palaver.cli.output import print_found
from palaver.cli.shared_options import Json, StoreOption, require_profile
from palaver.config.loader import load
from palaver.engine.delivery.targets import OutputFile, TargetRules
from palaver.engine.texts import CHAT_GONE
from palaver.model.source import MAIN, Source
from palaver.model.target import All, Home, Local, Origin, Place, Target, parse_targets
from palaver.model.turn import outbound_to
from palaver.model.value import value
from palaver.platforms.local.adapter import output_folder
from palaver.platforms.plugins import known_platforms
from palaver.store.people import access_rules
from palaver.store.store import Store


@value
class TargetExplanation:
    target: Target
    places: tuple[Source, ...] = ()
    """Where it leads now; none if no account can send there."""
    gone: frozenset[Source] = frozenset()
    """Those of them that can no longer be reached, as far as the last send showed."""
    has_home: bool = False
    """Whether there is a home channel, even at an account that is not configured."""


def explain_target(
    text: Annotated[
        str, typer.Argument(help="origin, local, all, platform, platform[@server]:chat[:thread], or a list.")
    ],
    *,
    message: Annotated[str, typer.Option("--message", help="The message that origin stands for.")] = "",
    profile: Annotated[str, typer.Option(help="The profile whose home channels are used.")] = MAIN,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    targets = _explain_all(text, store, message, profile)
    fields = {"targets": [{**_target_fields(each.target), "places": _places(each)} for each in targets]}
    rows = [(each.target.text, _target_words(each.target), _destination_text(each)) for each in targets]
    print_found(fields, ("target", "leads to", "now"), rows, as_json=json)


def _explain_all(text: str, store: str | None, origin: str, profile: str) -> list[TargetExplanation]:
    """Return where targets lead. `origin` names the message for which something is sent."""
    config = load(Path.cwd())
    require_profile(profile, config.profiles)
    targets = parse_targets(text, known_platforms())

    async def work(opened: Store) -> list[TargetExplanation]:
        inbound = (await find_subject(opened, origin, config.settings().profiles)).inbound if origin else None
        rules = TargetRules(
            accounts=account_platforms(config),
            profile=profile,
            homes=await opened.read(opened.accounts.list_homes(profile, access_rules.load(config.settings().grants))),
            origin=inbound.source if inbound else None,
            file=OutputFile(owner="terminal:owner", name="messages", at=shared_options.now()),
        )
        homes = {home.platform for home in rules.homes}
        places = {target: tuple(rules.places(target)) for target in targets}
        everywhere = {place for found in places.values() for place in found}
        gone = {each for each in everywhere if await opened.read(opened.accounts.is_chat_gone(outbound_to(each, "")))}
        return [
            TargetExplanation(
                target=target,
                places=places[target],
                gone=frozenset(gone),
                has_home=bool(homes)
                if isinstance(target, All)
                else isinstance(target, Home) and target.platform in homes,
            )
            for target in targets
        ]

    return with_any_store(store, work, required=bool(origin))


def _places(explained: TargetExplanation) -> list[Mapping[str, str | None]]:
    if isinstance(explained.target, Local):
        return [{"platform": Local.text}]
    return [{**place.to_json(), "problem": _problem(explained, place)} for place in explained.places]


def _problem(explained: TargetExplanation, place: Source) -> str | None:
    return CHAT_GONE if place in explained.gone else None


def _destination_text(explained: TargetExplanation) -> str:
    if explained.places:
        problems = {place: _problem(explained, place) for place in explained.places}
        return ", ".join(f"{_place_words(at)} ({why})" if why else _place_words(at) for at, why in problems.items())
    match explained.target:
        case Origin():
            return "name a message with --message"
        case Local():
            return "no gateway writes files"
        case Place(platform=platform):
            return f"no account on {platform} can send there"
        case Home() | All() if explained.has_home:
            return "the home channel is at an account that is not configured"
        case Home() | All():
            return "no home channel; send /sethome in a chat"


def _place_words(place: Source) -> str:
    if place.platform == Local.text:
        return f"a new file in its folder {output_folder(Path()).name}"
    account = f" by {place.account}" if place.account else ""
    server = f", server {place.scope_id}" if place.scope_id else ""
    thread = f", thread {place.thread_id}" if place.thread_id else ""
    return f"{place.platform} chat {place.chat or place.participant}{server}{thread}{account}"


def _target_fields(target: Target) -> dict[str, str | None]:
    match target:
        case Home(platform):
            return {"kind": "home", "platform": platform}
        case Place(platform=platform, server=server, chat=chat, thread=thread):
            return {"kind": "place", "platform": platform, "server": server, "chat": chat, "thread": thread}
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
        case Place(platform=platform, server=server, chat=chat, thread=thread):
            place = f"chat {chat} on {platform}"
            place = f"{place}, server {server}" if server else place
            return f"{place}, thread {thread}" if thread else place
