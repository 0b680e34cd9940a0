"""What all pages share: templates, navigation, filters for text and times, and how forms are read and answered."""

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from palaver.config.model import Config
from palaver.model.attachment import format_size
from palaver.model.providers import spell_model
from palaver.model.session import Session
from palaver.model.source import readable_identity
from palaver.model.text import escape_invisible, legible, one_line
from palaver.model.usage import Spent
from palaver.model.value import value
from palaver.settings.agents import ModelAgentConfig
from palaver.store.people.people import Identity, Person
from palaver.web import markdown
from palaver.web.auth_middleware import CSRF_HEADER
from palaver.web.caller import Caller
from palaver.web.files import asset
from palaver.web.pages.navigation import COMMANDS, DIAGNOSTICS, NAVIGATION
from palaver.web.routes import WebRequest

THEME_COOKIE = "palaver-theme"
MAX_SHOWN_TEXT = 20_000
YOU = "You"
"""What a person is called on their own pages."""
_THEMES = ("light", "dark")
_TEMPLATES = Path(__file__).parent.parent / "templates"
_MAX_LINE_LENGTH = 240
_MAX_FIELDS, _MAX_FIELD_LENGTH = 40, 10_000
_BYTES_PER_CHARACTER = 12
"""In a form: four bytes, each as a percent sign and two digits."""
_MAX_DIGITS = 18
_MAX_PEOPLE = 500
"""How many people a picker lists."""


@value(kw_only=False)
class Viewpoint:
    """The time and zone that a page is rendered for."""

    now: datetime
    zone: tzinfo


def _line(text: str, limit: int = _MAX_LINE_LENGTH) -> str:
    return escape_invisible(one_line(text[: limit * 4], limit))


def _when(at: datetime, view: Viewpoint) -> str:
    """`14:03` today, `1 Mar 14:03` this year, else with the year."""
    there, today = at.astimezone(view.zone), view.now.astimezone(view.zone)
    if there.date() == today.date():
        return f"{there:%H:%M}"
    return f"{there.day} {there:%b %H:%M}" if there.year == today.year else f"{there:%Y-%m-%d %H:%M}"


def _exactly(at: datetime, view: Viewpoint) -> str:
    return f"{at.astimezone(view.zone):%Y-%m-%d %H:%M:%S %Z}"


def money(spent: Spent, currency: str) -> str:
    """`$0.0120`, `$0.0120 + unknown`, `0.0120 (unknown currency)`, or `unknown`."""
    if spent.cost == "unknown":
        return spent.cost
    return f"{currency}{spent.cost}" if currency else f"{spent.cost} (unknown currency)"


def currency_of(config: Config) -> str:
    """The built-in prices are in dollars; the currency of a price file of your own is unknown."""
    agents = (config.agent, *(profile.agent for profile in config.profiles.values()))
    return "" if any(isinstance(agent, ModelAgentConfig) and agent.prices for agent in agents) else "$"


