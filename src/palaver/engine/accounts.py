"""Serve accounts: each by one worker at a time, reconnected with growing pauses, with its health."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from palaver.db.transaction import Notify, Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.delivery.owner import Reporting, notify_owner
from palaver.engine.intake.receiver import Intake
from palaver.engine.relay import Relay
from palaver.engine.retry import (
    close_all,
    contain_cancellation,
    describe_error,
    retry_outage,
    retry_until_stored,
    run_forever,
    wait_any,
)
from palaver.model.backoff import backoff
from palaver.model.epochs import Epochs
from palaver.model.errors import MalformedSource, NotServed
from palaver.model.problem import describe_account_problem
from palaver.model.redact import redact
from palaver.model.source import Source, Trust, account_name, account_text, check_ids
from palaver.model.transcript import is_answer
from palaver.model.turn import Inbound, InboxState, Outbound
from palaver.protocols.adapter import Adapter, AnswerStatus, PlatformBusy, PlatformDown, PlatformError, PlatformRefused
from palaver.protocols.capabilities import CommandMenu, MenuCommand, supports
from palaver.store.people import people
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.status import message_status
from palaver.store.status.message_status import Reply

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class AccountHealth:
    served_since: datetime | None = None
    """None while this worker does not serve the account."""
    connected_since: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True, kw_only=True)
class AccountReceiver:
    """Takes what reaches an account over HTTP: any worker may receive it, even if another serves the account."""

    ctx: EngineContext
    resources: Resources
    live: LiveState
    intake: Intake
    platform: str
    account: str | None
    count_return: Callable[[], None]

    async def connected(self) -> None:
        """Do nothing: an account that is called over HTTP has no connection."""

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        try:
            with self.ctx.meter.step("accept"):
                await self._take(inbound, trust)
        except MalformedSource as error:
            reason = f"{error.problem[:1].lower()}{error.problem[1:].removesuffix('.')}"
            if (number := await self.intake.refuse(inbound, reason)) is not None:
                self._skip(error, number)

    async def _take(self, inbound: Inbound, trust: Trust) -> None:
        if self.ctx.settings.tenants and (tenant := self.relay.tenant_of(inbound.source)):
            await self.relay.accept(inbound, tenant, is_bot=trust.is_bot)
        else:
            await self.intake.receive(inbound, trust)

    @property
    def relay(self) -> Relay:
        return Relay(ctx=self.ctx, resources=self.resources, live=self.live, intake=self.intake)

    def _skip(self, error: MalformedSource, number: int | None = None) -> None:
        """Report what can never be stored as it is. It must not block what comes after it."""
        self.ctx.meter.count("messages_refused")
        account = account_text(self.platform, self.account)
        extra = {"action": "message.ids_too_long", "account": account, "inbox": number}
        log.warning("skipped an update with invalid ids: %s", error, extra=extra)

    async def load_position(self) -> str | None:
        return await self.ctx.store.read(self.ctx.store.accounts.read_position(self.platform, self.account))

    async def save_position(self, position: str) -> None:  # noqa: ARG002
        raise NotServed(account_text(self.platform, self.account))

    async def recent_chats(self, limit: int, *, server: str | None = None) -> Sequence[str]:
        accounts = self.ctx.store.accounts
        return await self.ctx.store.read(accounts.recent_chats(self.platform, self.account, limit, server=server))

    async def link_alias(self, alias: str, canonical: str) -> None:
        try:
            check_ids("person", alias, canonical)
            await self.intake.learn_alias(self.platform, alias, canonical)
        except MalformedSource as error:
            self._skip(error)

    async def person_moved(self, old: str, new: str, at: datetime) -> None:
        try:
            check_ids("person", old, new)
            await self.intake.move_person(self.platform, self.account, old, new, at)
        except MalformedSource as error:
            self._skip(error)

    async def chat_moved(self, old: str, new: str, *, server: str | None = None) -> None:
        try:
            check_ids("chat", old, new, server)
            await self.intake.move_chat(self.platform, self.account, old, new, server=server or None)
        except MalformedSource as error:
            self._skip(error)

    async def chat_returned(self, chat_id: str) -> None:
        self.count_return()
        now = self.ctx.clock.now()
        await self.ctx.store.transact(self.ctx.store.outbox.make_due_now(self.platform, self.account, chat_id, now))

    async def is_owner(self, user_id: str) -> bool:
        return await self.intake.is_owner(Source(platform=self.platform, account=self.account, user_id=user_id))

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        own = replace(source, platform=self.platform, account=self.account)
        own = replace(own, profile=(await self.intake.key_of(own)).profile)
        found = await self.ctx.store.read(_load_reply(own))
        if found is not None and timeout and not _is_settled(found):
            with self.resources.reply_waiter.waiting(found.received.number) as pending:
                await pending.until_settled(timeout)
            found = await self.ctx.store.read(_load_reply(own))
        return found and _answer_status(found, self.ctx.store.epochs)


@transaction
def _load_reply(source: Source) -> Statements[Reply | None]:
    """Load the reply on behalf of the sender."""
    principal = yield from people.principal_for(source)
    received = yield from message_status.find_received([source], principal)
    if received is None and source.message_id is not None:
        received = yield from message_status.find_request(source, source.message_id, principal)
    return (yield from message_status.load_reply(received.number, principal)) if received else None


def _is_settled(reply: Reply) -> bool:
    return not reply.received.state.is_open or reply.is_parked


def _answer_status(reply: Reply, epochs: Epochs) -> AnswerStatus:
    received = reply.received
    spoken = [texts.cut_answer(entry.text) if entry.cut else entry.text for entry in reply.entries if is_answer(entry)]
    return AnswerStatus(
        id=epochs.message(received.number),
        is_settled=_is_settled(reply),
        text=spoken[-1] if spoken and reply.ended else "\n".join(reply.notices),
        refused=received.reason if received.state is InboxState.REFUSED else None,
        has_failed=received.state is InboxState.FAILED,
    )


@dataclass(frozen=True, kw_only=True)
class ServedAccountReceiver(AccountReceiver):
    """What an adapter gets while this worker serves its account."""

    fence: int
    health: AccountHealth
    on_connected: Callable[[], None]

    async def connected(self) -> None:
        self.on_connected()
        self.health.connected_since = now = self.ctx.clock.now()
        await retry_until_stored(
            self.ctx.store, self.ctx.store.accounts.mark_connected(self.platform, self.account, self.fence, now)
        )
        # Pauses grew while the platform was away. What it asked to send later still waits.
        await retry_until_stored(self.ctx.store, self.ctx.store.outbox.end_pauses(self.platform, self.account, now))

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        if self.health.connected_since is None:  # an adapter that delivers is connected, even if it did not say so
            await self.connected()
        await super().receive(inbound, trust)

    async def save_position(self, position: str) -> None:
        keep = self.ctx.store.accounts.save_position(self.platform, self.account, self.fence, position)
        await self.ctx.store.transact(keep)


def _released_topic(account: str) -> str:
    """Return the topic on which gateways that wait for an account learn that it was released."""
    return f"released {account}"


@transaction
def _notify_released(accounts: Collection[str]) -> Statements[None]:
    for account in accounts:
        yield Notify(_released_topic(account))


@transaction
def _report_down(
    mark_down: Transaction[datetime], notice: Outbound, reporting: Reporting, now: datetime, *, refused: bool
) -> Statements[None]:
    """Record that an account is down. Tell the owner once, elsewhere, if the platform refuses it or stays away."""
    since = yield from mark_down
    if refused or now - since >= REPORT_DOWN_AFTER:
        account = account_text(notice.platform, notice.account)
        cause = SendCause(CauseKind.PROBLEM, account, since.isoformat())
        yield from notify_owner(notice, notice.text, cause, reporting, now, avoids=((account,),))


REPORT_DOWN_AFTER = timedelta(minutes=5)
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
FIRST_REFUSAL_PAUSE_SECONDS = 300.0
LONGEST_REFUSAL_PAUSE_SECONDS = 3600.0
CLOSE_TIMEOUT_SECONDS = 10.0


@dataclass(slots=True)
class ReconnectBackoff:
    """How long to wait before connecting again: longer each time, until a connection lasts."""

    failures: int = 0
    pause: float = 0.0

    def after(self, lasted: timedelta | None) -> float:
        """Return the seconds to wait after a connection that lasted so long, or after none at all.

        A connection that lasted for less than the pause before it counts as failed.
        """
        worked = lasted is not None and lasted.total_seconds() > self.pause
        self.failures = 0 if worked else self.failures + 1
        self.pause = backoff(self.failures + 1, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
        return self.pause

    def after_refusal(self) -> float:
        """Wait long: a refusal usually stands until a person fixes the account."""
        self.pause = min(LONGEST_REFUSAL_PAUSE_SECONDS, max(FIRST_REFUSAL_PAUSE_SECONDS, 2 * self.pause))
        return self.pause


@dataclass(kw_only=True)
class AccountRunner:
    ctx: EngineContext
    resources: Resources
    live: LiveState
    intake: Intake
    adapters: Mapping[str, Adapter]
    account_taken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this worker starts to serve another account."""
    returns: int = 0
    """How often somebody came back to an empty chat."""
    health: dict[str, AccountHealth] = field(default_factory=dict[str, AccountHealth])
    menu: Callable[[], Sequence[MenuCommand]] = tuple
    """Returns the commands for the platform's menu."""
    _retry_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends all pauses when set."""
    _menus: dict[str, "asyncio.Task[None]"] = field(default_factory=dict[str, "asyncio.Task[None]"])

    def served(self) -> Collection[str]:
        return [name for name, health in self.health.items() if health.served_since is not None]

    async def serve(self) -> None:
        """Serve every account until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, adapter in self.adapters.items():
                self.health[name] = AccountHealth()
                self.live.connecting.add(name)
                serve = partial(self._serve, adapter, self.health[name])
                group.create_task(run_forever(serve), name=f"account {name}")

    def receiver(self, platform: str, account: str | None) -> AccountReceiver:
        """Return a receiver that works even if another worker serves the account."""
        return AccountReceiver(
            ctx=self.ctx,
            resources=self.resources,
            live=self.live,
            intake=self.intake,
            platform=platform,
            account=account,
            count_return=self._count_return,
        )

    def retry_now(self) -> None:
        """Connect waiting accounts at once: something may have been fixed."""
        self._retry_now.set()
        self._retry_now = asyncio.Event()

    async def _serve(self, adapter: Adapter, health: AccountHealth) -> None:
        with self.ctx.store.listen(_released_topic(self._name(adapter))) as released:
            while True:
                released.clear()
                fence = await retry_outage(lambda: self._hold(adapter))
                if fence is None:
                    self.live.connecting.discard(self._name(adapter))
                    await wait_any(released, timeout=self._heartbeat_seconds)
                    continue
                try:
                    await self._run_while_held(adapter, health, fence)
                finally:
                    health.served_since = health.connected_since = None

    async def _run_while_held(self, adapter: Adapter, health: AccountHealth, fence: int) -> None:
        log.info("serving an account", extra={"action": "account.acquired", "account": self._name(adapter)})
        health.served_since = self.ctx.clock.now()
        self.live.connecting.add(self._name(adapter))
        self.account_taken.set()
        running = asyncio.create_task(self._run(adapter, health, fence))
        try:
            while await self._still_held(adapter, fence, running):
                pass
            self.ctx.meter.count("accounts_lost")
            log.warning(
                "no longer serving an account",
                extra={"action": "account.lease_lost", "account": self._name(adapter)},
            )
        finally:
            running.cancel()
            await close_all("an adapter", [running], {"action": "account.close_error"}, within=CLOSE_TIMEOUT_SECONDS)
            if menu := self._menus.pop(self._name(adapter), None):
                menu.cancel()

    async def _still_held(self, adapter: Adapter, fence: int, running: "asyncio.Task[None]") -> bool:
        """Wait for a heartbeat and renew the lease. Raises the error that ended the run, if it has ended."""
        await asyncio.wait({running}, timeout=self._heartbeat_seconds)
        if running.done():
            running.result()
        return await retry_outage(lambda: self._hold(adapter)) == fence

    async def _run(self, adapter: Adapter, health: AccountHealth, fence: int) -> None:
        """Connect, and reconnect whenever the connection is lost."""
        receiver = ServedAccountReceiver(
            ctx=self.ctx,
            resources=self.resources,
            live=self.live,
            intake=self.intake,
            platform=adapter.platform.name,
            account=adapter.account,
            count_return=self._count_return,
            fence=fence,
            health=health,
            on_connected=partial(self._on_connected, adapter),
        )
        backoffs = ReconnectBackoff()
        while True:
            refused, at_least = False, 0.0
            try:
                with contain_cancellation():
                    await adapter.run(receiver)
                why = "the adapter stopped"
            except PlatformDown as error:
                why, refused = redact(str(error)), isinstance(error, PlatformRefused)
            except PlatformBusy as error:
                why, at_least = str(error), error.after
            except PlatformError as error:
                why = describe_error(error)
            except Exception as error:  # noqa: BLE001 - restart an adapter after any error
                why = f"the adapter broke: {describe_error(error)}"
            lasted = health.connected_since and self.ctx.clock.now() - health.connected_since
            pause = backoffs.after_refusal() if refused else backoffs.after(lasted)
            await self._record_down(adapter, health, fence, why, refused=refused)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(at_least, pause * self.ctx.rng.uniform(0.5, 1.0))):
                    await self._retry_now.wait()

    async def _record_down(
        self, adapter: Adapter, health: AccountHealth, fence: int, why: str, *, refused: bool
    ) -> None:
        health.connected_since, health.last_error = None, why
        self.ctx.meter.count("reconnects")
        if refused:
            log.error(
                "the platform refused an account: %s",
                why,
                extra={"action": "account.rejected", "account": self._name(adapter)},
            )
        else:
            log.warning("connection lost: %s", why, extra={"action": "account.down", "account": self._name(adapter)})
        name, account, now = adapter.platform.name, adapter.account, self.ctx.clock.now()
        down = self.ctx.store.accounts.mark_down(name, account, fence, now, why, refused=refused)
        text = " ".join(describe_account_problem(account_name(name, account), why, is_refused=refused))
        notice = Outbound(platform=name, account=account, chat_id="", text=text)
        reporting = Reporting(self.ctx.replies.routes, self.ctx.settings.grants)
        await retry_until_stored(self.ctx.store, _report_down(down, notice, reporting, now, refused=refused))

    def _on_connected(self, adapter: Adapter) -> None:
        name = self._name(adapter)
        self.live.connecting.discard(name)
        if supports(adapter, CommandMenu) and (name not in self._menus or self._menus[name].done()):
            self._menus[name] = asyncio.create_task(self._show_menu(adapter))

    async def _show_menu(self, adapter: CommandMenu) -> None:
        try:
            async with asyncio.timeout(self.ctx.settings.limits.send_limit.total_seconds()):
                with contain_cancellation():
                    await adapter.show_menu(self.menu())
        except Exception as error:  # noqa: BLE001 - commands work without a menu
            log.info("the menu was not shown: %s", describe_error(error), extra={"action": "menu.failed"})

    def _count_return(self) -> None:
        self.returns += 1

    async def release(self) -> None:
        for adapter in self.adapters.values():
            release = self.ctx.store.accounts.release(adapter.platform.name, adapter.account, self.ctx.worker)
            await self.ctx.store.transact(release)

    async def notify_released(self) -> None:
        await self.ctx.store.transact(_notify_released(self.adapters.keys()))

    async def _hold(self, adapter: Adapter) -> int | None:
        """Serve the account, or leave it to others while our clock is wrong."""
        name, account, now = adapter.platform.name, adapter.account, self.ctx.clock.now()
        if self.live.clock_problem:
            await self.ctx.store.transact(self.ctx.store.accounts.release(name, account, self.ctx.worker))
            return None
        hold = self.ctx.store.accounts.acquire(
            name, account, self.ctx.worker, now, self.ctx.settings.limits.lease, alone=self.ctx.alone
        )
        return await self.ctx.store.transact(hold)

    @property
    def _heartbeat_seconds(self) -> float:
        return self.ctx.settings.limits.lease.total_seconds() / 3

    @staticmethod
    def _name(adapter: Adapter) -> str:
        return account_text(adapter.platform.name, adapter.account)
