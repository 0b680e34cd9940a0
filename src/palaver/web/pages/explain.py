"""The explain page: which conversation a message belongs to, and whether a conversation starts fresh."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from starlette.responses import Response

from palaver.engine.explain import Explanation
from palaver.model.errors import BadArgument, InvalidInput, NotFound, UnknownPlatform
from palaver.model.local_time import parse_instant, parse_zone
from palaver.model.reset import ResetDecision, ResetMode, ResetPolicy, decide_reset
from palaver.model.source import DM, MAIN, STANDARD_KINDS, Source, Trust
from palaver.model.turn import Inbound
from palaver.web.pages.common import parse_number, platform_choices, query_value, show_page
from palaver.web.routes import WebRequest, page

_KEY_FIELDS = ("platform", "kind", "chat", "thread", "user", "user_alt", "server", "account", "profile")
_RESET_FIELDS = ("session", "policy", "idle_minutes", "at_hour", "zone", "last_active", "now")
_MAX_FIELD_LENGTH = 500


@page("/explain", owner_only=True)
async def explain(request: WebRequest) -> Response:
    fields = {name: query_value(request, name)[:_MAX_FIELD_LENGTH] for name in (*_KEY_FIELDS, *_RESET_FIELDS)}
    result: dict[str, object] = {"message": None, "reset": None, "problem": "", "rule": None}
    try:
        if fields["platform"]:
            result["message"] = await _explain_message(request, fields)
        elif fields["session"] or fields["last_active"]:
            result["reset"], result["rule"] = await _explain_reset(request, fields)
    except (InvalidInput, NotFound) as error:
        result["problem"] = str(error)
    return show_page(
        request,
        "explain.html",
        **result,
        fields=fields,
        platforms=platform_choices(request, fields["platform"].lower(), "choose one"),
        kinds=[(kind, kind) for kind in STANDARD_KINDS],
        policies=[(mode.value, mode.value) for mode in ResetMode],
    )


async def _explain_message(request: WebRequest, fields: dict[str, str]) -> Explanation:
    """Decide as the gateway would if this message arrived now."""
    services, platform, kind = request.services, fields["platform"].lower(), fields["kind"] or DM
    if platform not in services.platforms:
        raise UnknownPlatform(platform, services.platforms)
    if kind != DM and not fields["chat"]:
        raise BadArgument(f"A {kind} needs a chat id.", found="", allowed="any text", fix="Enter one", example="-100")
    known = services.platforms[platform]
    source = Source(
        platform=platform,
        chat_kind=kind,
        chat_id=known.canonical_chat(fields["chat"]) if kind == DM else fields["chat"],
        thread_id=fields["thread"],
        user_id=fields["user"] and known.canonical_user(fields["user"]),
        user_id_alt=fields["user_alt"],
        scope_id=fields["server"],
        account=fields["account"] or services.engine.first_account(platform),
        profile=fields["profile"] or MAIN,
    )
    return await services.engine.explain(_message(source, request.now), Trust())


def _message(source: Source, now: datetime) -> Inbound:
    return Inbound(source=source, text="…", at=now, mentions_us=True)


async def _explain_reset(
    request: WebRequest, fields: dict[str, str]
) -> tuple[ResetDecision, tuple[ResetPolicy, ZoneInfo, datetime]]:
    """Apply the rules of the session if one is named, else those that were entered."""
    now = parse_instant(fields["now"]) if fields["now"] else request.now
    if fields["session"]:
        session = await request.read(lambda who: request.store.sessions.find(fields["session"], who))
        explained = await request.services.engine.explain(_message(session.origin, now), Trust(), now)
        rule, last_human = explained.reset_rule, session.last_human
        reason = explained.opening.reason if explained.opening.session == session else explained.reset.reason
        return replace(explained.reset, reason=reason), (rule.policy, rule.zone, last_human)
    policy = ResetPolicy(
        mode=_mode(fields["policy"]),
        idle_minutes=_number(fields["idle_minutes"], 1440),
        at_hour=_number(fields["at_hour"], 4),
    )
    there, last_human = parse_zone(fields["zone"] or "UTC"), parse_instant(fields["last_active"])
    return decide_reset(policy, last_human, now, there), (policy, there, last_human)


def _mode(text: str) -> ResetMode:
    modes = {mode.value: mode for mode in ResetMode}
    if text and text not in modes:
        raise BadArgument("Unknown policy", found=text, allowed=", ".join(modes), example="daily")
    return modes.get(text, ResetMode.NEVER)


def _number(text: str, default: int) -> int:
    number = parse_number(text) if text else default
    if number is None or number > 1 << 24:
        raise BadArgument("This is not a number:", found=text, allowed="digits", example=str(default))
    return number


ROUTES = (explain,)
