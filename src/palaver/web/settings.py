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


def _concerns(edits: Sequence[Edit], deferred: str) -> bool:
    """Whether what waits for a restart is what these edits changed."""
    names = {"accounts": "platforms", "MCP servers": "servers", "the terminal": "terminal"}
    return any(names.get(deferred, deferred) in edit.path for edit in edits)
