"""Check what goes to a platform: options with a URL, ids of people, files and the command menu."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from palaver.model.attachment import Attachment, format_size
from palaver.model.text import one_line
from palaver.model.turn import Outbound
from palaver.protocols.adapter import SendRefused
from palaver.protocols.capabilities import MenuCommand

if TYPE_CHECKING:
    from pydantic import SecretStr

_DECORATION = re.compile(r"[\s().\-\u00a0\u2010-\u2015]+")
_NUMBER = re.compile(r"(?:\+|00)?([1-9][0-9]{6,14})")
_MAIL = re.compile(r"[^\s@<>()\[\],;:\"]+@[^\s@<>()\[\],;:\"]+")
_NAMED_MAIL = re.compile(r"[^<>]*<([^<>]+)>")
_URL = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?")


def check_url(words: str) -> Callable[[str], str]:
    """Return a validator of an option: `words` name a right one, and the URL loses the slash at its end."""

    def check(text: str) -> str:
        if not _URL.fullmatch(text):
            raise ValueError(words)
        return text.rstrip("/")

    return check


def check_secret(pattern: str, words: str) -> Callable[["SecretStr"], "SecretStr"]:
    """Return a validator of a secret option, which matches the pattern: `words` name a right one."""

    def check(secret: "SecretStr") -> "SecretStr":
        if not re.fullmatch(pattern, secret.get_secret_value()):
            raise ValueError(words)
        return secret

    return check


def split_names(names: object) -> object:
    """Return the names of an option that is a list: people can also write them with commas between them."""
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else names


def phone_number(text: str) -> str | None:
    """Return a number as E.164 writes it: a plus and 7 to 15 digits."""
    found = _NUMBER.fullmatch(_DECORATION.sub("", text))
    return f"+{found[1]}" if found else None


def mail_address(text: str) -> str | None:
    """Return a mail address in lower case, as we compare it, without a name or `mailto:` around it."""
    text = text.strip()
    named = _NAMED_MAIL.fullmatch(text)
    address = (named[1] if named else text).strip().removeprefix("mailto:").lower()
    return address if _MAIL.fullmatch(address) else None


def is_loopback(host: str) -> bool:
    """Return whether what is sent there stays on this machine, and can do without TLS."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def file_to_send(outbound: Outbound, content: Path, max_bytes: int | None = None) -> Attachment:
    """Return the file of a message. Raise SendRefused if there is none or it is too large for the platform."""
    if outbound.file is None:
        raise SendRefused("There is no file to send.")
    size = content.stat().st_size
    if max_bytes is not None and size > max_bytes:
        raise SendRefused(f"Bots can send files of at most {format_size(max_bytes)}, not {format_size(size)}.")
    return outbound.file


def fit_menu(commands: Sequence[MenuCommand], *, name: str, max_help: int, max_commands: int) -> Sequence[MenuCommand]:
    """Return the commands that a platform can show: whose names match `name`, each with a help of one line."""
    fitting = [command for command in commands if re.fullmatch(name, command.name)]
    return [
        replace(command, help=one_line(command.help, max_help) or command.name) for command in fitting[:max_commands]
    ]
