"""The Matrix adapter. It runs the sync itself, so that the position moves only after messages are stored."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from palaver.platforms.matrix import PLATFORM
from palaver.platforms.matrix.client import Client, Login, Options, check_extra, open_client, stored_fingerprint
from palaver.platforms.matrix.parse import Event
from palaver.platforms.matrix.send import MAX_TEXT_BYTES, MessageSender, download
from palaver.platforms.matrix.session import SyncSession
from palaver.platforms.matrix.sync import Undecrypted
from palaver.protocols import (
    Attachment,
    Label,
    Limits,
    Outbound,
    PlatformDown,
    PlatformRefused,
    Receiver,
    Unit,
    file_to_send,
)


class MatrixAdapter:
    platform = PLATFORM
    options = Options
    limits = Limits(text=MAX_TEXT_BYTES, unit=Unit.UTF8, draft_interval=2.0, repeats_safely=True)

    def __init__(self, account: str, options: Options) -> None:
        check_extra(options)
        self.account = account
        self._options = options
        self._login: Login | None = None
        self._undecrypted = Undecrypted()
        self._reactions = dict[str, Event]()
        """The last ones by id. They outlive a connection: what takes one back names only its id."""
        self._client: Client | None = None
        self._sender: MessageSender | None = None

    async def check(self) -> str:
        """Log in as another device, so that a running gateway keeps its login."""
        options = self._options.model_copy(update={"device_id": f"{self._options.device_id}_CHECK", "keys": None})
        async with open_client(self.account, options) as client:
            profile = await client.ask("GET", "profile", client.user_id) or {}
            device = self._options.device_id if options.password else client.device_id or ""
            if options.password:
                await client.ask("POST", "logout", body={})
        name = Label(str(profile.get("displayname") or "")).plain()
        fingerprint = await asyncio.to_thread(stored_fingerprint, self.account, self._options, device)
        return (
            options.user_id
            + (f" ({name})" if name else "")
            + (f", device {device}, fingerprint {fingerprint}" if fingerprint else "")
        )

    async def run(self, receiver: Receiver) -> None:
        async with self._connect() as client:
            session = SyncSession(
                client,
                self._options,
                self.account,
                receiver,
                self._undecrypted,
                reactions=self._reactions,
            )
            try:
                await session.start()
                self._client = client
                self._sender = session.sender
                await receiver.connected()
                await session.run()
            finally:
                self._client = self._sender = None
                await session.tasks.end()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._connected.send(outbound, idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self._connected.edit(receipt, outbound)

    async def typing(self, outbound: Outbound) -> None:
        await self._connected.typing(outbound)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Start a thread with this message: its event id is the thread's id."""
        return await self._connected.send(replace(outbound, thread_id=None), idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content)
        return await self._connected.send_file(outbound, file, content, idempotency_key)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Also works in a worker that does not serve the account, if it has an access token."""
        async with self._any_client() as client:
            async for chunk in download(client, file.handle or ""):
                yield chunk

    @property
    def _connected(self) -> MessageSender:
        if self._sender is None:
            raise PlatformDown("There is no connection to the homeserver.")
        return self._sender

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        """Keep the login for the next connection; log in again once it has expired."""
        login = self._login
        self._login = None
        try:
            async with open_client(self.account, self._options, login) as client:
                self._login = Login(client.device_id or self._options.device_id, client.access_token)
                yield client
        except PlatformRefused as refused:
            was_in = login or self._login
            self._login = None
            if was_in and self._options.password:
                raise PlatformDown("The homeserver has logged us out.") from refused
            raise

    @asynccontextmanager
    async def _any_client(self) -> AsyncGenerator[Client]:
        if self._client:
            yield self._client
        elif self._options.password:
            # Logging in here would end the login of the worker that serves the account.
            raise PlatformDown(
                "Another worker serves the account. Configure an access token to download from several workers."
            )
        else:
            async with open_client(self.account, self._options.model_copy(update={"keys": None})) as client:
                yield client
