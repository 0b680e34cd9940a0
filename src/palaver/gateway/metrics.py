"""A gateway with or without a meter: what reads it is loaded only if somebody wants the figures."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec

from palaver.engine.metrics import Meter, NoMeter
from palaver.model.errors import BadArgument

__all__ = [
    "open_meter",
]


@contextmanager
def open_meter(port: int | None, *, window: bool = False) -> Generator[Meter]:
    """A meter that Prometheus reads on this port of this machine, or in the window where it is installed.

    Without either it measures nothing.
    """
    is_wanted = port is not None or (window and find_spec("prometheus_client") is not None)
    if not is_wanted:
        yield NoMeter()
        return
    try:
        from palaver.gateway.prometheus import PrometheusMeter, serve_metrics  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise BadArgument(
            "Metrics need prometheus-client:",
            found="not installed",
            allowed="pip install 'palaver[metrics]', or no port for metrics",
            example="pip install 'palaver[metrics]'",
        ) from error
    meter = PrometheusMeter()
    with nullcontext() if port is None else serve_metrics(meter, port):
        yield meter
