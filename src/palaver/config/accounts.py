"""Accounts, agents and hooks: what a configuration names that others have made, checked against what they say of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from palaver.config.errors import Mistake
from palaver.config.external_agents import installed
from palaver.config.nodes import Node, Way, dotted
from palaver.config.option_errors import allowed_by, by_place, example_of
from palaver.config.secret_files import FILE, Filled, filled, is_secret, option_names
from palaver.config.secrets import SET, hidden
from palaver.config.types import Form
from palaver.engine.hooks import hook_named
from palaver.model.errors import InvalidInput
from palaver.model.platform import Platform
from palaver.model.target import Place

__all__ = [
    "Accounts",
    "AgentOptions",
    "Describe",
    "Described",
    "Forwards",
    "Hooks",
    "Receives",
    "described_platforms",
    "unfit",
    "with_secrets",
]


class Described(Protocol):
    """What an adapter says of itself."""

    @property
    def platform(self) -> Platform: ...
    @property
    def options(self) -> type[BaseModel]: ...


@runtime_checkable
class Forwards(Protocol):
    """Options of an account whose answers go elsewhere."""

    @property
    def answers_go_to(self) -> Mapping[str, Sequence[Place]]:
        """By the option that says so."""
        ...


@runtime_checkable
class Receives(Protocol):
    """Options of an account that is a chat itself, and may be one that nothing can be sent to."""

    @property
    def takes_messages(self) -> bool: ...


Describe = Callable[[str], Described]
"""Given the name of a platform. Raises InvalidInput where no adapter for it is installed."""

AgentOptions = Callable[[str], type[BaseModel]]
"""Given the name of an installed agent: what it can be told. Raises InvalidInput where it cannot be had."""


Accounts = Annotated[
    Mapping[str, Mapping[str, object]],
    Form("a section of accounts by their names, each with the options of its adapter", "{helper: {}}"),
]
Hooks = Annotated[tuple[str, ...], Form("a list of functions, each as package.module:function", '["hooks:tell"]')]


def described_platforms(said: Node, describe: Describe | None) -> Mapping[str, Platform]:
    """The platforms on which there are accounts, as their adapters describe them."""
    found: dict[str, Platform] = {}
    if describe:
        for way, _ in _written(said):
            with suppress(InvalidInput):
                found[str(way[1])] = describe(str(way[1])).platform
    return found


def with_secrets(said: Node, describe: Describe | None) -> Filled:
    """What was said, with what stands in the files that accounts name for their secrets."""
    if describe is None:
        return Filled(node=said)
    mistakes, cautions = list[Mistake](), list[str]()
    for way, node in _written(said):
        with suppress(InvalidInput):
            done = filled(node, way, describe(str(way[1])).options)
            said = _replaced(said, way, done.node)
            mistakes += done.mistakes
            cautions += done.cautions
    return Filled(node=said, mistakes=mistakes, cautions=cautions)


def _replaced(node: Node, way: Way, new: Node) -> Node:
    """`new` in the place where `way` leads."""
    if not way or not isinstance(node.value, dict):
        return new
    name = str(way[0])
    return replace(node, value={**node.value, name: _replaced(node.value[name], way[1:], new)})


def unfit(said: Node, describe: Describe | None, agent_options: AgentOptions | None) -> Iterator[Mistake]:
    """Accounts, hooks and agents that cannot be had; looked at only where those who made them can be asked."""
    if describe:
        yield from _unfit_accounts(said, describe)
        yield from _unfit_hooks(said)
    if agent_options:
        yield from _unfit_agents(said, agent_options)


def _unfit_accounts(said: Node, describe: Describe) -> Iterator[Mistake]:
    for way, node in _written(said):
        try:
            described = describe(str(way[1]))
        except InvalidInput as refusal:
            yield _refused(node, way, refusal)
        else:
            yield from list(_misfits(node, way, described.options)) or _lost(said, way, described.options, describe)


def _lost(said: Node, way: Way, model: type[BaseModel], describe: Describe) -> Iterator[Mistake]:
    """Places that no account of ours can send to."""
    options = model.model_validate(said.nearest(way).plain())
    if not isinstance(options, Forwards):
        return
    served = described_platforms(said, describe)
    for option, place in ((option, place) for option, places in options.answers_go_to.items() for place in places):
        platform = served.get(place.platform)
        takers = _takers(said, place.platform, describe) if platform and platform.accounts_are_chats else None
        if platform is None or (takers is not None and place.chat not in takers):
            yield Mistake(
                spot=said.nearest((*way, option)).spot,
                field=dotted((*way, option)),
                problem=f"{dotted((*way, option))}: no account of ours can send to",
                found=place.text,
                allowed=_sendable(place.platform, takers, served),
                example=f"palaver setup {place.platform}",
            )


def _sendable(platform: str, takers: Sequence[str] | None, served: Mapping[str, Platform]) -> str:
    own = "" if takers is None else f"accounts of {platform} that take messages: {', '.join(takers) or 'none yet'}; "
    return f"{own}chats on platforms that have an account: {', '.join(sorted(served))}"


def _takers(said: Node, platform: str, describe: Describe) -> list[str]:
    """The accounts of a platform, each a chat of its own, that something can be sent to."""
    way, model = ("platforms", platform, "accounts"), describe(platform).options
    return [name for name in _names(said.at(way)) if _takes(said.nearest((*way, name)), model)]


def _takes(node: Node, model: type[BaseModel]) -> bool:
    try:
        options = model.model_validate(node.plain())
    except ValidationError:
        return True  # What is wrong with it is told where it stands.
    return not isinstance(options, Receives) or options.takes_messages


def _unfit_agents(said: Node, agent_options: AgentOptions) -> Iterator[Mistake]:
    profiles = (("profiles", name, "agent") for name in _names(said.at(("profiles",))))
    for way in (("agent",), *profiles):
        node, name = said.at(way), said.at((*way, "name"))
        if node is None or name is None or not isinstance(node.value, dict) or name.value not in installed():
            continue
        try:
            options = agent_options(str(name.value))
        except InvalidInput as refusal:
            yield _refused(name, (*way, "name"), refusal)
        else:
            own = {field: inner for field, inner in node.value.items() if field != "name"}
            yield from _misfits(replace(node, value=own), way, options)


def _written(said: Node) -> Iterator[tuple[Way, Node]]:
    platforms = said.at(("platforms",))
    for platform in _names(platforms):
        for account in _names(said.at(("platforms", platform, "accounts"))):
            way = ("platforms", platform, "accounts", account)
            yield way, said.nearest(way)


def _names(node: Node | None) -> list[str]:
    return list(node.value) if node and isinstance(node.value, dict) else []


def _unfit_hooks(said: Node) -> Iterator[Mistake]:
    hooks = said.at(("hooks",))
    for index, node in enumerate(hooks.value if hooks and isinstance(hooks.value, list) else ()):
        try:
            hook_named(str(node.value))
        except InvalidInput as refusal:
            yield _refused(node, ("hooks", index), refusal)


def _refused(node: Node, way: Way, refusal: InvalidInput) -> Mistake:
    return Mistake(
        spot=node.spot,
        field=dotted(way),
        problem=f"{dotted(way)}: {refusal.problem}",
        found=refusal.found,
        allowed=refusal.allowed,
        example=refusal.example,
    )


def _misfits(node: Node, way: Way, model: type[BaseModel]) -> Iterator[Mistake]:
    """What the adapter's own model refuses, and what it does not know."""
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    names = list(option_names(model))
    allowed = ", ".join(names) or "no options"
    if model.model_config.get("extra") != "allow":
        for name in _names(node):
            if name not in known:
                close = get_close_matches(name, names, n=1)
                yield Mistake(
                    spot=node.nearest((name,)).spot,
                    field=dotted((*way, name)),
                    problem=f"{dotted(way)} has an unknown option",
                    found=name,
                    allowed=allowed,
                    example=f"{(close or [*names, '…'])[0]}: …",
                    fix=f"Did you mean {close[0]}?" if close else None,
                )
    if empty := [name for name in _names(node) if is_secret(known.get(name)) and _is_empty(node.nearest((name,)))]:
        yield from (_without_secret(node.nearest((name,)), (*way, name)) for name in empty)
        return
    try:
        model.model_validate(node.plain())
    except ValidationError as error:
        for inner, faults in by_place(node, error).items():
            yield _misfit(node, way, inner, faults, model) if inner else _unfitting(node, way, faults)


