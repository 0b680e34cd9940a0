"""Adapter plugins: found by entry point, imported only when needed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import EntryPoint
from typing import Any, Protocol

from pydantic import BaseModel

from palaver.model.errors import BadArgument, PalaverError
from palaver.model.platform import Platform
from palaver.model.value import value
from palaver.platforms.catalog import PLATFORMS
from palaver.protocols.adapter import Adapter
from palaver.protocols.entry_points import find_plugins
from palaver.protocols.installation import MissingPackages, missing_library, package_line
from palaver.protocols.relay import RELAY_OPTION

ENTRY_POINT_GROUP = "palaver.platforms"
"""A distribution adds `name = "module:Adapter"` to the entry points of this group."""
BUILT_IN = frozenset({"terminal", "web", "api"})
"""Served by every gateway; no plugin can replace them."""
_EXAMPLE = 'an entry point pigeon = "pigeon_post:Pigeon"'


class AdapterFactory(Protocol):
    """What an entry point names: the adapter's class, or anything else with these members.

    It is called with an account and its options, an instance of its own model; or its `make`, if it has one.
    """

    @property
    def platform(self) -> Platform: ...

    @property
    def options(self) -> type[BaseModel]:
        """The options of an account."""
        ...


def installed_platforms() -> list[str]:
    """Return the installed platforms without importing them."""
    return sorted(_installed())


def offered_platforms() -> list[tuple[str, str]]:
    """Return the installed platforms with their titles: ours in the order of the catalogue, programs last."""
    found = {name: PLATFORMS.get(name, each) for name, each in _installed().items()}
    order = list(PLATFORMS)
    ranked = sorted(found, key=lambda name: (not found[name].for_people, name not in PLATFORMS, *_rank(name, order)))
    return [(name, found[name].title) for name in ranked]


def _rank(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else 0), name


def known_platforms() -> Mapping[str, Platform]:
    """Return every platform of the catalogue, and the installed ones."""
    return {**_installed(), **PLATFORMS}


def _installed() -> dict[str, Platform]:
    """Return the installed adapters by name; skip invalid names."""
    found: dict[str, Platform] = {}
    for name in {each.name for each in find_plugins(ENTRY_POINT_GROUP)} - BUILT_IN:
        with suppress(BadArgument):
            found[name] = Platform(name=name, title=name.title())
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
        return RelayedFactory(platform=PLATFORMS[name] if name in PLATFORMS else load_factory(name).platform)
    found: Any = _load(name)
    platform, options = getattr(found, "platform", None), getattr(found, "options", None)
    if not (
        isinstance(platform, Platform)
        and platform.name == name
        and isinstance(options, type)
        and issubclass(options, BaseModel)
        and callable(getattr(found, "make", found))
    ):
        raise BadArgument(
            f"The adapter plugin {name} loads {{found}}, which is not an adapter",
            found=found.__name__ if isinstance(found, type) else type(found).__name__,
            allowed=f"a class that takes (account, options), with platform (called {name}) and options (a model)",
            example=_EXAMPLE,
        )
    return found


def _load(name: str) -> object:
    for found in () if name in BUILT_IN else find_plugins(ENTRY_POINT_GROUP, name):
        try:
            return found.load()
        except Exception as error:
            if isinstance(error, ImportError) and (missing := _missing(found, error)):
                raise missing from error
            raise BadArgument(
                f"The adapter plugin {name} cannot be loaded ({{found}})",
                found=f"{type(error).__name__}: {error}",
                allowed="an entry point with an importable module and a name in it",
                example=_EXAMPLE,
            ) from error
    close = ", ".join(get_close_matches(name.lower(), installed_platforms(), n=1))
    raise BadArgument(
        "No adapter named {found} is installed",
        found=name,
        allowed=", ".join(installed_platforms()),
        fix=f"Did you mean {close}?" if close else None if installed_platforms() else "Install its package",
        example=package_line("NAME"),
    )


def _missing(entry: EntryPoint, error: ImportError) -> BadArgument | None:
    """Return what an adapter lacks: packages, if its distribution has an extra of its name, or a system library."""
    who_needs = f"{PLATFORMS[entry.name].title if entry.name in PLATFORMS else entry.name} needs"
    extras: list[str] = (entry.dist and entry.dist.metadata.get_all("Provides-Extra")) or []
    if not isinstance(error, ModuleNotFoundError):
        return missing_library(who_needs, error)
    if entry.dist is None or entry.name not in extras:
        return None
    return MissingPackages(who_needs, entry.name, distribution_name=entry.dist.name, missing=error.name or "")


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
