"""Limits: how much, how long, how often. Names and defaults are those of the engine's options."""

from datetime import timedelta
from typing import Any

from pydantic import Field

from palaver.config.types import Duration, Forever, Section
from palaver.engine.options import Options

_USUAL = Options()
_NONE, _SECOND, _DAY, _YEAR = timedelta(), timedelta(seconds=1), timedelta(days=1), timedelta(days=365)
_BLINK = timedelta(milliseconds=10)


def _limit(name: str, description: str, **bounds: Any) -> Any:  # noqa: ANN401 - as pydantic's Field
    return Field(default=getattr(_USUAL, name), description=description, **bounds)


class LimitsConfig(Section):
    concurrent_turns: int = _limit("concurrent_turns", "Run at most this many turns at once.", ge=1, le=10_000)
    burst_window: Duration = _limit(
        "burst_window", "Wait this long for more messages sent in a row.", ge=_NONE, le=_DAY
    )
    acknowledge_after: Duration = _limit(
        "acknowledge_after",
        "Tell people that the agent is still answering once their message has waited for this long.",
        ge=_NONE,
        le=_DAY,
    )
    quiet_limit: Duration = _limit(
        "quiet_limit", "Stop a turn when its agent is silent for this long.", ge=_SECOND, le=_YEAR
    )
    turn_limit: Duration = _limit("turn_limit", "Stop a turn after this long.", ge=_SECOND, le=_YEAR)
    attempts: int = _limit("attempts", "Start a turn at most this many times, including restarts.", ge=1, le=100)
    fresh_for: Forever = _limit("fresh_for", "Resume an interrupted turn only within this time.")
    agent_tries: int = _limit(
        "agent_tries", "Ask an agent at most this many times when its failures look temporary.", ge=1, le=100
    )
    drain_limit: Duration = _limit(
        "drain_limit", "Let running turns finish for this long when the gateway stops.", ge=_NONE, le=_DAY
    )
    context_window: int = _limit(
        "context_window", "Assume this many tokens of context if the agent does not say.", ge=1_000, le=100_000_000
    )
    context_percent: int = _limit(
        "context_percent", "Summarise the conversation when the model's context is this full.", ge=10, le=100
    )
    message_limit: int = _limit(
        "message_limit", "Summarise the conversation when it has more entries than this.", ge=10, le=1_000_000
    )
    process_limit: Duration = _limit(
        "process_limit", "Reset no conversation while a process in it is younger than this.", ge=_NONE, le=_YEAR
    )
    tool_limit: Duration = _limit("tool_limit", "Stop a tool call after this long.", ge=_SECOND, le=_DAY)
    jobs_per_person: int = _limit("jobs_per_person", "One person can have this many active jobs.", ge=0, le=10_000)
    job_grace: Duration = _limit(
        "job_grace",
        "Run a job that was due while no gateway ran if it is at most this late.",
        ge=timedelta(minutes=1),
        le=timedelta(days=7),
    )
    memory_notes: int = _limit("memory_notes", "Keep this many notes about one person or chat.", ge=1, le=1_000)
    memory_characters: int = _limit(
        "memory_characters", "Keep notes of this many characters about one person or chat.", ge=500, le=100_000
    )
    concurrent_sends: int = _limit(
        "concurrent_sends", "Send at most this many messages per account at once.", ge=1, le=10_000
    )
    send_limit: Duration = _limit("send_limit", "Stop a send after this long.", ge=_SECOND, le=_DAY)
    upload_limit: Duration = _limit("upload_limit", "Stop sending a file after this long.", ge=_SECOND, le=_DAY)
    send_patience: Duration = _limit(
        "send_patience", "Give up on a message after retrying for this long.", ge=_SECOND, le=_YEAR
    )
    repeat_after: Duration = _limit(
        "repeat_after", "After this long, repeat a send that may have arrived, with a mark.", ge=_NONE, le=_DAY
    )
    file_size: int = _limit("file_size", "Accept files up to this many bytes.", ge=0, le=1_000_000_000)
    files_per_message: int = _limit("files_per_message", "Accept at most this many files per message.", ge=0, le=1_000)
    fetch_limit: Duration = _limit("fetch_limit", "Stop fetching a file after this long.", ge=_SECOND, le=_DAY)
    fetch_patience: Duration = _limit(
        "fetch_patience",
        "Let a message wait this long for files that its platform has not delivered.",
        ge=_NONE,
        le=_DAY,
    )
    lease: Duration = _limit("lease", "Take over the work of a dead worker after this long.", ge=_SECOND, le=_DAY)
    poll: Duration = _limit("poll", "Look for work this often in case a wake-up is missed.", ge=_BLINK, le=_DAY)
    sweep_every: Duration = _limit("sweep_every", "Look for expired conversations this often.", ge=_SECOND, le=_DAY)
    crash_window: Duration = _limit(
        "crash_window", "Count starts within this time as one crash loop.", ge=_SECOND, le=_DAY
    )
    crash_limit: int = _limit("crash_limit", "Treat this many starts as a crash loop.", ge=1, le=1_000)
