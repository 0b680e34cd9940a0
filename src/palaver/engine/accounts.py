"""Serving accounts: each by one worker at a time, reconnected with growing pauses, its health known."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from palaver.db.transaction import Statements, transaction
from palaver.engine.context import EngineContext
from palaver.engine.intake.receiver import Intake
from palaver.engine.retry import contain_cancellation, describe_error, retry_outage, run_forever
from palaver.model.errors import MalformedSource, NotServed
from palaver.model.ids import check_ids
from palaver.model.lifecycle import InboxState
from palaver.model.redact import redact
from palaver.model.source import Source, Trust
from palaver.model.transcript import Role
from palaver.model.turn import Inbound, account_text
from palaver.protocols.adapter import Adapter, AnswerStatus, PlatformDown, PlatformError, PlatformRefused
from palaver.protocols.capabilities import CommandMenu, MenuCommand, supports
from palaver.store.status.message_status import Reply
from palaver.store.store import Store

__all__ = [
    "AccountRunner",
    "Health",
    "HeldInlet",
    "OpenInlet",
    "ReconnectBackoff",
]

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Health:
    served_since: datetime | None = None
    """None while another worker serves the account, or nobody can."""
    connected_since: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpenInlet:
    """For what comes to an account over HTTP: it may come to any worker, whoever serves the account."""

    ctx: EngineContext
    intake: Intake
    platform: str
    account: str | None
    returned: Callable[[], None]

    async def connected(self) -> None:
        """Whoever is called has no connection of its own."""

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        try:
            with self.ctx.meter.step("accept"):
                await self.intake.receive(inbound, trust)
        except MalformedSource as error:
            self._leave_out(error)

    def _leave_out(self, unfit: MalformedSource) -> None:
        """What could not be kept however often it came is left out, so that whatever comes after it is heard."""
        self.ctx.meter.count("messages_refused")
        told = {"action": "message.ids_too_long", "account": account_text(self.platform, self.account)}
        log.warning("something was left out: %s", unfit, extra=told)

    async def load_position(self) -> str | None:
        return await self.ctx.store.read(self.ctx.store.accounts.position(self.platform, self.account))

    async def save_position(self, position: str) -> None:  # noqa: ARG002
        raise NotServed(account_text(self.platform, self.account))

    async def link_alias(self, alias: str, canonical: str) -> None:
        try:
            check_ids("person", alias, canonical)
            await self.intake.learn(self.platform, alias, canonical)
        except MalformedSource as error:
            self._leave_out(error)

    async def chat_moved(self, old: str, new: str) -> None:
        try:
            check_ids("chat", old, new)
            await self.intake.move_chat(self.platform, self.account, old, new)
        except MalformedSource as error:
            self._leave_out(error)

    async def chat_returned(self, chat_id: str) -> None:
        self.returned()
        now = self.ctx.clock.now()
        await self.ctx.store.transact(self.ctx.store.outbox.hasten(self.platform, self.account, chat_id, now))

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        mine = replace(source, platform=self.platform, account=self.account)
        mine = replace(mine, profile=(await self.intake.key_of(mine)).profile)
        found = await self.ctx.store.read(_reply(self.ctx.store, mine))
        if found is not None and timeout and not _answer(found).is_settled:
            with self.ctx.waiting.waiting(found.received.number) as waiter:
                await waiter.until_settled(timeout)
            found = await self.ctx.store.read(_reply(self.ctx.store, mine))
        return found and _answer(found)


@transaction
def _reply(store: Store, source: Source) -> Statements[Reply | None]:
    """For whoever said it, and nobody else."""
    principal = yield from store.people.principal_for(source)
    received = yield from store.message_status.find_received([source], principal)
    return (yield from store.message_status.load_reply(received.number, principal)) if received else None


_OPEN = frozenset({InboxState.WAITING, InboxState.IN_TURN})


def _answer(reply: Reply) -> AnswerStatus:
    received = reply.received
    said = [entry.text for entry in reply.entries if entry.role is Role.ASSISTANT and not entry.calls]
    return AnswerStatus(
        id=f"in:{received.number}",
        is_settled=received.state not in _OPEN or reply.is_parked,
        text=said[-1] if said and reply.ended else "\n".join(reply.notices),
        refused=received.reason if received.state is InboxState.REFUSED else None,
        has_failed=received.state is InboxState.FAILED,
    )


@dataclass(frozen=True, kw_only=True)
class HeldInlet(OpenInlet):
    """What an adapter is handed while this worker serves its account."""

    fence: int
    health: Health
    greet: Callable[[], None]
    """What is done beside, each time that the connection was made."""

    async def connected(self) -> None:
        self.greet()
        self.health.connected_since = now = self.ctx.clock.now()
        await self.ctx.retry_until_stored(
            self.ctx.store.accounts.connected(self.platform, self.account, self.fence, now)
        )

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        if self.health.connected_since is None:  # whoever hands something over is connected, said or not
            await self.connected()
        await super().receive(inbound, trust)

    async def save_position(self, position: str) -> None:
        keep = self.ctx.store.accounts.keep_position(self.platform, self.account, self.fence, position)
        await self.ctx.store.transact(keep)


_LONGEST_PAUSE = 60.0
_SHORTEST_REFUSAL = 300.0
_LONGEST_REFUSAL = 3600.0


@dataclass(slots=True)
class ReconnectBackoff:
    """How long to wait before the next connection: longer each time, until one has worked."""

    failures: int = 0
    pause: float = 0.0

    def after(self, stood: timedelta | None) -> float:
        """Seconds to wait after a connection that stood so long, or that was not made at all.

        One that stood for less than was waited for it did not work.
        """
        worked = stood is not None and stood.total_seconds() > self.pause
        self.failures = 0 if worked else self.failures + 1
        self.pause = min(_LONGEST_PAUSE, 0.5 * 2 ** min(self.failures, 16))
        return self.pause

    def after_refusal(self) -> float:
        """Nothing changes there before a person has done something about it."""
        self.pause = min(_LONGEST_REFUSAL, max(_SHORTEST_REFUSAL, 2 * self.pause))
        return self.pause


@dataclass(kw_only=True)
class AccountRunner:
    ctx: EngineContext
    intake: Intake
    adapters: Mapping[str, Adapter]
    taken_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an account is taken on."""
    returns: int = 0
    """How often somebody came back to a chat where nobody was."""
    health: dict[str, Health] = field(default_factory=dict[str, Health])
    menu: Callable[[], Sequence[MenuCommand]] = tuple
    """What people are shown of the commands, where the platform can."""
    _again: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody is to wait any longer before trying again."""
    _greeting: dict[str, "asyncio.Task[None]"] = field(default_factory=dict[str, "asyncio.Task[None]"])

    def served(self) -> Collection[str]:
        return [name for name, health in self.health.items() if health.served_since is not None]

    async def serve(self) -> None:
        """Every account, until cancelled; then others may take them at once."""
        async with asyncio.TaskGroup() as group:
            for name, adapter in self.adapters.items():
                self.health[name] = Health()
                self.ctx.connecting.add(name)
                serve = partial(self._serve, adapter, self.health[name])
                group.create_task(run_forever(serve), name=f"account {name}")

    def receiver(self, platform: str, account: str | None) -> OpenInlet:
        """Open whoever serves the account."""
        return OpenInlet(
            ctx=self.ctx, intake=self.intake, platform=platform, account=account, returned=self._count_return
        )

    def try_again(self) -> None:
        """Whoever waits to be let in tries it now: something may have been mended."""
        self._again.set()
        self._again = asyncio.Event()

    async def _serve(self, adapter: Adapter, health: Health) -> None:
        while True:
            fence = await retry_outage(lambda: self._hold(adapter))
            if fence is None:
                self.ctx.connecting.discard(self._name(adapter))
                await asyncio.sleep(self._beat)
                continue
            try:
                await self._run_while_held(adapter, health, fence)
            finally:
                health.served_since = health.connected_since = None

    async def _run_while_held(self, adapter: Adapter, health: Health, fence: int) -> None:
        log.info("account taken on", extra={"action": "account.acquired", "account": self._name(adapter)})
        health.served_since = self.ctx.clock.now()
        self.ctx.connecting.add(self._name(adapter))
        self.taken_on.set()
        running = asyncio.create_task(self._run(adapter, health, fence))
        try:
            while await self._still_held(adapter, fence, running):
                pass
            self.ctx.meter.count("accounts_lost")
            log.warning("account lost", extra={"action": "account.lease_lost", "account": self._name(adapter)})
        finally:
            running.cancel()
            await asyncio.wait({running})
            if greeting := self._greeting.pop(self._name(adapter), None):
                greeting.cancel()

    async def _still_held(self, adapter: Adapter, fence: int, running: "asyncio.Task[None]") -> bool:
        """Raises what has ended the run, which ends by itself only so."""
        await asyncio.wait({running}, timeout=self._beat)
        if running.done():
            running.result()
        return await retry_outage(lambda: self._hold(adapter)) == fence

    async def _run(self, adapter: Adapter, health: Health, fence: int) -> None:
        """Connect, and again whenever the connection is lost."""
        receiver = HeldInlet(
            ctx=self.ctx,
            intake=self.intake,
            platform=adapter.platform.name,
            account=adapter.account,
            returned=self._count_return,
            fence=fence,
            health=health,
            greet=partial(self._greet, adapter),
        )
        pauses = ReconnectBackoff()
        while True:
            refused = False
            try:
                with contain_cancellation():
                    await adapter.run(receiver)
                why = "the adapter ended by itself"
            except PlatformDown as error:
                why, refused = redact(str(error)), isinstance(error, PlatformRefused)
            except PlatformError as error:
                why = describe_error(error)
            except Exception as error:  # noqa: BLE001 - whatever an adapter raises, it is started again
                why = f"the adapter broke: {describe_error(error)}"
            stood = health.connected_since and self.ctx.clock.now() - health.connected_since
            pause = pauses.after_refusal() if refused else pauses.after(stood)
            await self._tell_down(adapter, health, fence, why, refused=refused)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * self.ctx.chance.uniform(0.5, 1.0)):
                    await self._again.wait()

    async def _tell_down(self, adapter: Adapter, health: Health, fence: int, why: str, *, refused: bool) -> None:
        health.connected_since, health.last_error = None, why
        self.ctx.meter.count("reconnects")
        if refused:
            log.error("account refused: %s", why, extra={"action": "account.rejected", "account": self._name(adapter)})
        else:
            log.warning("connection lost: %s", why, extra={"action": "account.down", "account": self._name(adapter)})
        name, account, now = adapter.platform.name, adapter.account, self.ctx.clock.now()
        await self.ctx.retry_until_stored(self.ctx.store.accounts.down(name, account, fence, now, why, refused=refused))

    def _greet(self, adapter: Adapter) -> None:
        name = self._name(adapter)
        self.ctx.connecting.discard(name)
        if supports(adapter, CommandMenu) and (name not in self._greeting or self._greeting[name].done()):
            self._greeting[name] = asyncio.create_task(self._show_menu(adapter))

    async def _show_menu(self, adapter: CommandMenu) -> None:
        try:
            async with asyncio.timeout(self.ctx.options.send_limit.total_seconds()):
                with contain_cancellation():
                    await adapter.show_menu(self.menu())
        except Exception as error:  # noqa: BLE001 - whoever knows the commands can use them without
            log.info("the menu was not shown: %s", describe_error(error), extra={"action": "menu.failed"})

    def _count_return(self) -> None:
        self.returns += 1

    async def release(self) -> None:
        for adapter in self.adapters.values():
            release = self.ctx.store.accounts.release(adapter.platform.name, adapter.account, self.ctx.worker)
            await self.ctx.store.transact(release)

    async def _hold(self, adapter: Adapter) -> int | None:
        name, account, now = adapter.platform.name, adapter.account, self.ctx.clock.now()
        hold = self.ctx.store.accounts.hold(
            name, account, self.ctx.worker, now, self.ctx.options.lease, alone=self.ctx.alone
        )
        return await self.ctx.store.transact(hold)

    @property
    def _beat(self) -> float:
        return self.ctx.options.lease.total_seconds() / 3

    @staticmethod
    def _name(adapter: Adapter) -> str:
        return account_text(adapter.platform.name, adapter.account)
