"""Limits: how much, how long, how often."""

from datetime import timedelta

from pydantic import Field

from palaver.model.addressing import ConversationRules
from palaver.model.memory import MemoryLimits
from palaver.settings.types import Duration, Forever, Section

_RULES = ConversationRules()
_MEMORY = MemoryLimits()
_NONE, _SECOND, _DAY, _YEAR = timedelta(), timedelta(seconds=1), timedelta(days=1), timedelta(days=365)
_BLINK = timedelta(milliseconds=10)


class LimitsConfig(Section):
    concurrent_turns: int = Field(default=16, description="Run at most this many turns at once.", ge=1, le=10_000)
    burst_window: Duration = Field(
        default=_RULES.burst_window, description="Wait this long for more messages sent in a row.", ge=_NONE, le=_DAY
    )
    acknowledge_after: Duration = Field(
        default=timedelta(seconds=2),
        description="Tell people that the agent is still answering once their message has waited for this long.",
        ge=_NONE,
        le=_DAY,
    )
    quiet_limit: Duration = Field(
        default=timedelta(minutes=5),
        description="Stop a turn when its agent is silent for this long.",
        ge=_SECOND,
        le=_YEAR,
    )
    turn_limit: Duration = Field(
        default=timedelta(minutes=30), description="Stop a turn after this long.", ge=_SECOND, le=_YEAR
    )
    attempts: int = Field(
        default=3, description="Start a turn at most this many times, including restarts.", ge=1, le=100
    )
    fresh_for: Forever = Field(
        default=timedelta(hours=1), description="Resume an interrupted turn only within this time."
    )
    agent_tries: int = Field(
        default=3, description="Ask an agent at most this many times when its failures look temporary.", ge=1, le=100
    )
    drain_limit: Duration = Field(
        default=timedelta(seconds=30),
        description="Let running turns finish for this long when the gateway stops.",
        ge=_NONE,
        le=_DAY,
    )
    context_window: int = Field(
        default=128_000,
        description="Assume this many tokens of context if the agent does not say.",
        ge=1_000,
        le=100_000_000,
    )
    context_percent: int = Field(
        default=85, description="Summarise the conversation when the model's context is this full.", ge=10, le=100
    )
    message_limit: int = Field(
        default=400, description="Summarise the conversation when it has more entries than this.", ge=10, le=1_000_000
    )
    process_limit: Duration = Field(
        default=_RULES.process_limit,
        description="Reset no conversation while a process in it is younger than this.",
        ge=_NONE,
        le=_YEAR,
    )
    tool_limit: Duration = Field(
        default=timedelta(minutes=2), description="Stop a tool call after this long.", ge=_SECOND, le=_DAY
    )
    jobs_per_person: int = Field(default=50, description="One person can have this many active jobs.", ge=0, le=10_000)
    job_grace: Duration = Field(
        default=timedelta(hours=6),
        description="Run a job that was due while no gateway ran if it is at most this late.",
        ge=timedelta(minutes=1),
        le=timedelta(days=7),
    )
    memory_notes: int = Field(
        default=_MEMORY.notes, description="Keep this many notes about one person or chat.", ge=1, le=1_000
    )
    memory_characters: int = Field(
        default=_MEMORY.characters,
        description="Keep notes of this many characters about one person or chat.",
        ge=500,
        le=100_000,
    )
    concurrent_sends: int = Field(
        default=32, description="Send at most this many messages per account at once.", ge=1, le=10_000
    )
    send_limit: Duration = Field(
        default=timedelta(seconds=30), description="Stop a send after this long.", ge=_SECOND, le=_DAY
    )
    upload_limit: Duration = Field(
        default=timedelta(minutes=10), description="Stop sending a file after this long.", ge=_SECOND, le=_DAY
    )
    send_patience: Duration = Field(
        default=timedelta(hours=24),
        description="Give up on a message after retrying for this long.",
        ge=_SECOND,
        le=_YEAR,
    )
    repeat_after: Duration = Field(
        default=timedelta(seconds=30),
        description="After this long, repeat a send that may have arrived, with a mark.",
        ge=_NONE,
        le=_DAY,
    )
    file_size: int = Field(
        default=20_000_000, description="Accept files up to this many bytes.", ge=0, le=1_000_000_000
    )
    files_per_message: int = Field(
        default=10, description="Accept at most this many files per message.", ge=0, le=1_000
    )
    fetch_limit: Duration = Field(
        default=timedelta(minutes=2), description="Stop fetching a file after this long.", ge=_SECOND, le=_DAY
    )
    fetch_patience: Duration = Field(
        default=timedelta(minutes=10),
        description="Let a message wait this long for files that its platform has not delivered.",
        ge=_NONE,
        le=_DAY,
    )
    lease: Duration = Field(
        default=timedelta(seconds=30),
        description="Take over the work of a dead worker after this long.",
        ge=_SECOND,
        le=_DAY,
    )
    poll: Duration = Field(
        default=timedelta(seconds=5),
        description="Look for work this often in case a wake-up is missed.",
        ge=_BLINK,
        le=_DAY,
    )
    sweep_every: Duration = Field(
        default=timedelta(minutes=1), description="Look for expired conversations this often.", ge=_SECOND, le=_DAY
    )
    crash_window: Duration = Field(
        default=timedelta(minutes=5),
        description="Count starts within this time as one crash loop.",
        ge=_SECOND,
        le=_DAY,
    )
    crash_limit: int = Field(default=3, description="Treat this many starts as a crash loop.", ge=1, le=1_000)

    @property
    def memory(self) -> MemoryLimits:
        return MemoryLimits(notes=self.memory_notes, characters=self.memory_characters)
