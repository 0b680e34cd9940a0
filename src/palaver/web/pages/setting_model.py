"""The settings page for the model: choose it, test it with one question, then save it with its key apart."""

from collections.abc import Mapping
from dataclasses import replace

from starlette.responses import Response

from palaver.config.agent_plan import GUIDE, LOCAL, MODEL, AgentPlan, parse_agent, take_key
from palaver.config.agent_trial import agent_edits, trial_agent
from palaver.config.agents import AgentConfig, ModelAgentConfig
from palaver.model.errors import BadArgument
from palaver.model.providers import COMPATIBLE, spell_model
from palaver.model.providers import PROVIDERS as KNOWN
from palaver.web.pages.common import answer_action, read_stripped_form
from palaver.web.pages.settings import SECTIONS, require_settings, show_settings
from palaver.web.routes import WebRequest, action, page

_SERVER = "server"
PROVIDERS = {
    **{each.name: (each.title, each.default_model) for each in KNOWN.values()},
    _SERVER: ("A server of your own, with OpenAI's API", "llama3.2"),
    LOCAL: ("The small model on this machine", ""),
    GUIDE: ("The guide, which needs no model", ""),
}
"""What to choose from: a label, and an example of a model."""


@page("/settings/model", owner_only=True)
async def model(request: WebRequest) -> Response:
    agent = request.services.config().agent
    return await show_settings(
        request, SECTIONS["model"], "settings/model.html", agent=agent, chosen=_choice(agent), providers=PROVIDERS
    )


def _choice(agent: AgentConfig) -> Mapping[str, str]:
    """Return the running agent as the form shows it."""
    if not isinstance(agent, ModelAgentConfig):
        # On the first visit, offer a model instead of the guide.
        is_first = agent.name in {GUIDE, "echo"}
        return {"provider": next(iter(PROVIDERS)) if is_first else agent.name, "model": "", "base_url": ""}
    provider, _, name = agent.model.partition(":")
    if agent.base_url:
        return {"provider": _SERVER, "model": name, "base_url": agent.base_url}
    return {"provider": provider, "model": name, "base_url": ""}


@action("/settings/model", owner_only=True)
async def save_model(request: WebRequest) -> Response:
    settings = require_settings(request)
    form = await read_stripped_form(request)
    loaded = await settings.load()
    plan, kept = _plan(form), _kept_key(loaded.config.agent, form)
    if plan.agent == MODEL:
        # A key goes only to the address that it was given for.
        plan = take_key(plan, form.get("key", "")) if form.get("key") or not kept else replace(plan, key=kept)
    if plan.agent != GUIDE:
        problem = await settings.ask_agent(trial_agent(plan), plan.key)
        if problem:
            raise BadArgument(
                f"{_name(plan)} does not answer: {problem.rstrip('.')}. Nothing was saved.",
                found="",
                allowed="a model that answers",
                example="openai:gpt-5-mini",
                fix="Check the key, the name and the address.",
            )
    secrets = {plan.key_file: plan.key} if plan.key_file else {}
    saved = await settings.change(agent_edits(loaded, plan, keeps_key=bool(kept) and not form.get("key")), secrets)
    request.services.hub.hint("platforms")
    notice = f"{_name(plan)} answers from now on. {saved}"
    return answer_action(request, notice, "/settings/model")


def _plan(form: Mapping[str, str]) -> AgentPlan:
    provider, name = form.get("provider", ""), form.get("model", "")
    if provider in {GUIDE, LOCAL}:
        return AgentPlan(agent=provider)
    if not name:
        example = PROVIDERS.get(provider, ("", "gpt-5-mini"))[1]
        raise BadArgument("Name a model.", found="", allowed="a name that the provider knows", example=example)
    if provider == _SERVER:
        return parse_agent(f"{COMPATIBLE}:{name} {form.get('base_url') or 'none'}")
    return parse_agent(f"{provider}:{name}")


def _kept_key(agent: AgentConfig, form: Mapping[str, str]) -> str:
    """Return the key in use, if the same provider at the same address is chosen again."""
    if not isinstance(agent, ModelAgentConfig):
        return ""
    before = _choice(agent)
    is_same = all(before[name] == form.get(name, "") for name in ("provider", "base_url"))
    return str(agent.facts()["key"] or "") if is_same else ""


def _name(plan: AgentPlan) -> str:
    return {GUIDE: "The guide", LOCAL: "The local model"}.get(plan.agent, spell_model(plan.model))


ROUTES = (model, save_model)
