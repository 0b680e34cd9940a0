"""How this copy of Palaver was installed, and the command that adds the packages of an extra to it."""

import os
import re
import shlex
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from palaver.model.errors import BadArgument
from palaver.model.value import value

__all__ = [
    "InstallKind",
    "Installation",
    "MissingLibrary",
    "MissingPackages",
    "find_installation",
    "install_line",
    "missing_library",
    "needs_of",
    "package_line",
    "recognize",
]

_OURS = "palaver"
_EXTRAS_OF_IMAGE = "container-extras"
"""The file in the environment of our container image that lists the extras it was built with."""
_SOURCES = ("directory", "editable", "path", "url")
"""Where `uv tool` notes from where it installed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_LOADED = re.compile(r"(lib[^\s:/]+)\.so\.([\d.]+): cannot open shared object file")
"""What Linux says of a library that another one needs, and that is nowhere."""


class InstallKind(Enum):
    CHECKOUT = "a checkout"
    PIPX = "pipx"
    UV_TOOL = "uv tool"
    CONTAINER = "a container image"
    MANAGED = "a Python of the system"
    PIP = "pip"


@value
class Installation:
    kind: InstallKind
    python: str
    prefix: Path
    """Where the environment is."""
    packages: Path
    """Its folder of packages."""
    obstacle: str = ""
    """Why nothing can be installed from here; empty if it can."""
    has_pip: bool = True
    source: str = ""
    """The checkout, or what `uv tool` was given."""
    extras: tuple[str, ...] = ()
    """What a container image was built with, or `uv tool` was given."""

    def command(self, extra: str, needs: Sequence[str]) -> list[str]:
        """Return the command that adds what an extra needs, or several with commas between."""
        extras = ",".join(filter(None, dict.fromkeys((*self.extras, *extra.split(",")))))
        if self.kind is InstallKind.CONTAINER:
            return [
                "docker",
                "build",
                "--build-arg",
                f"EXTRAS={extras}",
                *["-t", "palaver", "-f", "deploy/Containerfile", "."],
            ]
        if self.kind is InstallKind.UV_TOOL and self.source:
            return ["uv", "tool", "install", f"{self.source}[{extras}]" if extras else self.source]
        return self.package_command(needs)

    def package_command(self, needs: Sequence[str]) -> list[str]:
        """Return the command that adds packages that belong to no extra."""
        if self.kind is InstallKind.PIPX:
            return ["pipx", "inject", self.prefix.name, *needs]
        constraints = ["-c", f"{self.source}/constraints.txt"] if self.kind is InstallKind.CHECKOUT else []
        if not self.has_pip:
            return ["uv", "pip", "install", "--python", self.python, *constraints, *needs]
        managed = ["--break-system-packages"] if self.kind is InstallKind.MANAGED else []
        return [self.python, "-m", "pip", "install", *managed, *constraints, *needs]


class MissingPackages(BadArgument):
    """What somebody wants to use needs packages that are not installed."""

    def __init__(self, who_needs: str, extra: str, *, distribution_name: str = _OURS, missing: str = "") -> None:
        """`who_needs` begins the sentence: "Telegram needs"."""
        self.user = who_needs.rpartition(" ")[0]
        self.extra = extra
        self.needs = needs_of(distribution_name, extra)
        self.packages = _missing_packages(self.needs) or (
            [missing] if missing else [_name_of(each) for each in self.needs]
        )
        self.line = shlex.join(find_installation().command(extra, self.needs))
        plural = len(self.packages) > 1
        listed = f"{', '.join(self.packages[:-1])} and {self.packages[-1]}" if plural else "".join(self.packages)
        self.what = f"the packages {listed}, which are not installed" if plural else f"{listed}, which is not installed"
        super().__init__(
            f"{who_needs} {self.what}.",
            found=missing or ", ".join(self.packages),
            allowed=f"the extra {extra}",
            fix=f"Install what it needs: {self.line}",
            example=self.line,
        )


class MissingLibrary(BadArgument):
    """What somebody wants to use needs a library of the system, which no Python package brings."""

    def __init__(self, who_needs: str, name: str, version: str) -> None:
        package = f"{name.lower().replace('_', '-')}{'-' * name[-1].isdigit()}{version}"
        line = f"sudo apt-get install {package}"
        super().__init__(
            f"{who_needs} {name}.so.{version}, a library of the system that is missing.",
            found=f"{name}.so.{version}",
            allowed=f"the package {package}",
            fix=f"Install its package. On Debian and Ubuntu: {line}",
            example=line,
        )


def missing_library(who_needs: str, error: ImportError | OSError) -> MissingLibrary | None:
    """Return the error that says what to install, if a module could not be loaded for lack of a library."""
    found = _NOT_LOADED.search(str(error))
    return MissingLibrary(who_needs, *found.groups()) if found else None


def install_line(*extras: str) -> str:
    """Return the command that adds extras of Palaver here, for a shell."""
    needs = dict.fromkeys(need for extra in extras for need in needs_of(_OURS, extra))
    return shlex.join(find_installation().command(",".join(extras), list(needs)))


def package_line(package: str) -> str:
    """Return the command that adds a package here, for a shell."""
    return shlex.join(find_installation().package_command([package]))


def needs_of(distribution_name: str, extra: str) -> list[str]:
    """Return the requirements of an extra, without those that are needed anyway; without a name, those."""
    found = _distribution(distribution_name)
    lines = (found.requires or []) if found else []
    asks = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    needs: list[str] = []
    for requirement, _, marker in (line.partition(";") for line in lines):
        if asks.search(marker) if extra else "extra" not in marker:
            rest = re.sub(rf"\s*(\band\b)?\s*{asks.pattern}\s*(\band\b)?\s*", "", marker).strip()
            needs += _expanded(requirement.strip(), rest, distribution_name)
    return list(dict.fromkeys(needs)) or [f"{distribution_name}[{extra}]" if extra else distribution_name]


def _expanded(requirement: str, marker: str, distribution_name: str) -> list[str]:
    """Return a requirement; for extras of the same distribution, what those need."""
    own = re.fullmatch(rf"{re.escape(distribution_name)}\[([^\]]*)\]", requirement)
    if own:
        return [need for extra in own[1].split(",") for need in needs_of(distribution_name, extra.strip())]
    return [f"{requirement}; {marker}" if marker else requirement]


def _missing_packages(needs: Sequence[str]) -> list[str]:
    return [name for each in needs if not _distribution(name := _name_of(each))]


def _name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    return found[0] if found else requirement


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def find_installation() -> Installation:
    return recognize(
        prefix=Path(sys.prefix),
        python=sys.executable,
        packages=Path(sysconfig.get_path("purelib")),
        root=Path(__file__).parents[3],
        library=None if sys.prefix != sys.base_prefix else Path(sysconfig.get_path("stdlib")),
        has_pip=find_spec("pip") is not None,
    )


def recognize(
    *,
    prefix: Path,
    python: str,
    packages: Path,
    root: Path,
    library: Path | None,
    has_pip: bool,
    find_program: Callable[[str], str | None] = which,
) -> Installation:
    """Recognise an environment. `root` is two folders above our package; `library` is None in a virtual one."""
    kind, source, extras = InstallKind.PIP, "", ()
    if (prefix / _EXTRAS_OF_IMAGE).is_file():
        kind, extras = InstallKind.CONTAINER, tuple(_NAME.findall(_read(prefix / _EXTRAS_OF_IMAGE)))
    elif (prefix / "pipx_metadata.json").is_file():
        kind = InstallKind.PIPX
    elif (prefix / "uv-receipt.toml").is_file():
        kind, (source, extras) = InstallKind.UV_TOOL, _receipt(prefix / "uv-receipt.toml")
    elif (root / "constraints.txt").is_file() and (root / "pyproject.toml").is_file():
        kind, source = InstallKind.CHECKOUT, str(root)
    elif library and (library / "EXTERNALLY-MANAGED").is_file():
        kind = InstallKind.MANAGED
    here = Installation(
        kind=kind,
        python=python,
        prefix=prefix,
        packages=packages,
        has_pip=has_pip,
        source=source,
        extras=extras,
    )
    return replace(here, obstacle=_obstacle(here, find_program))


def _obstacle(here: Installation, find_program: Callable[[str], str | None]) -> str:
    if here.kind is InstallKind.CONTAINER:
        return "a container image is built again to change it"
    if here.kind is InstallKind.MANAGED:
        return "this Python belongs to the system"
    if not os.access(here.packages, os.W_OK):
        return f"{here.packages} cannot be written"
    program = here.command("", ())[0]
    return "" if find_program(program) else f"the program {program} is not in the search path"


def _receipt(file: Path) -> tuple[str, tuple[str, ...]]:
    """Return what `uv tool` was given for Palaver: where it came from, and with which extras."""
    try:
        found: list[dict[str, Any]] = tomllib.loads(_read(file))["tool"]["requirements"]
        ours = next(each for each in found if each["name"] == _OURS)
        source = next((ours[name] for name in _SOURCES if ours.get(name)), _OURS)
        return str(source), tuple(map(str, ours.get("extras", ())))
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError):
        return "", ()


def _read(file: Path) -> str:
    """Return its text, or nothing: the message in which it would be used is worth more."""
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
