"""Turns: begin, run, settle. Whatever happens in between, a turn ends in a named state."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.attachments import Attachments, PendingAttachments
from palaver.engine.context import EngineContext
from palaver.engine.delivery.drafts import Draft
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.intake.effective_role import by_now
from palaver.engine.retry import retry_outage
from palaver.engine.turns.agent_events import AgentRun, Outcome
from palaver.engine.turns.agent_request import RequestBuilder, TurnSnapshot, Welcomes
from palaver.engine.turns.compaction import Compaction
from palaver.engine.turns.completion import TurnCompletion
from palaver.engine.turns.quotas import QuotaCheck
from palaver.engine.turns.running import CompactionRequest, RunningTurn, StopReason, TurnSignals, TypingIndicator
from palaver.engine.turns.titles import TitleGenerator
from palaver.engine.turns.tools import TurnTools
from palaver.model.busy import Batch, BusyMode, choose_batch
from palaver.model.errors import StaleFence
from palaver.model.key import SessionKey
from palaver.model.lifecycle import TurnState
from palaver.model.source import DM
from palaver.model.transcript import Entry
from palaver.model.turn import Inbound, Received, Turn
from palaver.protocols.agent import Failure, FailureKind
from palaver.protocols.hooks import EventKind, GatewayEvent, PartialAnswer
from palaver.store.results import Begun, Held, Opening

__all__ = [
    "TurnRunner",
]

log = logging.getLogger(__name__)

_ALMOST_FULL = 0.95
_PATIENCE = 120.0
"""An agent that wants to be left alone for longer is not asked again in this turn."""


@dataclass(kw_only=True)
class TurnRunner:
    ctx: EngineContext
    scenes: RequestBuilder
    welcomes: Welcomes
    obedience: CommandDispatcher
    closing: TurnCompletion
    compacting: Compaction = field(init=False)
    titles: TitleGenerator = field(init=False)
    _running: dict[int, RunningTurn] = field(default_factory=dict[int, RunningTurn])
    _drains: bool = False

    def __post_init__(self) -> None:
        self.compacting = Compaction(ctx=self.ctx, scenes=self.scenes, obedience=self.obedience, closing=self.closing)
        self.titles = TitleGenerator(ctx=self.ctx, scenes=self.scenes)

    # Begin

    async def take(self, key: SessionKey) -> datetime | None:
        """What waits longest in a conversation: a command is obeyed, messages become a turn.

        Gives the time before which the conversation need not be looked at again, if there is one.
        """
        # Listened to before the turn exists: whatever is said to the turn comes after.
        with TurnSignals(self.ctx.store, key) as bell:
            with self.ctx.meter.step("begin"):
                begun, scene = await self.ctx.store.transact(self.scenes.after(self._begin(key)))
            if isinstance(begun, Held):
                if begun.until is None:
                    return await self._heed_head(begun.head)
                return begun.until
            if begun is not None:
                self.closing.tell(partial(self._began, begun, self.ctx.clock.now()))
                if begun.turn.state is TurnState.FAILED:
                    self.closing.capped(begun.turn)
                else:
                    await self._see_through(begun.turn, begun.messages, bell, scene)
        return None

    @transaction
    def _said(self, turn: Turn) -> Statements[list[Received]]:
        """What a turn of earlier answers, by people as they are now."""
        messages = yield from self.ctx.store.turns.messages(turn)
        return (yield from by_now(self.ctx.store, self.ctx.options.grants, messages))

    async def _heed_head(self, head: Received) -> datetime | None:
        """A command, or a message that is not ready."""
        if self.obedience.is_command(head):
            await self.obedience.obey(head)
            return None
        return await PendingAttachments(self.ctx).further(head)

    async def take_over(self, turn: Turn, *, takes_up: bool) -> None:
        """A turn that was cut off: told to the agent and gone on with, or given up and told to the people."""
        with TurnSignals(self.ctx.store, turn.key) as bell:
            bell.ring()  # What was said to the turn while nobody was at work on it counts.
            turns = self.ctx.store.turns
            messages = await retry_outage(lambda: self.ctx.store.read(self._said(turn)))
            try:
                is_worth_it = bool(messages) and takes_up and self._is_worth_it(turn)
                wish = self.compacting.wish(messages)
                if wish and is_worth_it:
                    await self._compact(turn, messages, bell, wish)
                elif wish:
                    await self.compacting.give_up(turn, messages)
                elif is_worth_it:
                    if turn.attempt > 1:  # else it was not cut off: it asked, and was answered
                        note = self.closing.note(texts.cut_off_note(turn.attempt))
                        await self.ctx.retry_until_stored(turns.append_to_turn(turn, [note]))
                    self.closing.tell(lambda: [self.closing.happening(EventKind.TURN_STARTED, turn)])
                    await self._see_through(turn, messages, bell)
                else:
                    await self.closing.give_up(turn, messages[-1].inbound.source)
            except StaleFence:
                self.closing.lost(turn)

    def _begin(self, key: SessionKey) -> Transaction[Begun | Held | None]:
        now = self.ctx.clock.now()
        begin = self.ctx.store.turns.begin(
            key,
            self.ctx.worker,
            now,
            self.ctx.options.lease,
            self.ctx.options.reset_rule,
            choose=partial(self._choose, now),
            welcome=self.welcomes.welcome,
        )
        capped = QuotaCheck(self.ctx).within(begin, now)
        return self.ctx.event_outbox.with_events(
            capped, lambda begun: self._began(begun, now) if isinstance(begun, Begun) else []
        )

    def _choose(self, now: datetime, waiting: Sequence[Received]) -> Batch:
        choice = choose_batch(
            waiting,
            self.ctx.options.busy_mode(waiting[0].inbound),
            now,
            self.ctx.options.burst_window,
            stands_alone=self.obedience.is_command,
            more_follows=self._more_follows,
        )
        return PendingAttachments(self.ctx).of(choice, waiting)

    def _offered(self, running: RunningTurn, now: datetime, waiting: Sequence[Received]) -> Sequence[Received]:
        """What goes into the running turn: what was said to be, and what leads the line of a chat that steers.

        What was said elsewhere is answered there, by a turn of its own.
        """
        steers = bool(waiting) and self.ctx.options.busy_mode(waiting[0].inbound) is BusyMode.STEER
        leads = self._choose(now, waiting).take if steers else 0
        wanted = (each for place, each in enumerate(waiting) if place < leads or each.inbound.busy is BusyMode.STEER)
        place = self.ctx.where_now(running.source).address
        here = (each for each in wanted if self.ctx.where_now(each.inbound.source).address == place)
        return [each for each in here if each.inbound.has_all_files]

    def _more_follows(self, received: Received) -> bool:
        """An album, or a text so long that the platform may have cut it."""
        inbound = received.inbound
        adapter = self.ctx.replies.adapter_for(inbound.source.platform, inbound.source.account)
        if inbound.burst or adapter is None:
            return bool(inbound.burst)
        return adapter.limits.unit.measure(inbound.text) > _ALMOST_FULL * adapter.limits.text

    def _is_worth_it(self, turn: Turn) -> bool:
        """Within the budget of attempts, and not too long after it was cut off."""
        fresh_for, cut_off = self.ctx.options.fresh_for, turn.halted or turn.started
        is_fresh = fresh_for is None or self.ctx.clock.now() - cut_off <= fresh_for
        return is_fresh and turn.attempt <= self.ctx.options.attempts

    def _began(self, begun: Begun, now: datetime) -> list[GatewayEvent]:
        """What has happened when a turn begins."""
        opened, told = begun.opened, partial(self.closing.happening, turn=begun.turn, at=now)
        happened: list[GatewayEvent] = []
        if opened.ended is not None:
            happened.append(told(EventKind.SESSION_ENDED, reason=opened.reason, session=opened.ended))
        if opened.opening is Opening.RESET:
            happened.append(told(EventKind.SESSION_RESET, reason=opened.reason))
        if opened.opening in {Opening.RESET, Opening.CREATED}:
            happened.append(told(EventKind.SESSION_STARTED))
        is_capped = begun.turn.state is TurnState.FAILED
        happened.append(told(EventKind.TURN_FAILED, reason="capped") if is_capped else told(EventKind.TURN_STARTED))
        return happened

    # Run

    async def _see_through(
        self, turn: Turn, messages: Sequence[Received], bell: TurnSignals, scene: TurnSnapshot | None = None
    ) -> None:
        """A turn to its end, and then what is due after it."""
        log.info("turn began", extra={"action": "turn.started", "turn": turn.number, "key": turn.key.text})
        with self._at_work(turn, messages, bell) as running, self.ctx.meter.step("turn"):
            running.scene = scene
            await self._run(running)
        self.titles.consider(running)
        if self.compacting.is_due(running) and not self._drains:
            tidying = await self.compacting.occupy(bell.key)
            if tidying is not None:
                bell.ring()  # What was said since the last turn ended counts.
                await self._compact(tidying, messages, bell, CompactionRequest())

    async def _compact(
        self, turn: Turn, messages: Sequence[Received], bell: TurnSignals, wish: CompactionRequest
    ) -> None:
        with self._at_work(turn, messages, bell) as running:
            await self.compacting.run(running, wish)

    @contextmanager
    def _at_work(self, turn: Turn, messages: Sequence[Received], bell: TurnSignals) -> Generator[RunningTurn]:
        """While it is, its lease is extended and what is said to it is heard. Taken over, it is left where it is."""
        running = RunningTurn(turn=turn, messages=messages, stop=asyncio.get_running_loop().create_future())
        self._running[turn.number] = running
        bell.answer(partial(self._heed, running, bell))
        try:
            yield running
        except StaleFence:
            self.closing.lost(turn)
        finally:
            bell.ignore()
            del self._running[turn.number]
            running.answering = None  # It holds the turn as well: such a ring would stay until it is looked for.

    async def _run(self, running: RunningTurn) -> None:
        if all(message.inbound.observed for message in running.messages):
            await self.closing.settle(running, [], [])
            return
        limit = self.ctx.options.turn_limit
        presence = TypingIndicator(self.ctx, running.source)
        try:
            outcome = await running.until_over(self._ask_until_clear(running), limit, self.ctx)
        finally:
            presence.end()
        if running.draft is not None:
            await running.draft.rest()
        if isinstance(outcome, StopReason):
            await self.closing.cut_short(running, outcome)
        else:
            late = Failure(kind=FailureKind.STUCK, detail=f"the turn took longer than {limit}")
            await self.closing.conclude(running, outcome or late)

    async def _heed(self, running: RunningTurn, bell: TurnSignals) -> None:
        """Something was said to the turn: that it stop, or a message that, in this chat, takes its place."""
        said = await retry_outage(lambda: self.ctx.store.read(self.ctx.store.steering.signals(running.turn)))
        if said.key != bell.key:
            bell.follow(said.key)
            running.turn = replace(running.turn, key=said.key)
        if said.stop:
            running.end(StopReason.ASKED)
        elif any(self._interrupts(each.inbound) for each in said.waiting):
            running.end(StopReason.NEWER)

    def _interrupts(self, inbound: Inbound) -> bool:
        """Not what is only overheard, nor what acts at once beside the turn."""
        takes_its_place = self.ctx.options.busy_mode(inbound) is BusyMode.INTERRUPT
        return takes_its_place and not inbound.observed and not self.obedience.is_urgent(inbound)

    async def _ask_until_clear(self, running: RunningTurn) -> Outcome:
        """Where the model finds the conversation too long it is summarised, once, and the agent asked again."""
        answering = running.answering = self._answering(running)
        outcome = await self._ask_while_busy(running, answering)
        is_too_long = isinstance(outcome, Failure) and outcome.kind is FailureKind.OVERFLOW
        if is_too_long and await self.compacting.make_room(running):
            return await self._ask_while_busy(running, answering)
        return outcome

    async def _ask_while_busy(self, running: RunningTurn, answering: AgentRun) -> Outcome:
        outcome = await self._ask(running, answering)
        for earlier in range(1, self.ctx.options.agent_tries):
            if not (isinstance(outcome, Failure) and outcome.kind is FailureKind.TRANSIENT):
                break
            asked_for = outcome.after or 0.0
            if asked_for > _PATIENCE:
                break
            self.ctx.meter.count("agent_retries")
            log.info("asking the agent again", extra={"action": "agent.retry", "turn": running.turn.number})
            await asyncio.sleep(max(asked_for, 2**earlier * self.ctx.chance.uniform(0.5, 1.0)))
            outcome = await self._ask(running, answering)
        return outcome

    async def _ask(self, running: RunningTurn, answering: AgentRun) -> Outcome:
        """With the transcript as it is now: what tools did before a failure is in it."""
        scene, running.scene = running.scene or await self._look(running), None
        if running.shown is not None:  # what was allowed may have been used by the agent that was asked before
            scene = replace(scene, goes_on=False)
        running.shown = scene
        request = self.scenes.request(
            running.turn,
            scene,
            new_messages=self._new_messages(running),
            read_file=partial(Attachments(self.ctx).read, running.turn),
        )
        toolbox = await TurnTools(self.ctx).toolbox(running, request.approvals)
        return await answering.ask(replace(request, toolbox=toolbox) if toolbox.tools else request)

    async def _look(self, running: RunningTurn) -> TurnSnapshot:
        look = self.scenes.scene(running.turn, running.messages)
        return await retry_outage(lambda: self.ctx.store.read(look))

    def _new_messages(self, running: RunningTurn) -> Callable[[], Awaitable[tuple[str, ...]]]:
        async def new_messages() -> tuple[str, ...]:
            offers = partial(self._offered, running, self.ctx.clock.now())
            steering = self.ctx.store.steering
            said = await retry_outage(lambda: self.ctx.store.read(steering.signals(running.turn)))
            if not offers(said.waiting):
                return ()
            running.hear(await self.ctx.retry_until_stored(steering.steer(running.turn, offers, self.ctx.clock.now())))
            before, running.shown = running.shown, await self._look(running)
            return self.scenes.since(before or running.shown, running.shown)

        return new_messages

    def _answering(self, running: RunningTurn) -> AgentRun:
        async def write(entry: Entry) -> None:
            if entry.answers in running.filed:
                entry = entry._replace(files=running.filed.pop(entry.answers))
            await self.ctx.retry_until_stored(self.ctx.store.turns.append_to_turn(running.turn, [entry]))

        def show(text: str) -> None:
            if running.is_over:
                return
            if watch := self.ctx.hooks.watch:
                watch(PartialAnswer(session=running.turn.session, turn=running.turn.number, text=text))
            if running.draft is None:
                running.draft = self._draft(running)
            if running.draft is not None:
                running.draft.show(text)

        return AgentRun(
            agent=self.ctx.agents.of(running.turn.key.profile),
            write=write,
            show=show,
            now=self.ctx.clock.now,
            timeouts=self.ctx.timeouts,
            quiet_limit=self.ctx.options.quiet_limit,
        )

    def _draft(self, running: RunningTurn) -> Draft | None:
        source, turn = running.source, running.turn
        adapter = self.ctx.replies.adapter_for(source.platform, source.account)
        first = self.ctx.replies.to(source, "…")
        if adapter is None or not first:
            return None

        async def keep(receipt: str) -> None:
            await self.ctx.store.transact(self.ctx.store.steering.keep_draft(turn, receipt))

        async def is_next() -> bool:
            return not await self.ctx.store.read(self.ctx.store.outbox.is_owed(first[0]))

        name, limit = turn.draft_key, self.ctx.options.send_limit.total_seconds()
        return Draft(
            adapter,
            first[0],
            self.ctx.budget,
            keep=keep,
            may_begin=is_next,
            receipt=turn.draft,
            name=name,
            limit=limit,
            is_group=source.chat_kind != DM,
        )

    # From outside

    @property
    def at_work(self) -> Collection[int]:
        return tuple(self._running)

    def drain(self) -> None:
        """Cut every running turn short; each is marked, to be taken up after the restart."""
        self._drains = True
        self.abandon()
        for running in self._running.values():
            running.end(StopReason.DRAIN)

    def abandon(self) -> None:
        """Nobody waits for a title."""
        self.titles.abandon()

    async def heartbeat(self) -> None:
        """Extend the leases of all running turns; what another worker has taken over is dropped."""
        # Turns that begin meanwhile are not asked about.
        if mine := tuple(self._running.values()):
            extend = self.ctx.store.turns.extend(
                [running.turn for running in mine], self.ctx.clock.now(), self.ctx.options.lease
            )
            held = await self.ctx.store.transact(extend)
            for running in mine:
                if running.turn.number not in held:
                    running.end(StopReason.LOST)
