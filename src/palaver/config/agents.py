"""Agents: who answers, and what each kind of agent can be told."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Discriminator, Field, SecretStr, Tag

from palaver.config.external_agents import (
    INSTALLED,
    HttpChoice,
    LocalChoice,
    OtherChoice,
    ProgramChoice,
    installed,
    web_address,
)
from palaver.config.types import Duration, Form, Part, Tokens
from palaver.model.errors import InvalidInput

__all__ = ["AgentChoice", "EchoChoice", "ModelChoice"]

_ECHO, _MODEL = "echo", "model"
_LOCAL, _PROGRAM, _HTTP = "local", "program", "http"
_KINDS = (_ECHO, _MODEL, _LOCAL, _PROGRAM, _HTTP)


def _provided(name: str) -> str:
    provider, separator, model = name.partition(":")
    if not (provider.strip() and separator and model.strip()):
        raise ValueError(name)
    return name


ModelName = Annotated[str, AfterValidator(_provided)]
_A_MODEL = Form("a provider and a model of it, provider:model", "openai:gpt-5-mini")
_A_FILE = Form("a file; where it is not absolute, from the folder of this file on", "~/palaver/agent.md")
MaybeFile = Annotated[Path | None, _A_FILE]
MaybeText = Annotated[str | None, Form("any text", '"You are a friendly gardener."')]


class EchoChoice(Part):
    name: Annotated[Literal["echo"], Form(f"{', '.join(_KINDS)}, or {INSTALLED}", _ECHO)] = Field(
        default=_ECHO, description="Which agent answers."
    )
    delay: Duration = Field(
        default=timedelta(),
        ge=timedelta(),
        le=timedelta(days=1),
        description="How long it waits; when it streams, for each word.",
    )
    streams: bool = Field(default=False, description="Whether it answers word by word.")

    def facts(self) -> dict[str, Any]:
        """What an agent is made from."""
        return dict(self)


class ModelChoice(Part):
    name: Literal["model"] = Field(default=_MODEL, description="A model of a provider, or of any compatible server.")
    model: Annotated[ModelName, _A_MODEL] = Field(description="Which model answers.")
    models: Annotated[tuple[ModelName, ...], Form("a list of models, each as provider:model", '["openai:gpt-5"]')] = (
        Field(default=(), description="Others that a conversation may ask for with `/model`.")
    )
    key: Annotated[SecretStr | None, Form("the key, out of the environment", "${OPENAI_API_KEY}")] = Field(
        default=None, description="What the provider knows you by."
    )
    key_file: MaybeFile = Field(default=None, description="A file that holds the key, in the place of `key`.")
    base_url: Annotated[
        str | None,
        AfterValidator(lambda text: text and web_address(text)),
        Form("a web address", "http://127.0.0.1:11434/v1"),
    ] = Field(default=None, description="Another server that speaks as the provider does.")
    instructions: MaybeText = Field(default=None, description="What the agent is told about itself.")
    instructions_file: MaybeFile = Field(default=None, description="A file with more of that.")
    temperature: Annotated[Annotated[float, Field(ge=0, le=2)] | None, Form("a number, from 0 to 2", "0.7")] = Field(
        default=None, description="How freely it chooses its words; else as the provider does."
    )
    max_tokens: Tokens = Field(default=None, description="How long one answer may be, in tokens.")
    timeout: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="How long the provider may say nothing.",
    )
    rounds: int = Field(default=40, ge=1, le=1_000, description="How often it may use tools in one turn.")
    context_window: Tokens = Field(default=None, description="How many tokens the model takes, where nobody knows.")
    prices: MaybeFile = Field(default=None, description="A file with prices that count more than those built in.")

    def facts(self) -> dict[str, Any]:
        """What an agent is made from, with what stands in the files. Raises InvalidInput where one cannot be read."""
        written = dict(self)
        told = (self.instructions or "", _read(self.instructions_file).decode("utf-8", "replace"))
        key = self.key.get_secret_value() if self.key else _read(self.key_file).decode("ascii", "replace")
        written |= {"instructions": "\n\n".join(filter(None, map(str.strip, told))), "key": key.strip() or None}
        written |= {"prices": _read(self.prices) or None}
        return {name: value for name, value in written.items() if name not in {"name", "key_file", "instructions_file"}}


def _read(file: Path | None) -> bytes:
    try:
        return file.read_bytes() if file else b""
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read:",
            found=error.strerror or str(error),
            allowed="a file that the gateway may read",
            example=_A_FILE.example,
        ) from error


def _kind(value: object) -> str:
    """Whichever name is none of ours is refused as the name of the first."""
    said = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"name": getattr(value, "name", None)}
    name = said.get("name")
    if isinstance(name, str) and name not in _KINDS and name in installed():
        return INSTALLED
    return name if isinstance(name, str) and name in _KINDS else _ECHO


AgentChoice = Annotated[
    Annotated[EchoChoice, Tag(_ECHO)]
    | Annotated[ModelChoice, Tag(_MODEL)]
    | Annotated[LocalChoice, Tag(_LOCAL)]
    | Annotated[ProgramChoice, Tag(_PROGRAM)]
    | Annotated[HttpChoice, Tag(_HTTP)]
    | Annotated[OtherChoice, Tag(INSTALLED)],
    Discriminator(_kind),
]
