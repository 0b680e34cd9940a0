"""Open a meter: Prometheus is imported only if its figures are wanted."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec

from palaver.engine.hooks import Meter, NoMeter
from palaver.model.errors import BadArgument


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
        raise BadArgument(
            "Metrics need prometheus-client:",
            found="not installed",
            allowed="pip install 'palaver[metrics]', or no metrics port",
            example="pip install 'palaver[metrics]'",
        ) from error
    meter = PrometheusMeter()
    with nullcontext() if port is None else serve_metrics(meter, port):
        yield meter
