"""Check accounts, agents and hooks against the plugins that provide them, and describe option errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from palaver.config.errors import MalformedConfig, Mistake, mistake_at, refused_at
from palaver.config.nodes import Node, dotted_path
from palaver.config.secrets import FILE, SET, WithSecrets, fill_secrets, is_secret, mask_secrets, option_names
from palaver.engine.hooks import load_hook
from palaver.model.errors import InvalidInput
from palaver.model.platform import Platform
from palaver.model.target import Place
from palaver.model.value import FieldPath
from palaver.protocols.relay import RELAY_OPTION
from palaver.settings.agents import installed
from palaver.settings.types import Syntax


class AdapterInfo(Protocol):
    """What the configuration needs to know about an adapter."""

    @property
    def platform(self) -> Platform: ...
    @property
    def options(self) -> type[BaseModel]: ...


@runtime_checkable
class Forwards(Protocol):
    """Options of an account that sends its answers elsewhere."""

    @property
    def answers_go_to(self) -> Mapping[str, Sequence[Place]]:
        """Return the targets by option name."""
        ...


@runtime_checkable
class Receives(Protocol):
    """Options of an account that is a chat itself and might not take messages."""

    @property
    def takes_messages(self) -> bool: ...


class DescribeAdapter(Protocol):
    def __call__(self, name: str, *, relayed: bool = False) -> AdapterInfo:
        """Describe the adapter of a platform, or of its accounts that a connector holds.

        Raise InvalidInput if no adapter is installed for it.
        """
        ...


AgentOptions = Callable[[str], type[BaseModel]]
"""Take the name of an installed agent and return its options; raise InvalidInput if it cannot be loaded."""


Accounts = Annotated[
    Mapping[str, Mapping[str, object]],
    Syntax("a section of accounts by name, each with the options of its adapter", "{helper: {}}"),
]
Hooks = Annotated[tuple[str, ...], Syntax("a list of functions, each as package.module:function", '["hooks:tell"]')]


def platforms_with_accounts(sources: Node, describe_adapter: DescribeAdapter | None) -> Mapping[str, Platform]:
    """The platforms on which there are accounts, as their adapters describe them."""
    found: dict[str, Platform] = {}
    if describe_adapter:
        for path, node in _accounts(sources):
            with suppress(InvalidInput):
                found[str(path[1])] = _described(describe_adapter, path, node).platform
    return found


def read_secret_files(sources: Node, describe_adapter: DescribeAdapter | None) -> WithSecrets:
    """Fill in the secrets from the files that accounts name."""
    if describe_adapter is None:
        return WithSecrets(node=sources)
    mistakes, warnings = list[Mistake](), list[str]()
    for path, node in _accounts(sources):
        with suppress(InvalidInput):
            done = fill_secrets(node, path, _described(describe_adapter, path, node).options)
            sources = _replaced(sources, path, done.node)
            mistakes += done.mistakes
            warnings += done.warnings
    return WithSecrets(node=sources, mistakes=mistakes, warnings=warnings)


def _replaced(node: Node, path: FieldPath, new: Node) -> Node:
    """Put `new` at `path`."""
    if not path or not isinstance(node.value, dict):
        return new
    name = str(path[0])
    return replace(node, value={**node.value, name: _replaced(node.value[name], path[1:], new)})


def find_plugin_mistakes(
    sources: Node, describe_adapter: DescribeAdapter | None, agent_options: AgentOptions | None
) -> Iterator[Mistake]:
    """Yield accounts, hooks and agents that their plugins reject."""
    if describe_adapter:
        yield from _check_accounts(sources, describe_adapter)
        yield from _check_hooks(sources)
    if agent_options:
        yield from _check_agents(sources, agent_options)


def _check_accounts(sources: Node, describe_adapter: DescribeAdapter) -> Iterator[Mistake]:
    for path, node in _accounts(sources):
        try:
            described = _described(describe_adapter, path, node)
        except InvalidInput as refusal:
            yield refused_at(node, path, refusal)
        else:
            yield from list(_option_mistakes(node, path, described.options)) or _unreachable_targets(
                sources, path, described.options, describe_adapter
            )


def _described(describe_adapter: DescribeAdapter, path: FieldPath, node: Node) -> AdapterInfo:
    return describe_adapter(str(path[1]), relayed=RELAY_OPTION in node.names())


def _unreachable_targets(
    sources: Node, path: FieldPath, model: type[BaseModel], describe_adapter: DescribeAdapter
) -> Iterator[Mistake]:
    """Yield targets that no account can send to."""
    node = sources.nearest(path)
    if next(node.find_unset(), None):
        return
    options = model.model_validate(node.plain())
    if not isinstance(options, Forwards):
        return
    served = platforms_with_accounts(sources, describe_adapter)
    for option, place in ((option, place) for option, places in options.answers_go_to.items() for place in places):
        platform = served.get(place.platform)
        takers = (
            _reachable_accounts(sources, place.platform, describe_adapter)
            if platform and platform.accounts_are_chats
            else None
        )
        if platform is None or (takers is not None and place.chat not in takers):
            yield mistake_at(
                sources.nearest((*path, option)),
                (*path, option),
                "{field}: no account can send to",
                found=place.text,
                allowed=_sendable(place.platform, takers, served),
                example=f"palaver setup {place.platform}",
            )


def _sendable(platform: str, takers: Sequence[str] | None, served: Mapping[str, Platform]) -> str:
    own = "" if takers is None else f"accounts of {platform} that take messages: {', '.join(takers) or 'none yet'}; "
    return f"{own}chats on platforms that have an account: {', '.join(sorted(served))}"


def _reachable_accounts(sources: Node, platform: str, describe_adapter: DescribeAdapter) -> list[str]:
    """Return the accounts of a platform that take messages."""
    path, model = ("platforms", platform, "accounts"), describe_adapter(platform).options
    return [name for name in sources.names(path) if _takes_messages(sources.nearest((*path, name)), model)]


def _takes_messages(node: Node, model: type[BaseModel]) -> bool:
    try:
        options = model.model_validate(node.plain())
    except (ValidationError, MalformedConfig):
        return True  # Reported at its own position.
    return not isinstance(options, Receives) or options.takes_messages


def _check_agents(sources: Node, agent_options: AgentOptions) -> Iterator[Mistake]:
    profiles = (("profiles", name, "agent") for name in sources.names(("profiles",)))
    for path in (("agent",), *profiles):
        node, name = sources.at(path), sources.at((*path, "name"))
        if node is None or name is None or not isinstance(node.value, dict) or name.value not in installed():
            continue
        try:
            options = agent_options(str(name.value))
        except InvalidInput as refusal:
            yield refused_at(name, (*path, "name"), refusal)
        else:
            own = {field: inner for field, inner in node.value.items() if field != "name"}
            yield from _option_mistakes(replace(node, value=own), path, options)


def _accounts(sources: Node) -> Iterator[tuple[FieldPath, Node]]:
    for platform in sources.names(("platforms",)):
        for account in sources.names(("platforms", platform, "accounts")):
            path = ("platforms", platform, "accounts", account)
            yield path, sources.nearest(path)


def _check_hooks(sources: Node) -> Iterator[Mistake]:
    hooks = sources.at(("hooks",))
    for index, node in enumerate(hooks.value if hooks and isinstance(hooks.value, list) else ()):
        try:
            load_hook(str(node.value))
        except InvalidInput as refusal:
            yield refused_at(node, ("hooks", index), refusal)


def _option_mistakes(node: Node, path: FieldPath, model: type[BaseModel]) -> Iterator[Mistake]:
    """Yield what the plugin's options model rejects or does not know."""
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    names = list(option_names(model))
    allowed = ", ".join(names) or "no options"
    if model.model_config.get("extra") != "allow":
        for name in node.names():
            if name not in known:
                close = get_close_matches(name, names, n=1)
                yield mistake_at(
                    node.nearest((name,)),
                    (*path, name),
                    f"{dotted_path(path)} has an unknown option",
                    found=name,
                    allowed=allowed,
                    example=f"{(close or [*names, '…'])[0]}: …",
                    fix=f"Did you mean {close[0]}?" if close else None,
                )
    if empty := [name for name in node.names() if is_secret(known.get(name)) and _is_empty(node.nearest((name,)))]:
        yield from (_without_secret(node.nearest((name,)), (*path, name)) for name in empty)
        return
    try:
        model.model_validate(node.plain())
    except MalformedConfig:
        return  # a variable that is not set: a mistake only where it is used
    except ValidationError as error:
        for inner, faults in _by_path(node, error).items():
            if inner and node.nearest(inner).unset:
                continue
            yield _option_mistake(node, path, inner, faults, model) if inner else _conflict(node, path, faults)


