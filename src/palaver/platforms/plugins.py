"""Platforms: the folders of this package declare ours, entry points declare others. Adapters are imported late."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol

from pydantic import BaseModel

from palaver.model.errors import BadArgument, PalaverError
from palaver.model.platform import Platform
from palaver.model.value import value
from palaver.protocols.adapter import Adapter
from palaver.protocols.entry_points import find_plugins
from palaver.protocols.installation import MissingPackages, missing_library, package_line
from palaver.protocols.relay import RELAY_OPTION

ENTRY_POINT_GROUP = "palaver.platforms"
"""A distribution adds `name = "module:PLATFORM"` to the entry points of this group."""
_EXAMPLE = 'an entry point pigeon = "pigeon_post:PLATFORM"'


class AdapterFactory(Protocol):
    """What a declaration names: the adapter's class, or anything else with these members.

    It is called with an account and its options, an instance of its own model; or its `make`, if it has one.
    """

    @property
    def platform(self) -> Platform: ...

    @property
    def options(self) -> type[BaseModel]:
        """The options of an account."""
        ...


def _declared_here() -> Iterator[Platform]:
    """Yield the platforms of this package: each folder declares its own, without importing its adapter."""
    for found in iter_modules([str(Path(__file__).parent)], f"{__package__}."):
        if found.ispkg:
            yield from (each for each in vars(import_module(found.name)).values() if isinstance(each, Platform))


PLATFORMS: Mapping[str, Platform] = {each.name: each for each in _declared_here()}
"""The platforms of Palaver itself. No plugin can replace them."""
BUILT_IN = frozenset(name for name, each in PLATFORMS.items() if not each.adapter)
"""Served by every gateway."""


def installed_platforms() -> list[str]:
    """Return the platforms that can have accounts, without importing their adapters."""
    return sorted(_installed())


_MOST_WANTED = ("telegram", "discord", "slack", "whatsapp", "signal", "matrix")
"""Those that most people look for come first in a list."""


def offered_platforms() -> list[tuple[str, str]]:
    """Return the installed platforms with their titles, ours first, and programs after all that are for people."""

    def rank(each: Platform) -> tuple[bool, bool, int, str]:
        wanted = _MOST_WANTED.index(each.name) if each.name in _MOST_WANTED else len(_MOST_WANTED)
        return not each.for_people, each.name not in PLATFORMS, wanted, each.title.casefold()

    found = sorted(_installed().values(), key=rank)
    return [(each.name, each.title) for each in found]


def known_platforms() -> Mapping[str, Platform]:
    """Return every platform of Palaver itself, and the installed ones."""
    return {**PLATFORMS, **_installed()}


def _installed() -> dict[str, Platform]:
    """Return what can have accounts, by name. A plugin whose declaration cannot be read has its name only."""
    found = {name: each for name, each in PLATFORMS.items() if each.adapter}
    for entry in find_plugins(ENTRY_POINT_GROUP):
        if entry.name in PLATFORMS:
            continue
        with suppress(BadArgument):
            found[entry.name] = Platform(name=entry.name, title=entry.name.title())
            found[entry.name] = _declared_by(entry)
    return found


def _declared_by(entry: EntryPoint) -> Platform:
    """Import the declaration of a plugin."""
    found = _import(entry.name, entry.load)
    if not (isinstance(found, Platform) and found.name == entry.name and found.adapter):
        raise BadArgument(
            f"The adapter plugin {entry.name} loads {{found}}, which does not declare it",
            found=found.__name__ if isinstance(found, type) else type(found).__name__,
            allowed=f"a Platform called {entry.name} with an adapter",
            example=_EXAMPLE,
        )
    return found


@value
class RelayedFactory:
    """Makes adapters for accounts that a connector holds. The platform's own package is not needed."""

    platform: Platform

    @property
    def options(self) -> type[BaseModel]:
        from palaver.platforms.relayed.adapter import RelayedOptions  # noqa: PLC0415 - an extra

        return RelayedOptions

    def make(self, account: str, options: Any) -> Adapter:  # noqa: ANN401 - an instance of its own model
        from palaver.platforms.relayed.adapter import make_relayed  # noqa: PLC0415 - an extra

        return make_relayed(self.platform, account, options)


