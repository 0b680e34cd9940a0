"""What terminals need from the gateway: its socket, the commands, the last words of a conversation, and outcomes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from palaver.commands.registry import Registry
from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.gateway.connector import Connector
from palaver.model.errors import InvalidInput, NotFound, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.source import Source
from palaver.model.text import listed, strip_markdown
from palaver.model.transcript import Entry, Role
from palaver.platforms.terminal.socket import socket_path
from palaver.platforms.terminal.wire import MenuEntry, Offer, RecapLine, Reloaded, Settled
from palaver.protocols.hooks import GatewayEvent
from palaver.store.opening import sqlite_path
from palaver.store.status import message_status
from palaver.store.store import Store

RECAP_ENTRIES = 6
POLL_SECONDS = 1.0
WRITE_REFUSAL_SECONDS = 5.0
"""How long the store may refuse writes before somebody who waits at a terminal gets an error."""


def terminal_socket(config: Config) -> Path:
    """Return the path of the socket at which terminals reach the gateway of this store."""
    file = sqlite_path(config.store)
    return socket_path(config.data_dir, str(file.resolve()) if file else config.store)


class TerminalService:
    """Answers the questions of terminals from the store."""

    def __init__(
        self,
        store: Store,
        commands: Registry,
        key_of: Callable[[Source], Awaitable[SessionKey]],
        model_of: Callable[[Source], Awaitable[str | None]],
        suggestions_for: Callable[[Source], Awaitable[Sequence[str]]],
        *,
        connector: Connector,
        reload: Callable[[], None],
    ) -> None:
        self._store = store
        self._reload = reload
        self._model_of = model_of
        self._suggestions_for = suggestions_for
        self._connector = connector
        self._commands = commands
        self._key_of = key_of
        self._changed = asyncio.Event()

    async def on_event(self, _event: GatewayEvent) -> None:
        """Wake everybody who waits for an outcome."""
        self._changed.set()
        self._changed = asyncio.Event()

    def commands(self) -> Sequence[MenuEntry]:
        return [MenuEntry(name=name, help=command.help) for name, command in sorted(self._commands.table.items())]

    def reload(self) -> Reloaded:
        try:
            self._reload()
        except InvalidInput as error:
            return Reloaded(refused=str(error))
        return Reloaded()

    async def offer(self) -> Offer | None:
        """Return the first thing to connect a model with, and name the others."""
        found = await self._connector.find()
        if not found:
            return None
        first, *others = found
        more = f" Also here: {listed([each.text for each in others])}." if others else ""
        return Offer(found=f"Found {first.text}.{more}", accept=f"/connect {first.name}", decline="/connect no")

    async def recap(self, source: Source) -> Sequence[RecapLine]:
        """Return the last entries of the conversation, to show when a terminal opens."""
        key = await self._key_of(source)
        with suppress(NotFound):
            entries = await self._store.read(_recent_entries(self._store, key, replace(source, profile=key.profile)))
            return [
                RecapLine(by_person=True, text=entry.text)
                if entry.role is Role.USER
                else RecapLine(by_person=False, text=strip_markdown(entry.text) or entry.text)
                for entry in entries
                if entry.text.strip()
            ]
        return []

    async def suggestions(self, source: Source) -> Sequence[str]:
        with suppress(StoreUnavailable):
            return await self._suggestions_for(source)
        return ()

    async def model(self, source: Source) -> str | None:
        with suppress(StoreUnavailable):
            return await self._model_of(source)
        return None

    async def answered(self, source: Source) -> Settled:
        """Wait for the final outcome of a message."""
        since = time.monotonic()
        while True:
            changed = self._changed
            with suppress(StoreUnavailable):
                if outcome := await self._store.read(message_status.final_outcome(source)):
                    return Settled(id=source.message_id or "", refused=outcome.refused, failed=outcome.failed)
            if self._store.refused_for(since) > WRITE_REFUSAL_SECONDS:
                raise StoreUnavailable("the store has refused writes for a while; its disk may be full")
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await changed.wait()


@transaction
def _recent_entries(store: Store, key: SessionKey, source: Source) -> Statements[list[Entry]]:
    principal = yield from store.people.principal_for(source)
    return (yield from message_status.recent_entries(key, principal, RECAP_ENTRIES))
