"""Settings: the configuration file as pages, in sections. Only the owner sees them, and only in a browser."""

from collections.abc import Mapping
from dataclasses import field as dataclass_field
from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from palaver.config.editor import Edit
from palaver.config.errors import MalformedConfig
from palaver.config.loader import Loaded
from palaver.config.nodes import Node, Position
from palaver.model.access import AccessRole, describe_grant
from palaver.model.errors import NotFound
from palaver.model.quotas import QuotaKind
from palaver.model.retention import RetentionClass
from palaver.model.value import value
from palaver.settings.agents import WITH_INSTRUCTIONS
from palaver.store.people.api_tokens import Right
from palaver.web.pages.common import answer_action, query_value, read_form, show_page
from palaver.web.pages.setting_fields import changed_fields, describe_position, read_fields
from palaver.web.routes import WebRequest, action, page
from palaver.web.settings import Settings

_MAX_INSTRUCTIONS = 100_000
_GENERAL = {
    "timezone": "Time zone",
    "titles": "Title conversations",
    "acknowledges": "Say that an answer is on its way",
    "busy": "Messages during an answer",
    "questions": "Messages during a question",
    "reset.mode": "Reset conversations",
    "reset.idle_minutes": "Reset after minutes of silence",
    "reset.at_hour": "Reset at this hour",
    "reset_notices": "Tell a chat of a reset",
    "progress": "Show which tools run",
    "quotes": "Answer as a reply",
    "revisions": "Edited messages",
    "privacy.pseudonyms": "Pseudonyms",
}
_KEPT = {
    RetentionClass.CHAT: "Conversations with people",
    RetentionClass.CRON: "Conversations of jobs",
    RetentionClass.API: "Conversations of programs",
    RetentionClass.OBSERVED: "What the agent overheard in groups",
    RetentionClass.ATTACHMENTS: "Files",
    RetentionClass.SETTLED: "Contents of inbox and outbox",
    RetentionClass.OUTPUT: "Files written by jobs",
}
_RETENTION = {
    f"retention.{kind.value}.{name}": f"{what}: {label}"
    for kind, what in _KEPT.items()
    for name, label in (("age", "for how long"), ("count", "how many"), ("size", "how much"))
}
_BACKUP = {
    "backup.every": "Back up every",
    "backup.keep": "Keep this many backups",
    "backup.folder": "Folder of the backups",
}
_MEASURES = {
    QuotaKind.PERSON_DAY: "One person, per day",
    QuotaKind.PERSON_MONTH: "One person, per month",
    QuotaKind.SESSION: "One conversation",
    QuotaKind.DAY: "Everybody together, per day",
}


@value
class Section:
    """A page of settings."""

    name: str
    title: str
    fields: Mapping[str, str] = dataclass_field(default_factory=dict[str, str])
    """Its settings, each with its label."""


SECTIONS = {
    section.name: section
    for section in (
        Section(name="model", title="Model"),
        Section(name="instructions", title="Instructions", fields={"agent.instructions": "What the agent should know"}),
        Section(
            name="tools",
            title="Tools",
            fields={f"tools.{role.text}": f"Tools for {role.text}s" for role in reversed(AccessRole)},
        ),
        Section(name="accounts", title="Accounts"),
        Section(name="people", title="People", fields={"pairing": "Strangers can ask for access"}),
        Section(name="limits", title="Limits"),
        Section(name="general", title="General", fields=_GENERAL),
        Section(name="data", title="Data", fields={**_BACKUP, **_RETENTION}),
    )
}


def require_settings(request: WebRequest) -> Settings:
    """Return the settings for a change. A token cannot make one: it would be worth as much as the machine."""
    if request.caller.csrf is None:
        raise HTTPException(403, "Settings change only in a browser, not with a token.")
    if request.services.settings is None:
        raise HTTPException(409, "This gateway runs without a configuration file.")
    return request.services.settings


