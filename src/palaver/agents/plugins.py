"""Load agents only when they are configured: plugins by their Python entry points, and ours that need an extra."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from pydantic import BaseModel

from palaver.model.errors import BadArgument, PalaverError
from palaver.protocols.agent import Agent
from palaver.protocols.entry_points import find_plugins
from palaver.protocols.installation import MissingPackages, missing_library, package_line

ENTRY_POINT_GROUP = "palaver.agents"
"""A package adds `name = "module:Agent"` to this entry point group."""
_EXAMPLE = 'an entry point parrot = "parrot_agent:Parrot"'


class AgentFactory(Protocol):
    """What an entry point loads: the agent's class, or anything else with these members."""

    @property
    def options(self) -> type[BaseModel]:
        """The model of its configuration."""
        ...

    def make(self, options: Any) -> Agent: ...  # noqa: ANN401 - an instance of its own model


def import_extra(module: str, who_needs: str, extra: str) -> Any:  # noqa: ANN401 - a module
    """Import a module whose packages can be missing. Raises MissingPackages, or MissingLibrary for what they need."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise MissingPackages(who_needs, extra, missing=missing.name or str(missing)) from missing
    except ImportError as error:
        raise (missing_library(who_needs, error) or error) from error


def agent_options(name: str) -> type[BaseModel]:
    return _load_factory(name).options


def make_agent(name: str, options: Mapping[str, object]) -> Agent:
    """Make an agent from options that were already validated with the configuration."""
    factory = _load_factory(name)
    try:
        agent = factory.make(factory.options.model_validate(options))
    except PalaverError:
        raise
    except Exception as error:
        raise _not_made(name, type(error).__name__) from error
    if not callable(getattr(agent, "answer", None)):
        raise _not_made(name, type(agent).__name__)
    return agent


def _load_factory(name: str) -> AgentFactory:
    loaded: Any = _load(name)
    options = getattr(loaded, "options", None)
    if isinstance(options, type) and issubclass(options, BaseModel) and callable(getattr(loaded, "make", None)):
        return loaded
    raise BadArgument(
        f"The agent plugin {name} loads {{found}}, which is not an agent factory",
        found=loaded.__name__ if isinstance(loaded, type) else type(loaded).__name__,
        allowed="an object with options (a pydantic model) and make(options)",
        example=_EXAMPLE,
    )


def _load(name: str) -> object:
    for entry_point in find_plugins(ENTRY_POINT_GROUP, name):
        try:
            return entry_point.load()
        except Exception as error:
            raise BadArgument(
                f"The agent plugin {name} cannot be loaded ({{found}})",
                found=f"{type(error).__name__}: {error}",
                allowed="an entry point with an importable module and a name in it",
                example=_EXAMPLE,
            ) from error
    known = ", ".join(sorted(plugin.name for plugin in find_plugins(ENTRY_POINT_GROUP)))
    raise BadArgument(
        "No agent plugin named {found} is installed",
        found=name,
        allowed=known,
        fix=None if known else "Install its package",
        example=package_line("NAME"),
    )


def _not_made(name: str, found: str) -> BadArgument:
    return BadArgument(
        f"The agent plugin {name} failed to make an agent ({{found}})",
        found=found,
        allowed="an agent with answer(request)",
        example="make(options)",
    )
