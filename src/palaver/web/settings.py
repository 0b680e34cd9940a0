"""Change the configuration from a page: one change at a time, checked, written, and used as far as a restart allows."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from palaver.config.editor import ConfigFile, Edit
from palaver.config.loader import Loaded
from palaver.config.model import Config
from palaver.config.writer import line_of
from palaver.engine.retry import log_error
from palaver.model.errors import INTERNAL_ERROR, PalaverError
from palaver.protocols.installation import MissingPackages
from palaver.settings.agents import AgentConfig

log = logging.getLogger(__name__)
_WORK_WAIT_S = 20.0
"""How long a request waits for an installation or a download. The page follows a longer one."""


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


Show = Callable[[str], None]


@dataclass(kw_only=True)
class Work:
    """An installation or a download that a page started, and that goes on without it."""

    task: "asyncio.Task[None]"
    shown: str = "Starting"
    """What it does now."""
    problem: str = ""
    """Why it failed; empty if it did not."""

    @property
    def is_over(self) -> bool:
        return self.task.done()


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
    install: Callable[[MissingPackages, Show], Awaitable[None]]
    """Install what is missing and show what goes on; raise an error that says why not."""
    works: dict[str, Work] = field(default_factory=dict[str, Work])
    """By extra, and by the name of a model."""
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

    async def start(self, name: str, work: Callable[[Show], Awaitable[None]], changed: Callable[[], None]) -> None:
        """Begin work, unless it goes on already, and wait a while for its end."""
        going_on = self.works.get(name)
        if going_on is None or going_on.is_over:
            going_on = Work(task=asyncio.create_task(self._run(name, work, changed)))
            self.works[name] = going_on
        changed()
        await asyncio.wait([going_on.task], timeout=_WORK_WAIT_S)

    async def _run(self, name: str, work: Callable[[Show], Awaitable[None]], changed: Callable[[], None]) -> None:
        def show(line: str) -> None:
            self.works[name].shown = line
            changed()

        await asyncio.sleep(0)  # until it is listed
        try:
            await work(show)
        except PalaverError as error:
            self.works[name].problem = str(error)
        except Exception as error:  # noqa: BLE001 - the page waits for its end
            log_error(log, "work for a page failed", error, {"action": "settings.work_failed"})
            self.works[name].problem = INTERNAL_ERROR
        finally:
            # Only when its task has ended is it over.
            asyncio.get_running_loop().call_soon(changed)


def _concerns(edits: Sequence[Edit], deferred: str) -> bool:
    """Whether what waits for a restart is what these edits changed."""
    names = {"accounts": "platforms", "MCP servers": "servers", "the terminal": "terminal"}
    return any(names.get(deferred, deferred) in edit.path for edit in edits)
