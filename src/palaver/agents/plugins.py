"""Agents of others: found by their Python entry points, loaded only when they are asked for."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

from pydantic import BaseModel

from palaver.model.errors import BadArgument, PalaverError
from palaver.protocols.agent import Agent

__all__ = [
    "ENTRY_POINT_GROUP",
    "AgentFactory",
    "agent_options",
    "make_agent",
]

ENTRY_POINT_GROUP = "palaver.agents"
"""A distribution adds `name = "module:Agent"` to the entry points of this group."""
_EXAMPLE = 'an entry point parrot = "parrot_agent:Parrot"'


class AgentFactory(Protocol):
    """What an entry point leads to: the class of the agent, or anything else that has these."""

    @property
    def options(self) -> type[BaseModel]:
        """What may be configured."""
        ...

    def make(self, options: Any) -> Agent: ...  # noqa: ANN401 - an instance of its own model


def agent_options(name: str) -> type[BaseModel]:
    return _maker(name).options


def make_agent(name: str, options: Mapping[str, object]) -> Agent:
    """The options are right: the configuration was checked."""
    found = _maker(name)
    try:
        agent = found.make(found.options.model_validate(options))
    except PalaverError:
        raise
    except Exception as error:
        raise _unmade(name, type(error).__name__) from error
    if not callable(getattr(agent, "answer", None)):
        raise _unmade(name, type(agent).__name__)
    return agent


def _maker(name: str) -> AgentFactory:
    found: Any = _load(name)
    options = getattr(found, "options", None)
    if isinstance(options, type) and issubclass(options, BaseModel) and callable(getattr(found, "make", None)):
        return found
    raise BadArgument(
        f"The agent that is installed as {name} is not",
        found=found.__name__ if isinstance(found, type) else type(found).__name__,
        allowed="something with options (a pydantic model) and make(options)",
        example=_EXAMPLE,
    )


def _load(name: str) -> object:
    for found in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            return found.load()
        except Exception as error:
            raise BadArgument(
                f"The agent that is installed as {name} cannot be loaded:",
                found=f"{type(error).__name__}: {error}",
                allowed="a module that can be imported, and a name in it",
                example=_EXAMPLE,
            ) from error
    known = ", ".join(sorted(each.name for each in entry_points(group=ENTRY_POINT_GROUP))) or "none is installed"
    raise BadArgument("No installed agent is called", found=name, allowed=known, example="pip install NAME")


def _unmade(name: str, found: str) -> BadArgument:
    return BadArgument(
        f"The agent that is installed as {name} was not made:",
        found=found,
        allowed="an agent, which has answer(request)",
        example="make(options)",
    )