def _is_empty(node: Node) -> bool:
    return isinstance(node.value, str) and not node.value.strip()


def _without_secret(node: Node, path: FieldPath) -> Mistake:
    """An empty variable must not become a secret that everybody knows."""
    allowed = "a secret, or a variable that is not empty, or delete the line"
    example = f"{path[-1]}{FILE}: ~/.secrets/{path[-1]}"
    return mistake_at(node, path, "{field} cannot be", found="", allowed=allowed, example=example)


def _conflict(node: Node, path: FieldPath, faults: Sequence[ErrorDetails]) -> Mistake:
    """Describe options that are valid alone but not together."""
    return mistake_at(
        node,
        path,
        "{field} does not work with",
        found=", ".join(node.names()) or "no options",
        allowed=allowed_by(faults),
        example=f"palaver setup {path[1]}" if path[0] == "platforms" else f"{path[-1]}: …",
    )


def _option_mistake(
    node: Node, path: FieldPath, inner: FieldPath, faults: Sequence[ErrorDetails], model: type[BaseModel]
) -> Mistake:
    at, option = node.nearest(inner), str(inner[0])
    lacks = faults[0]["type"] == "missing"
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    written = SET if at.position.secret or is_secret(known.get(option)) else mask_secrets(at.raw)
    return mistake_at(
        at,
        (*path, *inner),
        f"{dotted_path((*path, *inner[:-1]))} lacks" if lacks else "{field} cannot be",
        found=str(inner[-1]) if lacks else written if isinstance(at.value, str) else at.kind,
        allowed=", ".join(option_names(model)) if lacks else allowed_by(faults),
        example=example_of(model, option),
    )


