"""The adapter of an account that a connector holds for us: the platform's messages over the connector's WebSocket."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, WebSocketException

from palaver.protocols import (
    Attachment,
    ClientErrors,
    Limits,
    Outbound,
    Platform,
    PlatformDown,
    PlatformRefused,
    Receiver,
    SendUnclear,
    Trust,
    file_to_send,
    parse_or_skip,
    proxy_of,
    read_ahead,
)
from palaver.protocols.pending import PendingAnswers
from palaver.protocols.relay import (
    CHUNK_BYTES,
    MAX_FRAME_BYTES,
    UNKNOWN_LIMITS,
    Channel,
    Enrolment,
    Forged,
    Frame,
    RelayedAccount,
    digest,
    is_proof,
    new_nonce,
    proof,
    read_bytes,
    read_enrolment,
    read_error,
    read_frame,
    read_inbound,
    write_bytes,
    write_outbound,
)

_HANDSHAKE_SECONDS = 20.0
_ANSWER_SECONDS = 25.0
"""Less than a send may take, more than the connector waits for the platform."""
_REFUSED = 4401
_TRUSTED = Trust(via_trusted_relay=True)
_WRONG_KEY = (
    "The connector does not accept this enrolment. Ask its operator for a new code: palaver relay join URL CODE"
)


def _check_file(file: Path) -> Path:
    file = file.expanduser()
    try:
        read_enrolment(file)
    except OSError as error:
        raise ValueError("a file that `palaver relay join` wrote") from error
    return file


class RelayedOptions(BaseModel):
    """The options of an account that a connector holds."""

    model_config = ConfigDict(frozen=True)

    relay_file: Annotated[Path, AfterValidator(_check_file)] = Field(
        description="The file that `palaver relay join` wrote.", examples=["~/.config/palaver/relay-acme.json"]
    )
    relay_account: str = Field(default="", description="The connector's name of the account. Default: the same name.")


class RelayedAdapter:
    """One account over its own connection. The connector's outbox makes every send repeatable."""

    def __init__(self, platform: Platform, account: str, options: RelayedOptions) -> None:
        self.platform = platform
        self.account = account
        self._file = options.relay_file
        self._name = f"{platform.name}:{options.relay_account or account}"
        self._line: ClientConnection | None = None
        self._channel: Channel | None = None
        self._refs = count(1)
        self._results = PendingAnswers[int, Frame]()
        self._sending = asyncio.Lock()
        self.limits: Limits = UNKNOWN_LIMITS
        self._learn(read_enrolment(self._file).accounts.get(self._name))

    def _learn(self, described: RelayedAccount | None) -> None:
        if described is not None:
            self.limits = described.parse_limits()

    # Connect

    async def check(self) -> str:
        """Ask the platform through the connector; a second connection would take the first one's place."""
        if self._line is not None:
            return str((await self.call("check", {})) or self._name)
        line, _ = await open_line(read_enrolment(self._file), "")
        await line.close()
        return f"{self._name} through {read_enrolment(self._file).url}"

    async def run(self, receiver: Receiver) -> None:
        enrolment = read_enrolment(self._file)
        try:
            line, (channel, accounts) = await open_line(enrolment, self._name)
            with _LINE.requests():
                async with line:
                    self._learn(accounts.get(self._name))
                    self._line = line
                    self._channel = channel
                    await receiver.connected()
                    await read_ahead(self._messages(line, channel), partial(self._take, receiver=receiver))
        except Forged as error:
            raise PlatformDown(f"{error} The connection was closed.") from error
        finally:
            self._line = self._channel = None
            self._results.fail("The connection to the connector was lost.")
        raise PlatformDown("The connector closed the connection.")

    async def _messages(self, line: ClientConnection, channel: Channel) -> AsyncIterator[tuple[int, Frame]]:
        """Yield messages, but settle results at once: a send does not wait until messages are stored."""
        async for sealed in line:
            frame = channel.open(sealed)
            match frame:
                case {"type": "message", "no": int() as number}:
                    yield number, frame
                case {"type": "result", "ref": int() as ref}:
                    self._results.settle(ref, frame)
                case _:
                    pass  # A newer connector can say more than we know.

    async def _take(self, numbered: tuple[int, Frame], receiver: Receiver) -> None:
        number, frame = numbered
        await self._receive(frame, receiver)
        await self._write({"type": "ack", "no": number})

    async def _receive(self, frame: Frame, receiver: Receiver) -> None:
        """Store a message with the other ids of its sender and chat. The connector repeats it until we acknowledge."""
        inbound = parse_or_skip("relayed", lambda: read_inbound(frame["inbound"], self.platform.name, self.account))
        if inbound is None:
            return
        for alias, canonical in frame.get("aliases") or ():
            await receiver.link_alias(str(alias), str(canonical))
        for old in frame.get("earlier_chats") or ():
            await receiver.chat_moved(str(old), inbound.source.chat or "", server=inbound.source.scope_id)
        await receiver.receive(inbound, _TRUSTED)

    # Ask the connector

    async def _write(self, frame: Frame) -> None:
        line = self._line
        channel = self._channel
        if line is None or channel is None:
            raise PlatformDown("There is no connection to the connector.")
        async with self._sending:  # seal and send in one order
            await line.send(channel.seal(frame))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Ask the connector and return its answer. If the connection is lost before, nobody knows what it did."""
        ref = next(self._refs)
        with _LINE.sends(), self._results.expect(ref) as result:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._write({"type": "call", "ref": ref, "do": name, **arguments})
                frame = await result
        if "error" in frame:
            raise read_error(frame["error"])
        return frame.get("value")

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        found = await self.call("send", {"outbound": write_outbound(outbound), "key": idempotency_key})
        return str(found)


class TypingPart(RelayedAdapter):
    async def typing(self, outbound: Outbound) -> None:
        await self.call("typing", {"outbound": write_outbound(outbound)})


class EditingPart(RelayedAdapter):
    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self.call("edit", {"receipt": receipt, "outbound": write_outbound(outbound)})


class DraftingPart(RelayedAdapter):
    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        return str(await self.call("draft", {"receipt": receipt, "outbound": write_outbound(outbound)}))


class ThreadingPart(RelayedAdapter):
    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self.send(outbound, idempotency_key=idempotency_key)


class DownloadingPart(RelayedAdapter):
    async def fetch(self, file: Attachment) -> AsyncGenerator[bytes]:
        about = {"handle": file.handle, "name": file.name.stored(), "media_type": file.media_type, "size": file.size}
        number = await self._fetching("fetch", about)
        while (chunk := await self._fetching("read", {"file": number})) is not None:
            yield read_bytes(chunk)

    async def _fetching(self, name: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        try:
            return await self.call(name, arguments)
        except SendUnclear as error:  # A download can be tried again.
            raise PlatformDown(str(error)) from error


class UploadingPart(RelayedAdapter):
    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """Upload the file in parts, then send it. An upload without a send shows nobody anything."""
        file = file_to_send(outbound, content)
        number = await self.call("upload", {})
        with content.open("rb") as stream:
            while chunk := await asyncio.to_thread(stream.read, CHUNK_BYTES):
                await self.call("write", {"file": number, "data": write_bytes(chunk)})
        sha256 = await self.call("uploaded", {"file": number})
        sent = write_outbound(outbound)
        sent["file"] = [file.name.stored(), file.media_type, file.size, str(sha256), None, ""]
        return str(await self.call("send", {"outbound": sent, "key": idempotency_key}))


_PARTS: Mapping[str, type[RelayedAdapter]] = {
    "typing": TypingPart,
    "editing": EditingPart,
    "drafting": DraftingPart,
    "threading": ThreadingPart,
    "downloading": DownloadingPart,
    "uploading": UploadingPart,
}


def make_relayed(platform: Platform, account: str, options: RelayedOptions) -> RelayedAdapter:
    """Make an adapter with exactly the capabilities of the connector's, as they were when we last heard of it."""
    name = f"{platform.name}:{options.relay_account or account}"
    described = read_enrolment(options.relay_file).accounts.get(name, RelayedAccount())
    parts = tuple(part for capability, part in _PARTS.items() if capability in described.capabilities)
    kind = type("Relayed", parts or (RelayedAdapter,), {})
    return kind(platform, account, options)


