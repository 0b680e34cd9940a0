"""Explain: which conversation a message belongs to, whether a conversation starts fresh, and why."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.errors import BadArgument, InvalidInput, NotFound, UnknownPlatform
from palaver.model.key import KeyExplanation, Speaker, explain_key
from palaver.model.local_time import parse_instant, parse_zone
from palaver.model.reset import Activity, ResetDecision, ResetMode, ResetPolicy, decide_reset
from palaver.model.scope import Scope, choose_profile
from palaver.model.source import DM, MAIN, STANDARD_KINDS, Source
from palaver.web.caller import Caller
from palaver.web.pages.base import Link
from palaver.web.pages.parts import asked, show
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Explain", path="/explain", place=80, for_owner=True)
_IDS = ("chat", "thread", "user", "user_alt", "server", "account", "person")
_KEY = ("platform", "kind", *_IDS, "profile", "owner")
_RESET = ("session", "policy", "idle_minutes", "at_hour", "zone", "last_active", "now")
_LONGEST = 500


def routes(services: Services) -> list[Route]:
    async def explain(request: Request, caller: Caller) -> Response:
        fields = {name: asked(request, name)[:_LONGEST] for name in (*_KEY, *_RESET)}
        facts: dict[str, object] = {"key": None, "scope": None, "reset": None, "problem": "", "rule": None}
        try:
            if fields["platform"]:
                facts["key"], facts["scope"] = _explained(services, fields)
            elif fields["session"] or fields["last_active"]:
                facts["reset"], facts["rule"] = await _decided(services, caller, fields)
        except (InvalidInput, NotFound) as error:
            facts["problem"] = str(error)
        return show(
            services,
            request,
            "explain.html",
            caller,
            **facts,
            asked=fields,
            platforms=sorted(services.platforms),
            kinds=[(kind, kind) for kind in STANDARD_KINDS],
            policies=[(mode.value, mode.value) for mode in ResetMode],
        )

    return [page("/explain", explain, for_owner=True)]


def _explained(services: Services, fields: dict[str, str]) -> tuple[KeyExplanation, Scope]:
    """By the rules as they are configured now."""
    platform, kind = fields["platform"].lower(), fields["kind"] or DM
    if platform not in services.platforms:
        known = ", ".join(sorted(services.platforms))
        raise UnknownPlatform("Unknown platform", found=platform, allowed=known, example="telegram")
    if kind != DM and not fields["chat"]:
        raise BadArgument(f"A {kind} has a chat id, it cannot be", found="", allowed="any text", example="-100")
    source = Source(
        platform=platform,
        chat_kind=kind,
        chat_id=fields["chat"],
        thread_id=fields["thread"],
        user_id=fields["user"],
        user_id_alt=fields["user_alt"],
        scope_id=fields["server"],
        account=fields["account"],
        profile=fields["profile"] or MAIN,
    )
    options = services.engine.options
    source = replace(source, profile=choose_profile(source, options.profiles))
    scope = options.scopes.find(source).value
    return explain_key(source, scope, Speaker(fields["person"] or None, bool(fields["owner"]))), scope


async def _decided(
    services: Services, caller: Caller, fields: dict[str, str]
) -> tuple[ResetDecision, tuple[ResetPolicy, ZoneInfo, datetime]]:
    """Of a session by the rules that hold for it; else by what was entered."""
    present = parse_instant(fields["now"]) if fields["now"] else services.clock.now()
    if fields["session"]:
        session = await services.read(
            caller, lambda principal: services.store.sessions.find(fields["session"], principal)
        )
        rule = services.engine.options.reset_rule(session.origin)
        policy, there, spoken = rule.policy, rule.zone, session.last_human
    else:
        policy = ResetPolicy(
            mode=_mode(fields["policy"]),
            idle_minutes=_number(fields["idle_minutes"], 1440),
            at_hour=_number(fields["at_hour"], 4),
        )
        there, spoken = parse_zone(fields["zone"] or "UTC"), parse_instant(fields["last_active"])
    return decide_reset(policy, Activity(last_human=spoken), present, there), (policy, there, spoken)


def _mode(text: str) -> ResetMode:
    known = {mode.value: mode for mode in ResetMode}
    if text and text not in known:
        raise BadArgument("A policy cannot be", found=text, allowed=", ".join(known), example="daily")
    return known.get(text, ResetMode.NEVER)


def _number(text: str, usual: int) -> int:
    if text and not (text.isdecimal() and len(text) < 9):  # noqa: PLR2004 - no number of ours is that long
        raise BadArgument("This is no number:", found=text, allowed="digits", example=str(usual))
    return int(text) if text else usual