_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
}


def _by_path(node: Node, error: ValidationError) -> Mapping[FieldPath, Sequence[ErrorDetails]]:
    """Group errors by path; with alternatives, the errors of each.

    If an alternative fits so far, only the errors inside it count.
    """
    found: dict[FieldPath, list[ErrorDetails]] = {}
    for fault in error.errors(include_url=False, include_context=False):
        if fault["type"] != "extra_forbidden":
            found.setdefault(_written(node, fault), []).append(fault)
    inside = {path[:length] for path in found for length in range(len(path))}
    return {path: faults for path, faults in found.items() if path not in inside}


def _written(node: Node, fault: ErrorDetails) -> FieldPath:
    """Return the path in the file; names of alternatives are not in it."""
    path: FieldPath = ()
    for step in fault["loc"]:
        if node.at((*path, step)) is not None:
            path = (*path, step)
    if fault["type"] == "missing":
        return (*path, fault["loc"][-1])
    return path or fault["loc"][:1]


def allowed_by(faults: Sequence[ErrorDetails]) -> str:
    """Describe what is accepted."""
    return " or ".join(dict.fromkeys(map(_allowed, faults)))


def _allowed(fault: ErrorDetails) -> str:
    kind, _, trouble = fault["type"].partition("_")
    if kind in _TYPES and trouble in {"parsing", "type", "from_float"}:
        return _TYPES[kind]
    if fault["type"] == "string_pattern_mismatch":
        return fault["msg"].replace("String should match pattern", "text that matches")
    return fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


def example_of(model: type[BaseModel], option: str) -> str:
    """Return an example line, from the field's examples or its default."""
    field = next((each for name, each in model.model_fields.items() if option in {name, each.alias}), None)
    if field is None:
        return f"{option}: …"
    if is_secret(field.annotation):
        return f"{option}{FILE}: ~/.secrets/{option}"
    usual = field.examples[0] if field.examples else None
    if usual is None and not field.is_required() and field.default_factory is None:
        usual = field.default
    return f"{option}: {'…' if usual is None or usual == () else str(usual)}"
