"""The way to a gateway: to the one that runs, or else to one in this process."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Self, cast

from palaver.config.model import Config
from palaver.gateway.gateway import Gateway
from palaver.gateway.logs import HumanFormat
from palaver.gateway.terminal import terminal_socket
from palaver.model.errors import PalaverError, StoreInUse
from palaver.platforms.terminal.client import GatewayFailing
from palaver.platforms.terminal.socket import Streams, connect

__all__ = [
    "GatewayBroke",
    "Host",
]

log = logging.getLogger(__name__)

_GRACE = 15.0
"""Seconds in which a gateway that went away may come back before another takes its place."""
_PATIENCE = 10.0
"""Seconds in which a gateway that owns the store must answer."""
_LEAVING = 5.0
"""Seconds in which a gateway of its own may end in good order; with a store that does not answer it cannot."""
_PAUSE = 0.02
_LONGEST_LOG = 1_000_000


class GatewayBroke(PalaverError):
    """A mistake of ours, in the gateway of this process."""


class _Log(RotatingFileHandler):
    """Opened with its first line, for its owner alone."""

    def _open(self) -> TextIOWrapper:
        file = Path(self.baseFilename)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        """A log that cannot be written, on a full disk, is no reason to disturb the conversation."""


class _Outages(logging.Handler):
    """Tells of a store that has not answered the gateway of this process for a while, or a socket it could not make."""

    def __init__(self, lasting: "asyncio.Future[str]") -> None:
        super().__init__(logging.WARNING)
        self._lasting = lasting
        self._first = self._last = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        action, account = getattr(record, "action", ""), getattr(record, "account", "")
        if action != "store.unavailable" and (action, account.partition(":")[0]) != ("account.down", "terminal"):
            return
        if record.created - self._last > _PATIENCE:
            self._first = record.created
        self._last = record.created
        if self._last - self._first > _PATIENCE / 2 and not self._lasting.done():
            self._lasting.set_result(record.getMessage())


class _NoWindow(logging.Handler):
    """Tells of a window that does not open: whoever chats does not read the log."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if str(getattr(record, "action", "")).startswith("window."):
            self._tell(record.getMessage())


class Host:
    """Use it as a context manager: a gateway of its own ends with it, in good order."""

    def __init__(self, config: Config) -> None:
        # Whoever leaves does not want to wait: a turn that is cut off goes on the next time.
        hurried = config.limits.model_copy(update={"drain_limit": timedelta()})
        self._config = config.model_copy(update={"limits": hurried})
        self._path = terminal_socket(config)
        self._gateway: Gateway | None = None
        self._serving: asyncio.Task[bool] | None = None
        self._was_there = False
        self.window: Callable[[str], None] | None = None
        """Whether a gateway of its own has a window, and who is told about it."""
        self._log = ExitStack()
        self._lasting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._gateway and self._serving:
            self._gateway.stop()
            await asyncio.wait({self._serving}, timeout=_LEAVING)
            if not self._serving.done():
                self._gateway.stop()
            await asyncio.gather(self._serving, return_exceptions=True)
        self._log.close()

    async def outage(self) -> None:
        """Raises GatewayFails once a gateway of its own has got nowhere for a while."""
        raise GatewayFailing(await self._lasting, passes=True)

    async def connect(self) -> Streams:
        """Raises what keeps a gateway from starting."""
        now = asyncio.get_running_loop().time
        grace = _GRACE if self._was_there and not self._gateway else 0
        start_at, give_up_at = now() + grace, now() + grace + _PATIENCE
        while True:
            with suppress(OSError):
                streams = await connect(self._path)
                self._was_there = True
                return streams
            if now() >= start_at:
                self._have_one(until=give_up_at - now())
            await asyncio.sleep(_PAUSE)

    def _have_one(self, until: float) -> None:
        """Start one, if there is none or it has ended because another was quicker."""
        if self._serving and not self._serving.done():
            return
        if self._serving and (error := self._serving.exception()):
            if not isinstance(error, StoreInUse) or until < 0:
                raise self._said(error)
        else:
            self._keep_log()
        self._gateway = Gateway(self._config, show_login=self.window)
        self._serving = asyncio.create_task(self._gateway.serve())

    def _said(self, error: BaseException) -> BaseException:
        """What went wrong first, where a person can do something about it; else where the trace is."""
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
        if isinstance(first, PalaverError | OSError):
            return first
        log.error("the gateway broke", exc_info=error, extra={"action": "gateway.error"})
        return GatewayBroke(f"the gateway broke ({type(first).__name__}): a trace is in {self._log_file}")

    @property
    def _log_file(self) -> Path:
        return self._config.data_dir / "chat.log"

    def _keep_log(self) -> None:
        """In a file: the terminal belongs to the conversation."""
        handler = _Log(self._log_file, maxBytes=_LONGEST_LOG, backupCount=1, encoding="utf-8", delay=True)
        handler.setFormatter(HumanFormat(colours=False))
        root, ours = logging.getLogger(), logging.getLogger("palaver")
        outages = _Outages(self._lasting)
        self._log.callback(handler.close)
        self._log.callback(root.removeHandler, handler)
        self._log.callback(root.removeHandler, outages)
        self._log.callback(ours.setLevel, ours.level)
        root.addHandler(handler)
        root.addHandler(outages)
        if self.window:
            closed = _NoWindow(self.window)
            root.addHandler(closed)
            self._log.callback(root.removeHandler, closed)
        ours.setLevel(self._config.log.level.upper())
