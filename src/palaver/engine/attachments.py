"""Files on their way: fetched before the turn they belong to, kept before they are owed, read for a turn alone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from palaver.db.transaction import Statements, transaction
from palaver.engine.context import Ground
from palaver.engine.retry import contained, log_broken
from palaver.model.attachment import Attachment, NewFile, TooLarge, media_type_of, size_text
from palaver.model.busy import Choice
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.turn import Received, Turn, account_text
from palaver.model.value import value
from palaver.protocols.adapter import Fetching, PlatformBusy, PlatformDown, able

__all__ = [
    "Desk",
    "Filing",
    "Readiness",
]

log = logging.getLogger(__name__)


@value(kw_only=False)
class Readiness:
    on: Ground

    def of(self, choice: Choice, waiting: Sequence[Received]) -> Choice:
        """As much of it as is said to us, or nothing yet."""
        if not choice.take:
            return choice
        known = list(takewhile(self._is_known, waiting[: choice.take]))
        return Choice(take=len(known)) if all(each.inbound.is_whole for each in known) else Choice()

    def _is_known(self, received: Received) -> bool:
        return not self.on.options.is_undecided(received.inbound)

    async def further(self, head: Received) -> datetime | None:
        """One step for what waits in front; gives when to look again, where it is too early for that."""
        if self._is_known(head):
            return await Filing(self.on).fetch(head.key)
        until = head.received + self.on.options.burst_window
        if self.on.clock.now() < until:
            return until
        await self.on.store.transact(self.on.store.inbox.decide(head))
        return None


_AGAIN = timedelta(seconds=2)
_TIDY_EVERY = 3600.0
_LEFT_ALONE = timedelta(hours=1)
"""For so long nobody removes what was just put there: it may be owed in a moment."""
_PAGE = 1000


class _Later(Exception):
    """It may be tried again."""


@value(kw_only=False)
class Filing:
    on: Ground

    # In

    async def fetch(self, key: SessionKey) -> datetime | None:
        """The files of what waits in a conversation; gives when to look again, where a platform does not answer."""
        for received in await self.on.store.read(self.on.store.attachments.unsettled(key)):
            if self.on.options.is_undecided(received.inbound):
                continue
            try:
                files = [await self._fetched(received, file) for file in received.inbound.files[: self._most]]
            except _Later:
                return self.on.clock.now() + _AGAIN
            left_out = [_problem(file, f"only {self._most} are taken") for file in received.inbound.files[self._most :]]
            await self.on.surely(self.on.store.attachments.settle_files(received, [*files, *left_out]))
            self.on.unfetched.pop(received.number, None)
            log.info("files fetched", extra={"action": "files.fetched", "inbox": received.number})
        return None

    @property
    def _most(self) -> int:
        return self.on.options.files_per_message

    async def _fetched(self, received: Received, file: Attachment) -> Attachment:
        if file.is_settled:
            return file
        source, limit = received.inbound.source, self.on.options.file_size
        adapter = self.on.replies.adapter_for(source.platform, source.account)
        if not able(adapter, Fetching):
            return _problem(file, "files are not taken here")
        if (file.size or 0) > limit:
            return _problem(file, f"it is larger than {size_text(limit)}")
        try:
            async with asyncio.timeout(self.on.options.fetch_limit.total_seconds()):
                with contained():
                    return await self._keep(file, adapter.fetch(file))
        except (PlatformBusy, PlatformDown, TimeoutError) as error:
            if self._is_patient(received, error):
                raise _Later from None
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises, the message goes on without the file
            log_broken(log, "a file was not given", error, {"action": "files.refused", "inbox": received.number})
        return _problem(file, "the platform did not give it")

    def _is_patient(self, received: Received, error: Exception) -> bool:
        """Counted from the first try in vain: before, it may have waited for other things."""
        source, now = received.inbound.source, self.on.clock.now()
        if isinstance(error, PlatformDown) and account_text(source.platform, source.account) in self.on.connecting:
            return True
        since = self.on.unfetched.setdefault(received.number, now)
        return now - since < self.on.options.fetch_patience

    async def _keep(self, file: Attachment, chunks: AsyncIterator[bytes]) -> Attachment:
        limit = self.on.options.file_size
        if self.on.shelf is None:
            return _problem(file, "files are not kept here")
        try:
            kept = await self.on.shelf.keep(chunks, limit)
        except TooLarge:
            return _problem(file, f"it is larger than {size_text(limit)}")
        except TimeoutError:
            raise
        except OSError as error:
            log_broken(log, "a file was not kept", error, {"action": "files.unkept"})
            return _problem(file, "it could not be kept")
        return file._replace(
            sha256=kept.sha256, size=kept.size, media_type=media_type_of(kept.head, file.media_type), problem=""
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
        found = await self.on.store.read(self.on.store.attachments.find_in(turn, name))
        path = self.on.shelf.place(found.sha256 or "") if self.on.shelf else None
        if path is None:
            raise NotFound("file", name)
        return await asyncio.to_thread(path.read_bytes)

    # Upkeep

    async def tidy(self) -> None:
        """Remove what nobody has any more, until cancelled. Every machine has a shelf of its own."""
        while self.on.shelf is not None:
            await asyncio.sleep(_TIDY_EVERY)
            await self.tidy_once(_LEFT_ALONE)
        await asyncio.Event().wait()

    async def tidy_once(self, older_than: timedelta) -> None:
        if self.on.shelf is None:
            return
        files = self.on.store.attachments
        await self.on.store.transact(files.let_go())
        held: set[str] = set()
        last = ""
        while page := await self.on.store.read(files.held(last, _PAGE)):
            held.update(page)
            last = page[-1]
        await self.on.shelf.tidy(held, older_than)
        log.info("files tidied up", extra={"action": "files.tidied"})


def _problem(file: Attachment, why: str) -> Attachment:
    return file._replace(problem=why)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


@value(kw_only=False)
class Desk:
    """Where a command puts a file that goes to whoever commanded, in the step that does the command."""

    on: Ground
    received: Received

    async def keep(self, new: NewFile) -> Attachment:
        return await Filing(self.on).keep(new)

    @transaction
    def owe(self, file: Attachment, now: datetime) -> Statements[None]:
        for part in self.on.replies.files(self.received.inbound.source, [file]):
            yield from self.on.store.outbox.owe(part, f"command:{self.received.number}:file", now)
