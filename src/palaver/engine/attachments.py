"""Files on their way: fetched before the turn they belong to, kept before they are owed, read for a turn alone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from palaver.db.transaction import Statements, transaction
from palaver.engine.context import EngineContext
from palaver.engine.retry import contain_cancellation, log_error
from palaver.model.attachment import Attachment, NewFile, TooLarge, detect_media_type, format_size
from palaver.model.busy import Batch
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.turn import Received, Turn, account_text
from palaver.model.value import value
from palaver.protocols.adapter import PlatformBusy, PlatformDown
from palaver.protocols.capabilities import Downloading, supports
from palaver.store.queue.cause import CauseKind, SendCause

__all__ = [
    "Attachments",
    "Desk",
    "PendingAttachments",
]

log = logging.getLogger(__name__)


@value(kw_only=False)
class PendingAttachments:
    ctx: EngineContext

    def of(self, choice: Batch, waiting: Sequence[Received]) -> Batch:
        """As much of it as is said to us, or nothing yet."""
        if not choice.take:
            return choice
        known = list(takewhile(self._is_known, waiting[: choice.take]))
        return Batch(take=len(known)) if all(each.inbound.has_all_files for each in known) else Batch()

    def _is_known(self, received: Received) -> bool:
        return not self.ctx.options.is_undecided(received.inbound)

    async def further(self, head: Received) -> datetime | None:
        """One step for what waits in front; gives when to look again, where it is too early for that."""
        if self._is_known(head):
            return await Attachments(self.ctx).fetch(head.key)
        until = head.received + self.ctx.options.burst_window
        if self.ctx.clock.now() < until:
            return until
        await self.ctx.store.transact(self.ctx.store.inbox.decide(head))
        return None


_AGAIN = timedelta(seconds=2)
_TIDY_EVERY = 3600.0
_LEFT_ALONE = timedelta(hours=1)
"""For so long nobody removes what was just put there: it may be owed in a moment."""
_PAGE = 1000


class _Later(Exception):
    """It may be tried again."""


@value(kw_only=False)
class Attachments:
    ctx: EngineContext

    # In

    async def fetch(self, key: SessionKey) -> datetime | None:
        """The files of what waits in a conversation; gives when to look again, where a platform does not answer."""
        for received in await self.ctx.store.read(self.ctx.store.attachments.awaiting_files(key)):
            if self.ctx.options.is_undecided(received.inbound):
                continue
            try:
                files = [await self._fetched(received, file) for file in received.inbound.files[: self._most]]
            except _Later:
                return self.ctx.clock.now() + _AGAIN
            left_out = [_problem(file, f"only {self._most} are taken") for file in received.inbound.files[self._most :]]
            await self.ctx.retry_until_stored(self.ctx.store.attachments.set_files(received, [*files, *left_out]))
            self.ctx.unfetched.pop(received.number, None)
            log.info("files fetched", extra={"action": "files.fetched", "inbox": received.number})
        return None

    @property
    def _most(self) -> int:
        return self.ctx.options.files_per_message

    async def _fetched(self, received: Received, file: Attachment) -> Attachment:
        if file.is_settled:
            return file
        source, limit = received.inbound.source, self.ctx.options.file_size
        adapter = self.ctx.replies.adapter_for(source.platform, source.account)
        if not supports(adapter, Downloading):
            return _problem(file, "files are not taken here")
        if (file.size or 0) > limit:
            return _problem(file, f"it is larger than {format_size(limit)}")
        try:
            async with asyncio.timeout(self.ctx.options.fetch_limit.total_seconds()):
                with contain_cancellation():
                    return await self._keep(file, adapter.fetch(file))
        except (PlatformBusy, PlatformDown, TimeoutError) as error:
            if self._is_patient(received, error):
                raise _Later from None
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises, the message goes on without the file
            log_error(log, "a file was not given", error, {"action": "files.rejected", "inbox": received.number})
        return _problem(file, "the platform did not give it")

    def _is_patient(self, received: Received, error: Exception) -> bool:
        """Counted from the first try in vain: before, it may have waited for other things."""
        source, now = received.inbound.source, self.ctx.clock.now()
        if isinstance(error, PlatformDown) and account_text(source.platform, source.account) in self.ctx.connecting:
            return True
        since = self.ctx.unfetched.setdefault(received.number, now)
        return now - since < self.ctx.options.fetch_patience

    async def _keep(self, file: Attachment, chunks: AsyncIterator[bytes]) -> Attachment:
        limit = self.ctx.options.file_size
        if self.ctx.shelf is None:
            return _problem(file, "files are not kept here")
        try:
            kept = await self.ctx.shelf.keep(chunks, limit)
        except TooLarge:
            return _problem(file, f"it is larger than {format_size(limit)}")
        except TimeoutError:
            raise
        except OSError as error:
            log_error(log, "a file was not kept", error, {"action": "files.not_stored"})
            return _problem(file, "it could not be kept")
        return file._replace(
            sha256=kept.sha256, size=kept.size, media_type=detect_media_type(kept.head, file.media_type), problem=""
        )

    # Out

    async def keep_all(self, new: Sequence[NewFile]) -> tuple[Attachment, ...]:
        return tuple([await self.keep(each) for each in new[: self._most]])

    async def keep(self, new: NewFile) -> Attachment:
        """Durable from here on for as long as it is owed, or stands in a transcript, within the hour."""
        file = Attachment(Label(new.name), new.media_type, len(new.content))
        return await self._keep(file, _whole(new.content))

    async def read(self, turn: Turn, name: str) -> bytes:
        """The content of a file that is shown in the conversation of the turn."""
        found = await self.ctx.store.read(self.ctx.store.attachments.find_in_turn(turn, name))
        path = self.ctx.shelf.place(found.sha256 or "") if self.ctx.shelf else None
        if path is None:
            raise NotFound("file", name)
        return await asyncio.to_thread(path.read_bytes)

    # Upkeep

    async def tidy(self) -> None:
        """Remove what nobody has any more, until cancelled. Every machine has a shelf of its own."""
        while self.ctx.shelf is not None:
            await asyncio.sleep(_TIDY_EVERY)
            await self.tidy_once(_LEFT_ALONE)
        await asyncio.Event().wait()

    async def tidy_once(self, older_than: timedelta) -> None:
        if self.ctx.shelf is None:
            return
        files = self.ctx.store.attachments
        await self.ctx.store.transact(files.drop_sent())
        held: set[str] = set()
        last = ""
        while page := await self.ctx.store.read(files.list_referenced(last, _PAGE)):
            held.update(page)
            last = page[-1]
        await self.ctx.shelf.tidy(held, older_than)
        log.info("files tidied up", extra={"action": "files.cleaned"})


def _problem(file: Attachment, why: str) -> Attachment:
    return file._replace(problem=why)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


@value(kw_only=False)
class Desk:
    """Where a command puts a file that goes to whoever commanded, in the step that does the command."""

    ctx: EngineContext
    received: Received

    async def keep(self, new: NewFile) -> Attachment:
        return await Attachments(self.ctx).keep(new)

    @transaction
    def owe(self, file: Attachment, now: datetime) -> Statements[None]:
        for part in self.ctx.replies.files(self.received.inbound.source, [file]):
            yield from self.ctx.store.outbox.enqueue(
                part, SendCause(CauseKind.COMMAND, self.received.number, "file"), now
            )
