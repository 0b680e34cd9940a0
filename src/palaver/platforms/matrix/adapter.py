"""The adapter for Matrix: reads by syncing itself, so that what is read counts as read only once it is safe."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.split import Unit
from palaver.model.turn import Outbound
from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.matrix.client import Client, Entry, check_extra, opened
from palaver.platforms.matrix.media import content_of
from palaver.platforms.matrix.options import GUIDE, Options
from palaver.platforms.matrix.render import LONGEST_TEXT
from palaver.platforms.matrix.send import Speaking
from palaver.platforms.matrix.session import Visit
from palaver.platforms.matrix.sync import Waiting
from palaver.protocols.adapter import Limits, PlatformDown, PlatformRefused, Receiver, SendRefused

__all__ = ["MatrixAdapter"]


class MatrixAdapter:
    platform = PLATFORMS["matrix"]
    options = Options
    guide = GUIDE
    limits = Limits(text=LONGEST_TEXT, unit=Unit.UTF8, draft_interval=2.0, repeats_safely=True)

    def __init__(self, account: str, options: Options) -> None:
        self.account: str | None = account
        self._name = account
        self._options = options
        self._entry: Entry | None = None
        self._waiting = Waiting()
        self._client: Client | None = None
        self._speaking: Speaking | None = None

    @classmethod
    def make(cls, account: str, options: Options) -> "MatrixAdapter":
        check_extra(options)
        return cls(account, options)

    async def check(self) -> str:
        """A log-in of its own, so as not to end that of a gateway at work."""
        options = self._options.model_copy(update={"device_id": f"{self._options.device_id}_CHECK", "keys": None})
        async with opened(self._name, options) as client:
            profile = await client.ask("GET", "profile", client.user_id) or {}
            if options.password:
                await client.ask("POST", "logout", body={})
        name = Label(str(profile.get("displayname") or "")).plain()
        return f"{options.user_id} ({name})" if name else options.user_id

    async def run(self, receiver: Receiver) -> None:
        async with self._opened() as client:
            visit = Visit(client, self._options, self._name, receiver, self._waiting)
            try:
                await visit.begin()
                self._client, self._speaking = client, visit.speaking
                await receiver.connected()
                await visit.stay()
            finally:
                self._client = self._speaking = None
                await visit.errands.end()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._here.say(outbound, idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self._here.edit(receipt, outbound)

    async def typing(self, outbound: Outbound) -> None:
        await self._here.typing(outbound)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """A thread is called by the message that it begins with; it has no other name."""
        if self._options.scope == "room":
            raise SendRefused("threads belong to the conversation of their room here")
        return await self._here.say(replace(outbound, thread_id=None), idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        if outbound.file is None:
            raise SendRefused("there is no file to send")
        return await self._here.say_with(outbound, outbound.file, content, idempotency_key)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Also by a worker that does not serve the account, if it has an access token."""
        async with self._reaching() as client:
            async for piece in content_of(client, file.handle or ""):
                yield piece

    @property
    def _here(self) -> Speaking:
        if self._speaking is None:
            raise PlatformDown("there is no connection to the homeserver")
        return self._speaking

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Client]:
        """A log-in is kept for the next connection; where it does not count any more, there is a new one."""
        entry, self._entry = self._entry, None
        try:
            async with opened(self._name, self._options, entry) as client:
                self._entry = Entry(device_id=client.device_id or self._options.device_id, token=client.access_token)
                yield client
        except PlatformRefused as refused:
            was_in, self._entry = entry or self._entry, None
            if was_in and self._options.password:
                raise PlatformDown("the homeserver has ended our log-in") from refused
            raise

    @asynccontextmanager
    async def _reaching(self) -> AsyncGenerator[Client]:
        if self._client:
            yield self._client
        elif self._options.password:
            # To log in here would end the log-in of the worker that serves the account.
            raise PlatformDown("the account is served elsewhere, and only an access token can be used twice")
        else:
            async with opened(self._name, self._options.model_copy(update={"keys": None})) as client:
                yield client
