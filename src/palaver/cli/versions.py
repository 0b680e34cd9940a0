"""Versions of what Palaver runs on, and the check of `palaver doctor` that the installed libraries are new enough."""

import platform
import re
import sqlite3
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from palaver import __version__
from palaver.model.value import value
from palaver.protocols.installation import install_line
from palaver.store.damage.health_check import HealthCheck, listed

_PACKAGE = "palaver"
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[^]]*\])?(?P<limits>[^;]*)(?:;.*extra == ['\"](?P<extra>[\w-]+)['\"])?"
)
_LIMIT = re.compile(r"(>=|<)\s*([0-9.]+)")


@value
class Library:
    name: str
    extra: str
    """The extra of ours that needs it; empty for what every installation needs."""
    limits: tuple[tuple[str, str], ...]
    """Such as `(">=", "2.6")`."""

    @property
    def installed(self) -> str | None:
        try:
            return version(self.name)
        except PackageNotFoundError:
            return None

    @property
    def fits(self) -> bool:
        """Whether it is not installed, or within the limits."""
        found = self.installed
        return found is None or all(
            (_numbers(found) >= _numbers(bound)) == (sign == ">=") for sign, bound in self.limits
        )


def _numbers(text: str) -> tuple[int, ...]:
    release = re.match(r"[0-9.]*", text)
    return tuple(int(part) for part in (release[0] if release else "").split(".") if part)


def libraries() -> Iterator[Library]:
    """Yield what this installation and its extras need."""
    for each in requires(_PACKAGE) or ():
        if found := _REQUIREMENT.match(each):
            limits = tuple((sign, bound) for sign, bound in _LIMIT.findall(found["limits"]))
            yield Library(name=found["name"], extra=found["extra"] or "", limits=limits)


def check_versions() -> HealthCheck:
    wrong = {each.name: each for each in libraries() if not each.fits}
    wanted = {each.extra for each in wrong.values()}
    found = listed(
        f"{each.name} is {each.installed}, and {_PACKAGE} needs {','.join(map(''.join, each.limits))}"
        for each in wrong.values()
    )
    found = found or f"{_PACKAGE} {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return HealthCheck(
        name="versions",
        ok=not wrong,
        found=found,
        public=found,
        fix=f"install what fits: {install_line(*sorted(wanted))}",
    )


def version_facts() -> dict[str, object]:
    """Return the versions of Palaver, Python, SQLite, the system and every library that Palaver uses."""
    found = {each.name: each.installed for each in libraries()}
    return {
        "palaver": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libraries": {name: found[name] for name in sorted(found) if found[name]},
    }