def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(default=True, default_for_string=True, enabled_extensions=("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = asset
    filters = cast("dict[str, Callable[..., str]]", environment.filters)
    filters.update(shown=escape_invisible, legible=legible, line=_line, when=_when, exactly=_exactly, size=format_size)
    filters.update(account=readable_identity, money=money, markdown=markdown.render, model=spell_model)
    return environment


_environment = _make_environment()


def render_text(template: str, **context: object) -> str:
    return _environment.get_template(template).render(**context)


def render(
    request: Request,
    template: str,
    caller: Caller | None,
    /,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: object,
) -> HTMLResponse:
    """Render a template that extends `layout.html`. Everything in `context` is escaped."""
    theme = request.cookies.get(THEME_COOKIE)
    text = _environment.get_template(template).render(
        user=caller,
        links=[link for link in NAVIGATION if link.is_for(caller)],
        diagnostics=[link for link in DIAGNOSTICS if link.is_for(caller)],
        palette=[link for link in COMMANDS if link.is_for(caller)],
        here=request.url.path,
        theme=theme if theme in _THEMES else "",
        position=getattr(request.state, "position", ""),
        **context,
    )
    # A lone surrogate cannot be encoded.
    return HTMLResponse(text.encode(errors="replace"), status_code=status, headers=dict(headers or {}))


def show_page(request: WebRequest, template: str, /, **context: object) -> HTMLResponse:
    """Render a page that shows times."""
    view = Viewpoint(request.now, request.services.engine.settings.zones.default)
    currency = currency_of(request.services.config())
    return render(
        request.http,
        template,
        request.caller,
        status=200,
        headers=None,
        view=view,
        currency=currency,
        ids=request.store.epochs,
        **context,
    )


async def list_names(request: WebRequest) -> dict[str, str]:
    """Return the accounts of people with their names, for pickers. Only the owner knows everybody."""
    if not request.caller.is_owner:
        return {}
    find = request.store.people.list_people
    people = await request.read(lambda who: find(who, limit=_MAX_PEOPLE))
    return {each.identity: name_of(person, request.caller, each) for person in people for each in person.identities}


def name_of(person: Person, caller: Caller, identity: Identity | None = None) -> str:
    """Return what a person is called, perhaps by one of their accounts; nothing if they have no name."""
    if any(each.identity == caller.identity for each in person.identities):
        return YOU
    name = person.name or (identity.name if identity else None)
    return name.plain() if name else ""


def person_choices(names: Mapping[str, str], chosen: str) -> list[tuple[str, str]]:
    """Return who can be picked, by name; one who is not listed stays picked."""
    known = {**names, **({chosen: names.get(chosen, "")} if chosen else {})}
    listed = [(identity, _named(identity, name)) for identity, name in known.items()]
    return [("", "anybody"), *sorted(listed, key=lambda each: each[1].casefold())]


def _named(identity: str, name: str) -> str:
    account = readable_identity(identity)
    return _line(f"{name} ({account})" if name else account, 60)


def platform_choices(request: WebRequest, chosen: str, nothing: str = "any platform") -> list[tuple[str, str]]:
    known = request.services.platforms
    names = {
        **{name: platform.title for name, platform in known.items()},
        **({chosen: chosen} if chosen and chosen not in known else {}),
    }
    return [
        ("", nothing),
        *sorted(((name, _line(title, 40)) for name, title in names.items()), key=lambda each: each[1].casefold()),
    ]


def platform_name(request: WebRequest, session: Session) -> str:
    """Return the name of the platform that a conversation is on, for people."""
    known = request.services.platforms.get(session.origin.platform)
    return known.title if known else session.origin.platform


def query_value(request: WebRequest, name: str) -> str:
    return request.http.query_params.get(name, "").strip()


def parse_number(text: str) -> int | None:
    """Return None for anything that is not a number the store can hold."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


async def read_form(request: WebRequest, max_length: int = _MAX_FIELD_LENGTH) -> dict[str, str]:
    """Read a form without files, and no more of it than our forms have."""
    size = max_length * _BYTES_PER_CHARACTER
    form = await request.http.form(max_files=0, max_fields=_MAX_FIELDS, max_part_size=size)
    return {name: normalize_newlines(text) for name, text in form.items() if isinstance(text, str)}


async def read_stripped_form(request: WebRequest) -> dict[str, str]:
    return {name: text.strip() for name, text in (await read_form(request)).items()}


def normalize_newlines(text: str) -> str:
    """Browsers submit every line end as CR LF."""
    return text.replace("\r\n", "\n")


def with_query(request: WebRequest, **changed: object) -> str:
    """Return the address of the same page with other parameters."""
    kept = {name: text for name, text in request.http.query_params.items() if text and name not in changed}
    return f"{request.http.url.path}?{urlencode({**kept, **{name: str(new) for name, new in changed.items() if new}})}"


def answer_action(request: WebRequest, notice: str, back: str, *, moved: bool = False) -> Response:
    """Give the notice to the script, which goes elsewhere only if the conversation moved; else redirect."""
    if CSRF_HEADER in request.http.headers:
        return PlainTextResponse(notice, headers={"x-goto": back} if moved else {})
    return RedirectResponse(back, status_code=303)
