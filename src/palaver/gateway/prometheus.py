"""The meter that Prometheus reads. No label ever holds content or outside ids."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from time import perf_counter
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest, start_http_server

from palaver import __version__
from palaver.engine.hooks import Count, Level, Step
from palaver.model.errors import BadArgument

COUNTS: Mapping[Count, str] = {
    "messages_repeated": "Messages that a platform delivered again",
    "messages_refused": "Messages from senders without access",
    "messages_ignored": "Messages in groups that were not for the agent",
    "commands": "Commands run",
    "agent_retries": "Times an agent was asked again within one turn",
    "agent_fallbacks": "Times another model answered because one failed",
    "compactions": "Conversations whose older entries were summarised",
    "agents_left": "Agents that did not stop when asked",
    "turns_failed": "Turns that ended without an answer",
    "turns_lost": "Turns that another worker took over",
    "turns_reclaimed": "Turns recovered from a dead worker",
    "sends_dead": "Sends that failed for good",
    "sends_lost": "Sends that another worker took over",
    "sends_unclear": "Sends that may or may not have arrived",
    "send_retries": "Sends that were retried",
    "reconnects": "Lost connections to platforms",
    "accounts_lost": "Accounts that another worker took over",
    "hooks_failed": "Hooks that failed",
    "tools_failed": "Tool calls that failed",
    "jobs_fired": "Jobs that fired",
    "jobs_skipped": "Occurrences of jobs that did not run",
    "input_tokens": "Input tokens that agents used",
    "output_tokens": "Output tokens that agents used",
    "cached_tokens": "Input tokens that were read from a provider's cache",
    "unpriced_tokens": "Tokens whose price is unknown",
    "cost_micros": "Cost in millionths of the price table's currency, without tokens of unknown price",
}
LEVELS: Mapping[Level, str] = {
    "lanes": "Conversations being worked on in this process",
    "leases": "Turns this process holds",
    "accounts": "Accounts this process serves",
    "inbox_waiting": "Messages waiting in the whole store",
    "outbox_due": "Sends due in the whole store",
    "inbox_oldest_seconds": "How long the oldest waiting message of the whole store has waited",
    "outbox_oldest_seconds": "How long the oldest due send of the whole store is overdue",
}
BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class PrometheusMeter:
    """Exposes every figure from the start, at zero, so that a missing one differs from one that never happened."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        seconds = Histogram(
            "palaver_step_seconds", "How long each step took", ["step"], registry=self.registry, buckets=BUCKETS_SECONDS
        )
        failures = Counter("palaver_step_failures", "Steps that raised an error", ["step"], registry=self.registry)
        self._lag = Histogram(
            "palaver_delivery_lag_seconds",
            "From the outbox to the receipt of the platform",
            ["platform"],
            registry=self.registry,
            buckets=BUCKETS_SECONDS,
        )
        steps: tuple[Step, ...] = get_args(Step)
        self._seconds = {name: seconds.labels(name) for name in steps}
        self._failures = {name: failures.labels(name) for name in steps}
        Info("palaver_build", "The version that runs", registry=self.registry).info({"version": __version__})
        self._counts = {name: Counter(f"palaver_{name}", text, registry=self.registry) for name, text in COUNTS.items()}
        self._levels = {name: Gauge(f"palaver_{name}", text, registry=self.registry) for name, text in LEVELS.items()}

    def step(self, name: Step, turn: int = 0, received: datetime | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        return _Timed(self._seconds[name], self._failures[name])

    def lag(self, platform: str, seconds: float) -> None:
        self._lag.labels(platform).observe(seconds)

    def count(self, name: Count, amount: int = 1) -> None:
        self._counts[name].inc(amount)

    def level(self, name: Level, value: float) -> None:
        self._levels[name].set(value)

    def exposed(self) -> bytes:
        """Return all figures in the Prometheus text format."""
        return generate_latest(self.registry)


class _Timed:
    """Measures how long a step takes and whether it raises an error. Every message takes six steps."""

    __slots__ = ("_began", "_failures", "_seconds")

    def __init__(self, seconds: Histogram, failures: Counter) -> None:
        self._seconds = seconds
        self._failures = failures

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._seconds.observe(perf_counter() - self._began)
        if isinstance(error, Exception):
            self._failures.inc()


@contextmanager
def serve_metrics(meter: PrometheusMeter, port: int) -> Generator[int]:
    """Serve the meter to Prometheus on this machine, and yield the port. Port 0 means any free one."""
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=meter.registry)
    except OSError as error:
        raise BadArgument(
            "The metrics cannot be served on port", found=str(port), allowed="a free port", example="9464"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
