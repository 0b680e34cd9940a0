"""The meter that Prometheus reads. Figures only: no label ever holds anything from outside."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from palaver.engine.metrics import Count, Level, Step
from palaver.model.errors import BadArgument

__all__ = [
    "COUNTS",
    "LEVELS",
    "PrometheusMeter",
    "serve_metrics",
]

COUNTS: Mapping[Count, str] = {
    "messages_repeated": "Messages that a platform delivered again",
    "messages_refused": "Messages whose sender may not speak here",
    "messages_ignored": "Messages in groups that were not for the agent",
    "commands": "Commands obeyed",
    "agent_retries": "Times an agent was asked again within one turn",
    "compactions": "Conversations whose older entries were summarised",
    "agents_left": "Agents that did not stop when they were told to",
    "turns_failed": "Turns that ended without an answer",
    "turns_lost": "Turns that another worker has taken over",
    "turns_reclaimed": "Turns without a living owner that were taken over",
    "sends_dead": "Sends that were given up or refused",
    "sends_lost": "Sends that were settled by another worker",
    "sends_unclear": "Sends of which nobody knew whether they arrived",
    "send_retries": "Sends put off to be tried again",
    "reconnects": "Connections to platforms that were lost",
    "accounts_lost": "Accounts that another worker has taken over",
    "hooks_failed": "Hooks that failed",
    "tools_failed": "Uses of tools that could not be done",
}
LEVELS: Mapping[Level, str] = {
    "lanes": "Conversations at work in this process",
    "leases": "Turns this process holds",
    "accounts": "Accounts this process serves",
    "inbox_waiting": "Messages that wait, in the whole store",
    "outbox_due": "Sends that are owed and not on their way, in the whole store",
}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class PrometheusMeter:
    """Everything is there from the start, at zero: what is missing and what did not happen can be told apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        seconds = Histogram(
            "palaver_step_seconds", "How long each step took", ["step"], registry=self.registry, buckets=_SECONDS
        )
        failures = Counter("palaver_step_failures", "Steps that raised an error", ["step"], registry=self.registry)
        steps: tuple[Step, ...] = get_args(Step)
        self._seconds = {name: seconds.labels(name) for name in steps}
        self._failures = {name: failures.labels(name) for name in steps}
        self._counts = {name: Counter(f"palaver_{name}", text, registry=self.registry) for name, text in COUNTS.items()}
        self._levels = {name: Gauge(f"palaver_{name}", text, registry=self.registry) for name, text in LEVELS.items()}

    @contextmanager
    def step(self, name: Step) -> Generator[None]:
        with self._failures[name].count_exceptions(), self._seconds[name].time():
            yield

    def count(self, name: Count, amount: int = 1) -> None:
        self._counts[name].inc(amount)

    def level(self, name: Level, value: float) -> None:
        self._levels[name].set(value)

    def exposed(self) -> bytes:
        """Everything as Prometheus reads it."""
        return generate_latest(self.registry)


@contextmanager
def serve_metrics(meter: PrometheusMeter, port: int) -> Generator[int]:
    """Let Prometheus read the meter, from this machine only; gives the port, which for 0 is any free one."""
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=meter.registry)
    except OSError as error:
        raise BadArgument(
            "The metrics cannot be served on port", found=str(port), allowed="a port nobody uses", example="9464"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
