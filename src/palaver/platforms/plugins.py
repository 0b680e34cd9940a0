"""Adapters of others: found by their Python entry points, loaded only when they are asked for."""

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from pydantic import BaseModel

from palaver.model.errors import BadArgument, PalaverError, UnknownPlatform
from palaver.model.platform import Platform
from palaver.platforms.catalog import PLATFORMS
from palaver.protocols.adapter import Adapter

__all__ = [
    "BUILT_IN",
    "GROUP",
    "Maker",
    "known_platforms",
    "make_adapter",
    "maker",
    "names",
]

GROUP = "palaver.platforms"
"""A distribution adds `name = "module:Adapter"` to the entry points of this group."""
BUILT_IN = frozenset({"terminal", "web", "api"})
"""Served by every gateway; nobody else may speak in their names."""
_EXAMPLE = 'an entry point pigeon = "pigeon_post:Pigeon"'


class Maker(Protocol):
    """What an entry point leads to: the class of the adapter, or anything else that has these."""

    @property
    def platform(self) -> Platform: ...

    @property
    def options(self) -> type[BaseModel]:
        """What may be configured for an account."""
        ...

    def make(self, account: str, options: Any) -> Adapter: ...  # noqa: ANN401 - an instance of its own model


def names() -> list[str]:
    """What is installed; nothing of it is imported for that."""
    return sorted(_unloaded())


def known_platforms() -> Mapping[str, Platform]:
    """Every platform that can be named: those of the catalogue, and those that are installed."""
    return {**_unloaded(), **PLATFORMS}


def _unloaded() -> dict[str, Platform]:
    """What is known of installed adapters by their names alone; a name that no platform can have is passed over."""
    found: dict[str, Platform] = {}
    for name in {each.name for each in entry_points(group=GROUP)} - BUILT_IN:
        with suppress(UnknownPlatform):
            found[name] = Platform(name=name, title=name.title())
    return found


def maker(name: str) -> Maker:
    """What the entry point of this name leads to."""
    found: Any = _load(name)
    platform, options = getattr(found, "platform", None), getattr(found, "options", None)
    if not (
        isinstance(platform, Platform)
        and platform.name == name
        and isinstance(options, type)
        and issubclass(options, BaseModel)
        and callable(getattr(found, "make", None))
    ):
        raise BadArgument(
            f"The adapter that is installed for {name} is not",
            found=type(found).__name__ if not isinstance(found, type) else found.__name__,
            allowed=f"platform (a Platform called {name}), options (a pydantic model) and make(account, options)",
            example=_EXAMPLE,
        )
    return found


def _load(name: str) -> object:
    for found in () if name in BUILT_IN else entry_points(group=GROUP, name=name):
        try:
            return found.load()
        except Exception as error:
            extra = _extra(found) if isinstance(error, ModuleNotFoundError) else ""
            raise BadArgument(
                f"The adapter that is installed for {name} cannot be loaded:",
                found=f"{type(error).__name__}: {error}",
                allowed="an adapter together with what it needs" if extra else "a module, and a name in it",
                example=extra or _EXAMPLE,
            ) from error
    known = ", ".join(names()) or "none is installed"
    raise UnknownPlatform("No installed adapter is called", found=name, allowed=known, example="pip install NAME")


def _extra(entry: EntryPoint) -> str:
    """How to install what an adapter needs, where its distribution has an extra of the same name."""
    extras: list[str] = (entry.dist and entry.dist.metadata.get_all("Provides-Extra")) or []
    return f"pip install '{entry.dist.name}[{entry.name}]'" if entry.dist and entry.name in extras else ""


def make_adapter(name: str, account: str, options: Mapping[str, object]) -> Adapter:
    """An adapter for one account of ours. The options are right: the configuration was checked."""
    found = maker(name)
    try:
        adapter = found.make(account, found.options.model_validate(options))
        made = adapter.platform.name, adapter.account
    except PalaverError:
        raise
    except Exception as error:
        raise _unmade(name, account, type(error).__name__) from error
    if made != (name, account):
        raise _unmade(name, account, f"one for {adapter.platform.name} {adapter.account}")
    return adapter


def _unmade(name: str, account: str, found: str) -> BadArgument:
    return BadArgument(
        f"The adapter of {name} did not make one for {account}:",
        found=found,
        allowed="an adapter with this platform and this account",
        example="make(account, options)",
    )
