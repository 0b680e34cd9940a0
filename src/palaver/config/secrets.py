"""Secrets: mask them in output, and read them from files (`token_file` instead of `token`)."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import unquote

from pydantic import BaseModel, SecretBytes, SecretStr

from palaver.config.errors import MalformedConfig, Mistake, mistake_at
from palaver.config.nodes import Node
from palaver.config.paths import expand_home
from palaver.model.errors import BadArgument
from palaver.model.redact import redact
from palaver.model.value import FieldPath, value

SET = "(set)"
"""Shown instead of a secret."""
_REFERENCE = re.compile(r"\$\{[^}]*\}?")
# Greedy: an unescaped @ or / in a password must not show the rest of it.
_URL_PASSWORD = re.compile(r"(://[^:@/?]*):.*@")
_WEB = re.compile(r"(?:http|ws)s?://", re.IGNORECASE)
_WEB_USER = re.compile(rf"({_WEB.pattern})[^:@/?\s]+@", re.IGNORECASE)
_NAME = r"[\w.-]{0,64}?(?:pass|pwd|token(?!s)|secret|key|auth|sig|cred|cookie)(?![\w.-]*[_-](?:file|path)\b)[\w.-]*+"
_SERVERS = "(?:host|direct|replica|target_session_attrs)"
_URL_PARAMETER = re.compile(rf"([?&]{_NAME}=|[?&](?!{_SERVERS}=)[^=&#\s]*=(?=[^&#\s]{{16}}))[^&#\s]*", re.IGNORECASE)
_WEB_KEY = re.compile(r"(?<=[^/]/)(?=[\w.~-]*\d)(?=[\w.~-]*[A-Za-z])[\w.~-]{20,}+")
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"((?<!\S)(?:--?{_NAME}[ =]|{_NAME}=))(?!-)\S+", re.IGNORECASE)


def mask_secrets(text: str) -> str:
    """Replace environment references, keys in URLs and values of options such as `--token` by `(set)`."""
    text = _URL_PARAMETER.sub(rf"\1{SET}", _ASSIGNMENT.sub(rf"\1{SET}", _REFERENCE.sub(SET, text)))
    text = _URL_PASSWORD.sub(rf"\1:{SET}@", redact(text))
    return _WEB_KEY.sub(SET, _WEB_USER.sub(rf"\1{SET}@", text)) if _WEB.match(text) else text


def is_secret_option(argument: str) -> bool:
    """Return whether the argument after this one is a secret, as after `--token`."""
    return _OPTION.fullmatch(argument) is not None


FILE = "_file"
_MAX_SECRET_BYTES = 64 * 1024
_GROUP_AND_OTHERS_BITS = 0o077


@value
class WithSecrets:
    """An account with its secrets filled in, and what is wrong with their files."""

    node: Node
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    warnings: list[str] = field(default_factory=list[str])


def is_secret(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    return annotation in {SecretStr, SecretBytes} or any(is_secret(part) for part in get_args(annotation))


def find_secrets(settings: object) -> Iterator[str]:
    """Yield the secrets of a configuration, from files too. One whose variable is not set is left out."""
    match settings:
        case SecretStr():
            yield from _reveal(settings)
        case BaseModel():
            yield from _find_secrets_of_fields(settings)
        case Mapping():
            fields = cast("Mapping[str, object]", settings).items()
            # Of variables and headers only some are secrets.
            given = [each for name, each in fields if not isinstance(each, SecretStr) or is_secret_option(f"--{name}")]
            yield from find_secrets(given)
        case tuple() | list():
            for inner in cast("Iterable[object]", settings):
                yield from find_secrets(inner)
        case str() if found := _ADDRESS_PASSWORD.search(settings):
            yield from (found[1], unquote(found[1]))
        case _:
            pass


_ADDRESS_PASSWORD = re.compile(r"://[^\s:/@?]*:([^\s/]*)@")


def _reveal(secret: SecretStr) -> Iterator[str]:
    with suppress(MalformedConfig):
        text = secret.get_secret_value()
        yield from (text, text.partition(" ")[2])  # after the scheme of a header


def _find_secrets_of_fields(section: BaseModel) -> Iterator[str]:
    for name, setting in section:
        yield from find_secrets(setting)
        if isinstance(setting, Path) and name == f"key{FILE}":
            with suppress(BadArgument):
                yield read_secret(setting)
    of_plugins = section.model_extra or {}
    yield from (str(of_plugins[name]) for name in of_plugins if is_secret_option(f"--{name}"))


def option_names(model: type[BaseModel]) -> dict[str, str]:
    """Return the option names of an account; those that name a file map to their option."""
    names = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    secret = [name for name, annotation in names.items() if is_secret(annotation)]
    return {**dict.fromkeys(names, ""), **{f"{name}{FILE}": name for name in secret if f"{name}{FILE}" not in names}}


def fill_secrets(account: Node, path: FieldPath, model: type[BaseModel]) -> WithSecrets:
    if not isinstance(account.value, dict):
        return WithSecrets(node=account)
    files = {name: option for name, option in option_names(model).items() if option and name in account.value}
    rest = {name: node for name, node in account.value.items() if name not in files}
    done = WithSecrets(node=replace(account, value=rest))
    for name, option in files.items():
        _fill(done, (*path, name), option, account.value)
    return done


def read_secret(place: Path) -> str:
    """Return the secret in a file; raise BadArgument if it cannot be read."""
    found = _read(place)
    if isinstance(found, str):
        allowed = "a file that you can read and that contains only the secret"
        raise BadArgument(
            f"Cannot read a secret from {place}: it {found}.", found=found, allowed=allowed, example="~/.secrets/token"
        )
    return _text(found)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _fill(done: WithSecrets, path: FieldPath, option: str, written: Mapping[str, Node]) -> None:
    node = written[str(path[-1])]
    if node.unset and isinstance(done.node.value, dict):
        done.node.value[option] = replace(node, position=replace(node.position, secret=True))
        return
    secret = _content(node) if option not in written else f"beside {option}"
    if isinstance(secret, str):
        done.mistakes.append(_mistake(node, path, option, secret))
    elif isinstance(done.node.value, dict):
        done.node.value[option] = Node(position=replace(node.position, secret=True), value=_text(secret), raw=node.raw)
        done.warnings.extend(_permission_warning(_place(node)))


def _place(node: Node) -> Path:
    """Resolve relative to the folder of the configuration file."""
    folder = node.position.file.parent if node.position.file else Path()
    return (folder / expand_home(str(node.value))).absolute()


def _content(node: Node) -> bytes | str:
    """Return the secret, or the reason there is none."""
    if not isinstance(node.value, str) or not node.value:
        return node.kind if node.value else "nothing"
    place = _place(node)
    found = _read(place)
    return f"{place}, which {found}" if isinstance(found, str) else found


def _read(place: Path) -> bytes | str:
    """Return the content of a file, or what is wrong with it."""
    try:
        if not place.is_file():
            return f"is {'not a file' if place.exists() else 'missing'}"
        with place.open("rb") as stream:
            content = stream.read(_MAX_SECRET_BYTES + 1)
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if len(content) > _MAX_SECRET_BYTES:
        return f"has more than {_MAX_SECRET_BYTES} bytes"
    return content if content.strip() else "is empty"


def _permission_warning(place: Path) -> list[str]:
    is_open = os.name == "posix" and place.stat().st_mode & _GROUP_AND_OTHERS_BITS
    return [f"{place} holds a secret that others on this machine can read. Run: chmod 600 {place}"] if is_open else []


def _mistake(node: Node, path: FieldPath, option: str, found: str) -> Mistake:
    allowed = f"a file that you can read and that contains only the {option}, instead of {option}"
    example = f"{path[-1]}: ~/.secrets/{path[1]}"
    return mistake_at(node, path, "{field} cannot be", found=found, allowed=allowed, example=example)
