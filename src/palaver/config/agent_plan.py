"""An agent before it is written: which one, which model, and where its key comes from."""

import os
import re
from dataclasses import field, replace
from pathlib import Path

from palaver.agents.model_list import list_models
from palaver.config.account_draft import VARIABLE
from palaver.config.secrets import read_secret
from palaver.model.errors import BadArgument
from palaver.model.providers import PROVIDERS, chat_models, parse_model, pick_model, spell_model
from palaver.model.value import value

GUIDE, LOCAL, MODEL = "guide", "local", "model"
AGENT_FORMS = f"{GUIDE}, {LOCAL}, or provider:model and, for a server of your own, its address"
_MODEL_NAME = re.compile(r"(?P<provider>[a-z0-9][a-z0-9-]{0,40}):(?P<model>\S{1,200})")


@value
class AgentPlan:
    """The agent settings to write."""

    agent: str
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    key_file: str = ""
    key: str = field(default="", repr=False)
    """The key itself; it is never written into the configuration."""
    file: str = ""
    """The file of a local model."""
    timezone: str = ""

    @property
    def provider(self) -> str:
        return self.model.partition(":")[0]

    @property
    def title(self) -> str:
        """Who would answer, for people."""
        return self.base_url or (PROVIDERS[self.provider].title if self.provider in PROVIDERS else self.provider)

    @property
    def usual_model(self) -> str:
        """What to begin with where nothing is listed; empty for a server of somebody."""
        return PROVIDERS[self.provider].default_model if self.provider in PROVIDERS and not self.base_url else ""

    @property
    def usual_key_file(self) -> str:
        """Where its key is kept, beside the configuration."""
        return f"keys/{'server' if self.base_url else self.provider}"

    def fields(self) -> dict[str, str]:
        """Return the agent section to write."""
        said = {"name": self.agent, "model": self.model, "base_url": self.base_url, "key_file": self.key_file}
        said["file"] = self.file
        if self.key_variable:
            said["key"] = f"${{{self.key_variable}}}"
        return {name: value for name, value in said.items() if value}


def parse_agent(said: str) -> AgentPlan:
    name, _, address = said.strip().partition(" ")
    if name in {GUIDE, LOCAL} and not address:
        return AgentPlan(agent=name)
    name = spell_model(parse_model(name))
    if _MODEL_NAME.fullmatch(name) and (not address or address.startswith(("http://", "https://"))):
        return AgentPlan(agent=MODEL, model=name, base_url=address.strip())
    raise BadArgument("Unknown agent or model", found=said, allowed=AGENT_FORMS, example="openai:gpt-5-mini")


async def list_choices(plan: AgentPlan) -> list[str]:
    """Return the models that the plan's provider offers to its key, the one to begin with first.

    Raises ModelsNotListed, or MissingPackages.
    """
    listed = chat_models([each.name for each in await list_models(plan.provider, key=plan.key, base_url=plan.base_url)])
    usual = pick_model(listed, plan.usual_model)
    return [usual, *(name for name in listed if name != usual)] if listed else []


def take_key(plan: AgentPlan, said: str) -> AgentPlan:
    """Take a key, the name of a variable, or nothing. Errors never repeat the key."""
    if os.environ.get(said):
        return with_key(plan, said, "")
    if said in os.environ or VARIABLE.fullmatch(said) or not (said.isascii() and said.isprintable()):
        raise BadArgument(
            "This is neither a usable key nor a variable that is set.",
            found="",
            allowed="a key, a variable that is set, or --key-file",
            example="OPENAI_API_KEY",
        )
    if not said and not plan.base_url:
        raise BadArgument("There is no key.", found="", allowed="a key, or a variable", example="OPENAI_API_KEY")
    return replace(plan, key=said, key_file=plan.usual_key_file if said else "")


def with_key(plan: AgentPlan, variable: str, file: str) -> AgentPlan:
    if variable and not os.environ.get(variable):
        example = "--key-env OPENAI_API_KEY"
        raise BadArgument(
            "There is no environment variable", found=variable, allowed="one that is set", example=example
        )
    if variable:
        return replace(plan, key_variable=variable, key=os.environ[variable])
    if file:
        place = Path(file).expanduser().absolute()
        return replace(plan, key_file=str(place), key=read_secret(place))
    return plan
