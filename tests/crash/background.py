"""Background work under siege: processes that write numbered lines, and jobs that fire, each in a chat of its own."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

from palaver.db.transaction import Row, Statements, transaction
from palaver.engine.texts import MAY_BE_DUPLICATE
from palaver.processes.directory import ProcessDirectory
from palaver.processes.home import ProcessHome
from palaver.processes.launcher import kill
from palaver.store.records import REPLIES
from palaver.store.store import Store
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from tests.crash.verdict import GIVEN_UP

__all__ = ["Background", "make_home"]

_LINES = 20
_EXPECTED = "".join(f"line {number}\n" for number in range(1, _LINES + 1)).encode()
_CODES = 200
_NEVER_STARTED, _STARTED, _ENDED = "it was never started", "terminal: Started p", "has ended"
_MINUTE = 60 * 10**6
_REPORT = (
    "i.no, t.error, o.state FROM {} LEFT JOIN inbox i ON i.no = {} LEFT JOIN turns t ON t.no = i.turn_no"
    " LEFT JOIN outbox o ON o.id = t.no * ? ORDER BY {}"
)
_PROCESSES = "SELECT p.id, p.command, p.exit_code, p.problem, " + _REPORT.format(
    "processes p", "p.exit_message", "p.no"
)
_FIRINGS = "SELECT f.schedule_no, f.at, " + _REPORT.format("firings f", "f.inbox_no", "f.at")


def make_home(folder: Path) -> ProcessHome:
    """Where all gateways of a town find the processes."""
    path = folder / "processes"
    path.mkdir(mode=0o700, exist_ok=True)
    return ProcessHome(path=path, token="town")  # noqa: S106 - no secret


@dataclass(kw_only=True)
class Background:
    world: FakePlatform
    folder: Path
    repeats: int = 0
    """How often the first job fires, once a minute; the others fire once."""
    processes: dict[str, Chat] = field(default_factory=dict[str, Chat])
    jobs: dict[str, Chat] = field(default_factory=dict[str, Chat])
    unknown: int = 0
    """Processes whose gateway died before it could start them: the agent knows that nobody knows."""
    firings: int = 0
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    # Order

    async def order(self) -> None:
        """Somebody new wants a process, or a job a second from now."""
        number = next(self._numbers)
        person = self.world.person(f"worker {number}")
        chat = self.world.dm(person)
        if number % 2:
            self.processes[word := f"w{number}."] = chat
            call = json.dumps({"command": _command(word), "background": True})
            await chat.say(person, f"!use terminal {call}")
        else:
            when, repeat = ("every 1m", f" --repeat {self.repeats}") if self.repeats and not self.jobs else ("1s", "")
            self.jobs[prompt := f"tell j{number}"] = chat
            await chat.say(person, f"/jobs add {when} {prompt}{repeat}")

    async def end(self) -> None:
        home = make_home(self.folder)
        await asyncio.gather(*(kill(home.directory(id_), 0) for id_ in home.ids()))

    # Judge

    async def left(self, store: Store) -> int:
        """How many processes run or are not reported, and how many jobs are still to fire."""
        return await store.read(_left())

    async def judge(self, store: Store) -> list[str]:
        """Return everything that should not be."""
        rows = await store.read(_rows())
        return [*self._judge_processes(rows["processes"]), *self._judge_jobs(rows["jobs"], rows["firings"])]

    def _judge_processes(self, rows: Sequence[Row]) -> Iterator[str]:
        for word, chat in self.processes.items():
            found = [row for row in rows if row[1] == _command(word)]
            is_started = any(_STARTED in message.text for message in chat.shown)
            if len(found) > 1 or not (found or chat.shown) or (is_started and not found):
                yield f"process {word}: {found}, shown {[message.text for message in chat.shown]}"
            self.unknown += not found
            for id_, _, code, problem, *report in found:
                directory = make_home(self.folder).directory(id_)
                if problem == _NEVER_STARTED and not directory.size() and not is_started:
                    self.unknown += 1
                elif (code, _output(directory)) != (_code(word), _EXPECTED):
                    yield f"process {word}: {problem}, exit code {code}, output {_output(directory)!r}"
                yield from _answered_once(f"process {word}", [tuple(report)], [_ENDED, word], chat)

    def _judge_jobs(self, rows: Sequence[Row], firings: Sequence[Row]) -> Iterator[str]:
        for prompt, chat in self.jobs.items():
            jobs = [number for number, text in rows if text == prompt]
            fired = [row for row in firings if row[0] in jobs]
            self.firings += len(fired)
            steps = {later[1] - earlier[1] for earlier, later in pairwise(fired)}
            expected = self.repeats if self.repeats and prompt == next(iter(self.jobs)) else 1
            is_skipped = any(row[2] is None for row in fired)
            if len(jobs) != 1 or len(fired) != expected or not steps <= {_MINUTE} or is_skipped:
                yield f"job {prompt}: {jobs} fired {fired}"
            yield from _answered_once(f"job {prompt}", [row[2:] for row in fired], [f"You said: {prompt}"], chat)


def _answered_once(name: str, owed: Sequence[Row], words: Sequence[str], chat: Chat) -> Iterator[str]:
    """Compare the messages of the inbox, with the error of their turn and the state of their reply, with the chat."""
    shown = [message.text for message in chat.shown if all(word in message.text for word in words)]
    ended = sum(error == GIVEN_UP or state == "unclear" for _, error, state in owed)
    if len(shown) < len(owed) - ended:
        yield f"{name}: lost, owed {owed}, shown {shown}"
    if sum(MAY_BE_DUPLICATE not in text for text in shown) > len(owed):
        yield f"{name}: doubled, owed {owed}, shown {shown}"


def _code(word: str) -> int:
    return int(word[1:-1]) % _CODES


def _command(word: str) -> str:
    lines = f"n=0; while [ $n -lt {_LINES} ]; do n=$((n+1)); echo line $n; sleep 0.05; done"
    return f": {word}; {lines}; exit {_code(word)}"


def _output(directory: ProcessDirectory) -> bytes:
    return b"".join(data for _, data in directory.read(0, directory.size()))


@transaction
def _left() -> Statements[int]:
    processes = yield "SELECT count(*) FROM processes WHERE ended IS NULL OR exit_notice = 'due'", ()
    jobs = yield "SELECT count(*) FROM schedules WHERE next_due IS NOT NULL", ()
    return processes[0][0] + jobs[0][0]


@transaction
def _rows() -> Statements[dict[str, list[Row]]]:
    return {
        "processes": (yield _PROCESSES, (REPLIES,)),
        "jobs": (yield "SELECT no, prompt FROM schedules", ()),
        "firings": (yield _FIRINGS, (REPLIES,)),
    }
