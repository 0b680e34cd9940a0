"""The terminal adapter: the gateway's end. Whoever may use its socket is the owner."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from palaver.model.errors import PalaverError
from palaver.model.source import MAIN
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.terminal.connection import Visit
from palaver.platforms.terminal.socket import give_back, gone, take
from palaver.platforms.terminal.wire import (
    LONGEST_LINE,
    LONGEST_TEXT,
    CommandLine,
    Failed,
    Heard,
    Hello,
    Said,
    Say,
    Settled,
    Shown,
    Typing,
    Welcome,
    encoded,
    read_terminal,
)
from palaver.protocols import (
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

__all__ = ["OWNER", "Desk", "TerminalAdapter"]

log = logging.getLogger(__name__)

OWNER = "owner"
_AWAY = 3600.0
"""Seconds: whoever comes says so, this is only the net under it."""


class Desk(Protocol):
    """What a terminal wants to know besides talking."""

    def commands(self) -> Sequence[CommandLine]: ...

    async def recap(self, source: Source) -> Sequence[Said]:
        """What was said last where this source speaks, as far as it was shown."""
        ...

    async def answered(self, source: Source) -> Settled:
        """Returns when nothing more will come in answer to this message.

        Raises StoreUnavailable where for a while nothing could be written.
        """
        ...


class TerminalAdapter:
    platform = PLATFORMS["terminal"]
    limits = Limits(text=LONGEST_TEXT, draft_interval=0.1, repeats_safely=True)

    def __init__(self, path: Path, desk: Desk, clock: Clock, account: str | None = None) -> None:
        self.account = account
        self._path = path
        self._desk = desk
        self._clock = clock
        self._visits: list[Visit] = []
        self._is_open = False

    async def run(self, receiver: Receiver) -> None:
        callers: set[asyncio.Task[None]] = set()

        def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            caller = asyncio.create_task(self._serve(receiver, reader, writer))
            callers.add(caller)
            caller.add_done_callback(callers.discard)

        listener = take(self._path)
        server = await asyncio.start_unix_server(welcome, sock=listener, limit=LONGEST_LINE)
        self._is_open = True
        try:
            await receiver.connected()
            await gone(self._path)
            raise PlatformDown(f"somebody has taken {self._path} away")
        finally:
            self._is_open = False
            server.close()
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
            give_back(self._path, listener)

    # Messages out

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """The receipt is the key: a terminal that has shown it does not show it again."""
        await self._show(self._present(outbound), idempotency_key, outbound.text)
        return idempotency_key

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        receipt = receipt or uuid4().hex
        await self._show(self._present(outbound), receipt, outbound.text, growing=True)
        return receipt

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        visits = self._present(outbound)
        if not any(receipt in visit.known for visit in visits):
            raise SendRefused("no terminal has shown this message")
        await self._show(visits, receipt, outbound.text)

    async def typing(self, outbound: Outbound) -> None:
        for visit in self._present(outbound):
            visit.tell(Typing())

    def _present(self, outbound: Outbound) -> list[Visit]:
        if not self._is_open:
            raise PlatformDown("the socket is not open")
        here = [visit for visit in self._visits if visit.chat == outbound.chat_id]
        if not here:
            raise TargetAway(_AWAY)
        asked = [visit for visit in here if outbound.reply_to in visit.said]
        return [visit for visit in here if not (asked and visit.alone) or visit in asked]

    async def _show(self, visits: Collection[Visit], message: str, text: str, *, growing: bool = False) -> None:
        """Everywhere; once one terminal has confirmed it, it is shown."""
        showing = {asyncio.create_task(visit.show(message, text, growing=growing)) for visit in visits}
        try:
            while showing:
                done, showing = await asyncio.wait(showing, return_when=asyncio.FIRST_COMPLETED)
                if None in {each.exception() for each in done}:
                    return
        finally:
            for each in showing:
                each.cancel()
        raise SendUnclear("every terminal went away")

    # Messages in

    async def _serve(self, receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A terminal may be gone at any time; what could not be kept it says again.
            hello = await read_terminal(reader)
            if isinstance(hello, Hello):
                await self._attend(receiver, hello, reader, writer)
        except (OSError, ValueError) as error:
            log.info("a terminal was let go: %s", type(error).__name__, extra={"action": "terminal.detached"})
        except PalaverError as error:
            log.warning("a terminal was let go: %s", type(error).__name__, extra={"action": "terminal.detached"})
            writer.write(encoded(Failed(why=str(error), passes=isinstance(error, StoreUnavailable))))
        finally:
            writer.close()

    async def _attend(
        self, receiver: Receiver, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # What was said before is told before anything new.
        recap = await self._desk.recap(self._source(hello.chat, None))
        writer.write(encoded(Welcome(commands=tuple(self._desk.commands()), recap=tuple(recap))))
        visit = Visit(writer, hello.chat, hello.known, alone=hello.alone)
        self._visits.append(visit)
        log.info("a terminal is here", extra={"action": "terminal.attached"})
        try:
            await receiver.chat_returned(visit.chat)
            await self._listen(receiver, visit, reader)
        finally:
            self._visits.remove(visit)
            visit.end()

    async def _listen(self, receiver: Receiver, visit: Visit, reader: asyncio.StreamReader) -> None:
        while said := await read_terminal(reader):
            if isinstance(said, Shown):
                visit.confirm(said.number)
            elif isinstance(said, Say):
                source = await self._receive(receiver, visit, said)
                visit.meanwhile(self._settle(visit, source))

    async def _receive(self, receiver: Receiver, visit: Visit, said: Say) -> Source:
        source = self._source(visit.chat, said.id)
        visit.said.add(said.id)
        labels = Labels(user=Label(said.name)) if said.name else Labels()
        await receiver.receive(Inbound(source=source, text=said.text, at=self._clock.now(), labels=labels), Trust())
        for other in self._visits:
            if other.chat == visit.chat and other is not visit:
                other.tell(Heard(id=said.id, text=said.text))
        return source

    async def _settle(self, visit: Visit, source: Source) -> None:
        try:
            visit.tell(await self._desk.answered(source))
        except StoreUnavailable as error:
            visit.tell(Failed(why=str(error), passes=True, lasts=True))

    def _source(self, chat: str, message: str | None) -> Source:
        """A chat of another profile carries the profile in its name, so that it is another chat: `work/main`."""
        profile, _, _ = chat.rpartition("/")
        return Source(
            platform=self.platform.name,
            account=self.account,
            chat_id=chat,
            user_id=OWNER,
            profile=profile or MAIN,
            message_id=message,
        )
