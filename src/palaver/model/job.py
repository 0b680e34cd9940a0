"""Jobs: a prompt on a schedule, and the occurrences at which it fired."""

import re
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from palaver.model.access import AccessRole, Basis
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.firing import FiredJob
from palaver.model.key import SessionKey, job_key
from palaver.model.local_time import format_instant
from palaver.model.schedule import Schedule, parse_schedule, parse_time_of_day
from palaver.model.session import ModelOverride
from palaver.model.source import Source
from palaver.model.spoken_schedule import SCHEDULE_WORDS
from palaver.model.text import one_line
from palaver.model.value import value

NAME_LIMIT = 60
PROMPT_LIMIT = 20_000
REPEAT_LIMIT = 1_000_000
_FOR_EVER = frozenset({0, -1})
"""What models, and people who know other schedulers, send for no limit."""
_LIKE_SCHEDULE = re.compile(
    r"at\s+(?=\d|noon\b|midnight\b)(?P<time>\d+:\d+(?!\S))?\S*|in\s+(?:UTC\b|[A-Za-z_]+/\S+)", re.IGNORECASE
)
_LIKE_TIME = re.compile(r"\d+:\d+(?!\S)")
_QUOTED = re.compile(r"\s*[\"“„](?P<schedule>[^\"“”]*)[\"“”]\s+(?P<prompt>\S.*)", re.DOTALL)


@value
class Job:
    number: int
    owner: str
    """The identity of the person who made it. It runs with their rights."""
    name: str
    schedule: Schedule
    prompt: str
    targets: str
    """Where its answer goes: `origin`, `telegram,local`."""
    origin: Source
    """Where it was made."""
    created: datetime
    role: AccessRole | None = None
    """The role of its owner when it was made. It never runs with a higher one."""
    basis: Basis | None = Basis.IDENTITY
    next_due: datetime | None = None
    """None once it has ended."""
    paused: datetime | None = None
    requested: datetime | None = None
    """When somebody asked for a run besides the schedule, until it has begun."""
    repeats: int | None = None
    """How often it still runs; None for no limit."""
    attached: bool = False
    """It runs in the conversation of the chat where it was made, not in one of its own."""
    mirrors: bool = False
    """What it sends is noted in the conversations of the chats it sends to."""
    model: ModelOverride | None = None
    workdir: str | None = None
    script: str | None = None
    uses_model: bool = True
    skips_silent: bool = True

    @property
    def key(self) -> SessionKey:
        """Return the key of its own conversation."""
        return job_key(self.origin.profile, self.number)

    @property
    def state(self) -> str:
        if self.next_due is None:
            return "ended"
        return "paused" if self.paused else "active"

    def is_from(self, source: Source) -> bool:
        """Tell whether it was made in the chat of a source."""
        return self.origin.address[:-1] == source.address[:-1]

    @property
    def fired(self) -> FiredJob:
        return FiredJob(
            number=self.number,
            name=self.name,
            model=self.model,
            workdir=self.workdir,
            script=self.script,
            uses_model=self.uses_model,
            skips_silent=self.skips_silent,
            attached=self.attached,
        )


def firing_id(job: int, at: datetime) -> str:
    """Return the message id of a firing: with its time, so that it cannot enter the inbox twice."""
    return f"job:{job}:{format_instant(at)}"


class JobAction(StrEnum):
    """What people can do to a job besides making it."""

    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    REMOVE = "remove"


class RunState(StrEnum):
    """What became of a firing, apart from the delivery of its answer."""

    SKIPPED = "skipped"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


@value
class Firing:
    at: datetime
    run: RunState
    reason: str | None = None
    """Why it was skipped or refused, or has failed."""
    message: int | None = None
    """Its number in the inbox."""
    turn: int | None = None
    deliveries: tuple[str, ...] = ()
    """The state of each message that its answer was sent in."""

    @property
    def delivery(self) -> str:
        """Return the result of the delivery: `delivered`, `2 delivered, 1 dead`, or `nothing sent`."""
        counts = {state: self.deliveries.count(state) for state in dict.fromkeys(self.deliveries)}
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {state}" for state, count in counts.items()) or "nothing sent"


@value
class JobRequest:
    """What somebody asks for, as it was written."""

    when: str
    prompt: str = ""
    name: str = ""
    to: str = "origin"
    repeat: int | None = None
    attached: bool = False
    mirrors: bool = False
    model: str = ""
    workdir: str = ""
    script: str = ""
    uses_model: bool = True
    skips_silent: bool = True

    def __post_init__(self) -> None:
        if not self.prompt.strip() and not self.script:
            raise BadArgument(
                "A job needs a prompt.", found="", allowed="text after the schedule", example="30m Call Ann"
            )
        if len(self.prompt) > PROMPT_LIMIT:
            limit, found = f"at most {PROMPT_LIMIT} characters", f"{len(self.prompt)} characters"
            raise BadArgument("The prompt of a job cannot have", found=found, allowed=limit, example="Call Ann")
        if self.repeat in _FOR_EVER:
            object.__setattr__(self, "repeat", None)
        elif self.repeat is not None and not 1 <= self.repeat <= REPEAT_LIMIT:
            allowed = f"1 to {REPEAT_LIMIT:,} times"
            raise BadArgument("A job cannot run this often:", found=str(self.repeat), allowed=allowed, example="3")

    @property
    def title(self) -> str:
        """Return its name: the given one, or the beginning of what it does."""
        return one_line(self.name or self.prompt or self.script, NAME_LIMIT) or "job"


class ScheduledText(NamedTuple):
    schedule: str
    prompt: str


def split_schedule(text: str, zone: ZoneInfo, now: datetime) -> ScheduledText:
    """Take the schedule off the beginning of a text: what is in quotes, or the longest beginning that is one.

    Raises BadArgument if there is none.
    """
    if found := _QUOTED.fullmatch(text):
        return ScheduledText(found["schedule"], found["prompt"])
    return _certain(_longest_schedule(text, zone, now))


def _longest_schedule(text: str, zone: ZoneInfo, now: datetime) -> ScheduledText:
    for count in range(SCHEDULE_WORDS, 1, -1):
        words = text.split(maxsplit=count)
        with suppress(InvalidInput):
            schedule = " ".join(words[:count])
            parse_schedule(schedule, zone, now)
            return ScheduledText(schedule, "".join(words[count:]))
    first, *rest = text.split(maxsplit=1) or [""]
    parse_schedule(first, zone, now)
    return ScheduledText(first, "".join(rest))


def _certain(found: ScheduledText) -> ScheduledText:
    """Refuse a prompt that begins like the rest of a schedule: it would run at another time than was meant."""
    if time := _LIKE_TIME.match(found.prompt):
        parse_time_of_day(time[0])  # A wrong one, after a day, is not taken for the prompt.
    if rest := _LIKE_SCHEDULE.match(found.prompt):
        if rest["time"]:
            parse_time_of_day(rest["time"])  # It says which part is wrong.
        raise BadArgument(
            "The prompt begins like a part of a schedule:",
            found=rest[0],
            allowed="18:00 or Europe/Berlin, or put the schedule in quotes if the prompt begins so",
            example='"every day" at nine I want tea',
        )
    return found
