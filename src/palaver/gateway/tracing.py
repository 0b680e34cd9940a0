"""OpenTelemetry traces: one for each turn, from its message to the receipt of each reply. They hold no content.

A turn and its sends can run in different processes, and after a restart. So the ids of a trace and of its first span
are digests of the store and the turn's number: every process knows them.
"""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from palaver import __version__
from palaver.engine.hooks import Exposing, Meter, Step

_KINDS: dict[Step, SpanKind] = {"agent": SpanKind.CLIENT, "send": SpanKind.PRODUCER}
_SHUTDOWN_MS = 5_000


class _Ids(RandomIdGenerator):
    """Random ids, except for the first span of a turn."""

    def __init__(self) -> None:
        self.first: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return self.first.trace_id if self.first else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.first.span_id if self.first else super().generate_span_id()


def make_provider(processor: SpanProcessor) -> TracerProvider:
    resource = Resource.create({"service.name": "palaver", "service.version": __version__})
    provider = TracerProvider(id_generator=_Ids(), resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


@contextmanager
def otlp_provider(endpoint: str) -> Generator[TracerProvider]:
    """Send spans in the background to an OTLP/HTTP address; what waits is sent at the end."""
    provider = make_provider(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    try:
        yield provider
    finally:
        provider.force_flush(_SHUTDOWN_MS)
        provider.shutdown()


class TracingMeter:
    """Makes a span of every step of a turn, besides what another meter measures."""

    def __init__(self, meter: Meter, provider: TracerProvider, store: str) -> None:
        self._meter = meter
        self._store = store.encode()
        self._ids = provider.id_generator
        self._tracer = provider.get_tracer("palaver", __version__)
        self.count, self.level, self.lag = meter.count, meter.level, meter.lag
        if isinstance(meter, Exposing):
            self.exposed = meter.exposed

    @contextmanager
    def step(self, name: Step, turn: int = 0, received: datetime | None = None) -> Generator[None]:
        with self._meter.step(name, turn, received), self._span(name, turn, received) if turn else nullcontext():
            yield

    @contextmanager
    def _span(self, name: Step, turn: int, received: datetime | None) -> Generator[None]:
        first = self._first_span(turn)
        if received:
            self._trace_message(first, turn, received)
        is_inside = trace.get_current_span().get_span_context().trace_id == first.trace_id
        with self._tracer.start_as_current_span(
            name,
            None if is_inside else trace.set_span_in_context(NonRecordingSpan(first)),
            kind=_KINDS.get(name, SpanKind.INTERNAL),
            attributes={"palaver.turn": turn},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                # Its text can quote somebody.
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def _first_span(self, turn: int) -> SpanContext:
        digest = hashlib.blake2b(b"turn:%d" % turn, digest_size=24, key=hashlib.blake2b(self._store).digest()).digest()
        return SpanContext(
            trace_id=int.from_bytes(digest[:16], "big"),
            span_id=int.from_bytes(digest[16:], "big"),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )

    def _trace_message(self, first: SpanContext, turn: int, received: datetime) -> None:
        """Make the span that all others of the turn belong to: the message, while it waited for its turn."""
        if not isinstance(self._ids, _Ids):
            return
        self._ids.first = first
        try:
            span = self._tracer.start_span(
                "message",
                Context(),
                kind=SpanKind.CONSUMER,
                attributes={"palaver.turn": turn},
                start_time=int(received.timestamp() * 1e9),
            )
        finally:
            self._ids.first = None
        span.end()