async def show_settings(
    request: WebRequest, section: Section, template: str, *, takes_fields: bool = True, **context: object
) -> Response:
    """Render a section, or say what is wrong with the file."""
    settings, loaded, problem = request.services.settings, None, ""
    if settings is None:
        problem = "This gateway runs without a configuration file, so nothing can be changed here."
    else:
        problem = settings.file.problem()
        try:
            loaded = await settings.load()
        except MalformedConfig as error:
            problem = f"The configuration has a mistake, so the gateway goes on with the one before: {error}"
    if loaded is None:
        loaded = Loaded(config=request.services.config(), sources=Node(position=Position(), value={}))
    can_change = not problem and request.caller.csrf is not None and request.caller.has(Right.MANAGE)
    return show_page(
        request,
        template,
        section=section,
        sections=SECTIONS.values(),
        file=str(settings.file.path) if settings else "",
        problem=problem,
        can_change=can_change,
        deferred=settings.find_deferred(loaded.config) if settings else [],
        fields=read_fields(loaded, section.fields) if takes_fields else [],
        loaded=loaded,
        config=loaded.config,
        where=partial(_where, loaded),
        **context,
    )


def _where(loaded: Loaded, *path: str | int) -> str:
    return describe_position(loaded.sources.nearest(path).position)


@page("/settings", owner_only=True)
async def index(_: WebRequest) -> Response:
    return RedirectResponse("/settings/model", status_code=303)


@page("/settings/instructions", owner_only=True)
async def instructions(request: WebRequest) -> Response:
    takes_some = request.services.config().agent.name in WITH_INSTRUCTIONS
    section = SECTIONS["instructions"]
    return await show_settings(
        request, section, "settings/instructions.html", takes_fields=takes_some, takes_some=takes_some
    )


@page("/settings/people", owner_only=True)
async def people(request: WebRequest) -> Response:
    grants = [(describe_grant(grant), grant.origin) for grant in request.services.engine.settings.grants]
    return await show_settings(request, SECTIONS["people"], "settings/people.html", grants=grants)


@page("/settings/limits", owner_only=True)
async def limits(request: WebRequest) -> Response:
    role = query_value(request, "role")
    section = _limits_section(role if role in _ROLES else "")
    return await show_settings(request, section, "settings/limits.html", role=role, roles=_ROLES)


@page("/settings/general", owner_only=True)
async def general(request: WebRequest) -> Response:
    return await show_settings(request, SECTIONS["general"], "settings/general.html")


_ROLES = {role.text: f"{role.text}s" for role in reversed(AccessRole)}


def _limits_section(role: str) -> Section:
    """Return the limits of everybody, or of one role."""
    start = f"caps.{role}." if role else "caps."
    names = {
        f"{start}{kind.value}.{unit}": f"{label}: {unit}"
        for kind, label in _MEASURES.items()
        for unit in ("tokens", "cost")
    }
    return Section(name="limits", title="Limits", fields=names)


@action("/settings/{section}", owner_only=True)
async def save(request: WebRequest) -> Response:
    """Save the plain fields of a section."""
    settings, name = require_settings(request), request.path["section"]
    form = await read_form(request, _MAX_INSTRUCTIONS)
    role = form.get("role", "")
    section = _limits_section(role if role in _ROLES else "") if name == "limits" else SECTIONS.get(name)
    if section is None or not section.fields:
        raise NotFound("section", name)
    edits = list(changed_fields(read_fields(await settings.load(), section.fields), form))
    back = f"/settings/{name}{f'?role={role}' if role in _ROLES else ''}"
    return await save_edits(request, edits, back) if edits else answer_action(request, "Nothing changed.", back)


async def save_edits(request: WebRequest, edits: list[Edit], back: str) -> Response:
    saved = await require_settings(request).change(edits)
    request.services.hub.hint("platforms")
    return answer_action(request, str(saved), back)


ROUTES = (index, instructions, people, limits, general, save)
