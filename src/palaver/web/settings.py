"""Change the configuration from a page: one change at a time, checked, written, and used as far as a restart allows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from palaver.config.agents import AgentConfig
from palaver.config.editor import ConfigFile, Edit
from palaver.config.loader import Loaded
from palaver.config.model import Config
from palaver.config.writer import line_of
from palaver.model.errors import PalaverError
from palaver.protocols.installation import MissingPackages

_INSTALL_WAIT_S = 20.0
"""How long a request waits for an installation. The page follows a longer one."""


class AccountAnswer(Protocol):
    """What an account says of itself."""

    @property
    def ok(self) -> bool: ...
    @property
    def words(self) -> str: ...
    @property
    def was_asked(self) -> bool: ...


class Saved(NamedTuple):
    file: Path
    line: int | None
    """Where the first change stands; None if it was removed."""
    deferred: Sequence[str]
    """What waits for a restart."""

    def __str__(self) -> str:
        where = f"{self.file.name}, line {self.line}" if self.line else self.file.name
        if not self.deferred:
            return f"Saved in {where}. It applies now."
        return f"Saved in {where}. Restart the gateway to use it."


@dataclass(kw_only=True)
class Installing:
    """An installation that a page started."""

    task: "asyncio.Task[None]"
    shown: str = "Starting"
    """What it does now."""
    problem: str = ""
    """Why it failed; empty if it did not."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    file: ConfigFile
    reload: Callable[[Config], None]
    """Use another configuration as far as a running gateway can."""
    find_deferred: Callable[[Config], Sequence[str]]
    """Return what another configuration changes that waits for a restart."""
    ask_agent: Callable[[AgentConfig, str], Awaitable[str]]
    """Ask an agent one question; return why it does not answer, without its secret, or nothing."""
    ask_account: Callable[[str, str, Mapping[str, object]], Awaitable[AccountAnswer]]
    install: Callable[[MissingPackages, Callable[[str], None]], Awaitable[None]]
    """Install what is missing and show what goes on; raise an error that says why not."""
    installing: dict[str, Installing] = field(default_factory=dict[str, Installing])
    """By extra."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load(self) -> Loaded:
        return await asyncio.to_thread(self.file.load)

    async def change(self, edits: Sequence[Edit], secrets: Mapping[str, str] | None = None) -> Saved:
        """Write the edits and use them. Raises InvalidInput, and changes nothing, if they are refused."""
        async with self._changing:
            # Not in a thread: it reloads the engine, which belongs to this loop.
            loaded = self.file.change(edits, secrets or {}, lambda loaded: self.reload(loaded.config))
            content = self.file.content()
        lines = [line for edit in edits if (line := line_of(content, edit.path))]
        deferred = [name for name in self.find_deferred(loaded.config) if _concerns(edits, name)]
        return Saved(file=self.file.path, line=lines[0] if lines else None, deferred=deferred)

    async def start_install(self, missing: MissingPackages, changed: Callable[[], None]) -> None:
        """Install what is missing, unless that goes on already, and wait a while for its end."""
        going_on = self.installing.get(missing.extra)
        if going_on is None or going_on.task.done():
            going_on = Installing(task=asyncio.create_task(self._install(missing, changed)))
            self.installing[missing.extra] = going_on
        changed()
        await asyncio.wait([going_on.task], timeout=_INSTALL_WAIT_S)

    async def _install(self, missing: MissingPackages, changed: Callable[[], None]) -> None:
        def show(line: str) -> None:
            self.installing[missing.extra].shown = line
            changed()

        await asyncio.sleep(0)  # until it is listed
        try:
            await self.install(missing, show)
        except PalaverError as error:
            self.installing[missing.extra].problem = str(error)
        finally:
            changed()


def _concerns(edits: Sequence[Edit], deferred: str) -> bool:
    """Whether what waits for a restart is what these edits changed."""
    names = {"accounts": "platforms", "MCP servers": "servers", "the terminal": "terminal"}
    return any(names.get(deferred, deferred) in edit.path for edit in edits)
