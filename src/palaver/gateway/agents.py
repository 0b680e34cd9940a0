"""Agents as a configuration wants them: each made when it is first wanted, kept while it is, let go afterwards."""

import asyncio
import logging
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from palaver.agents.echo import EchoAgent
from palaver.agents.external import ForeignAgent
from palaver.agents.factory import model_agent
from palaver.agents.local import LocalModel, local_agent, shipped_model
from palaver.agents.model.options import Wanted
from palaver.agents.plugins import make_agent
from palaver.agents.program import Program, harmless
from palaver.config.agents import (
    AgentConfig,
    EchoAgentConfig,
    HttpAgentConfig,
    LocalAgentConfig,
    ModelAgentConfig,
    PluginAgentConfig,
    ProgramAgentConfig,
)
from palaver.config.model import Config
from palaver.engine.retry import log_error
from palaver.model.errors import BadArgument, InvalidInput
from palaver.protocols.agent import Agent, Agents, Closable, Retiring

__all__ = [
    "AgentPool",
    "build_agent",
    "find_unavailable_agents",
]

log = logging.getLogger(__name__)


class AgentPool:
    def __init__(self) -> None:
        self._known: list[tuple[dict[str, Any], Agent]] = []
        """By what they were made from: what now stands in a key file makes it another one."""
        self._all: list[Agent] = []

    def agents(self, config: Config) -> Agents:
        """Those that are wanted. Raises InvalidInput where one cannot be had, and then nothing has changed."""
        own = _own(config)
        before, known = self._known, list[tuple[dict[str, Any], Agent]]()
        for choice in (config.agent, *own.values()):
            facts = choice.facts()
            known.append((facts, self._found(facts, [*known, *before]) or _made(choice, facts)))
        self._known = known
        usual, *others = (agent for _, agent in known)
        self._all += [agent for agent in (usual, *others) if not any(agent is each for each in self._all)]
        for agent in self._all:
            if isinstance(agent, Retiring) and not any(agent is each for each in (usual, *others)):
                agent.retire()
        return Agents(usual, dict(zip(own, others, strict=True)))

    async def close(self) -> None:
        """All of them, whatever one of them does."""
        closing = (agent.close() for agent in self._all if isinstance(agent, Closable))
        for error in await asyncio.gather(*closing, return_exceptions=True):
            if error:
                log_error(log, "an agent did not close", error, {"action": "agent.close_error"})

    @staticmethod
    def _found(facts: dict[str, Any], known: list[tuple[dict[str, Any], Agent]]) -> Agent | None:
        return next((agent for made_from, agent in known if made_from == facts), None)


def _own(config: Config) -> dict[str, AgentConfig]:
    """Of profiles that have an agent of their own."""
    return {name: profile.agent for name, profile in config.profiles.items() if "agent" in profile.model_fields_set}


def find_unavailable_agents(config: Config) -> Iterator[tuple[tuple[str, ...], InvalidInput]]:
    """The agents that a gateway would refuse to begin with, by where they stand, and why."""
    own = {("profiles", name, "agent"): choice for name, choice in _own(config).items()}
    for way, choice in {("agent",): config.agent, **own}.items():
        try:
            build_agent(choice)
        except InvalidInput as refusal:
            yield way, refusal


def build_agent(choice: AgentConfig) -> Agent:
    return _made(choice, choice.facts())


def _made(choice: AgentConfig, facts: dict[str, Any]) -> Agent:
    told = {name: value for name, value in facts.items() if name != "name"}
    match choice:
        case EchoAgentConfig():
            return EchoAgent(delay=choice.delay.total_seconds(), streams=choice.streams)
        case ModelAgentConfig():
            return model_agent(Wanted(**told))
        case LocalAgentConfig():
            file = str(told.pop("file") or shipped_model())
            return local_agent(LocalModel(file=file, **told), os.environ)
        case ProgramAgentConfig():
            environ = {**harmless(os.environ), **told.pop("environment")}
            return ForeignAgent(Program(environ=environ, **told))
        case HttpAgentConfig():
            return _over_http(told)
        case PluginAgentConfig():
            return make_agent(choice.name, told)


def _over_http(told: dict[str, Any]) -> Agent:
    try:
        # Only where somebody has chosen it: it is slow to import, and may not be installed.
        endpoint = import_module("palaver.agents.http").Endpoint
    except ModuleNotFoundError as missing:
        raise BadArgument(
            "The agent called http needs a package that is not installed:",
            found=missing.name or str(missing),
            allowed="what palaver's extra http brings",
            example="pip install 'palaver[http]'",
        ) from missing
    return ForeignAgent(endpoint(url=told["url"], headers=told["headers"], timeout=told["timeout"].total_seconds()))
