"""Tell hooks what happened without waiting for them, and measure what the engine does."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

from palaver.engine.retry import contain_cancellation, log_error
from palaver.model.errors import BadArgument
from palaver.model.turn import Usage
from palaver.model.value import value
from palaver.protocols.hooks import GatewayEvent, Hook

log = logging.getLogger(__name__)


@value
class PartialAnswer:
    """The text so far of an answer in progress. It holds content: pass it only to those who can read the session."""

    session: str
    turn: int
    text: str
    earlier: tuple[str, ...] = ()
    """What the agent said before, each time it used a tool. What a client that runs tools has already is left out."""


PartialAnswerListener = Callable[[PartialAnswer], None]
"""Called each time the answer grows. It must return at once."""

Step = Literal["accept", "begin", "turn", "agent", "settle", "send", "tool"]
Count = Literal[
    "messages_repeated",
    "messages_refused",
    "messages_ignored",
    "commands",
    "agent_retries",
    "agent_fallbacks",
    "agents_left",
    "compactions",
    "turns_failed",
    "turns_lost",
    "turns_reclaimed",
    "sends_dead",
    "sends_lost",
    "sends_unclear",
    "send_retries",
    "reconnects",
    "accounts_lost",
    "hooks_failed",
    "tools_failed",
    "jobs_fired",
    "jobs_skipped",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "unpriced_tokens",
    "cost_micros",
]
Level = Literal[
    "lanes", "leases", "accounts", "inbox_waiting", "outbox_due", "inbox_oldest_seconds", "outbox_oldest_seconds"
]


class Meter(Protocol):
    def step(self, name: Step, turn: int = 0, received: datetime | None = None) -> AbstractContextManager[None]:
        """Count and time a step of this turn; `received` is when the message came that began it."""
        ...

    def lag(self, platform: str, seconds: float) -> None:
        """Measure how long a message took from the outbox to its receipt."""
        ...

    def count(self, name: Count, amount: int = 1) -> None: ...

    def level(self, name: Level, value: float) -> None:
        """Set how much there is of something now."""
        ...


def count_usage(meter: Meter, usage: Usage) -> None:
    meter.count("input_tokens", usage.input_tokens)
    meter.count("output_tokens", usage.output_tokens)
    meter.count("cached_tokens", usage.cached_tokens)
    meter.count("unpriced_tokens", usage.unpriced_tokens)
    meter.count("cost_micros", usage.cost_micros)


@runtime_checkable
class Exposing(Protocol):
    """A meter whose figures can be read as text."""

    def exposed(self) -> bytes: ...


_NOTHING = nullcontext()


class NoMeter:
    def step(self, name: Step, turn: int = 0, received: datetime | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        return _NOTHING

    def lag(self, platform: str, seconds: float) -> None: ...

    def count(self, name: Count, amount: int = 1) -> None: ...

    def level(self, name: Level, value: float) -> None: ...


HOOK_TIMEOUT_SECONDS = 10.0


class Hooks:
    """Calls every hook for every event."""

    def __init__(
        self, hooks: Sequence[Hook] = (), meter: Meter | None = None, watch: PartialAnswerListener | None = None
    ) -> None:
        self._hooks = dict(zip(_hook_names(hooks), hooks, strict=True))
        self.watch = watch
        self._meter = meter or NoMeter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def are_registered(self) -> bool:
        return bool(self._hooks)

    def tell(self, event: GatewayEvent) -> None:
        """Call the hooks in the background, so that a slow one delays nothing."""
        if self._hooks:
            task = asyncio.create_task(self._call_all(event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._hooks)

    async def _call_all(self, event: GatewayEvent) -> None:
        for name in self._hooks:
            await self.call(name, event)

    async def call(self, name: str, event: GatewayEvent) -> bool:
        """Call one hook and return whether it succeeded."""
        try:
            async with asyncio.timeout(HOOK_TIMEOUT_SECONDS):
                with contain_cancellation():
                    await self._hooks[name](event)
        except Exception as error:  # noqa: BLE001 - no error of a hook may reach the engine
            log_error(log, "a hook failed", error, {"action": "hook.failed", "kind": event.kind.value})
            self._meter.count("hooks_failed")
            return False
        return True

    async def drain(self) -> None:
        await asyncio.gather(*self._tasks)

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()


def _hook_names(hooks: Iterable[Hook]) -> list[str]:
    """Name each hook as the configuration does, with a number if another has the same name."""
    seen: Counter[str] = Counter()
    names: list[str] = []
    for hook in hooks:
        path: str = getattr(hook, "__qualname__", type(hook).__qualname__)
        name = f"{hook.__module__}:{path}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return names


def load_hook(name: str) -> Hook:
    """Import the hook that `package.module:function` names."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
    except Exception as error:
        raise _bad_hook(name, f"{type(error).__name__}: {error}") from error
    if not inspect.iscoroutinefunction(found) and not inspect.iscoroutinefunction(getattr(found, "__call__", None)):  # noqa: B004
        raise _bad_hook(name, f"{type(found).__name__} {path}, which cannot be awaited")
    return found


def _bad_hook(name: str, found: str) -> BadArgument:
    return BadArgument(
        f"There is no hook {name}:",
        found=found,
        allowed="async def function(event), in a module that is installed, as package.module:function",
        example="my_hooks:tell",
    )
