"""What pages of the dashboard share: times and texts as they are shown, and how a button is answered."""

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from palaver.model.attachment import format_size
from palaver.model.session import Principal
from palaver.model.text import escape_invisible, one_line
from palaver.model.value import value
from palaver.web.auth_middleware import CSRF_HEADER
from palaver.web.caller import Caller, principal_of
from palaver.web.pages.base import environment, render
from palaver.web.services import Services

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "LONGEST_TEXT",
    "Scene",
    "asked",
    "done",
    "entered",
    "form_of",
    "keep_query",
    "legible",
    "order",
    "principal",
    "show",
]

LONGEST_TEXT = 20_000
"""How much of one text a page shows."""
# Control characters, what turns the direction of text around, and half surrogates. Line ends and tabs stay.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST_LINE = 240
_MOST_FIELDS, _LONGEST_FIELD = 20, 10_000


@value(kw_only=False)
class Scene:
    """When and where a page is looked at."""

    now: datetime
    zone: tzinfo


def legible(text: str) -> str:
    """Text of others on several lines: what cannot be seen in it, or turns it around, is written as its number."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def _line(text: str, limit: int = _LONGEST_LINE) -> str:
    """Text of others on one line that is no longer than this."""
    return escape_invisible(one_line(text[: limit * 4], limit))


def _when(at: datetime, scene: Scene) -> str:
    """`14:03` today, `1 Mar 14:03` this year, else with the year."""
    there, today = at.astimezone(scene.zone), scene.now.astimezone(scene.zone)
    if there.date() == today.date():
        return f"{there:%H:%M}"
    return f"{there.day} {there:%b %H:%M}" if there.year == today.year else f"{there:%Y-%m-%d %H:%M}"


def _exactly(at: datetime, scene: Scene) -> str:
    return f"{at.astimezone(scene.zone):%Y-%m-%d %H:%M:%S %Z}"


def _cost(micros: int) -> str:
    return f"{micros / 1_000_000:,.4f}"


# The type of it is that of what it holds at first.
_filters = cast("dict[str, Callable[..., str]]", environment.filters)
_filters.update(legible=legible, line=_line, when=_when, exactly=_exactly, cost=_cost, size=format_size)


def show(services: Services, request: Request, template: str, caller: Caller, /, **facts: object) -> HTMLResponse:
    """A page with its scene."""
    scene = Scene(services.clock.now(), services.engine.options.zones.default)
    return render(request, template, caller, status=200, headers=None, scene=scene, **facts)


def asked(request: Request, name: str) -> str:
    """What was entered into a field, without what stands around it."""
    return request.query_params.get(name, "").strip()


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form without files; no more of it is read than a form of ours has."""
    form = await request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=_LONGEST_FIELD)
    return {name: entered(value) for name, value in form.items() if isinstance(value, str)}


def entered(text: str) -> str:
    """Browsers end every line of a form as on a typewriter, whatever was typed."""
    return text.replace("\r\n", "\n")


def keep_query(request: Request, **changed: object) -> str:
    """The address of the same page with other parameters."""
    kept = {name: value for name, value in request.query_params.items() if value and name not in changed}
    return f"{request.url.path}?{urlencode({**kept, **{name: str(value) for name, value in changed.items() if value}})}"


def done(request: Request, said: str, back: str, *, moved: bool = False) -> Response:
    """The script shows what was said, and goes elsewhere only where the conversation did; else back to the page."""
    if CSRF_HEADER in request.headers:
        return PlainTextResponse(said, headers={"x-goto": back} if moved else {})
    return RedirectResponse(back, status_code=303)


async def principal(services: Services, caller: Caller) -> Principal:
    """For what takes more than one step; within a step `desk.read` and `desk.act` have it."""
    return await services.store.read(principal_of(caller, services.store))


async def order(services: Services, caller: Caller, session: str, text: str) -> str:
    """Do a command in a conversation, as whom they are let in there."""
    said = await services.engine.run_command(text, session, await principal(services, caller))
    services.hub.hint("sessions", "turns")
    return said
