"""Agents: which one answers, and the options of each kind."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, SecretStr, Tag, model_validator

from palaver.model.errors import InvalidInput
from palaver.model.providers import parse_model
from palaver.protocols.entry_points import find_plugins
from palaver.settings.types import Duration, Headers, MaybeKey, Secret, Section, Syntax, Tokens, reveal

GROUP = "palaver.agents"
"""A distribution adds `name = "module:Agent"` to the entry points of this group."""
INSTALLED = "an installed agent"
_WHERE = "absolute or relative to this file"


def installed() -> set[str]:
    """Return the names of agents from installed packages, without importing them."""
    return {each.name for each in find_plugins(GROUP)}


def web_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(text)
    return text


Environment = Annotated[
    Mapping[str, Secret], Syntax("a section of variables and values", "{OPENAI_API_KEY: '${OPENAI_API_KEY}'}")
]
BaseUrl = Annotated[
    str | None,
    AfterValidator(lambda text: text and web_address(text)),
    Syntax("a web address", "http://127.0.0.1:11434/v1"),
]


class ProgramAgentConfig(Section):
    name: Literal["program"] = Field(default="program", description="A program that speaks JSON lines.")
    command: Annotated[
        tuple[str, ...], Field(min_length=1), Syntax("a list: the program, then its arguments", '["node", "agent.js"]')
    ] = Field(description="Run this program.")
    folder: Annotated[Path | None, Syntax(f"a folder, {_WHERE}", "~/agent")] = Field(
        default=None, description="Run it in this folder. Default: the home directory."
    )
    environment: Environment = Field(
        default={}, description="Pass these variables to the program, besides harmless ones such as `PATH`."
    )
    processes: int = Field(default=1, ge=1, le=1_000, description="Run at most this many processes.")
    per_turn: bool = Field(default=False, description="Whether to start a process for each turn.")

    def facts(self) -> dict[str, Any]:
        return {**dict(self), "environment": reveal(self.environment)}


class AcpAgentConfig(Section):
    name: Literal["acp"] = Field(default="acp", description="A program that speaks the Agent Client Protocol.")
    command: Annotated[
        tuple[str, ...], Field(min_length=1), Syntax("a list: the program, then its arguments", '["gemini", "--acp"]')
    ] = Field(description="Run this program.")
    folder: Annotated[Path | None, Syntax(f"a folder, {_WHERE}", "~/project")] = Field(
        default=None, description="It works in this folder. Default: the home directory."
    )
    environment: Environment = Field(
        default={}, description="Pass these variables to the program, besides harmless ones such as `PATH`."
    )

    def facts(self) -> dict[str, Any]:
        return {**dict(self), "environment": reveal(self.environment)}


class HttpAgentConfig(Section):
    name: Literal["http"] = Field(default="http", description="An address that accepts JSON lines.")
    url: Annotated[str, AfterValidator(web_address), Syntax("a web address", "https://agents.example.org/answer")] = (
        Field(repr=False, description="Post requests to this address.")
    )
    headers: Headers = Field(default={}, description="Send these headers with every request.")
    timeout: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="Fail when the agent is silent for this long.",
    )

    def facts(self) -> dict[str, Any]:
        return {**dict(self), "headers": reveal(self.headers)}


class LocalAgentConfig(Section):
    name: Literal["local"] = Field(default="local", description="A model on this machine.")
    file: Annotated[Path | None, Syntax(f"a GGUF model file, {_WHERE}", "~/models/model.gguf")] = Field(
        default=None, description="The model file. Default: the small installed model."
    )
    instructions: Annotated[str, Syntax("any text", '"You are a friendly gardener."')] = Field(
        default="You are a helpful assistant.", description="Instructions for the model."
    )
    context_window: int = Field(
        default=8192,
        ge=256,
        le=10_000_000,
        description="The size of the context in tokens. More tokens need more memory.",
    )
    max_tokens: int = Field(default=512, ge=1, le=1_000_000, description="Limit one answer to this many tokens.")
    temperature: Annotated[float, Syntax("a number", "0.2")] = Field(
        default=0.2, ge=0, le=2, description="The sampling temperature."
    )

    def facts(self) -> dict[str, Any]:
        return dict(self)


class PluginAgentConfig(Section):
    """An agent from a plugin; the plugin checks the other fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Annotated[str, Syntax("the name of an installed agent", "parrot")] = Field(
        default=INSTALLED, description="An agent from an installed package, with fields of its own."
    )

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, **(self.model_extra or {})}

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Leave out the other fields: any can be a secret."""
        yield "name", self.name


_GUIDE, _ECHO, _MODEL = "guide", "echo", "model"
_LOCAL, _PROGRAM, _ACP, _HTTP = "local", "program", "acp", "http"
_KINDS = (_GUIDE, _MODEL, _LOCAL, _PROGRAM, _ACP, _HTTP, _ECHO)
SAFE_AGENTS = frozenset({_GUIDE, _ECHO, _LOCAL})
"""Agents that cost nothing and reach nobody, so that a project's file can choose them."""
WITH_INSTRUCTIONS = frozenset({_MODEL, _LOCAL})


