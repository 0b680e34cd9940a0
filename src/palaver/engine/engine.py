"""The engine: its parts put together, started, drained and stopped."""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress

from palaver.engine.accounts import AccountRunner, Health
from palaver.engine.attachments import Attachments
from palaver.engine.commands import Commands
from palaver.engine.context import EngineContext
from palaver.engine.delivery.handoff import Handoffs
from palaver.engine.delivery.replies import Replies
from palaver.engine.delivery.worker import DeliveryWorker
from palaver.engine.hooks import EventOutbox, Hooks
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.intake.receiver import Intake
from palaver.engine.maintenance import Maintenance
from palaver.engine.metrics import Meter, NoMeter
from palaver.engine.options import Options
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.retry import retry_outage, run_forever
from palaver.engine.turns.agent_request import RequestBuilder, Welcomes
from palaver.engine.turns.completion import TurnCompletion
from palaver.engine.turns.dispatcher import Dispatcher
from palaver.engine.turns.runner import TurnRunner
from palaver.model.errors import StoreError
from palaver.model.key import SessionKey
from palaver.model.naming import Pseudonyms
from palaver.model.session import Principal
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound, account_text
from palaver.protocols.adapter import Adapter, Receiver
from palaver.protocols.agent import Agent, Agents
from palaver.protocols.clock import Clock
from palaver.protocols.hooks import Hook, PartialAnswerListener
from palaver.protocols.tools import Toolset
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.store import Store

__all__ = [
    "Engine",
]

log = logging.getLogger(__name__)


