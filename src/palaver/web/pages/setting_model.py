"""The settings page for the model: the steps of `palaver setup`, tested with one question before anything is saved."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from palaver.agents.hub import (
    HUB,
    HubFile,
    ModelHub,
    NotDownloaded,
    find_model,
    label_suggestions,
    memory_of_machine,
    suggested,
)
from palaver.agents.local import find_file, installed_model, require_library
from palaver.agents.model_list import ModelsNotListed
from palaver.config.agent_plan import GUIDE, LOCAL, MODEL, AgentPlan, list_choices, parse_agent, take_key
from palaver.config.agent_trial import agent_edits, trial_agent
from palaver.config.offers import Offer
from palaver.model.errors import BadArgument, InvalidInput, PalaverError
from palaver.model.providers import COMPATIBLE, spell_model
from palaver.model.providers import PROVIDERS as KNOWN
from palaver.protocols.installation import MissingPackages, find_installation
from palaver.settings.agents import AgentConfig, LocalAgentConfig, ModelAgentConfig
from palaver.web.pages.common import answer_action, query_value, read_stripped_form
from palaver.web.pages.settings import SECTIONS, require_settings, show_settings
from palaver.web.routes import WebRequest, action, page
from palaver.web.settings import Saved, Settings, Show

_PAGE = "/settings/model"
_SERVER = "server"
_SMALL = "small"
"""The model that a package has installed."""
_STOPPED = "The download was stopped. What has arrived is kept: the next download continues there."
PROVIDERS = {
    **{each.name: (each.title, each.default_model) for each in KNOWN.values()},
    _SERVER: ("A server of your own, with OpenAI's API", "llama3.2"),
    LOCAL: ("A model that runs on this machine", "a GGUF file, or OWNER/REPOSITORY of the hub"),
    GUIDE: ("The guide, which needs no model", ""),
}
"""What to choose from: a label, and an example of a model."""


@page(_PAGE, owner_only=True)
async def model(request: WebRequest) -> Response:
    agent, offers = request.services.config().agent, await request.services.find_offers()
    wanted = query_value(request, "fetch")
    return await show_settings(
        request,
        SECTIONS["model"],
        "settings/model.html",
        agent=agent,
        chosen=_choice(agent, offers),
        providers=PROVIDERS,
        key_pages={each.name: each.key_page for each in KNOWN.values()},
        offers=offers,
        fetch=await _describe_fetch(request, wanted) if wanted else None,
    )


def _choice(agent: AgentConfig, offers: Sequence[Offer] = ()) -> Mapping[str, str]:
    """Return the running agent as the form shows it; on the first visit a model, if possible one that was found."""
    if isinstance(agent, LocalAgentConfig):
        return {"provider": LOCAL, "model": str(agent.file or _SMALL), "base_url": ""}
    if not isinstance(agent, ModelAgentConfig):
        is_first = agent.name in {GUIDE, "echo"}
        first = offers[0] if offers and is_first else None
        provider = (_SERVER if first.model else first.provider) if first else next(iter(PROVIDERS))
        address = first.base_url if first and first.model else ""
        return {"provider": provider if is_first else agent.name, "model": "", "base_url": address}
    provider, _, name = agent.model.partition(":")
    if agent.base_url:
        return {"provider": _SERVER, "model": name, "base_url": agent.base_url}
    return {"provider": provider, "model": name, "base_url": ""}


@action(f"{_PAGE}/choices", owner_only=True)
async def list_models(request: WebRequest) -> Response:
    """List what can be chosen with what the form says so far, or say why nothing can."""
    settings, form = require_settings(request), await read_stripped_form(request)
    try:
        choices, usual = await _find_choices(await _agent_in_use(settings), form)
    except (InvalidInput, ModelsNotListed) as problem:
        return JSONResponse({"choices": [], "usual": "", "says": str(problem)})
    return JSONResponse({"choices": choices, "usual": usual, "says": ""})


async def _find_choices(agent: AgentConfig, form: Mapping[str, str]) -> tuple[list[tuple[str, str]], str]:
    """Return the choices, each with its label, and the one to begin with."""
    provider = form.get("provider", "")
    if provider == LOCAL:
        memory = memory_of_machine()
        return [*label_suggestions(memory), *_small()], suggested(memory).name
    if provider not in KNOWN and not form.get("base_url"):
        return [], ""
    plan, _ = _with_key(_plan({**form, "model": "any"}), agent, form)
    try:
        names = await list_choices(plan)
    except ModelsNotListed as problem:
        raise ModelsNotListed(problem.kind, f"{plan.title}: {problem}.") from problem
    return [(name, name) for name in names], names[0] if names else ""


def _small() -> list[tuple[str, str]]:
    try:
        installed_model()
    except BadArgument:
        return []
    return [(_SMALL, "The small model that is installed: a toy")]


@action(_PAGE, owner_only=True)
async def save_model(request: WebRequest) -> Response:
    settings, form = require_settings(request), await read_stripped_form(request)
    if form.get("provider") == LOCAL and _has_to_fetch(form.get("model", "")):
        name = form["model"] or _SMALL
        if (work := settings.works.get(name)) and work.is_over:
            del settings.works[name]
        return answer_action(request, "", _fetch_page(name), moved=True)
    plan, kept = _with_key(_plan(form), await _agent_in_use(settings), form)
    saved = await _use(settings, plan, keeps_key=bool(kept))
    request.services.hub.hint("platforms")
    return answer_action(request, f"{_name(plan)} answers from now on. {saved}", _PAGE)


async def _agent_in_use(settings: Settings) -> AgentConfig:
    return (await settings.load()).config.agent


async def _use(settings: Settings, plan: AgentPlan, *, keeps_key: bool = False) -> Saved:
    """Ask the agent one question, then write it. Raises BadArgument, and writes nothing, if it does not answer."""
    problem = "" if plan.agent == GUIDE else await settings.ask_agent(trial_agent(plan), plan.key)
    if problem:
        raise BadArgument(
            f"{_name(plan)} does not answer: {problem.rstrip('.')}. Nothing was saved.",
            found="",
            allowed="a model that answers",
            example="openai:gpt-5-mini",
            fix="Check the key, the name and the address." if plan.agent == MODEL else "Choose another model.",
        )
    secrets = {plan.key_file: plan.key} if plan.key_file else {}
    return await settings.change(agent_edits(await settings.load(), plan, keeps_key=keeps_key), secrets)


def _plan(form: Mapping[str, str]) -> AgentPlan:
    provider, name = form.get("provider", ""), form.get("model", "")
    if provider == GUIDE:
        return AgentPlan(agent=provider)
    if provider == LOCAL:
        return AgentPlan(agent=provider, file="" if name in {"", _SMALL} else str(find_file(name)))
    if not name:
        example = PROVIDERS.get(provider, ("", "gpt-5-mini"))[1]
        raise BadArgument("Name a model.", found="", allowed="a name that the provider knows", example=example)
    if provider == _SERVER:
        return parse_agent(f"{COMPATIBLE}:{name} {form.get('base_url') or 'none'}")
    return parse_agent(f"{provider}:{name}")


def _with_key(plan: AgentPlan, agent: AgentConfig, form: Mapping[str, str]) -> tuple[AgentPlan, str]:
    """Add the key of the form, or the one in use, and return that beside: it goes only to the address it is for."""
    if plan.agent != MODEL:
        return plan, ""
    kept = "" if form.get("key") else _kept_key(agent, form)
    return (replace(plan, key=kept), kept) if kept else (take_key(plan, form.get("key", "")), "")


def _kept_key(agent: AgentConfig, form: Mapping[str, str]) -> str:
    """Return the key in use, if the same provider at the same address is chosen again."""
    if not isinstance(agent, ModelAgentConfig):
        return ""
    before = _choice(agent)
    is_same = all(before[name] == form.get(name, "") for name in ("provider", "base_url"))
    return str(agent.facts()["key"] or "") if is_same else ""


def _name(plan: AgentPlan) -> str:
    return {GUIDE: "The guide", LOCAL: "The local model"}.get(plan.agent, spell_model(plan.model))


# A model on this machine: what it takes is shown first


def _hub(request: WebRequest) -> ModelHub:
    environ = require_settings(request).file.environ
    folder = request.services.config().data_dir / "models"
    return ModelHub(url=(environ.get("HF_ENDPOINT") or HUB).rstrip("/"), folder=folder)


def _fetch_page(name: str) -> str:
    return f"{_PAGE}?{urlencode({'fetch': name})}"


def _has_to_fetch(name: str) -> bool:
    return _missing() is not None or (name not in {"", _SMALL} and find_file(name) is None)


def _missing() -> MissingPackages | None:
    try:
        require_library()
    except MissingPackages as missing:
        return missing
    return None


async def _describe_fetch(request: WebRequest, name: str) -> Mapping[str, object]:
    """Say what a model takes, or how far it is."""
    work = require_settings(request).works.get(name)
    facts = problem = ""
    missing = None
    try:
        missing = _missing()
        if work is None or work.problem:
            facts = await _describe_model(_hub(request), name)
    except PalaverError as error:
        problem = str(error)
    obstacle = find_installation().obstacle if missing else ""
    return {"name": name, "facts": facts, "problem": problem, "work": work, "missing": missing, "obstacle": obstacle}


async def _describe_model(hub: ModelHub, name: str) -> str:
    if name == _SMALL or find_file(name):
        return "It is on this machine already."
    return hub.describe(await asyncio.to_thread(find_model, name, hub.url))


@action(f"{_PAGE}/fetch", owner_only=True)
async def fetch_model(request: WebRequest) -> Response:
    """Install what runs models, download the model, test it and use it."""
    settings, form = require_settings(request), await read_stripped_form(request)
    name = form.get("fetch", "")
    hint = partial(request.services.hub.hint, "platforms")
    await settings.start(name, partial(_fetch, settings, _hub(request), name), hint)
    return answer_action(request, "", _fetch_page(name), moved=True)


@action(f"{_PAGE}/stop", owner_only=True)
async def stop_fetching(request: WebRequest) -> Response:
    settings, form = require_settings(request), await read_stripped_form(request)
    name = form.get("fetch", "")
    if (work := settings.works.get(name)) and not work.is_over:
        work.problem = _STOPPED
        work.task.cancel()
    return answer_action(request, _STOPPED, _fetch_page(name))


async def _fetch(settings: Settings, hub: ModelHub, name: str, show: Show) -> None:
    if missing := _missing():
        await settings.install(missing, show)
        require_library()  # no package brings the libraries of the system that it needs
    file = "" if name == _SMALL else find_file(name)
    if file is None:
        file = await _download(hub, await asyncio.to_thread(find_model, name, hub.url), show)
    show("Asking it a question")
    await _use(settings, AgentPlan(agent=LOCAL, file=str(file)))


async def _download(hub: ModelHub, model: HubFile, show: Show) -> str:
    loop, stopped, shown = asyncio.get_running_loop(), threading.Event(), ""

    def pass_on(line: str) -> None:
        nonlocal shown
        if stopped.is_set():
            raise NotDownloaded(_STOPPED)
        if line != shown:
            shown = line
            loop.call_soon_threadsafe(show, line)

    try:
        return str(await asyncio.to_thread(hub.get, model, pass_on))
    finally:
        stopped.set()


ROUTES = (model, list_models, save_model, fetch_model, stop_fetching)
