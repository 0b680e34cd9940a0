"""The terminal adapter: the gateway's end of the socket. Everybody who can use the socket is the owner."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from palaver.model.errors import PalaverError
from palaver.model.redact import mask_keys
from palaver.model.source import MAIN
from palaver.platforms.terminal import PLATFORM, wire
from palaver.platforms.terminal.socket import close_listener, listen, wait_until_removed
from palaver.protocols import (
    BackgroundTasks,
    Clock,
    Inbound,
    Label,
    Labels,
    Limits,
    Outbound,
    PlatformDown,
    Receiver,
    SendRefused,
    SendUnclear,
    Source,
    StoreUnavailable,
    TargetAway,
    Trust,
)
from palaver.protocols.pending import PendingAnswers

log = logging.getLogger(__name__)

OWNER = "owner"
_AWAY_SECONDS = 3600.0
"""A fallback: a terminal that connects reports its chat at once."""


_MAX_UNREAD_BYTES = 1 << 23
_GONE = "The terminal disconnected."
_CHANGES = ("/resume ", "/back", "/attach ", "/detach", "!resume ", "!back", "!attach ", "!detach")
"""Commands that can continue another conversation."""


class TerminalServices(Protocol):
    """What terminals need from the gateway besides messages."""

    def commands(self) -> Sequence[wire.MenuEntry]: ...

    def reload(self) -> wire.Reloaded:
        """Read the configuration again."""
        ...

    async def offer(self) -> wire.Offer | None:
        """Return what to connect a model with, while there is none."""
        ...

    async def recap(self, source: Source) -> Sequence[wire.RecapLine]:
        """Return the last messages of the conversation, as far as they were shown."""
        ...

    async def suggestions(self, source: Source) -> Sequence[str]:
        """Return what a person can say, if the agent knows that."""
        ...

    async def model(self, source: Source) -> str | None:
        """Return the name of the model that answers in the conversation, if it has one."""
        ...

    async def answered(self, source: Source) -> wire.Settled:
        """Wait until nothing more will follow in answer to this message.

        Raises StoreUnavailable if the store was unavailable for a while.
        """
        ...


class TerminalConnection:
    """One connected terminal."""

    def __init__(self, writer: asyncio.StreamWriter, chat: str, known: Iterable[str], *, alone: bool = False) -> None:
        self.chat = chat
        self.known = set(known)
        """The messages that it has shown, even partly."""
        self.alone = alone
        """It does not want answers to other terminals."""
        self.said = set[str]()
        """The ids of its messages."""
        self._writer = writer
        self._numbers = count(1)
        self._unconfirmed = PendingAnswers[int, None]()
        self.tasks = BackgroundTasks()
        """What runs until the terminal disconnects."""

    def tell(self, value: wire.FromGateway) -> None:
        """Send a value; disconnect a terminal that has stopped reading."""
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._writer.transport.abort()
        if not self._writer.is_closing():
            self._writer.write(wire.encode(value))

    async def show(self, message: str, text: str, *, growing: bool, file: wire.File | None = None) -> None:
        """Show a message and wait for the confirmation. Raises SendUnclear if the terminal disconnects first."""
        if self._writer.is_closing():
            raise SendUnclear(_GONE)
        number = next(self._numbers)
        self.known.add(message)
        with self._unconfirmed.expect(number) as confirmed:
            self.tell(wire.Show(number=number, id=message, text=text, growing=growing, file=file))
            await confirmed

    def confirm(self, number: int) -> None:
        self._unconfirmed.settle(number, None)

    async def end(self) -> None:
        """Stop everything but the connection itself: the terminal may still have to learn why."""
        self._unconfirmed.fail(_GONE)
        await self.tasks.end()


class TerminalAdapter:
    platform = PLATFORM
    limits = Limits(text=wire.MAX_TEXT, draft_interval=0.1, typing_has_words=True, repeats_safely=True)

    def __init__(self, path: Path, services: TerminalServices, clock: Clock, account: str | None = None) -> None:
        self.account = account
        self._path = path
        self._services = services
        self._clock = clock
        self._connections: list[TerminalConnection] = []
        self._is_open = False

    async def run(self, receiver: Receiver) -> None:
        tasks = BackgroundTasks()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.run(self._serve(receiver, reader, writer))

        listener = listen(self._path)
        server = await asyncio.start_unix_server(accept, sock=listener, limit=wire.MAX_LINE_BYTES)
        self._is_open = True
        try:
            await receiver.connected()
            await wait_until_removed(self._path)
            raise PlatformDown(f"Somebody removed {self._path}.")
        finally:
            self._is_open = False
            server.close()
            await tasks.end()
            close_listener(self._path, listener)

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Use the key as the receipt: a terminal shows it only once."""
        await self._show(self._present(outbound), idempotency_key, outbound.text)
        return idempotency_key

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """The terminal copies the content before it confirms."""
        attached = outbound.file
        name, id_ = (attached.name.plain(), attached.id or "") if attached else ("", "")
        file = wire.File(name=name, path=str(content), id=id_)
        await self._show(self._present(outbound), idempotency_key, outbound.text, file=file)
        return idempotency_key

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        receipt = receipt or uuid4().hex
        await self._show(self._present(outbound), receipt, outbound.text, growing=True)
        return receipt

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        connections = self._present(outbound)
        if not any(receipt in connection.known for connection in connections):
            raise SendRefused("No terminal has shown this message.")
        await self._show(connections, receipt, outbound.text)

    async def typing(self, outbound: Outbound) -> None:
        model = await self._services.model(self._source(outbound.chat_id, None))
        for connection in self._present(outbound):
            connection.tell(wire.Typing(model=model, doing=outbound.text.strip("…")))

    def _present(self, outbound: Outbound) -> list[TerminalConnection]:
        if not self._is_open:
            raise PlatformDown("The socket is not open.")
        here = [connection for connection in self._connections if connection.chat == outbound.chat_id]
        if not here:
            raise TargetAway(_AWAY_SECONDS)
        asked = [connection for connection in here if outbound.reply_to in connection.said]
        return [connection for connection in here if not (asked and connection.alone) or connection in asked]

    async def _show(
        self,
        connections: Collection[TerminalConnection],
        message: str,
        text: str,
        *,
        growing: bool = False,
        file: wire.File | None = None,
    ) -> None:
        """Show it on every terminal; return once one has confirmed it."""
        shows = [connection.show(message, text, growing=growing, file=file) for connection in connections]
        showing = {asyncio.create_task(show) for show in shows}
        try:
            while showing:
                done, showing = await asyncio.wait(showing, return_when=asyncio.FIRST_COMPLETED)
                if None in {each.exception() for each in done}:
                    return
        finally:
            for each in showing:
                each.cancel()
        raise SendUnclear("Every terminal disconnected.")

    # Incoming

    async def _serve(self, receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A terminal can disconnect at any time; it repeats what was not stored.
            hello = await wire.read_terminal(reader)
            if isinstance(hello, wire.Hello):
                await self._handle(receiver, hello, reader, writer)
            elif isinstance(hello, wire.Reload):
                writer.write(wire.encode(self._services.reload()))
        except (OSError, ValueError) as error:
            log.info("a terminal was disconnected: %s", type(error).__name__, extra={"action": "terminal.detached"})
        except PalaverError as error:
            log.warning("a terminal was disconnected: %s", type(error).__name__, extra={"action": "terminal.detached"})
            if not writer.is_closing():
                writer.write(wire.encode(wire.Failed(why=str(error), passes=isinstance(error, StoreUnavailable))))
        finally:
            writer.close()

    async def _handle(
        self, receiver: Receiver, hello: wire.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # The recap goes before anything new.
        source = self._source(hello.chat, None)
        recap = await self._services.recap(source)
        welcome = wire.Welcome(
            commands=tuple(self._services.commands()),
            recap=tuple(recap),
            suggestions=() if recap else tuple(await self._services.suggestions(source)),
            offer=await self._services.offer(),
        )
        writer.write(wire.encode(welcome))
        connection = TerminalConnection(writer, hello.chat, hello.known, alone=hello.alone)
        self._connections.append(connection)
        log.info("a terminal connected", extra={"action": "terminal.attached"})
        try:
            await receiver.chat_returned(connection.chat)
            await self._listen(receiver, connection, reader)
        finally:
            self._connections.remove(connection)
            await connection.end()

    async def _listen(self, receiver: Receiver, connection: TerminalConnection, reader: asyncio.StreamReader) -> None:
        while said := await wire.read_terminal(reader):
            if isinstance(said, wire.Shown):
                connection.confirm(said.number)
            elif isinstance(said, wire.Say):
                before = await self._recap(connection) if said.text.lower().startswith(_CHANGES) else None
                source = await self._receive(receiver, connection, said)
                connection.tasks.run(self._settle(connection, source, before))

    async def _receive(self, receiver: Receiver, connection: TerminalConnection, said: wire.Say) -> Source:
        source = self._source(connection.chat, said.id)
        connection.said.add(said.id)
        labels = Labels(user=Label.of(said.name))
        await receiver.receive(Inbound(source=source, text=said.text, at=self._clock.now(), labels=labels), Trust())
        for other in self._connections:
            if other.chat == connection.chat and other is not connection:
                other.tell(wire.OtherSaid(id=said.id, text=mask_keys(said.text)))
        return source

    async def _recap(self, connection: TerminalConnection) -> tuple[wire.RecapLine, ...]:
        return tuple(await self._services.recap(self._source(connection.chat, None)))

    async def _settle(
        self, connection: TerminalConnection, source: Source, before: tuple[wire.RecapLine, ...] | None
    ) -> None:
        """Report the outcome; after a command that went to another conversation, show its last messages."""
        try:
            settled = await self._services.answered(source)
            if before is not None and (recap := await self._recap(connection)) != before and not connection.alone:
                connection.tell(wire.Recap(lines=recap))
            connection.tell(settled)
        except StoreUnavailable as error:
            connection.tell(wire.Failed(why=str(error), passes=True, lasts=True))

    def _source(self, chat: str, message: str | None) -> Source:
        """The chat of another profile has the profile in its name: `work/main`."""
        profile, _, _ = chat.rpartition("/")
        return Source(
            platform=self.platform.name,
            account=self.account,
            chat_id=chat,
            user_id=OWNER,
            profile=profile or MAIN,
            message_id=message,
        )
