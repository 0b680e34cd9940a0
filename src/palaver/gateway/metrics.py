"""Open a meter: Prometheus and OpenTelemetry are imported only if they are wanted."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec

from palaver.engine.hooks import Meter, NoMeter
from palaver.protocols.installation import MissingPackages


@contextmanager
def with_traces(meter: Meter, endpoint: str | None, store: str) -> Generator[Meter]:
    """Send traces of what the meter measures to an OTLP address. OpenTelemetry is imported only if there is one."""
    if endpoint is None:
        yield meter
        return
    try:
        from palaver.gateway.tracing import TracingMeter, otlp_provider  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingPackages("Traces need", "otel") from error
    with otlp_provider(endpoint) as provider:
        yield TracingMeter(meter, provider, store)


@contextmanager
def open_meter(port: int | None, *, web: bool = False) -> Generator[Meter]:
    """Open a meter that Prometheus reads on a local port, or on the web pages if it is installed.

    With neither it measures nothing.
    """
    is_wanted = port is not None or (web and find_spec("prometheus_client") is not None)
    if not is_wanted:
        yield NoMeter()
        return
    try:
        from palaver.gateway.prometheus import PrometheusMeter, serve_metrics  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingPackages("Metrics need", "metrics") from error
    meter = PrometheusMeter()
    with nullcontext() if port is None else serve_metrics(meter, port):
        yield meter
