"""Explain whether somebody has access, and whether a message is for the agent."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.output import print_facts, print_heading, print_json
from palaver.cli.shared_options import Json, StoreOption, ask
from palaver.config.loader import load
from palaver.engine.options import Options, follow_moves
from palaver.model.access import Access, Verdict, decide_access, describe_grant_place, describe_grantee, parse_identity
from palaver.model.addressing import Addressing, classify_addressing
from palaver.model.source import DM, Source, Trust, identity_of
from palaver.model.turn import Inbound
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.plugins import known_platforms
from palaver.store.conversations import chat_migration
from palaver.store.people import grants
from palaver.store.people.grants import GrantTable

_VERDICTS = {Verdict.ALLOW: "let in", Verdict.REFUSE: "refused", Verdict.PAIR: "given a code"}
_HEARD = {
    Addressing.ADDRESSED: "for the agent",
    Addressing.OVERHEARD: "said to others; the agent is shown it later",
    Addressing.IGNORED: "said to others; not kept",
}


def explain_access(
    who: Annotated[str, typer.Argument(help="The sender, for example telegram:7.", show_default=False)],
    *,
    kind: Annotated[str, typer.Option(help="Chat kind: dm, group, channel or thread.")] = DM,
    chat: Annotated[str, typer.Option(help="Chat id.", show_default=False)] = "",
    server: Annotated[str, typer.Option(help="Guild, workspace or server id.", show_default=False)] = "",
    account: Annotated[str, typer.Option(help="Your bot account.", show_default=False)] = "",
    text: Annotated[str, typer.Option(help="The text they send.", show_default=False)] = "",
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
    print_facts([("because", access.reason), *decisive, ("what they say", _HEARD[heard])])


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