def _check_model_name(said: str) -> str:
    name = parse_model(said)
    provider, separator, model = name.partition(":")
    if not (provider.strip() and separator and model.strip()):
        raise ValueError(said)
    return name


ModelName = Annotated[str, AfterValidator(_check_model_name)]
_A_MODEL = Syntax("provider:model", "openai:gpt-5-mini")
_A_FILE = Syntax("a file, absolute or relative to this file", "~/palaver/agent.md")
MaybeFile = Annotated[Path | None, _A_FILE]
MaybeText = Annotated[str | None, Syntax("any text", '"You are a friendly gardener."')]


class GuideAgentConfig(Section):
    name: Annotated[Literal["guide"], Syntax(f"{', '.join(_KINDS)}, or {INSTALLED}", _GUIDE)] = Field(
        default=_GUIDE, description="Which agent answers."
    )

    def facts(self) -> dict[str, Any]:
        return dict(self)


class EchoAgentConfig(Section):
    name: Literal["echo"] = Field(default=_ECHO, description="An agent for tests that repeats what you say.")
    delay: Duration = Field(
        default=timedelta(),
        ge=timedelta(),
        le=timedelta(days=1),
        description="Wait this long before the answer, or before each word when it streams.",
    )
    streams: bool = Field(default=False, description="Whether to stream the answer word by word.")

    def facts(self) -> dict[str, Any]:
        return dict(self)


