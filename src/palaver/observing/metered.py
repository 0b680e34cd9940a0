"""A gateway with or without a meter: what reads it is loaded only if somebody wants the figures."""

from collections.abc import Generator
from contextlib import contextmanager

from palaver.domain.errors import BadArgument
from palaver.ports.meter import Meter, NoMeter

__all__ = ["metered"]


@contextmanager
def metered(port: int | None) -> Generator[Meter]:
    """A meter that Prometheus reads on this port of this machine; without a port one that measures nothing."""
    if port is None:
        yield NoMeter()
        return
    try:
        from palaver.observing.meter import PrometheusMeter, serve_metrics  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise BadArgument(
            "Metrics need prometheus-client:",
            found="not installed",
            allowed="pip install 'palaver[metrics]', or no port for metrics",
            example="pip install 'palaver[metrics]'",
        ) from error
    meter = PrometheusMeter()
    with serve_metrics(meter, port):
        yield meter
