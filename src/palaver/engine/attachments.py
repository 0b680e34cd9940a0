"""Attachments: download incoming files before their turn, store outgoing ones before they are owed, clean up."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

from palaver.db.transaction import Transaction
from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.retry import contain_cancellation, log_error, retry_until_stored
from palaver.engine.voice import transcribe
from palaver.model.attachment import Attachment, NewFile, TooLarge, detect_media_type, format_size
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.source import account_text
from palaver.model.turn import NOTHING_HEARD, Received, Turn
from palaver.model.value import value
from palaver.protocols.adapter import PlatformBusy, PlatformDown
from palaver.protocols.capabilities import Downloading, supports
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue_parts

log = logging.getLogger(__name__)


RETRY_AFTER = timedelta(seconds=2)
CLEAN_UP_EVERY_SECONDS = 3600.0
UNREFERENCED_FOR = timedelta(hours=1)
"""How long a stored file may be unreferenced: it may be owed in a moment."""
PAGE_SIZE = 1000
CHUNK_SIZE = 1 << 18
"""How much is encoded and hashed at a time, so that the event loop is never held up for long."""


class _TryLater(Exception):
    """The platform may give the file later."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"after {after}")
        self.after = after


@value(kw_only=False)
class Attachments:
    ctx: EngineContext
    resources: Resources
    live: LiveState
    _failing_since: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """By inbox number: when the first download of its files failed."""

    # Incoming

    async def fetch(self, key: SessionKey, is_over_quota: Callable[[Received], Awaitable[bool]]) -> datetime | None:
        """Download the files of waiting messages. Return when to try again if a platform does not answer."""
        for received in await self.ctx.store.read(self.ctx.store.attachments.awaiting_files(key)):
            if self.ctx.settings.is_undecided(received.inbound):
                continue
            files, set_files = list(received.inbound.files), self.ctx.store.attachments.set_files
            try:
                for place, file in enumerate(files):
                    files[place] = await self._download(received, file, place)
            except _TryLater as later:
                if tuple(files) != received.inbound.files:  # do not fetch again what came
                    await retry_until_stored(self.ctx.store, set_files(received, files))
                return self.ctx.clock.now() + later.after
            heard = NOTHING_HEARD
            if self.resources.voice and not received.inbound.heard:  # an edit has what the message said
                heard = await transcribe(self.resources, files, partial(is_over_quota, received))
            await retry_until_stored(self.ctx.store, set_files(received, files, heard))
            self._failing_since.pop(received.number, None)
            log.info("files fetched", extra={"action": "files.fetched", "inbox": received.number})
        return None

    @property
    def _max_files(self) -> int:
        return self.ctx.settings.limits.files_per_message

    async def _download(self, received: Received, file: Attachment, place: int) -> Attachment:
        if place >= self._max_files:
            return _fail(file, f"only {self._max_files} are allowed")
        if file.is_settled:
            return file
        source, limit = received.inbound.source, self.ctx.settings.limits.file_size
        adapter = self.ctx.replies.adapter_for(source.platform, source.account)
        if not supports(adapter, Downloading):
            return _fail(file, "files are not accepted here")
        if (file.size or 0) > limit:
            return _fail(file, f"it is larger than {format_size(limit)}")
        try:
            async with asyncio.timeout(self.ctx.settings.limits.fetch_limit.total_seconds()):
                with contain_cancellation():
                    return await self._store(file, adapter.fetch(file))
        except (PlatformBusy, PlatformDown, TimeoutError) as error:
            if self._may_retry(received, error):
                pause = timedelta(seconds=error.after) if isinstance(error, PlatformBusy) else RETRY_AFTER
                raise _TryLater(min(max(pause, RETRY_AFTER), self.ctx.settings.limits.fetch_patience)) from None
        except Exception as error:  # noqa: BLE001 - after any adapter error the message goes on without the file
            log_error(
                log, "a file could not be downloaded", error, {"action": "files.rejected", "inbox": received.number}
            )
        return _fail(file, "the platform did not deliver it")

    def _may_retry(self, received: Received, error: Exception) -> bool:
        """Count from the first failed try: before that, the message may have waited for other things."""
        source, now = received.inbound.source, self.ctx.clock.now()
        if isinstance(error, PlatformDown) and account_text(source.platform, source.account) in self.live.connecting:
            return True
        failing, patience = self._failing_since, self.ctx.settings.limits.fetch_patience
        since = failing.setdefault(received.number, now)
        # Another gateway that fetches files does not notify us, so forget what is old. If a message among it waited for
        # its account to connect, its next failed try counts as its first.
        for number in [each for each, begun in failing.items() if now - begun > 2 * patience]:
            del failing[number]
        return now - since < patience

    async def _store(self, file: Attachment, chunks: AsyncIterator[bytes]) -> Attachment:
        limit = self.ctx.settings.limits.file_size
        if self.resources.blob_store is None:
            return _fail(file, "files are not stored here")
        try:
            kept = await self.resources.blob_store.keep(chunks, limit)
        except TooLarge:
            return _fail(file, f"it is larger than {format_size(limit)}")
        except TimeoutError:
            raise
        except OSError as error:
            log_error(log, "a file could not be stored", error, {"action": "files.not_stored"})
            return _fail(file, "it could not be stored")
        return file._replace(
            sha256=kept.sha256, size=kept.size, media_type=detect_media_type(kept.head, file.media_type), problem=""
        )

    # Outgoing

    async def store_all(self, new: Sequence[NewFile]) -> tuple[Attachment, ...]:
        return tuple([await self.store(file) for file in new[: self._max_files]])

    async def store(self, new: NewFile) -> Attachment:
        """Store a file. It stays if it is owed or in a transcript within the hour."""
        file = Attachment(Label(new.name), new.media_type, len(new.content))
        return await self._store(file, _chunks(new.content))

    async def store_text(self, name: str, text: str, *, cut: str) -> Attachment:
        """Store a text of any length. If it is longer than a file may be, its beginning is stored, and then `cut`."""
        chunks = _text_chunks(text, self.ctx.settings.limits.file_size, f"\n{cut}\n".encode())
        return await self._store(Attachment(Label(name), "text/markdown"), chunks)

    async def read(self, turn: Turn, name: str) -> NewFile:
        """Return a file of the conversation of the turn."""
        found = await self.ctx.store.read(self.ctx.store.attachments.find_in_turn(turn, name))
        if self.resources.blob_store is None:
            raise NotFound("file", name)
        async with self.resources.blob_store.reading(found.sha256 or "") as path:
            if path is None:
                raise NotFound("file", name)
            return NewFile(found.name.plain(), await asyncio.to_thread(path.read_bytes), found.media_type)

    # Clean-up

    async def serve_clean_up(self) -> None:
        """Delete unreferenced files from time to time, until cancelled. Every machine has its own files."""
        while self.resources.blob_store is not None:
            await asyncio.sleep(CLEAN_UP_EVERY_SECONDS)
            await self.clean_up(UNREFERENCED_FOR)
        await asyncio.Event().wait()

    async def clean_up(self, older_than: timedelta) -> None:
        if self.resources.blob_store is None:
            return
        files = self.ctx.store.attachments
        await self.ctx.store.transact(files.drop_sent())
        referenced = set(await self.ctx.store.read(files.awaited_handles()))
        last = ""
        while page := await self.ctx.store.read(files.list_referenced(last, PAGE_SIZE)):
            referenced.update(page)
            last = page[-1]
        await self.resources.blob_store.tidy(referenced, older_than)
        log.info("files cleaned up", extra={"action": "files.cleaned"})


def _fail(file: Attachment, why: str) -> Attachment:
    return file._replace(problem=why)


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), CHUNK_SIZE):
        yield content[start : start + CHUNK_SIZE]


async def _text_chunks(text: str, limit: int, cut: bytes) -> AsyncIterator[bytes]:
    room = limit - len(cut)
    for start in range(0, len(text), CHUNK_SIZE):
        chunk = text[start : start + CHUNK_SIZE].encode("utf-8", "replace")
        if len(chunk) > room:
            yield chunk[:room].decode(errors="ignore").encode() + cut
            return
        yield chunk
        room -= len(chunk)


@value(kw_only=False)
class CommandFiles:
    """Sends files as part of a command's answer."""

    attachments: Attachments
    received: Received

    async def store(self, new: NewFile) -> Attachment:
        """Store a file before the transaction. It is deleted after a while if nothing owes it."""
        return await self.attachments.store(new)

    def send(self, file: Attachment, now: datetime) -> Transaction[int]:
        """Return the transaction that sends a stored file."""
        parts = self.attachments.ctx.replies.files(self.received.inbound.source, [file])
        return enqueue_parts(parts, SendCause(CauseKind.COMMAND, self.received.number, "file"), now)
