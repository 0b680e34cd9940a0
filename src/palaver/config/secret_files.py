"""Secrets in files: `token_file` in the place of `token`, for whatever is secret among the options of an account."""

import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretBytes, SecretStr

from palaver.config.errors import Mistake
from palaver.config.nodes import Node, Way, dotted
from palaver.config.paths import expanded
from palaver.model.errors import BadArgument
from palaver.model.value import value

__all__ = [
    "FILE",
    "Filled",
    "filled",
    "is_secret",
    "option_names",
    "secret_in",
]

FILE = "_file"
_LARGEST = 64 * 1024
_OTHERS = 0o077


@value
class Filled:
    """An account with its secrets in their places, what was wrong with their files, and what should be better."""

    node: Node
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    cautions: list[str] = field(default_factory=list[str])


def is_secret(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    return annotation in {SecretStr, SecretBytes} or any(is_secret(part) for part in get_args(annotation))


def option_names(model: type[BaseModel]) -> dict[str, str]:
    """The options of an account as they are written, and for those that name a file: of which option."""
    names = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    secret = [name for name, annotation in names.items() if is_secret(annotation)]
    return {**dict.fromkeys(names, ""), **{f"{name}{FILE}": name for name in secret if f"{name}{FILE}" not in names}}


def filled(account: Node, way: Way, model: type[BaseModel]) -> Filled:
    if not isinstance(account.value, dict):
        return Filled(node=account)
    files = {name: option for name, option in option_names(model).items() if option and name in account.value}
    rest = {name: node for name, node in account.value.items() if name not in files}
    done = Filled(node=replace(account, value=rest))
    for name, option in files.items():
        _fill(done, (*way, name), option, account.value)
    return done


def secret_in(place: Path) -> str:
    """The secret that a file holds, for whoever names the file by hand."""
    found = _read(place)
    if isinstance(found, str):
        allowed = "a file that you may read with the secret in it and nothing else"
        raise BadArgument(f"{place} is no secret:", found=found, allowed=allowed, example="~/.secrets/token")
    return _text(found)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _fill(done: Filled, way: Way, option: str, written: Mapping[str, Node]) -> None:
    node = written[str(way[-1])]
    secret = _content(node) if option not in written else f"beside {option}"
    if isinstance(secret, str):
        done.mistakes.append(_mistake(node, way, option, secret))
    elif isinstance(done.node.value, dict):
        done.node.value[option] = Node(spot=replace(node.spot, secret=True), value=_text(secret), written=node.written)
        done.cautions.extend(_caution(_place(node)))


def _place(node: Node) -> Path:
    """Where it is not absolute, from the folder of the configuration on."""
    folder = node.spot.file.parent if node.spot.file else Path()
    return (folder / expanded(str(node.value))).absolute()


def _content(node: Node) -> bytes | str:
    """The secret, or what is there in its place."""
    if not isinstance(node.value, str) or not node.value:
        return node.kind if node.value else "nothing"
    place = _place(node)
    found = _read(place)
    return f"{place}, which {found}" if isinstance(found, str) else found


def _read(place: Path) -> bytes | str:
    """What is in a file, or what is wrong with it."""
    try:
        if not place.is_file():
            return f"is {'no file' if place.exists() else 'not there'}"
        with place.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if len(content) > _LARGEST:
        return f"has more than {_LARGEST} bytes"
    return content if content.strip() else "is empty"


def _caution(place: Path) -> list[str]:
    is_open = os.name == "posix" and place.stat().st_mode & _OTHERS
    return [f"{place} holds a secret that others on this machine may read: chmod 600 {place}"] if is_open else []


def _mistake(node: Node, way: Way, option: str, found: str) -> Mistake:
    return Mistake(
        spot=node.spot,
        field=dotted(way),
        problem=f"{dotted(way)} cannot be",
        found=found,
        allowed=f"a file that you may read with the {option} in it and nothing else, in the place of {option}",
        example=f"{way[-1]}: ~/.secrets/{way[1]}",
    )