class FallbackConfig(Section):
    """A model that answers while those before it fail."""

    model: Annotated[ModelName, _A_MODEL] = Field(description="Which model answers.")
    key: MaybeKey = Field(default=None, description="The API key. Default: that of the agent, for the same provider.")
    key_file: MaybeFile = Field(default=None, description="Read the key from this file instead of `key`.")
    base_url: BaseUrl = Field(
        default=None, description="Use this server. Default: that of the agent, for the same provider."
    )
    max_tokens: Tokens = Field(default=None, description="Limit one answer to this many tokens.")
    context_window: Tokens = Field(
        default=None, description="The size of the context in tokens, if Palaver does not know the model."
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        """Take a name alone for a model with the key of the agent."""
        return {"model": given} if isinstance(given, str) else given

    def options(self, agent: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the model, with what it shares with those of the agent."""
        key = _key(self.key, self.key_file)
        is_own = self.model.partition(":")[0] != str(agent["model"]).partition(":")[0] or key or self.base_url
        server = {"key": key or None, "base_url": self.base_url} if is_own else {}
        mine = {"model": self.model, "max_tokens": self.max_tokens or agent["max_tokens"], **server}
        return {**agent, **mine, "models": (), "context_window": self.context_window}


class ModelAgentConfig(Section):
    name: Literal["model"] = Field(default=_MODEL, description="A model of a provider, or of any compatible server.")
    model: Annotated[ModelName, _A_MODEL] = Field(description="Which model answers.")
    models: Annotated[tuple[ModelName, ...], Syntax("a list of models, each as provider:model", '["openai:gpt-5"]')] = (
        Field(default=(), description="Other models that people can choose with `/model`.")
    )
    fallback: Annotated[
        tuple[FallbackConfig, ...],
        Syntax("a list of models, each as provider:model or a section", '["openai:gpt-5-nano"]'),
    ] = Field(default=(), description="Models that answer, in this order, while `model` fails.")
    key: MaybeKey = Field(default=None, description="Your API key.")
    key_file: MaybeFile = Field(default=None, description="Read the key from this file instead of `key`.")
    base_url: BaseUrl = Field(
        default=None, description="Use this server, which must be compatible with the provider's API."
    )
    instructions: MaybeText = Field(default=None, description="Instructions for the model.")
    instructions_file: MaybeFile = Field(default=None, description="Read more instructions from this file.")
    temperature: Annotated[Annotated[float, Field(ge=0, le=2)] | None, Syntax("a number, from 0 to 2", "0.7")] = Field(
        default=None, description="The sampling temperature. Default: the provider's."
    )
    max_tokens: Tokens = Field(default=None, description="Limit one answer to this many tokens.")
    timeout: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="Fail when the provider is silent for this long.",
    )
    rounds: int = Field(
        default=40, ge=1, le=1_000, description="Allow at most this many rounds of tool calls per turn."
    )
    context_window: Tokens = Field(
        default=None, description="The size of the context in tokens, if Palaver does not know the model."
    )
    prices: MaybeFile = Field(default=None, description="Read prices from this file; they override the built-in ones.")

    def facts(self) -> dict[str, Any]:
        """Return the options with the files read; raise InvalidInput if one cannot be read."""
        options = dict(self)
        instructions = (self.instructions or "", _read(self.instructions_file).decode("utf-8", "replace"))
        key = _key(self.key, self.key_file)
        options |= {"instructions": "\n\n".join(filter(None, map(str.strip, instructions))), "key": key or None}
        options |= {"prices": _read(self.prices) or None}
        plain = {
            name: value
            for name, value in options.items()
            if name not in {"name", "key_file", "instructions_file", "fallback"}
        }
        return {**plain, "fallback": tuple(each.options(plain) for each in self.fallback)}


BUILT_IN_AGENTS: Mapping[str, type[GuideAgentConfig | EchoAgentConfig | LocalAgentConfig]] = {
    _GUIDE: GuideAgentConfig,
    _ECHO: EchoAgentConfig,
    _LOCAL: LocalAgentConfig,
}
"""Agents that need no settings."""


def _read(file: Path | None) -> bytes:
    try:
        return file.read_bytes() if file else b""
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read:",
            found=error.strerror or str(error),
            allowed="a file that the gateway can read",
            example=_A_FILE.example,
        ) from error


def _key(key: SecretStr | None, file: Path | None) -> str:
    """Return the API key; "" if there is none. Raise InvalidInput for what cannot be one."""
    text = key.get_secret_value() if key else _read(file).decode("ascii", "replace")
    said, place = text.strip(), "key" if key else str(file)
    lines = len(said.splitlines())
    if file and not key and not said:
        problem = "nothing"
    elif lines > 1:
        problem = f"{lines} lines"
    elif any(not "!" <= character <= "~" for character in said):
        problem = "blanks or characters that no key has"
    else:
        return said
    raise InvalidInput(f"The key in {place} cannot be", found=problem, allowed="a key on one line", example="sk-…")


def _kind(value: object) -> str:
    """Return the tag of an agent section; an unknown name is reported as a bad name of the first kind."""
    name = cast("Mapping[str, object]", value).get("name") if isinstance(value, Mapping) else getattr(value, "name", "")
    if isinstance(name, str) and name not in _KINDS and name in installed():
        return INSTALLED
    return name if isinstance(name, str) and name in _KINDS else _GUIDE


AgentConfig = Annotated[
    Annotated[GuideAgentConfig, Tag(_GUIDE)]
    | Annotated[EchoAgentConfig, Tag(_ECHO)]
    | Annotated[ModelAgentConfig, Tag(_MODEL)]
    | Annotated[LocalAgentConfig, Tag(_LOCAL)]
    | Annotated[ProgramAgentConfig, Tag(_PROGRAM)]
    | Annotated[AcpAgentConfig, Tag(_ACP)]
    | Annotated[HttpAgentConfig, Tag(_HTTP)]
    | Annotated[PluginAgentConfig, Tag(INSTALLED)],
    Discriminator(_kind),
]