# The handshake


async def open_line(
    enrolment: Enrolment, account: str
) -> tuple[ClientConnection, tuple[Channel, Mapping[str, RelayedAccount]]]:
    """Connect and authenticate both sides, with the newest key that the connector accepts."""
    refused: PlatformRefused | None = None
    for key in enrolment.keys:
        try:
            with _LINE.requests():
                return await _open(enrolment, digest(key), account)
        except PlatformRefused as error:
            refused = error
    raise refused or PlatformRefused(_WRONG_KEY)


async def _open(
    enrolment: Enrolment, key: str, account: str
) -> tuple[ClientConnection, tuple[Channel, Mapping[str, RelayedAccount]]]:
    line = await connect(enrolment.url, max_size=MAX_FRAME_BYTES, compression=None, proxy=proxy_of(enrolment.url))
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            nonces = str(read_frame(await line.recv()).get("nonce")), new_nonce()
            facts = "gateway", *nonces, enrolment.tenant, account
            hello = {"type": "hello", "tenant": enrolment.tenant, "nonce": nonces[1], "account": account}
            await line.send(json.dumps({**hello, "proof": proof(key, *facts)}))
            welcome = read_frame(await line.recv())
        _check_connector(welcome, key, nonces)
        accounts = {name: RelayedAccount.model_validate(each) for name, each in welcome.get("accounts", {}).items()}
    except BaseException:
        await line.close()
        raise
    return line, (Channel(key, nonces, is_connector=False), accounts)


