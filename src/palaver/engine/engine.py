"""The engine: put its parts together, start, drain and stop them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from palaver.db.transaction import Transaction
from palaver.engine.accounts import AccountHealth, AccountRunner
from palaver.engine.attachments import Attachments
from palaver.engine.commands import Commands
from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.delivery.departures import Departures
from palaver.engine.delivery.replies import Replies
from palaver.engine.delivery.worker import DeliveryWorker
from palaver.engine.explain import Explanation, explain
from palaver.engine.hooks import Hooks, Meter, NoMeter, PartialAnswerListener
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.intake.receiver import Intake
from palaver.engine.intake.roles import role_of_source
from palaver.engine.jobs.creation import JobRules, job_rules
from palaver.engine.jobs.scheduler import Scheduler
from palaver.engine.maintenance import Maintenance
from palaver.engine.relay import Relay
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.retry import retry_outage, run_forever
from palaver.engine.settings import Agents, Settings
from palaver.engine.turns.agent import RequestBuilder, model_name
from palaver.engine.turns.dispatcher import Dispatcher
from palaver.engine.turns.runner import TurnRunner
from palaver.engine.turns.tools import TurnTools
from palaver.model.access import AccessRole
from palaver.model.command import Invocation
from palaver.model.errors import StoreError
from palaver.model.key import SessionKey
from palaver.model.prompt import Pseudonyms
from palaver.model.session import Principal
from palaver.model.source import Source, Trust, account_text
from palaver.model.turn import Inbound
from palaver.protocols.adapter import Adapter, Receiver
from palaver.protocols.agent import Agent, Suggesting
from palaver.protocols.capabilities import EventSubscriber, supports
from palaver.protocols.clock import Clock
from palaver.protocols.hooks import Hook
from palaver.store.conversations.sessions import open_by_key
from palaver.store.people.access_rules import AccessRules
from palaver.store.process_notices import SeesOutput
from palaver.store.store import Store

log = logging.getLogger(__name__)

RELEASE_TIMEOUT_SECONDS = 10.0


class Engine:
    """Takes a message to its delivered answer. `serve` it until cancelled; call `drain` first for a clean stop."""

    _turn_starters: Sequence["asyncio.Task[None]"] = ()

    def __init__(
        self,
        *,
        store: Store,
        adapters: Sequence[Adapter],
        agent: Agent | Agents,
        commands: Commands,
        settings: Settings,
        clock: Clock,
        worker: str,
        alone: bool,
        hooks: Sequence[Hook] = (),
        meter: Meter | None = None,
        pseudonyms: Pseudonyms | None = None,
        chance: random.Random | None = None,
        resources: Resources | None = None,
        watch: PartialAnswerListener | None = None,
        loops: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        departures: Departures | None = None,
    ) -> None:
        """`loops` run beside the engine's own, by name, and are restarted like those."""
        self._loops = loops or {}
        accounts = {account_text(adapter.platform.name, adapter.account): adapter for adapter in adapters}
        self._ctx = ctx = EngineContext(
            store=store,
            settings=settings,
            agents=agent if isinstance(agent, Agents) else Agents(agent),
            clock=clock,
            replies=Replies(accounts, commands.table, settings.quotes),
            worker=worker,
            alone=alone,
            subscriptions=tuple(adapter.subscription() for adapter in adapters if supports(adapter, EventSubscriber)),
            hooks=Hooks(hooks, meter, watch),
            meter=meter or NoMeter(),
            rng=chance or random.Random(),  # noqa: S311 - it spreads retries
        )
        self._resources = resources = resources or Resources(reply_waiter=ReplyWaiter(store))
        self._live = live = LiveState(departures=departures or Departures())
        self._attachments = attachments = Attachments(ctx, resources, live)
        self._tools = TurnTools(ctx, resources, attachments)
        self._commands = CommandDispatcher(ctx, resources, attachments, self._tools, commands)
        self._intake = Intake(ctx, resources, self._commands)
        requests = RequestBuilder(ctx=ctx, key=pseudonyms)
        self._runner = TurnRunner(
            ctx=ctx,
            resources=resources,
            live=live,
            attachments=attachments,
            tools=self._tools,
            requests=requests,
            commands=self._commands,
        )
        self._dispatcher = Dispatcher(ctx, live, self._runner.start_next)
        self._accounts = AccountRunner(
            ctx=ctx, resources=resources, live=live, intake=self._intake, adapters=accounts, menu=self._commands.menu
        )
        self._deliveries = DeliveryWorker(
            ctx=ctx, resources=resources, live=live, accounts=self._accounts, place_of=self._intake.place_of
        )
        self._scheduler = Scheduler(ctx=ctx, intake=self._intake, rights=self._commands.rights)
        self._maintenance = Maintenance(
            ctx=ctx,
            resources=resources,
            live=live,
            dispatcher=self._dispatcher,
            runner=self._runner,
            deliveries=self._deliveries,
        )

    @property
    def load_access(self) -> Callable[[], Transaction[AccessRules]]:
        """Loads the grants of now, the configured ones included."""
        return self._commands.rights.rules

    @property
    def sees_output(self) -> SeesOutput:
        """Tells whether the sender of an accepted message can use the terminal now."""
        return self._commands.rights.sees_output

    # Run

    async def serve(self) -> None:
        """Run everything until cancelled. Cancelling without `drain` stops it as a crash would."""
        try:
            with self._intake, self._live.departures.opened(self._ctx.worker):
                await retry_outage(self._intake.load)
                await retry_outage(self._maintenance.compare_clocks)
                async with asyncio.TaskGroup() as group:
                    self._turn_starters = [
                        group.create_task(run_forever(self._dispatcher.serve), name="dispatcher"),
                        group.create_task(run_forever(self._maintenance.recover), name="recovery"),
                        group.create_task(run_forever(self._scheduler.serve), name="scheduler"),
                    ]
                    group.create_task(self._accounts.serve(), name="accounts")
                    group.create_task(run_forever(self._intake.catch_up), name="commands")
                    group.create_task(run_forever(self._deliveries.serve), name="deliveries")
                    group.create_task(run_forever(self._maintenance.serve_heartbeat), name="heartbeat")
                    group.create_task(run_forever(self._maintenance.watch_epochs), name="epochs")
                    group.create_task(run_forever(self._maintenance.sweep), name="sweeper")
                    group.create_task(run_forever(self._maintenance.scrub), name="scrubber")
                    group.create_task(run_forever(self._maintenance.retain), name="retention")
                    group.create_task(run_forever(self._maintenance.confirm_start), name="start check")
                    group.create_task(run_forever(self._attachments.serve_clean_up), name="files")
                    for name, loop in self._loops.items():
                        group.create_task(run_forever(loop), name=name)
        finally:
            self._dispatcher.abandon()
            self._runner.abandon()
            self._deliveries.abandon()
            self._ctx.hooks.abandon()

    async def drain(self) -> None:
        """Start no new turns, let running ones finish up to a limit, and interrupt the rest.

        Messages that arrive meanwhile are accepted. They and interrupted turns are answered after the restart.
        """
        log.info("draining", extra={"action": "gateway.draining"})
        for task in self._turn_starters:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._ctx.settings.limits.drain_limit.total_seconds()):
                await self._dispatcher.drain()
                await self._runner.titles.drain()
        self._runner.drain()
        with suppress(TimeoutError, StoreError):  # the rest is done after the restart
            async with asyncio.timeout(self._ctx.settings.limits.send_limit.total_seconds()):
                await self._dispatcher.drain()
                await self._deliveries.drain()
                await self._maintenance.finish_erasures()
                await self._ctx.hooks.drain()
        with suppress(TimeoutError, StoreError):  # the leases run out instead
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                await self._accounts.release()
                await self._maintenance.release()
                # A clean stop does not count as a crash.
                await self._ctx.store.transact(self._ctx.store.accounts.reset_start_count())

    async def notify_released(self) -> None:
        """Wake the gateways that wait for our accounts: call it once `serve` has ended, so that two never connect."""
        with suppress(TimeoutError, StoreError):  # they look again soon
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                await self._accounts.notify_released()

    def reload(self, settings: Settings, agents: Agents) -> None:
        """Use other settings and agents from now on. Running turns keep the old ones; refused accounts try again."""
        self._ctx.set_settings(settings)
        self._ctx.agents = agents
        self._accounts.retry_now()

    # Ask

    @property
    def settings(self) -> Settings:
        return self._ctx.settings

    @property
    def health(self) -> Mapping[str, AccountHealth]:
        return self._accounts.health

    @property
    def clock_problem(self) -> str:
        """Say why this gateway serves nothing: its machine has another time than the database."""
        return self._live.clock_problem

    async def key_of(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a message from this source goes to."""
        return await self._intake.key_of(source)

    async def model_of(self, source: Source) -> str | None:
        """Return the name of the model that answers this source; None if its agent has no names for models."""
        key = await self.key_of(source)
        if instead := self._runner.answers_instead(key):
            return instead
        session = await self._ctx.store.read(open_by_key(key))
        return model_name(self._ctx.agents.of(key.profile), session.override if session else None)

    async def suggestions(self, source: Source) -> Sequence[str]:
        """Return what somebody can say here, if the agent knows that; the best first."""
        agent = self._ctx.agents.of((await self.key_of(source)).profile)
        if not supports(agent, Suggesting):
            return ()
        role = await self._ctx.store.read(role_of_source(source, self._ctx.settings.grants))
        return agent.suggestions(await self._tools.names(role or AccessRole.GUEST, source))

    async def place_of(self, source: Source) -> SessionKey:
        """Return the key of the chat itself, even while it is attached to another conversation."""
        return await self._intake.place_of(source)

    def first_account(self, platform: str) -> str | None:
        """Return the first of our accounts on a platform."""
        return next(iter(self._ctx.replies.accounts(platform)), None)

    def job_rules(self, profile: str) -> JobRules:
        """Return what this gateway can do for a scheduled job."""
        return job_rules(self._ctx, self._resources, profile)

    async def explain(self, inbound: Inbound, trust: Trust, now: datetime | None = None) -> Explanation:
        """Return what would be decided about a message now, and by which rules. Nothing is accepted."""
        explained = explain(
            inbound,
            trust,
            now or self._ctx.clock.now(),
            settings=self._ctx.settings,
            accounts=self._intake.accounts,
            commands=self._commands.table,
        )
        return await self._ctx.store.read(explained)

    # Relay

    @property
    def account_names(self) -> Collection[str]:
        """Return platform and name of every account of ours: `telegram:helper`."""
        return self._ctx.replies.adapters.keys()

    @property
    def relay(self) -> Relay:
        """What this gateway does as a connector for others."""
        return Relay(ctx=self._ctx, resources=self._resources, live=self._live, intake=self._intake)

    # Receive

    def receiver(self, platform: str, account: str | None) -> Receiver:
        """Return a receiver for what reaches an account over HTTP, even if another worker serves the account."""
        return self._accounts.receiver(platform, account)

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Accept a message that reached this gateway. It is stored when this returns."""
        with self._ctx.meter.step("accept"):
            await self._intake.receive(inbound, trust)

    def agent_of(self, profile: str) -> Agent:
        """Return the agent that answers in a profile."""
        return self._ctx.agents.of(profile)

    async def run_command(self, given: str | Invocation, session: str, principal: Principal) -> str:
        """Run a command, as typed or parsed, in a session from outside its chat, and return the answer.

        Raises what prevents it; nothing is changed then.
        """
        return await self._commands.run_outside_chat(given, session, principal)
