"""Preview and carry out retention: many small steps, each complete, so that a killed run has done what it did."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

from palaver.db.transaction import Database
from palaver.model.retention import RetentionClass, RetentionLimit, RetentionRules
from palaver.model.value import value
from palaver.store.conversations import deletion
from palaver.store.conversations.blob_store import BlobStore, StoredFile
from palaver.store.conversations.visibility import Filter
from palaver.store.retention import conversations, files, observed, settled
from palaver.store.retention.boundary import find_cutoff

_FILES_PER_STEP = 20


@value
class Expired:
    """What goes, or has gone, of one class."""

    kind: RetentionClass
    items: int
    size: int | None = None
    """In bytes; unknown after it has gone."""
    cutoff: datetime | None = None
    """What was last used before this time goes."""


@value
class Retention:
    database: Database
    blobs: BlobStore | None = None
    """Files on this machine; None leaves them to their own machines."""
    outputs: Path | None = None
    """The folder of the files that the target `local` made on this machine."""
    pause: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
    """Called between steps, so that turns go first."""

    async def preview(self, rules: RetentionRules, now: datetime) -> list[Expired]:
        """Return what `run` would delete now; it deletes nothing."""
        found: list[Expired] = []
        gone: list[Filter] = []
        for kind, cutoff in (await self._cutoffs(rules, now)).items():
            items, size = await self._measure(kind, cutoff, gone) if cutoff else (0, 0)
            if cutoff and items and kind in conversations.KEPT:
                gone.append(conversations.expired(kind, cutoff))
            found.append(Expired(kind=kind, items=items, size=size, cutoff=cutoff))
        return found

    async def run(
        self, rules: RetentionRules, now: datetime, *, progress: Callable[[int], None] = lambda _: None
    ) -> list[Expired]:
        """Delete what is over its limits; return what has gone."""
        gone: list[Expired] = []
        for kind, cutoff in (await self._cutoffs(rules, now)).items():
            items = 0
            if cutoff is not None:
                async for step in self._steps(kind, cutoff, now):
                    items += step
                    progress(sum(each.items for each in gone) + items)
                    await self.pause()
            gone.append(Expired(kind=kind, items=items, cutoff=cutoff))
        return gone

    async def _cutoffs(self, rules: RetentionRules, now: datetime) -> dict[RetentionClass, datetime | None]:
        """Return the time of each limited class before which things go, by what is there before anything has gone."""
        limits = {kind: rules.of(kind) for kind in RetentionClass}
        return {kind: await self._cutoff(kind, limit, now) for kind, limit in limits.items() if limit.is_set}

    async def _cutoff(self, kind: RetentionClass, limit: RetentionLimit, now: datetime) -> datetime | None:
        match kind:
            case RetentionClass.OBSERVED:
                return await self.database.read(find_cutoff(observed.KEPT, limit, now))
            case RetentionClass.SETTLED:
                return await self.database.read(find_cutoff(settled.KEPT, limit, now))
            case RetentionClass.ATTACHMENTS:
                return files.find_cutoff(limit, await self._list_files(), now)
            case RetentionClass.OUTPUT:
                return files.find_cutoff(limit, await self._list_outputs(), now)
            case _:
                return await self.database.read(find_cutoff(conversations.KEPT[kind], limit, now))

    async def _list_files(self) -> Sequence[StoredFile]:
        return await self.blobs.list_files() if self.blobs else ()

    async def _list_outputs(self) -> Sequence[StoredFile]:
        return await asyncio.to_thread(files.list_outputs, self.outputs) if self.outputs else ()

    async def _measure(self, kind: RetentionClass, cutoff: datetime, gone: Sequence[Filter]) -> tuple[int, int]:
        """Count what goes by this class, after the conversations that are gone by then."""
        match kind:
            case RetentionClass.OBSERVED:
                return await self.database.read(observed.measure(cutoff, gone))
            case RetentionClass.SETTLED:
                sums = [await self.database.read(settled.measure(source, cutoff, gone)) for source in settled.SOURCES]
                return sum(items for items, _ in sums), sum(size for _, size in sums)
            case RetentionClass.ATTACHMENTS:
                old = [file for file in await self._list_files() if file.at < cutoff]
                needed = [await self.database.read(files.is_needed(file.name, cutoff, gone)) for file in old]
                free = [file.size for file, stays in zip(old, needed, strict=True) if not stays]
                return len(free), sum(free)
            case RetentionClass.OUTPUT:
                sizes = [file.size for file in await self._list_outputs() if file.at < cutoff]
                return len(sizes), sum(sizes)
            case _:
                where = conversations.expired(kind, cutoff)
                found = await self.database.read(deletion.survey_where(where))
                return found.sessions, await self.database.read(conversations.count_bytes(where))

    async def _steps(self, kind: RetentionClass, cutoff: datetime, now: datetime) -> AsyncIterator[int]:
        """Carry out one step after the other; yield how many items each deleted."""
        match kind:
            case RetentionClass.OBSERVED:
                steps = self._remove_observed(cutoff)
            case RetentionClass.SETTLED:
                steps = self._empty_settled(cutoff)
            case RetentionClass.ATTACHMENTS:
                steps = self._release_files(cutoff, now)
            case RetentionClass.OUTPUT:
                steps = self._remove_outputs(cutoff)
            case _:
                steps = self._remove_conversations(kind, cutoff, now)
        async for items in steps:
            yield items

    async def _remove_conversations(self, kind: RetentionClass, cutoff: datetime, now: datetime) -> AsyncIterator[int]:
        async for removed in deletion.prune_steps(self.database, conversations.expired(kind, cutoff), now):
            yield removed.sessions

    async def _remove_outputs(self, cutoff: datetime) -> AsyncIterator[int]:
        if self.outputs:
            yield await asyncio.to_thread(files.remove_outputs, self.outputs, cutoff)

    async def _remove_observed(self, cutoff: datetime) -> AsyncIterator[int]:
        last, after = -1, (-1, -1)
        while found := await self.database.read(observed.find_without_turn(cutoff, last)):
            places, last = found
            yield await self.database.transact(observed.remove(places, cutoff))
        while places := await self.database.read(observed.find_page(cutoff, after)):
            after = places[-1]
            yield await self.database.transact(observed.remove(places, cutoff))

    async def _empty_settled(self, cutoff: datetime) -> AsyncIterator[int]:
        for source in settled.SOURCES:
            async for items in self._empty(source, cutoff):
                yield items

    async def _empty(self, source: settled.Source, cutoff: datetime) -> AsyncIterator[int]:
        last = -(1 << 62)
        while again := await self.database.transact(settled.empty_skipped(source, cutoff, last)):
            last, items = again
            yield items
        while (emptied := await self.database.transact(settled.empty_page(source, cutoff))) is not None:
            yield emptied

    async def _release_files(self, cutoff: datetime, now: datetime) -> AsyncIterator[int]:
        """Drop references first: what is killed between leaves a file that the next tidying finds unused."""
        old = [file.name for file in await self._list_files() if file.at < cutoff]
        for start in range(0, len(old), _FILES_PER_STEP):
            page = old[start : start + _FILES_PER_STEP]
            released = await self.database.transact(files.release(page, cutoff))
            if self.blobs and released:
                await self.blobs.remove(released, now - cutoff)
            yield len(released)
