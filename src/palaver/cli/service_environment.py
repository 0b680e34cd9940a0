"""What a service takes over of the environment that it is installed from, and the file for its secrets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from palaver.config.loader import portable_settings
from palaver.config.paths import configuration_files
from palaver.config.secrets import mask_secrets
from palaver.db.private_files import appearing, make_private_folder
from palaver.model.value import value

FILE = "palaver.env"
_HEADER = "# Variables for the service. Restart it after a change."
_FOLDERS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
_LINE = re.compile(r'^([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"$|^([A-Za-z_][A-Za-z0-9_]*)=(.*)$', re.MULTILINE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NEEDS_ESCAPE = re.compile(r'(["\\`$])')


@value
class Carried:
    """Variables of this process that decide what the gateway does."""

    plain: Mapping[str, str] = field(default_factory=dict[str, str])
    """Written into the unit, which others can read."""
    secret: Mapping[str, str] = field(default_factory=dict[str, str])


def carried_settings(cwd: Path, environ: Mapping[str, str], *, is_system: bool) -> Carried:
    """Return the settings of the environment, with absolute paths: a service starts in another folder.

    A service of the machine has its own file, and nobody's home folder.
    """
    found = portable_settings(cwd, environ)
    if not is_system:
        files = configuration_files(cwd, environ)
        if files.is_named or files.user.exists():
            found["PALAVER_CONFIG"] = str(files.user.absolute())
        found |= {name: str((cwd / environ[name]).absolute()) for name in _FOLDERS if environ.get(name)}
    secret = {name: text for name, text in found.items() if _is_secret(name, text)}
    return Carried(plain={name: text for name, text in found.items() if name not in secret}, secret=secret)


def _is_secret(name: str, text: str) -> bool:
    """Return whether others must not read it. Sections and lists in one variable can contain anything."""
    line = f"{name}={text}"
    return text.startswith(("[", "{")) or mask_secrets(line) != line or mask_secrets(text) != text


def read_variables_file(file: Path) -> dict[str, str]:
    """Return the variables in a file that `write_variables_file` or a person wrote; none if there is no file."""
    found = dict[str, str]()
    for quoted, escaped, name, text in _LINE.findall(_read(file)):
        found[quoted or name] = _ESCAPED.sub(r"\1", escaped) if quoted else text.strip().strip("'\"")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="surrogateescape")
    except (FileNotFoundError, PermissionError):
        return ""


def write_variables_file(file: Path, variables: Mapping[str, str]) -> None:
    """Write a file that systemd and a shell read alike, for its owner alone. Comments that a person wrote stay."""
    make_private_folder(file.parent)
    others = [f"{line}\n" for line in _LINE.sub("", _read(file)).splitlines() if line.strip() and line != _HEADER]
    lines = [f'{name}="{_escaped(text)}"\n' for name, text in sorted(variables.items())]
    with appearing(file) as stream:
        stream.write("".join((f"{_HEADER}\n", *others, *lines)).encode(errors="surrogateescape"))


def _escaped(text: str) -> str:
    return _NEEDS_ESCAPE.sub(r"\\\1", text)


def launched(program: Sequence[str], file: Path) -> list[str]:
    """Return a command that reads the file first, for launchd, which reads none."""
    return ["/bin/sh", "-c", 'set -a; [ ! -f "$0" ] || . "$0"; set +a; exec "$@"', str(file), *program]