def _is_empty(node: Node) -> bool:
    return isinstance(node.value, str) and not node.value.strip()


def _without_secret(node: Node, way: Way) -> Mistake:
    """A variable that is set to nothing must not become a secret that anybody knows."""
    return Mistake(
        spot=node.spot,
        field=dotted(way),
        problem=f"{dotted(way)} cannot be",
        found="",
        allowed="a secret, or a variable that is not empty; leave the option out where there is none",
        example=f"{way[-1]}{FILE}: ~/.secrets/{way[-1]}",
    )


def _unfitting(node: Node, way: Way, faults: Sequence[ErrorDetails]) -> Mistake:
    """Options that are right each by itself."""
    return Mistake(
        spot=node.spot,
        field=dotted(way),
        problem=f"{dotted(way)} does not work with",
        found=", ".join(_names(node)) or "no options",
        allowed=allowed_by(faults),
        example=f"palaver setup {way[1]}" if way[0] == "platforms" else f"{way[-1]}: …",
    )


def _misfit(node: Node, way: Way, inner: Way, faults: Sequence[ErrorDetails], model: type[BaseModel]) -> Mistake:
    at, option = node.nearest(inner), str(inner[0])
    lacks = faults[0]["type"] == "missing"
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    written = SET if at.spot.secret or is_secret(known.get(option)) else hidden(at.written)
    return Mistake(
        spot=at.spot,
        field=dotted((*way, *inner)),
        problem=f"{dotted((*way, *inner[:-1]))} lacks" if lacks else f"{dotted((*way, *inner))} cannot be",
        found=str(inner[-1]) if lacks else written if isinstance(at.value, str) else at.kind,
        allowed=", ".join(option_names(model)) if lacks else allowed_by(faults),
        example=example_of(model, option),
    )
