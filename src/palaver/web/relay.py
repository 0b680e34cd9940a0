"""The connector's WebSocket server: enrol gateways, authenticate them, hand over messages and take sends."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from palaver.engine.engine import Engine
from palaver.engine.relay import RelayedMessage, RelayLink
from palaver.engine.retry import log_error, wait_any
from palaver.model.attachment import UNKNOWN_TYPE, Attachment, TooLarge
from palaver.model.errors import InvalidInput, StoreError
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.protocols.adapter import PlatformError, SendRefused, SendUnclear
from palaver.protocols.background import run_together
from palaver.protocols.clock import Clock
from palaver.protocols.incoming import is_secret
from palaver.protocols.relay import (
    MAX_FRAME_BYTES,
    VERSION,
    Channel,
    Forged,
    Frame,
    digest,
    is_proof,
    new_nonce,
    proof,
    read_bytes,
    read_frame,
    read_outbound,
    write_bytes,
    write_error,
    write_inbound,
    write_limits,
)
from palaver.store.store import Store
from palaver.web.limits import RateLimiter

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
WINDOW = 64
"""How many messages a gateway gets before it has acknowledged the first."""
MAX_CALLS = 32
"""How many requests of one gateway run at once."""
MAX_FILES = 64
"""How many files one gateway can fetch at once, and how many it can upload: older ones were abandoned."""
POLL_SECONDS = 5.0
_REFUSED = 4401
_REPLACED = 4409
_FORGED = 4400
_WRONG = "The connector does not accept this enrolment."


@dataclass(kw_only=True)
class RelayServer:
    store: Store
    engine: Engine
    clock: Clock
    file_key: str
    """Seals the handles of files."""
    failures: RateLimiter = field(default_factory=lambda: RateLimiter(per_caller=20, total=None))
    _links: dict[tuple[str, str], ServerConnection] = field(default_factory=dict[tuple[str, str], ServerConnection])
    """The newest connection of each tenant and account: an older one is dead or a mistake."""

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncGenerator[Server]:
        async with serve(self._connected, host, port, max_size=MAX_FRAME_BYTES, compression=None) as server:
            log.info("the relay is served at %s:%d", host, port, extra={"action": "relay.started"})
            yield server

    async def _connected(self, line: ServerConnection) -> None:
        address, now = str((line.remote_address or ("",))[0]), asyncio.get_running_loop().time()
        if self.failures.retry_after(address, now):
            await line.close(_REFUSED, "Too many wrong attempts. Try again in a minute.")
            return
        try:
            await self._serve(line)
        except (Forged, TimeoutError, msgspec.ValidationError, InvalidInput) as error:
            self.failures.record(address, now)
            log.warning("a relay connection was refused: %s", type(error).__name__, extra={"action": "relay.refused"})
            await line.close(_FORGED, "This is not what a gateway says.")
        except _NotAccepted as error:
            self.failures.record(address, now)
            log.warning("a relay connection was refused: %s", error, extra={"action": "relay.refused"})
            await line.close(_REFUSED, str(error))
        except ConnectionClosed:
            pass
        except StoreError as error:
            log_error(log, "a relay connection failed", error, {"action": "relay.error"})
            await line.close(1013, "The store does not answer.")

    async def _serve(self, line: ServerConnection) -> None:
        ours = new_nonce()
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await line.send(json.dumps({"type": "hello", "version": VERSION, "nonce": ours}))
            asked = read_frame(await line.recv())
            if asked.get("type") == "enrol":
                await self._enrol(line, asked)
                return
            tenant, key = await self._authenticate(asked, ours)
        # The first key that is used revokes the others: a change of keys is complete.
        await self.store.transact(self.store.api_tokens.replace_relay_keys(tenant, key))
        nonces = ours, str(asked.get("nonce"))
        channel = Channel(key, nonces, is_connector=True)
        welcome = {"type": "welcome", "proof": proof(key, "connector", *nonces), "accounts": self._accounts(tenant)}
        await line.send(json.dumps(welcome))
        name = str(asked.get("account") or "")
        platform, _, account = name.partition(":")
        link = self.engine.relay.link(tenant, platform, account) if name else None
        if name and link is None:
            raise _NotAccepted(f"This connector has no account {name} for {tenant}.")
        await self._run(_Connection(server=self, line=line, channel=channel, tenant=tenant, link=link), name)

    async def _run(self, connection: "_Connection", name: str) -> None:
        spot = connection.tenant, name
        before = self._links.get(spot) if name else None
        if name:
            self._links[spot] = connection.line
        if before is not None:
            await before.close(_REPLACED, "Another connection took over.")
        extra = {"action": "relay.connected", "account": name}
        log.info("a gateway of %s is connected", connection.tenant, extra=extra)
        try:
            await connection.run()
        finally:
            if name and self._links.get(spot) is connection.line:
                del self._links[spot]

    async def _enrol(self, line: ServerConnection, asked: Frame) -> None:
        """Exchange a code, which works once, for the key that the gateway made."""
        code, key = str(asked.get("code")), str(asked.get("digest"))
        if len(key) != len(digest("")):
            raise Forged("The digest of the key is none.")
        enrol = self.store.api_tokens.enrol(digest(code), key, self.clock.now())
        tenant = await self.store.transact(enrol)
        if tenant is None:
            raise _NotAccepted("This code is wrong, used or expired. Ask for a new one: palaver relay invite.")
        log.info("a gateway of %s enrolled", tenant, extra={"action": "relay.enrolled"})
        await line.send(json.dumps({"type": "enrolled", "tenant": tenant, "accounts": self._accounts(tenant)}))

    async def _authenticate(self, asked: Frame, ours: str) -> tuple[str, str]:
        """Return the tenant and the digest of the key that it proves to have."""
        tenant, theirs = str(asked.get("tenant")), str(asked.get("nonce"))
        facts = "gateway", ours, theirs, tenant, str(asked.get("account") or "")
        for key in await self.store.read(self.store.api_tokens.relay_keys(tenant)):
            if is_proof(asked.get("proof"), key, *facts):
                return tenant, key
        raise _NotAccepted(_WRONG)

    def _accounts(self, tenant: str) -> Frame:
        """Describe the accounts that a tenant has chats on."""
        relay = self.engine.relay
        links = {name: relay.link(tenant, *name.split(":", 1)) for name in self.engine.account_names}
        return {
            name: {"limits": write_limits(link.adapter.limits), "capabilities": link.capabilities}
            for name, link in links.items()
            if link is not None
        }


class _NotAccepted(Exception):
    """The peer is not who it says, or asks for what it may not have. The text is for its operator."""


@dataclass(kw_only=True)
class _Connection:
    server: RelayServer
    line: ServerConnection
    channel: Channel
    tenant: str
    link: RelayLink | None
    """None for a connection that only changes the key."""
    _unacknowledged: set[int] = field(default_factory=set[int])
    _acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])
    _files: dict[int, AsyncGenerator[bytes]] = field(default_factory=dict[int, AsyncGenerator[bytes]])
    """What the gateway fetches, the least recently read first."""
    _uploads: dict[int, "_Upload"] = field(default_factory=dict[int, "_Upload"])
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Serve the gateway. If messages cannot be handed over, end the connection: the gateway makes another."""
        try:
            await (run_together(self._read_frames(), self._pump(self.link)) if self.link else self._read_frames())
        finally:
            tasks: list[asyncio.Task[Any]] = [*self._calls, *(upload.storing for upload in self._uploads.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close_files(keep=0)

    async def _read_frames(self) -> None:
        async for sealed in self.line:
            await self._take(self.channel.open(sealed))

    async def _write(self, frame: Frame) -> None:
        async with self._sending:  # seal and send in one order
            await self.line.send(self.channel.seal(frame))

    # Messages to the gateway

    async def _pump(self, link: RelayLink) -> None:
        """Hand over what waits, in order. What was not acknowledged is handed over again by the next connection."""
        last = 0
        with suppress(ConnectionClosed), link.listen() as woken:
            while True:
                woken.clear()
                self._acknowledged.clear()
                room = WINDOW - len(self._unacknowledged)
                for message in await link.list_waiting(after=last, limit=room) if room else ():
                    last = message.number
                    self._unacknowledged.add(last)
                    await self._write(self._message(message))
                await wait_any(woken, self._acknowledged, timeout=POLL_SECONDS)

    def _message(self, message: RelayedMessage) -> Frame:
        inbound = write_inbound(message.inbound)
        inbound["files"] = [self._sealed_file(file) for file in message.inbound.files]
        return {
            "type": "message",
            "no": message.number,
            "inbound": inbound,
            "aliases": list(message.aliases),
            "earlier_chats": list(message.earlier_chats),
        }

    def _sealed_file(self, file: Attachment) -> list[object]:
        """Return a file whose handle only this connector can have made: a tenant cannot ask for another's."""
        handle = file.handle or ""
        found = file._replace(handle=f"{self._code_of(handle)}:{handle}") if handle else file
        return [found.name.stored(), *found[1:]]

    def _code_of(self, handle: str) -> str:
        return proof(self.server.file_key, "file", self.tenant, handle)

    # Requests of the gateway

    async def _take(self, frame: Frame) -> None:
        match frame:
            case {"type": "ack", "no": int() as number} if self.link is not None:
                await self.link.acknowledge([number])
                self._unacknowledged.discard(number)
                self._acknowledged.set()
            case {"type": "call", "ref": int() as ref, "do": str() as name}:
                while len(self._calls) >= MAX_CALLS:
                    await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
                call = asyncio.create_task(self._answer(ref, name, frame))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            case _:
                pass  # A newer gateway can say more than we know.

    async def _answer(self, ref: int, name: str, frame: Frame) -> None:
        reply: Frame = {"type": "result", "ref": ref}
        try:
            reply["value"] = await self._call(name, frame)
        except PlatformError as error:
            reply["error"] = write_error(error)
        except (ValueError, TypeError, LookupError, msgspec.ValidationError, InvalidInput) as error:
            reply["error"] = write_error(SendRefused(f"The connector cannot read this: {type(error).__name__}."))
        except TooLarge as error:
            reply["error"] = write_error(SendRefused(str(error)))
        except StoreError as error:
            reply["error"] = write_error(SendUnclear(str(error)))
        except Exception as error:  # noqa: BLE001 - an adapter can raise anything
            log_error(log, "a relayed request failed", error, {"action": "relay.error"})
            reply["error"] = write_error(SendUnclear("The connector's adapter failed."))
        with suppress(ConnectionClosed):
            await self._write(reply)

    async def _call(self, name: str, frame: Frame) -> object:
        if name == "rotate":
            return await self._rotate(str(frame["digest"]))
        if self.link is None:
            raise SendRefused("This connection has no account.")
        calls: Mapping[str, Callable[[RelayLink, Frame], Awaitable[object]]] = {
            "send": lambda link, said: link.send(_outbound(link, said), str(said["key"])),
            "edit": lambda link, said: link.edit(str(said["receipt"]), _outbound(link, said)),
            "draft": lambda link, said: link.draft(said.get("receipt"), _outbound(link, said)),
            "typing": lambda link, said: link.typing(_outbound(link, said)),
            "check": lambda link, _: link.check(),
            "fetch": self._fetch,
            "read": self._read,
            "upload": self._upload,
            "write": self._write_part,
            "uploaded": self._uploaded,
        }
        if name not in calls:
            raise SendRefused("This connector is older than the gateway.")
        return await calls[name](self.link, frame)

    async def _rotate(self, key: str) -> None:
        """Accept another key beside this one. The first connection with it revokes this one."""
        if len(key) != len(digest("")):
            raise SendRefused("The digest of the key is none.")
        await self.server.store.transact(
            self.server.store.api_tokens.add_relay_key(self.tenant, key, self.server.clock.now())
        )

    # Files, in parts, so that no frame is large and each side sets its own pace

    async def _fetch(self, link: RelayLink, frame: Frame) -> int:
        code, _, handle = str(frame["handle"]).partition(":")
        if not is_secret(code, self._code_of(handle)):
            raise SendRefused("This file was not relayed to you.")
        file = Attachment(
            Label(str(frame.get("name") or "")),
            str(frame.get("media_type") or UNKNOWN_TYPE),
            frame.get("size"),
            handle=handle,
        )
        number = next(self._numbers)
        self._files[number] = link.fetch(file)
        await self._close_files(keep=MAX_FILES)
        return number

    async def _read(self, _: RelayLink, frame: Frame) -> str | None:
        number = int(frame["file"])
        content = self._files.pop(number)
        chunk = await anext(content, None)
        if chunk is None:
            return None
        self._files[number] = content
        return write_bytes(chunk)

    async def _close_files(self, *, keep: int) -> None:
        while len(self._files) > keep:
            await self._files.pop(next(iter(self._files))).aclose()

    async def _upload(self, link: RelayLink, _: Frame) -> int:
        number, parts = next(self._numbers), asyncio.Queue[bytes | None](2)
        self._uploads[number] = _Upload(parts, asyncio.create_task(link.store_file(_drain(parts))))
        while len(self._uploads) > MAX_FILES:
            self._uploads.pop(next(iter(self._uploads))).storing.cancel()
        return number

    async def _write_part(self, _: RelayLink, frame: Frame) -> None:
        await self._uploads[int(frame["file"])].put(read_bytes(frame["data"]))

    async def _uploaded(self, _: RelayLink, frame: Frame) -> str:
        upload = self._uploads.pop(int(frame["file"]))
        await upload.put(None)
        return await upload.storing


@dataclass(frozen=True)
class _Upload:
    parts: "asyncio.Queue[bytes | None]"
    storing: "asyncio.Task[str]"

    async def put(self, part: bytes | None) -> None:
        """Hand over a part, or None for the end. Raises why it cannot be stored."""
        putting = asyncio.create_task(self.parts.put(part))
        await asyncio.wait({putting, self.storing}, return_when=asyncio.FIRST_COMPLETED)
        if self.storing.done():
            putting.cancel()
            await self.storing


async def _drain(parts: "asyncio.Queue[bytes | None]") -> AsyncIterator[bytes]:
    while (part := await parts.get()) is not None:
        yield part


def _outbound(link: RelayLink, frame: Frame) -> Outbound:
    return read_outbound(frame["outbound"], link.adapter.platform.name, link.adapter.account)
