"""News: what happened is owed to the accounts that tell others, in the step in which it happens."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from palaver.domain.turn import account_text
from palaver.ports.ability import able
from palaver.ports.adapter import Adapter, Watching
from palaver.ports.hooks import Happening
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, Work, work

__all__ = ["News"]

T = TypeVar("T")


class News:
    """A step that is undone has told nothing; one that is done has told it, whatever becomes of this process."""

    def __init__(self, store: Store, adapters: Iterable[Adapter] = ()) -> None:
        self._store = store
        self._watchers = [adapter for adapter in adapters if able(adapter, Watching)]

    @property
    def is_wanted(self) -> bool:
        return bool(self._watchers)

    def along(self, step: Work[T], tells: Callable[[T], Sequence[Happening]]) -> Work[T]:
        """The step, and with it what its result says has happened. `tells` has no clock: it may run anywhere."""
        return self._along(step, tells) if self._watchers else step

    @work
    def _along(self, step: Work[T], tells: Callable[[T], Sequence[Happening]]) -> Steps[T]:
        result = yield from step
        for happening in tells(result):
            yield from self.owe(happening)
        return result

    @work
    def owe(self, happening: Happening, text: str = "") -> Steps[None]:
        for watcher in self._watchers:
            outbound = watcher.notice(happening, text)
            if outbound is not None:
                name = f"{_name(happening)}:{account_text(outbound.platform, outbound.account)}"
                yield from self._store.outbox.owe(outbound, name, happening.at)


def _name(happening: Happening) -> str:
    """By the turn or the session that it is about: with these it is forgotten."""
    kind, at = happening.kind.value, f"{happening.at.timestamp():.6f}"
    if happening.delivery is not None:
        return f"told:{happening.turn or ''}:{happening.delivery}"
    return f"news:{happening.session or ''}:{happening.turn or ''}:{kind}:{at}"