def load_factory(name: str, *, relayed: bool = False) -> AdapterFactory:
    """Import the adapter factory of a platform."""
    if relayed and name not in BUILT_IN:
        return RelayedFactory(platform=_find(name)[0])
    platform, distribution = _find(name)
    module, _, attribute = platform.adapter.partition(":")
    found: Any = _import(name, lambda: getattr(import_module(module), attribute), platform, distribution)
    options = getattr(found, "options", None)
    if not (isinstance(options, type) and issubclass(options, BaseModel) and callable(getattr(found, "make", found))):
        raise BadArgument(
            f"The adapter plugin {name} loads {{found}}, which is not an adapter",
            found=found.__name__ if isinstance(found, type) else type(found).__name__,
            allowed="a class that takes (account, options), with platform and options (a model)",
            example=_EXAMPLE,
        )
    return found


def _find(name: str) -> tuple[Platform, str]:
    """Return an installed platform, and the distribution that declares it."""
    if name in PLATFORMS and name not in BUILT_IN:
        return PLATFORMS[name], "palaver"
    for entry in () if name in BUILT_IN else find_plugins(ENTRY_POINT_GROUP, name):
        return _declared_by(entry), entry.dist.name if entry.dist else ""
    close = ", ".join(get_close_matches(name.lower(), installed_platforms(), n=1))
    raise BadArgument(
        "No adapter named {found} is installed",
        found=name,
        allowed=", ".join(installed_platforms()),
        fix=f"Did you mean {close}?" if close else None,
        example=package_line("NAME"),
    )


def _import(name: str, load: Callable[[], object], platform: Platform | None = None, distribution: str = "") -> object:
    """Load a declaration or an adapter. Anything can go wrong in the code of others: say whose it is."""
    try:
        return load()
    except Exception as error:
        if isinstance(error, ImportError) and (missing := _missing(error, name, platform, distribution)):
            raise missing from error
        raise BadArgument(
            f"The adapter plugin {name} cannot be loaded ({{found}})",
            found=f"{type(error).__name__}: {error}",
            allowed="an importable module with this name in it",
            example=_EXAMPLE,
        ) from error


def _missing(error: ImportError, name: str, platform: Platform | None, distribution: str) -> BadArgument | None:
    """Return what an adapter lacks: packages, if it declares an extra, or a system library."""
    who_needs = f"{platform.title if platform else name} needs"
    if not isinstance(error, ModuleNotFoundError):
        return missing_library(who_needs, error)
    if platform is None or not platform.extras or not distribution:
        return None
    extra = platform.extras[0]
    return MissingPackages(who_needs, extra, distribution_name=distribution, missing=error.name or "")


def read_options(name: str, options: Mapping[str, object]) -> BaseModel:
    """Return the options of an account, which were checked with the configuration."""
    return load_factory(name, relayed=RELAY_OPTION in options).options.model_validate(options)


def make_adapter(name: str, account: str, options: Mapping[str, object]) -> Adapter:
    """Make the adapter of an account. The options were checked with the configuration."""
    found: Any = load_factory(name, relayed=RELAY_OPTION in options)
    try:
        adapter: Adapter = getattr(found, "make", found)(account, found.options.model_validate(options))
        made = adapter.platform.name, adapter.account
    except PalaverError:
        raise
    except Exception as error:
        raise _factory_error(name, account, type(error).__name__) from error
    if made != (name, account):
        raise _factory_error(name, account, f"one for {adapter.platform.name} {adapter.account}")
    return adapter


def _factory_error(name: str, account: str, found: str) -> BadArgument:
    return BadArgument(
        f"The adapter plugin {name} failed to make an adapter for {account} ({{found}})",
        found=found,
        allowed="an adapter with this platform and this account",
        example="make(account, options)",
    )
