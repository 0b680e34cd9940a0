"""Agents of other makers, and the local model: what each can be told."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from palaver.config.types import Duration, Form, Part

__all__ = [
    "GROUP",
    "INSTALLED",
    "HttpChoice",
    "LocalChoice",
    "OtherChoice",
    "ProgramChoice",
    "installed",
    "web_address",
]

GROUP = "palaver.agents"
"""A distribution adds `name = "module:Agent"` to the entry points of this group."""
INSTALLED = "an installed agent"
_WHERE = "where it is not absolute, from the folder of this file on"


def installed() -> set[str]:
    """The names of agents that packages bring; nothing of them is imported for that."""
    return {each.name for each in entry_points(group=GROUP)}


def web_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(text)
    return text


def _shown(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


class ProgramChoice(Part):
    name: Literal["program"] = Field(default="program", description="A program that speaks lines of JSON.")
    command: Annotated[
        tuple[str, ...], Field(min_length=1), Form("a list: the program, then its arguments", '["node", "agent.js"]')
    ] = Field(description="What is run.")
    folder: Annotated[Path | None, Form(f"a folder; {_WHERE}", "~/agent")] = Field(
        default=None, description="Where it is run; else in the home directory."
    )
    environment: Annotated[
        Mapping[str, SecretStr],
        Form("a section of variables with their values", "{OPENAI_API_KEY: '${OPENAI_API_KEY}'}"),
    ] = Field(default={}, description="What it sees of the environment besides harmless things such as `PATH`.")
    processes: int = Field(default=1, ge=1, le=1_000, description="How many of it run at most.")
    per_turn: bool = Field(default=False, description="Whether each turn has a process of its own.")

    def facts(self) -> dict[str, Any]:
        return {**dict(self), "environment": _shown(self.environment)}


class HttpChoice(Part):
    name: Literal["http"] = Field(default="http", description="An address that takes lines of JSON.")
    url: Annotated[str, AfterValidator(web_address), Form("a web address", "https://agents.example.org/answer")] = (
        Field(repr=False, description="Where questions are posted.")
    )
    headers: Annotated[
        Mapping[str, SecretStr],
        Form("a section of headers with their values", "{Authorization: 'Bearer ${AGENT_TOKEN}'}"),
    ] = Field(default={}, description="What is sent with every question.")
    timeout: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="How long it may say nothing.",
    )

    def facts(self) -> dict[str, Any]:
        return {**dict(self), "headers": _shown(self.headers)}


class LocalChoice(Part):
    name: Literal["local"] = Field(default="local", description="A model on this machine.")
    file: Annotated[Path | None, Form(f"a model in GGUF; {_WHERE}", "~/models/model.gguf")] = Field(
        default=None, description="Which model; else the small one that is installed."
    )
    instructions: Annotated[str, Form("any text", '"You are a friendly gardener."')] = Field(
        default="You are a helpful assistant.", description="What the model is told about itself."
    )
    context_window: int = Field(
        default=8192, ge=256, le=10_000_000, description="How many tokens it is given at most; more take more memory."
    )
    max_tokens: int = Field(default=512, ge=1, le=1_000_000, description="How long one answer may be, in tokens.")
    temperature: Annotated[float, Form("a number", "0.2")] = Field(
        default=0.2, ge=0, le=2, description="How freely it chooses its words."
    )

    def facts(self) -> dict[str, Any]:
        return dict(self)


class OtherChoice(Part):
    """Checked against the options of its agent where that can be asked."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Annotated[str, Form("the name of an installed agent", "parrot")] = Field(
        default=INSTALLED, description="An agent that a package brings; its other fields are its own."
    )

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, **(self.model_extra or {})}

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Any of the others may be a secret."""
        yield "name", self.name
