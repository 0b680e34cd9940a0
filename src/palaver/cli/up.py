"""`palaver up`: run the gateway in the foreground."""

import asyncio
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from palaver.agents.plugins import agent_options
from palaver.cli.loop import run
from palaver.cli.output import FAILED, INTERNAL, WRONG, discard, print_error
from palaver.cli.shared_options import StoreOption
from palaver.config.editor import ConfigFile
from palaver.config.loader import Loaded
from palaver.config.model import Config
from palaver.gateway.agents import cost_warnings
from palaver.gateway.gateway import Gateway
from palaver.gateway.log_file import LogFile
from palaver.gateway.logs import configure_logs
from palaver.gateway.metrics import open_meter, with_traces
from palaver.model.errors import InvalidInput, StoreError, StoreInUse, StoreUnavailable
from palaver.platforms.plugins import known_platforms, load_factory
from palaver.store.opening import check_url

log = logging.getLogger(__name__)

EXAMPLES = {"up": "palaver up"}

app = typer.Typer(rich_markup_mode=None)


@app.command(
    help="Run the gateway in the foreground. Ctrl-C finishes running work first; press it again to stop at once."
    f" SIGHUP reads the configuration again.\n\n{EXAMPLES['up']}"
)
def up(*, store: StoreOption = None) -> None:
    loaded = load_for_gateway(store)
    config = loaded.config
    kept = [LogFile(config.data_dir, config.log.keep_megabytes)] if config.log.keep_megabytes else []
    configure_logs(config.log.level, config.log.format, sys.stderr, *kept)
    _caution(loaded)
    try:
        with (
            open_meter(config.metrics.port, web=config.web.enabled) as figures,
            with_traces(figures, config.traces.endpoint, config.store) as meter,
        ):
            window = _tell_link if config.web.enabled else None
            gateway = Gateway(
                config, meter=meter, show_login=window, is_logged=not sys.stdout.isatty(), file=config_file(store)
            )
            drained = run(_serve(gateway))
    except (InvalidInput, StoreInUse, StoreUnavailable):
        raise
    except StoreError as error:
        print_error(str(error), as_json=False)
        raise typer.Exit(WRONG) from error
    except Exception as error:
        log.exception("the gateway broke", extra={"action": "gateway.error"})
        raise typer.Exit(INTERNAL) from error
    if not drained:
        raise typer.Exit(FAILED)


def _tell_link(sentence: str) -> None:
    """Print the login link on standard output: the first reader can log in with it."""
    try:
        print(sentence, flush=True)
    except OSError:
        discard(sys.stdout)
        log.warning(
            "the link could not be printed: palaver web link makes another", extra={"action": "web.link_not_shown"}
        )


def config_file(store: str | None) -> ConfigFile:
    """Return the configuration file as the gateway reads it, with the store that the command was given."""
    return ConfigFile(
        folder=Path.cwd(),
        environ=os.environ,
        platforms=known_platforms(),
        describe_adapter=load_factory,
        agent_options=agent_options,
        store=store,
    )


def load_for_gateway(store: str | None) -> Loaded:
    """Load the configuration with everything that a gateway reads."""
    loaded = _load(store)
    loaded.config.check_variables()
    return loaded


def configuration(store: str | None) -> Config:
    """Load the configuration; secrets whose variables are not set here are missing only where they are read."""
    return _load(store).config


def _load(store: str | None) -> Loaded:
    """Load the configuration with the store that the command was given."""
    loaded = config_file(store).load()
    check_url(loaded.config.store)
    return loaded


def _caution(loaded: Loaded) -> None:
    for caution in (*loaded.warnings, *cost_warnings(loaded.config)):
        log.warning("%s", caution, extra={"action": "config.warning"})


async def _serve(gateway: Gateway) -> bool:
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(ending, gateway.stop)
    loop.add_signal_handler(signal.SIGHUP, Reloader(gateway).reload)
    return await gateway.serve()


@dataclass
class Reloader:
    gateway: Gateway
    rejected: str = ""
    """Why the last reload was rejected, if it was: the same reason is reported once, however often it is tried."""

    def reload(self) -> None:
        try:
            self.gateway.read_configuration()
            self.rejected = ""
        except InvalidInput as error:
            level = logging.DEBUG if str(error) == self.rejected else logging.ERROR
            log.log(level, "the configuration stays as it was: %s", error, extra={"action": "reload.rejected"})
            self.rejected = str(error)
