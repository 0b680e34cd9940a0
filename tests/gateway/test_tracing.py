"""OpenTelemetry traces: one per turn from the message to the receipt, without content, and sent over OTLP."""

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from palaver.engine.hooks import Exposing, Meter, NoMeter
from palaver.gateway.metrics import with_traces
from palaver.gateway.prometheus import PrometheusMeter
from palaver.gateway.tracing import TracingMeter, make_provider
from palaver.model.errors import BadArgument
from tests.engine.gateway import running

CANARY = "xylophone"


async def talk(place: Path, meter: Meter, *texts: str) -> None:
    async with running(place / "p.db", meter=meter) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text in texts:
            await chat.say(alice, text)
            await here.settled()


def parents(spans: Sequence[ReadableSpan]) -> dict[str, str | None]:
    """The name of each span with that of its parent."""
    names = {span.context.span_id: span.name for span in spans if span.context}
    return {span.name: names[span.parent.span_id] if span.parent else None for span in spans}


async def test_a_trace_leads_from_the_message_to_the_receipt(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    provider = make_provider(SimpleSpanProcessor(spans))
    await talk(tmp_path, TracingMeter(NoMeter(), provider, "a store"), "hello", "how are you?")
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        assert span.context
        traces.setdefault(span.context.trace_id, []).append(span)
    assert len(traces) == 2, "one for each turn"
    for found in traces.values():
        assert parents(found) == {
            "message": None,
            "turn": "message",
            "agent": "turn",
            "settle": "turn",
            "send": "message",
        }
        times = {span.name: (span.start_time or 0, span.end_time or 0) for span in found}
        assert times["message"][0] <= times["turn"][0] <= times["agent"][0] <= times["settle"][0]
        assert {dict(span.attributes or {}).keys() == {"palaver.turn"} for span in found} == {True}


async def test_a_turn_that_asked_and_goes_on_has_one_message(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    meter = TracingMeter(NoMeter(), make_provider(SimpleSpanProcessor(spans)), "a store")
    await talk(tmp_path, meter, "!approve it", "/approve")
    names = [span.name for span in spans.get_finished_spans()]
    assert (names.count("message"), names.count("turn")) == (1, 2)


async def test_what_is_said_is_in_no_trace(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    meter = TracingMeter(NoMeter(), make_provider(SimpleSpanProcessor(spans)), f"postgresql://{CANARY}@host/x")
    await talk(tmp_path, meter, f"hello {CANARY}", f"!tool {CANARY}", f"!fail {CANARY}", f"/title {CANARY}")
    with pytest.raises(ValueError, match=CANARY), meter.step("tool", 7):
        int(CANARY)
    found = spans.get_finished_spans()
    assert found[-1].status.description == "ValueError"
    assert not found[-1].events
    assert not [span for span in found if CANARY in span.to_json()]


@contextmanager
def receiver() -> Generator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A real OTLP/HTTP receiver on this machine."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name there

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


async def test_spans_are_sent_over_otlp(tmp_path: Path) -> None:
    with receiver() as (address, got):
        with with_traces(NoMeter(), f"{address}/", "a store") as meter:
            await talk(tmp_path, meter, "hello")
        (resource,) = [each for request in got for each in request.resource_spans]
        facts = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert facts["service.name"] == "palaver"
        spans = [span for scope in resource.scope_spans for span in scope.spans]
        assert len({span.trace_id for span in spans}) == 1
        names = {span.span_id: span.name for span in spans}
        found = {span.name: names.get(span.parent_span_id) for span in spans}
        assert found == {"message": None, "turn": "message", "agent": "turn", "settle": "turn", "send": "message"}


def test_figures_are_still_exposed() -> None:
    provider = make_provider(SimpleSpanProcessor(InMemorySpanExporter()))
    meter = TracingMeter(PrometheusMeter(), provider, "")
    with meter.step("accept"), meter.step("turn", 7):
        pass
    assert isinstance(meter, Exposing)
    assert b'palaver_step_seconds_count{step="turn"} 1.0' in meter.exposed()
    assert not isinstance(TracingMeter(NoMeter(), provider, ""), Exposing)


def test_without_an_address_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "palaver.gateway.tracing", None)
    plain = NoMeter()
    with with_traces(plain, None, "") as meter:
        assert meter is plain
    with (
        pytest.raises(BadArgument, match="Traces need the packages opentelemetry-api"),
        with_traces(plain, "http://127.0.0.1:4318", ""),
    ):
        pass
