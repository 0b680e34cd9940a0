"""Connect to the running gateway, or start one in this process."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Self

from palaver.config.editor import ConfigFile
from palaver.config.model import Config
from palaver.gateway.gateway import Gateway
from palaver.gateway.log_file import LogFile
from palaver.gateway.terminal import terminal_socket
from palaver.model.errors import InvalidInput, PalaverError, StoreInUse, first_error
from palaver.platforms.terminal.client import GatewayFailing
from palaver.platforms.terminal.socket import Streams, connect

log = logging.getLogger(__name__)

_RECONNECT_GRACE_S = 15.0
"""How long to wait for a lost gateway before starting one, in seconds."""
_ANSWER_TIMEOUT_S = 10.0
"""How long the owner of the store has to answer, in seconds."""
_STOP_TIMEOUT_S = 5.0
"""How long our own gateway has to stop cleanly, in seconds."""
_RETRY_PAUSE_S = 0.02


class GatewayCrashed(PalaverError):
    """The gateway in this process failed because of a bug."""


class _AlreadyRunning(InvalidInput):
    def __init__(self) -> None:
        super().__init__(
            "A gateway is running, and its configuration says which agent answers.",
            found="",
            allowed="no --agent while it runs",
            example="palaver chat",
            fix="Leave out --agent, or stop it first.",
        )


class _Outages(logging.Handler):
    """Report a store that has been unavailable for a while, or a socket that cannot be created."""

    def __init__(self, lasting: "asyncio.Future[str]") -> None:
        super().__init__(logging.WARNING)
        self._lasting = lasting
        self._first = self._last = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        action, account = getattr(record, "action", ""), getattr(record, "account", "")
        if action != "store.unavailable" and (action, account.partition(":")[0]) != ("account.down", "terminal"):
            return
        if record.created - self._last > _ANSWER_TIMEOUT_S:
            self._first = record.created
        self._last = record.created
        if self._last - self._first > _ANSWER_TIMEOUT_S / 2 and not self._lasting.done():
            self._lasting.set_result(record.getMessage())


class _WebErrors(logging.Handler):
    """Report a web server that does not start: people in a chat do not read the log."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if str(getattr(record, "action", "")).startswith("web."):
            self._tell(record.getMessage())


class GatewayClient:
    """A connection to a gateway; leaving the context stops our own gateway cleanly."""

    def __init__(self, config: Config, file: ConfigFile | None = None, *, alone: bool = False) -> None:
        """With `alone`, only our own gateway will do."""
        self._file = file
        self._alone = alone
        # Do not drain on exit: an interrupted turn resumes next time.
        hurried = config.limits.model_copy(update={"drain_limit": timedelta()})
        self._config = config.model_copy(update={"limits": hurried})
        self._path = terminal_socket(config)
        self._gateway: Gateway | None = None
        self._serving: asyncio.Task[bool] | None = None
        self._was_there = False
        self.window: Callable[[str], None] | None = None
        """Set to enable the web server of our own gateway; called with its link and errors."""
        self._log = ExitStack()
        self._lasting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._gateway and self._serving:
            self._gateway.stop()
            await asyncio.wait({self._serving}, timeout=_STOP_TIMEOUT_S)
            if not self._serving.done():
                self._gateway.stop()
            await asyncio.gather(self._serving, return_exceptions=True)
        self._log.close()

    async def outage(self) -> None:
        """Raise GatewayFailing once our own gateway has failed for a while."""
        raise GatewayFailing(await self._lasting, passes=True)

    async def connect(self) -> Streams:
        """Connect; raise the error that keeps a gateway from starting."""
        now = asyncio.get_running_loop().time
        grace = _RECONNECT_GRACE_S if self._was_there and not self._gateway else 0
        start_at, give_up_at = now() + grace, now() + grace + _ANSWER_TIMEOUT_S
        while True:
            with suppress(OSError):
                streams = await connect(self._path)
                if self._alone and self._gateway is None:
                    streams[1].close()
                    raise _AlreadyRunning
                self._was_there = True
                return streams
            if now() >= start_at:
                self._ensure_gateway(until=give_up_at - now())
            await asyncio.sleep(_RETRY_PAUSE_S)

    def _ensure_gateway(self, until: float) -> None:
        """Start a gateway, unless one runs or another process was quicker."""
        if self._serving and not self._serving.done():
            return
        if self._serving and (error := self._serving.exception()):
            if not isinstance(error, StoreInUse) or until < 0:
                raise self._explain(error)
        else:
            self._start_log()
        self._gateway = Gateway(self._config, show_login=self.window, file=self._file)
        self._serving = asyncio.create_task(self._gateway.serve())

    def _explain(self, error: BaseException) -> BaseException:
        """Return the first error if a person can fix it; otherwise say where the traceback is."""
        first = first_error(error)
        if isinstance(first, PalaverError | OSError):
            return first
        log.error("the gateway failed", exc_info=error, extra={"action": "gateway.error"})
        return GatewayCrashed(f"The gateway failed ({type(first).__name__}). palaver logs shows where.")

    def _start_log(self) -> None:
        """Log to a file: the terminal shows the chat."""
        root, ours = logging.getLogger(), logging.getLogger("palaver")
        outages = _Outages(self._lasting)
        if megabytes := self._config.log.keep_megabytes:
            handler = LogFile(self._config.data_dir, megabytes)
            self._log.callback(handler.close)
            self._log.callback(root.removeHandler, handler)
            root.addHandler(handler)
        self._log.callback(root.removeHandler, outages)
        self._log.callback(ours.setLevel, ours.level)
        root.addHandler(outages)
        if self.window:
            closed = _WebErrors(self.window)
            root.addHandler(closed)
            self._log.callback(root.removeHandler, closed)
        ours.setLevel(self._config.log.level.upper())