class Engine:
    """From a message to its answer. `serve` until it is cancelled; `drain` first for a quiet end."""

    _takes_turns: Sequence["asyncio.Task[None]"] = ()

    def __init__(
        self,
        *,
        store: Store,
        adapters: Sequence[Adapter],
        agent: Agent | Agents,
        commands: Commands,
        options: Options,
        clock: Clock,
        worker: str,
        alone: bool,
        hooks: Sequence[Hook] = (),
        meter: Meter | None = None,
        pseudonyms: Pseudonyms | None = None,
        chance: random.Random | None = None,
        shelf: BlobStore | None = None,
        watch: PartialAnswerListener | None = None,
        toolsets: Sequence[Toolset] = (),
        waiting: ReplyWaiter | None = None,
    ) -> None:
        accounts = {account_text(adapter.platform.name, adapter.account): adapter for adapter in adapters}
        self._ctx = ctx = EngineContext(
            store=store,
            options=options,
            agents=agent if isinstance(agent, Agents) else Agents(agent),
            clock=clock,
            replies=Replies(accounts),
            worker=worker,
            alone=alone,
            event_outbox=EventOutbox(store, adapters),
            waiting=waiting or ReplyWaiter(store),
            shelf=shelf,
            toolsets=toolsets,
            hooks=Hooks(hooks, meter, watch),
            meter=meter or NoMeter(),
            chance=chance or random.Random(),  # noqa: S311 - it spreads retries
        )
        self._obedience = obedience = CommandDispatcher(ctx, commands)
        self._intake = Intake(ctx, obedience)
        self._runner = TurnRunner(
            ctx=ctx,
            scenes=RequestBuilder(store=store, platforms=ctx.replies.platforms, pseudonyms=pseudonyms),
            welcomes=Welcomes(ctx),
            obedience=obedience,
            closing=TurnCompletion(ctx),
        )
        self._dispatcher = Dispatcher(ctx, self._runner.take)
        self._serving = AccountRunner(ctx=ctx, intake=self._intake, adapters=accounts, menu=obedience.menu)
        self._deliveries = self._make_deliveries()
        self._upkeep = Maintenance(
            ctx=ctx, dispatcher=self._dispatcher, runner=self._runner, deliveries=self._deliveries
        )

    def _make_deliveries(self) -> DeliveryWorker:
        return DeliveryWorker(
            ctx=self._ctx,
            served=self._serving.served,
            served_since=lambda account: self._serving.health[account].served_since,
            taken_on=self._serving.taken_on,
            returns=lambda: self._serving.returns,
            handoffs=Handoffs(self._ctx, self._intake.place_of),
        )

    @property
    def health(self) -> Mapping[str, Health]:
        """How each account is doing."""
        return self._serving.health

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """A message that came in at this gateway, whoever serves its account: safe when this returns."""
        with self._ctx.meter.step("accept"):
            await self._intake.receive(inbound, trust)

    def meant(self, inbound: Inbound) -> Inbound:
        """What a message is kept as."""
        return self._obedience.meant(inbound)

    def receiver(self, platform: str, account: str | None) -> Receiver:
        """For what comes to an account over HTTP, at this gateway, whoever serves it; how far was read is not kept."""
        return self._serving.receiver(platform, account)

    async def key_of(self, source: Source) -> SessionKey:
        """Which conversation it is, where this source speaks."""
        return await self._intake.key_of(source)

    @property
    def options(self) -> Options:
        """As they are now."""
        return self._ctx.options

    async def place_of(self, source: Source) -> SessionKey:
        """The key of the place itself, whatever conversation it is attached to."""
        return await self._intake.place_of(source)

    async def order(self, text: str, session: str, principal: Principal) -> str:
        """Do a command from beside the chat of a session, as what they are let in as there; gives the answer.

        Raises what keeps it from being done; nothing is changed then.
        """
        return await self._obedience.order(text, session, principal)

    def adopt(self, options: Options, agents: Agents) -> None:
        """From now on other options hold, and others answer. What has begun under the old ones is not begun anew.

        Accounts that are not let in try it again at once.
        """
        self._ctx.adopt(options)
        self._ctx.agents = agents
        self._serving.try_again()

    async def serve(self) -> None:
        """Everything at once, until cancelled. Cancelled without `drain` it ends as a crash would."""
        try:
            with self._intake:
                await retry_outage(self._intake.look_around)
                async with asyncio.TaskGroup() as group:
                    self._takes_turns = [
                        group.create_task(run_forever(self._dispatcher.serve), name="lanes"),
                        group.create_task(run_forever(self._upkeep.recover), name="recovery"),
                    ]
                    group.create_task(self._serving.serve(), name="accounts")
                    group.create_task(run_forever(self._intake.catch_up), name="commands")
                    group.create_task(run_forever(self._deliveries.serve), name="deliveries")
                    group.create_task(run_forever(self._upkeep.beat), name="heartbeat")
                    group.create_task(run_forever(self._upkeep.sweep), name="sweeper")
                    group.create_task(run_forever(self._upkeep.settle_in), name="settling in")
                    group.create_task(run_forever(Attachments(self._ctx).tidy), name="files")
        finally:
            self._dispatcher.abandon()
            self._runner.abandon()
            self._deliveries.abandon()
            self._ctx.hooks.abandon()

    async def drain(self) -> None:
        """No new turns; running ones may finish up to a limit, then they are marked, to be taken up after a restart.

        Messages that arrive meanwhile are accepted, and answered after the restart.
        """
        log.info("draining", extra={"action": "gateway.draining"})
        for task in self._takes_turns:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._ctx.options.drain_limit.total_seconds()):
                await self._dispatcher.drain()
                await self._runner.titles.drain()
        self._runner.drain()
        with suppress(TimeoutError, StoreError):  # what is not done now is done after the restart
            async with asyncio.timeout(self._ctx.options.send_limit.total_seconds()):
                await self._dispatcher.drain()
                await self._deliveries.drain()
                await self._ctx.hooks.drain()
        with suppress(StoreError):  # then the leases run out
            await self._serving.release()
            # Whoever ends in good order did not crash.
            await self._ctx.store.transact(self._ctx.store.accounts.calm())
