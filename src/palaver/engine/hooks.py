"""Telling hooks what happened, without letting them hold anything up."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, TypeVar

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.metrics import Meter, NoMeter
from palaver.engine.retry import contain_cancellation, log_error
from palaver.model.errors import BadArgument
from palaver.model.turn import account_text
from palaver.protocols.adapter import Adapter
from palaver.protocols.capabilities import EventSubscriber, supports
from palaver.protocols.hooks import GatewayEvent, Hook, PartialAnswerListener
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

__all__ = [
    "EventOutbox",
    "Hooks",
    "hook_named",
]

log = logging.getLogger(__name__)

_LIMIT = 10.0


class Hooks:
    def __init__(
        self, hooks: Sequence[Hook] = (), meter: Meter | None = None, watch: PartialAnswerListener | None = None
    ) -> None:
        self._hooks = tuple(hooks)
        self.watch = watch
        self._meter = meter or NoMeter()
        self._telling: set[asyncio.Task[bool]] = set()

    @property
    def are_registered(self) -> bool:
        return bool(self._hooks)

    def tell(self, happening: GatewayEvent) -> None:
        """In the background: a slow hook delays nothing."""
        if self._hooks:
            task = asyncio.create_task(self.told(happening))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def told(self, happening: GatewayEvent) -> bool:
        """Whether every hook took it."""
        return all([await self._call(hook, happening) for hook in self._hooks])

    async def _call(self, hook: Hook, happening: GatewayEvent) -> bool:
        try:
            async with asyncio.timeout(_LIMIT):
                with contain_cancellation():
                    await hook(happening)
        except Exception as error:  # noqa: BLE001 - hooks are not ours
            log_error(log, "a hook failed", error, {"action": "hook.failed", "kind": happening.kind.value})
            self._meter.count("hooks_failed")
            return False
        return True

    async def drain(self) -> None:
        await asyncio.gather(*self._telling)

    def abandon(self) -> None:
        for task in self._telling:
            task.cancel()


def hook_named(name: str) -> Hook:
    """The hook that `package.module:function` names, imported."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
    except Exception as error:
        raise _no_hook(name, f"{type(error).__name__}: {error}") from error
    if not inspect.iscoroutinefunction(found) and not inspect.iscoroutinefunction(getattr(found, "__call__", None)):  # noqa: B004
        raise _no_hook(name, f"{type(found).__name__} {path}, which cannot be awaited")
    return found


def _no_hook(name: str, found: str) -> BadArgument:
    return BadArgument(
        f"There is no hook {name}:",
        found=found,
        allowed="async def function(happening), in a module that is installed, as package.module:function",
        example="my_hooks:tell",
    )


T = TypeVar("T")


class EventOutbox:
    """A step that is undone has told nothing; one that is done has told it, whatever becomes of this process."""

    def __init__(self, store: Store, adapters: Iterable[Adapter] = ()) -> None:
        self._store = store
        self._watchers = [adapter for adapter in adapters if supports(adapter, EventSubscriber)]

    @property
    def has_watchers(self) -> bool:
        return bool(self._watchers)

    def with_events(self, step: Transaction[T], tells: Callable[[T], Sequence[GatewayEvent]]) -> Transaction[T]:
        """The step, and with it what its result says has happened. `tells` has no clock: it may run anywhere."""
        return self._with_events(step, tells) if self._watchers else step

    @transaction
    def _with_events(self, step: Transaction[T], tells: Callable[[T], Sequence[GatewayEvent]]) -> Statements[T]:
        result = yield from step
        for happening in tells(result):
            yield from self.owe(happening)
        return result

    @transaction
    def owe(self, happening: GatewayEvent, text: str = "") -> Statements[None]:
        for watcher in self._watchers:
            outbound = watcher.event_message(happening, text)
            if outbound is not None:
                cause = _cause(happening, account_text(outbound.platform, outbound.account))
                yield from self._store.outbox.enqueue(outbound, cause, happening.at)


def _cause(event: GatewayEvent, account: str) -> SendCause:
    """Name the turn or session that the event is about, because the event is forgotten with it."""
    if event.delivery is not None:
        return SendCause(CauseKind.DELIVERED, event.turn or "", f"{event.delivery}:{account}")
    detail = f"{event.turn or ''}:{event.kind.value}:{event.at.timestamp():.6f}:{account}"
    return SendCause(CauseKind.EVENT, event.session or "", detail)