def _check_connector(welcome: Frame, key: str, nonces: tuple[str, str]) -> None:
    if not is_proof(welcome.get("proof"), key, "connector", *nonces):
        raise PlatformRefused("This is not the connector that you joined: it does not know your key.")


def closed_error(error: ConnectionClosedError) -> PlatformDown:
    reason = error.rcvd.reason if error.rcvd else ""
    if error.rcvd and error.rcvd.code == _REFUSED:
        return PlatformRefused(f"{reason} If it stays so: palaver relay join URL CODE")
    return PlatformDown(f"The connection to the connector was lost. {reason}".strip())


def _explain(error: Exception, *, sending: bool) -> PlatformDown | None:
    return closed_error(error) if isinstance(error, ConnectionClosedError) and not sending else None


_LINE = ClientErrors(title="the connector", raised=(WebSocketException, OSError), explain=_explain)


async def join(url: str, code: str, key: str) -> Enrolment:
    """Exchange a code for an enrolment with a key of our own. Raises PlatformDown and PlatformRefused."""
    with _LINE.requests():
        async with (
            asyncio.timeout(_HANDSHAKE_SECONDS),
            connect(url, proxy=proxy_of(url), max_size=MAX_FRAME_BYTES) as line,
        ):
            await line.recv()
            await line.send(json.dumps({"type": "enrol", "code": code, "digest": digest(key)}))
            answer = read_frame(await line.recv())
    return Enrolment(url=url, tenant=str(answer["tenant"]), keys=(key,), accounts=answer.get("accounts", {}))


async def offer_key(enrolment: Enrolment, key: str) -> None:
    """Tell the connector our next key. It replaces the present one with the first connection that uses it."""
    line, (channel, _) = await open_line(enrolment, "")
    async with line:
        await line.send(channel.seal({"type": "call", "ref": 1, "do": "rotate", "digest": digest(key)}))
        answer = channel.open(await line.recv())
    if "error" in answer:
        raise read_error(answer["error"])
