"""Look after one running process: record its end, find what its agent watches for, and report it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from palaver.db.transaction import Transaction
from palaver.engine.retry import retry_until_stored
from palaver.model.errors import NotFound
from palaver.model.process import Process
from palaver.processes import notices
from palaver.processes.directory import BUFFER_BYTES, ProcessDirectory
from palaver.processes.findings import look
from palaver.processes.launcher import GRACE_SECONDS, SupervisorLink, end_orphan
from palaver.processes.output import whole_lines
from palaver.protocols.clock import Clock
from palaver.store import process_notices, processes
from palaver.store.process_notices import SeesOutput, everybody_sees
from palaver.store.store import Store

WATCH_INTERVAL = timedelta(seconds=30)
"""Between two notices about what an agent watches for."""
_SCAN_BYTES = 1 << 20
_LINE_BYTES = 4_096
"""How much around a match is read: more than is shown, as half a secret would not be known for one."""
_LINE_ENDS = (b"\n", b"\r")
_RECONNECT_SECONDS = 0.2
_CONNECT_SECONDS = 6.0
"""How long to try to reach a supervisor. Longer than it may take for an answer."""


class Watcher:
    """Runs until the process has ended, or another gateway has to go on with it."""

    def __init__(
        self,
        process: Process,
        directory: ProcessDirectory,
        store: Store,
        clock: Clock,
        *,
        sees_output: SeesOutput = everybody_sees,
        on_output: Callable[[], None] = lambda: None,
    ) -> None:
        self.process = process
        self.directory = directory
        self._store, self._clock = store, clock
        self._sees_output, self._on_output = sees_output, on_output
        self.link: SupervisorLink | None = None
        self._changed = asyncio.Event()
        self._is_killing = False
        self.waiters = 0
        """How many calls of the agent wait for its end: they need no notice."""

    async def run(self) -> None:
        try:
            while not await self._look():
                await self._wait()
        except NotFound:  # deleted with its person
            self.process = replace(self.process, ended=self._clock.now(), problem="it was deleted")
        finally:
            if self.link:
                self.link.close()
            self._notify()

    async def change(self) -> None:
        """Wait until something is known that was not known before."""
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def order(self, letter: bytes, payload: bytes = b"") -> bool:
        """Give the supervisor an order, once it can be reached. Return whether it was accepted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_SECONDS):
                while self.link is None and self.process.ended is None:
                    await self.change()
        return self.link is not None and await self.link.order(letter, payload)

    async def kill(self, grace: float = GRACE_SECONDS) -> bool:
        """Ask the supervisor to kill everything. Return whether it does."""
        is_asked = False
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_SECONDS if self._can_order() else 0):
                is_asked = await self.order(b"k", str(grace).encode())
        self._is_killing = is_asked or (self.process.ended is None and self.directory.end_supervisor())
        return self._is_killing

    async def obey(self, process: Process) -> None:
        """Kill the process if somebody has asked for it."""
        is_ready = self.link is not None or not self._can_order()
        if process.stop_asked is not None and not self._is_killing and is_ready:
            await self.kill()

    def _can_order(self) -> bool:
        """Tell whether the supervisor takes orders, now or soon."""
        return self.link is not None or self.directory.control.exists()

    # Look

    async def _look(self) -> bool:
        """Record and report what has changed. Return True once everything of it has ended."""
        before, found = self.process, look(self.process, self.directory, self._clock.now())
        await self._report(is_over=found.ended is not None or found.exited is not None)
        is_news = (before.pid is None and found.pid) or (before.exited is None and found.exited)
        if is_news or found.ended:
            if found.ended:
                await end_orphan(self.directory)
            self.process = await retry_until_stored(self._store, processes.record(before.number, found))
            self._notify()
        await self.report_exit()
        return found.ended is not None

    # Report

    async def _report(self, *, is_over: bool) -> None:
        now = self._clock.now()
        if self.process.watch:
            await self._find_matches(now, is_over=is_over)
        check_at = self.process.check_at
        if check_at and check_at <= now and not is_over:
            notice = notices.check_notice(self.process, self.directory.tail(BUFFER_BYTES)[1], now)
            await self._store_report(process_notices.report_check(self.process, notice, now, self._sees_output))

    async def report_exit(self) -> None:
        """Tell the conversation of the end, unless its agent waits for it."""
        process = self.process
        if process.reports_exit and not self.waiters and (process.exited or process.ended):
            notice = notices.exit_notice(process, self.directory.tail(BUFFER_BYTES)[1])
            await self._store_report(
                process_notices.report_exit(process.number, notice, self._clock.now(), self._sees_output)
            )

    async def _store_report(self, report: Transaction[bool]) -> None:
        await retry_until_stored(self._store, report)
        self.process = await self._store.read(processes.get(self.process.number))

    async def _find_matches(self, now: datetime, *, is_over: bool) -> None:
        """Report matches at most once in a while, those of the meantime together."""
        process = self.process
        last = process.watch_notified
        if process.watch_notices >= notices.MAX_WATCH_NOTICES or not process.watch:
            return
        if last and now - last < WATCH_INTERVAL and not is_over:
            return
        start, end = process.watched_to, self.directory.size()
        found = await asyncio.to_thread(_search, self.directory, process.watch.encode(), start, end, is_over=is_over)
        # Keep as much as can be the beginning of a match.
        searched = max(start, end - len(process.watch.encode()) + 1)
        if found is None:
            if searched > start:
                await retry_until_stored(self._store, process_notices.record_watched(process.number, searched))
                self.process = replace(process, watched_to=searched)
            return
        offset, line, count, last = found
        notice = notices.match_notice(process, line, offset, count - 1)
        await self._store_report(
            process_notices.report_match(process, notice, max(searched, last), now, self._sees_output)
        )

    # Wait

    async def _wait(self) -> None:
        """Wait for the supervisor, or until something is due."""
        if self.link is None or not self.link.is_open:
            await self._connect()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_until_due()):
                await self.link.changed.wait()
        self.link.changed.clear()
        self._on_output()

    async def _connect(self) -> None:
        try:
            self.link = await SupervisorLink.open(self.directory)
        except OSError:
            await asyncio.sleep(_RECONNECT_SECONDS)
        else:
            self._notify()
            await self.obey(self.process)

    def _seconds_until_due(self) -> float | None:
        process, now = self.process, self._clock.now()
        moments = [process.check_at]
        if process.watch and process.watch_notified and process.watch_notices < notices.MAX_WATCH_NOTICES:
            moments.append(process.watch_notified + WATCH_INTERVAL)
        seconds = [(moment - now).total_seconds() for moment in moments if moment and moment > now]
        return min(seconds, default=None)


