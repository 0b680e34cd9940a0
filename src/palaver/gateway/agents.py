"""Build the agents of a configuration; keep unchanged ones across reloads and close the rest at the end."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from palaver.agents.acp import AcpTransport
from palaver.agents.echo import EchoAgent
from palaver.agents.external import ExternalAgent
from palaver.agents.guide import GuideAgent
from palaver.agents.local import LocalModel, installed_model, local_agent
from palaver.agents.model.options import ModelOptions, make_model_agent
from palaver.agents.plugins import import_extra, make_agent
from palaver.agents.process import ProcessPool, safe_environment
from palaver.config.model import Config
from palaver.engine.retry import close_all
from palaver.engine.settings import Agents
from palaver.model.errors import InvalidInput
from palaver.protocols.agent import Agent, Closable, Priced, Retiring
from palaver.settings.agents import (
    AcpAgentConfig,
    AgentConfig,
    EchoAgentConfig,
    GuideAgentConfig,
    HttpAgentConfig,
    LocalAgentConfig,
    ModelAgentConfig,
    PluginAgentConfig,
    ProgramAgentConfig,
)

_CLOSE_TIMEOUT_SECONDS = 10.0


class AgentPool:
    """Agents by the settings they were built from, including the content of key files."""

    def __init__(self) -> None:
        self._current: list[tuple[dict[str, Any], Agent]] = []
        self._all: list[Agent] = []

    def agents(self, config: Config) -> Agents:
        """Return the agents of a configuration. Raises InvalidInput, and changes nothing, if one cannot be built."""
        by_profile = _profile_agents(config)
        before, current = self._current, list[tuple[dict[str, Any], Agent]]()
        for choice in (config.agent, *by_profile.values()):
            facts = choice.facts()
            current.append((facts, _find(facts, [*current, *before]) or _build(choice, facts)))
        self._current = current
        default, *others = (agent for _, agent in current)
        self._all += [agent for agent in (default, *others) if not any(agent is known for known in self._all)]
        for agent in self._all:
            if isinstance(agent, Retiring) and not any(agent is used for used in (default, *others)):
                agent.retire()
        return Agents(default, dict(zip(by_profile, others, strict=True)))

    async def close(self) -> None:
        """Close all agents, even if one of them fails or does not end."""
        closing = [agent.close() for agent in self._all if isinstance(agent, Closable)]
        await close_all("an agent", closing, {"action": "agent.close_error"}, within=_CLOSE_TIMEOUT_SECONDS)


def _find(facts: dict[str, Any], known: list[tuple[dict[str, Any], Agent]]) -> Agent | None:
    return next((agent for built_from, agent in known if built_from == facts), None)


def _profile_agents(config: Config) -> dict[str, AgentConfig]:
    """Return the agents of profiles that have their own."""
    return {name: profile.agent for name, profile in config.profiles.items() if "agent" in profile.model_fields_set}


def configured_agents(config: Config) -> dict[tuple[str, ...], AgentConfig]:
    """Return the agents of a configuration by their path in it."""
    profiles = {("profiles", name, "agent"): choice for name, choice in _profile_agents(config).items()}
    return {("agent",): config.agent, **profiles}


def find_unavailable_agents(config: Config) -> Iterator[tuple[tuple[str, ...], InvalidInput]]:
    """Yield the path of each agent in the configuration that cannot be built, and why."""
    for path, choice in configured_agents(config).items():
        try:
            build_agent(choice)
        except InvalidInput as refusal:
            yield path, refusal


def price_warnings(config: Config) -> list[str]:
    """Return what to know about limits on money, if a model has no known price."""
    priced = (agent for _, agent in _capped_agents(config) if isinstance(agent, Priced))
    models = dict.fromkeys(model for agent in priced for model in agent.unpriced_models())
    return [
        f"The price of {model} is unknown, so the cost limits in caps are reached after its first answer. "
        "Add its price to the file named in prices, or limit tokens instead."
        for model in models
    ]


def cost_warnings(config: Config) -> list[str]:
    """Return the same, and what to know about agents that report what they cost, or do not."""
    reporting = {name: None for name, agent in _capped_agents(config) if not isinstance(agent, Priced)}
    return price_warnings(config) + [
        f"The agent {name} reports its own cost. If it reports tokens without cost_micros, the cost limits in caps are "
        "reached after its first answer: then limit tokens instead."
        for name in reporting
    ]


def _capped_agents(config: Config) -> Iterator[tuple[str, Agent]]:
    """Yield the agents of a configuration if it limits money."""
    rules = config.caps.rules()
    caps = (cap for quotas in (rules.caps, *rules.roles.values()) for cap in quotas.values())
    if all(cap.cost_micros is None for cap in caps):
        return
    for choice in configured_agents(config).values():
        with suppress(InvalidInput):  # reported by find_unavailable_agents
            yield choice.name, build_agent(choice)


def build_agent(choice: AgentConfig) -> Agent:
    return _build(choice, choice.facts())


def _build(choice: AgentConfig, facts: dict[str, Any]) -> Agent:
    options = {name: value for name, value in facts.items() if name != "name"}
    match choice:
        case GuideAgentConfig() | EchoAgentConfig():
            return _free_agent(choice)
        case ModelAgentConfig():
            return make_model_agent(ModelOptions.of(options))
        case LocalAgentConfig():
            file = str(options.pop("file") or installed_model())
            return local_agent(LocalModel(file=file, **options), os.environ)
        case ProgramAgentConfig() | AcpAgentConfig():
            environ = {**safe_environment(os.environ), **options.pop("environment")}
            transport = AcpTransport if isinstance(choice, AcpAgentConfig) else ProcessPool
            return ExternalAgent(transport(environ=environ, **options))
        case HttpAgentConfig():
            return _http_agent(options)
        case PluginAgentConfig():
            return make_agent(choice.name, options)


def _free_agent(choice: GuideAgentConfig | EchoAgentConfig) -> Agent:
    if isinstance(choice, GuideAgentConfig):
        return GuideAgent()
    return EchoAgent(delay=choice.delay.total_seconds(), streams=choice.streams)


def _http_agent(options: dict[str, Any]) -> Agent:
    # Import it only if it is used: it is slow to import, and may not be installed.
    endpoint = import_extra("palaver.agents.http", "The http agent needs", "http").HttpTransport
    return ExternalAgent(
        endpoint(url=options["url"], headers=options["headers"], timeout=options["timeout"].total_seconds())
    )
