"""What every page stands on: templates that escape everything, the navigation, and the place where live parts begin."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from palaver.model.text import escape_invisible
from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.web.caller import Caller
from palaver.web.http import asset

__all__ = ["POSITION", "THEME", "Link", "environment", "navigation", "render"]

POSITION = "position"
"""Where in the state of a request stands how things were before it read anything."""
THEME = "palaver-theme"
"""The cookie in which the script keeps whether somebody wants it light or dark."""
_THEMES = ("light", "dark")
_TEMPLATES = Path(__file__).parent.parent / "templates"


@value
class Link:
    """A page in the navigation; a module of pages has it as LINK."""

    title: str
    path: str
    place: int
    """The smaller, the further in front."""
    needs: Right = Right.READ
    for_owner: bool = False
    """Others than the owner have nothing to see there."""


navigation: list[Link] = []
"""Of every module of pages; filled when the application is made."""


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(default=True, default_for_string=True, enabled_extensions=("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["asset"] = asset
    made.filters["shown"] = escape_invisible
    return made


environment = _environment()


def render(
    request: Request,
    template: str,
    caller: Caller | None,
    /,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **facts: object,
) -> HTMLResponse:
    """A page out of a template that extends `layout.html`. Whatever stands in `facts` is escaped."""
    text = environment.get_template(template).render(
        user=caller,
        links=_links(caller),
        here=request.url.path,
        theme=theme if (theme := request.cookies.get(THEME)) in _THEMES else "",
        position=getattr(request.state, POSITION, ""),
        **facts,
    )
    # Half a surrogate cannot be sent.
    return HTMLResponse(text.encode(errors="replace"), status_code=status, headers=dict(headers or {}))


def _links(caller: Caller | None) -> Sequence[Link]:
    return [] if caller is None else [link for link in navigation if _has_a_point(link, caller)]


def _has_a_point(link: Link, caller: Caller) -> bool:
    return caller.may(link.needs) and (caller.is_owner or not link.for_owner)