def _search(
    directory: ProcessDirectory, text: bytes, start: int, end: int, *, is_over: bool
) -> tuple[int, bytes, int, int] | None:
    """Return offset and line of the first match, how many there are in all, and the end of the last one, if any."""
    first: int | None = None
    count, before, last = 0, b"", start
    for at in range(start, end, _SCAN_BYTES):
        for offset, piece in directory.read(at, min(at + _SCAN_BYTES, end)):
            data = before + piece
            found = data.find(text)
            if found >= 0:
                count += data.count(text)
                base = offset - len(before)
                first = base + found if first is None else first
                last = base + data.rfind(text) + len(text)
            before = data[-len(text) + 1 :] if len(text) > 1 else b""
    return None if first is None else (first, _line_around(directory, text, first, is_over=is_over), count, last)


def _line_around(directory: ProcessDirectory, text: bytes, at: int, *, is_over: bool) -> bytes:
    """Return the line of a match. Return only the match if what follows in its line can be half a secret."""
    pieces = directory.read(max(at - _LINE_BYTES, 0), at + _LINE_BYTES)
    data, place = b"".join(piece for _, piece in pieces), max(at - pieces[0][0], 0) if pieces else 0
    is_known = is_over or len(data) - place >= _LINE_BYTES
    shown = data if is_known else whole_lines(data)
    if len(shown) < place + len(text):
        return text
    start = max(data.rfind(end, 0, place) for end in _LINE_ENDS) + 1
    ends = [found for end in _LINE_ENDS if (found := shown.find(end, place)) >= 0]
    return shown[start : min(ends, default=len(shown))]
