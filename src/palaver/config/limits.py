"""Limits: how much, how long, how often; named as in the options of the engine, with the same defaults."""

from datetime import timedelta

from pydantic import Field

from palaver.config.types import Duration, Forever, Section
from palaver.engine.options import Options

_USUAL = Options()
_NONE, _SECOND, _DAY, _YEAR = timedelta(), timedelta(seconds=1), timedelta(days=1), timedelta(days=365)
_BLINK = timedelta(milliseconds=10)


class LimitsConfig(Section):
    concurrent_turns: int = Field(
        default=_USUAL.concurrent_turns, ge=1, le=10_000, description="How many turns run at once."
    )
    burst_window: Duration = Field(
        default=_USUAL.burst_window,
        ge=_NONE,
        le=_DAY,
        description="How long a turn waits for the rest of what was sent as one.",
    )
    quiet_limit: Duration = Field(
        default=_USUAL.quiet_limit, ge=_SECOND, le=_YEAR, description="How long an agent may say nothing."
    )
    turn_limit: Duration = Field(
        default=_USUAL.turn_limit, ge=_SECOND, le=_YEAR, description="How long a turn may take."
    )
    attempts: int = Field(
        default=_USUAL.attempts, ge=1, le=100, description="How often a turn is begun, counting restarts."
    )
    fresh_for: Forever = Field(
        default=_USUAL.fresh_for, description="How long after it was cut off a turn is still taken up again."
    )
    agent_tries: int = Field(
        default=_USUAL.agent_tries, ge=1, le=100, description="How often an agent is asked while its failures may pass."
    )
    drain_limit: Duration = Field(
        default=_USUAL.drain_limit, ge=_NONE, le=_DAY, description="How long turns may go on when the gateway stops."
    )
    context_window: int = Field(
        default=_USUAL.context_window,
        ge=1_000,
        le=100_000_000,
        description="How many tokens a model takes whose agent does not say so.",
    )
    context_percent: int = Field(
        default=_USUAL.context_percent,
        ge=10,
        le=100,
        description="How full the model's context may be before the conversation is summarised.",
    )
    message_limit: int = Field(
        default=_USUAL.message_limit,
        ge=10,
        le=1_000_000,
        description="How many entries an agent is shown before the conversation is summarised.",
    )
    tool_limit: Duration = Field(
        default=_USUAL.tool_limit, ge=_SECOND, le=_DAY, description="How long one use of a tool may take."
    )
    concurrent_sends: int = Field(
        default=_USUAL.concurrent_sends, ge=1, le=10_000, description="How many sends of each account run at once."
    )
    send_limit: Duration = Field(
        default=_USUAL.send_limit, ge=_SECOND, le=_DAY, description="How long one send may take."
    )
    upload_limit: Duration = Field(
        default=_USUAL.upload_limit, ge=_SECOND, le=_DAY, description="How long the send of a file may take."
    )
    send_patience: Duration = Field(
        default=_USUAL.send_patience,
        ge=_SECOND,
        le=_YEAR,
        description="How long a send is tried before it is given up.",
    )
    repeat_after: Duration = Field(
        default=_USUAL.repeat_after,
        ge=_NONE,
        le=_DAY,
        description="How long after a send that may have arrived it is repeated, with a mark.",
    )
    file_size: int = Field(
        default=_USUAL.file_size, ge=0, le=1_000_000_000, description="The largest file that is taken, in bytes."
    )
    files_per_message: int = Field(
        default=_USUAL.files_per_message, ge=0, le=1_000, description="How many files of one message are taken."
    )
    fetch_limit: Duration = Field(
        default=_USUAL.fetch_limit, ge=_SECOND, le=_DAY, description="How long fetching one file may take."
    )
    fetch_patience: Duration = Field(
        default=_USUAL.fetch_patience,
        ge=_NONE,
        le=_DAY,
        description="How long a message waits for files that its platform does not give.",
    )
    lease: Duration = Field(
        default=_USUAL.lease, ge=_SECOND, le=_DAY, description="How long the work of a worker that died stays its own."
    )
    poll: Duration = Field(
        default=_USUAL.poll, ge=_BLINK, le=_DAY, description="How often work is looked for, should a wake-up be missed."
    )
    sweep_every: Duration = Field(
        default=_USUAL.sweep_every, ge=_SECOND, le=_DAY, description="How often expired conversations are looked for."
    )
    route_limit: Duration = Field(
        default=_USUAL.route_limit,
        ge=_DAY,
        le=100 * _YEAR,
        description="How long the settings of an unused chat are kept.",
    )
    crash_window: Duration = Field(
        default=_USUAL.crash_window,
        ge=_SECOND,
        le=_DAY,
        description="Starts this close to each other are one crash loop.",
    )
    crash_limit: int = Field(
        default=_USUAL.crash_limit, ge=1, le=1_000, description="How many such starts are too many."
    )
