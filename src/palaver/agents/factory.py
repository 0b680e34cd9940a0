"""Making agents: what an agent is made of is loaded only where somebody has chosen it."""

from importlib import import_module

from palaver.agents.model.options import Wanted
from palaver.model.errors import InvalidInput
from palaver.protocols.agent import Agent

__all__ = [
    "model_agent",
]


def model_agent(wanted: Wanted) -> Agent:
    try:
        made: Agent = import_module("palaver.agents.model.agent").ModelAgent.of(wanted)
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            "The agent called model needs a package that is not installed:",
            found=missing.name or str(missing),
            allowed="what palaver's extra models brings",
            example="pip install 'palaver[models]'",
        ) from missing
    return made
