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
from palaver.engine.attachments import Filing, Readiness
from palaver.engine.context import Ground
from palaver.engine.delivery.drafts import Draft
from palaver.engine.intake.command_dispatch import Obedience
from palaver.engine.intake.effective_role import by_now
from palaver.engine.retry import through_outages
from palaver.engine.turns.agent_events import Answering, Outcome
from palaver.engine.turns.agent_request import Scene, Scenes, Welcomes
from palaver.engine.turns.compaction import Compacting
from palaver.engine.turns.completion import Closing
from palaver.engine.turns.quotas import Capping
from palaver.engine.turns.running import Bell, Presence, Running, Stop, Wish
from palaver.engine.turns.titles import Titles
from palaver.engine.turns.tools import Tooling
from palaver.model.busy import BusyMode, Choice, choose_waiting
from palaver.model.errors import StaleFence
from palaver.model.key import SessionKey
from palaver.model.lifecycle import TurnState
from palaver.model.transcript import Entry
from palaver.model.turn import Inbound, Received, Turn
from palaver.protocols.agent import Failure, FailureKind
from palaver.protocols.hooks import Growth, Happening, Kind
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
    on: Ground
    scenes: Scenes
    welcomes: Welcomes
    obedience: Obedience
    closing: Closing
    compacting: Compacting = field(init=False)
    titles: Titles = field(init=False)
    _running: dict[int, Running] = field(default_factory=dict[int, Running])
    _drains: bool = False

    def __post_init__(self) -> None:
        self.compacting = Compacting(on=self.on, scenes=self.scenes, obedience=self.obedience, closing=self.closing)
        self.titles = Titles(on=self.on, scenes=self.scenes)

    # Begin

    async def take(self, key: SessionKey) -> datetime | None:
        """What waits longest in a conversation: a command is obeyed, messages become a turn.

        Gives the time before which the conversation need not be looked at again, if there is one.
        """
        # Listened to before the turn exists: whatever is said to the turn comes after.
        with Bell(self.on.store, key) as bell:
            with self.on.meter.step("begin"):
                begun, scene = await self.on.store.transact(self.scenes.after(self._begin(key)))
            if isinstance(begun, Held):
                if begun.until is None:
                    return await self._heed_head(begun.head)
                return begun.until
            if begun is not None:
                self.closing.tell(partial(self._began, begun, self.on.clock.now()))
                if begun.turn.state is TurnState.FAILED:
                    self.closing.capped(begun.turn)
                else:
                    await self._see_through(begun.turn, begun.messages, bell, scene)
        return None

    @transaction
    def _said(self, turn: Turn) -> Statements[list[Received]]:
        """What a turn of earlier answers, by people as they are now."""
        messages = yield from self.on.store.turns.messages(turn)
        return (yield from by_now(self.on.store, self.on.options.grants, messages))

    async def _heed_head(self, head: Received) -> datetime | None:
        """A command, or a message that is not ready."""
        if self.obedience.is_command(head):
            await self.obedience.obey(head)
            return None
        return await Readiness(self.on).further(head)

    async def take_over(self, turn: Turn, *, takes_up: bool) -> None:
        """A turn that was cut off: told to the agent and gone on with, or given up and told to the people."""
        with Bell(self.on.store, turn.key) as bell:
            bell.ring()  # What was said to the turn while nobody was at work on it counts.
            turns = self.on.store.turns
            messages = await through_outages(lambda: self.on.store.read(self._said(turn)))
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
                        await self.on.surely(turns.append_to_turn(turn, [note]))
                    self.closing.tell(lambda: [self.closing.happening(Kind.TURN_STARTED, turn)])
                    await self._see_through(turn, messages, bell)
                else:
                    await self.closing.give_up(turn, messages[-1].inbound.source)
            except StaleFence:
                self.closing.lost(turn)

    def _begin(self, key: SessionKey) -> Transaction[Begun | Held | None]:
        now = self.on.clock.now()
        begin = self.on.store.turns.begin(
            key,
            self.on.worker,
            now,
            self.on.options.lease,
            self.on.options.reset_rule,
            choose=partial(self._choose, now),
            welcome=self.welcomes.welcome,
        )
        capped = Capping(self.on).within(begin, now)
        return self.on.news.along(capped, lambda begun: self._began(begun, now) if isinstance(begun, Begun) else [])

    def _choose(self, now: datetime, waiting: Sequence[Received]) -> Choice:
        choice = choose_waiting(
            waiting,
            self.on.options.busy_mode(waiting[0].inbound),
            now,
            self.on.options.burst_window,
            stands_alone=self.obedience.is_command,
            more_follows=self._more_follows,
        )
        return Readiness(self.on).of(choice, waiting)

    def _offered(self, running: Running, now: datetime, waiting: Sequence[Received]) -> Sequence[Received]:
        """What goes into the running turn: what was said to be, and what leads the line of a chat that steers.

        What was said elsewhere is answered there, by a turn of its own.
        """
        steers = bool(waiting) and self.on.options.busy_mode(waiting[0].inbound) is BusyMode.STEER
        leads = self._choose(now, waiting).take if steers else 0
        wanted = (each for place, each in enumerate(waiting) if place < leads or each.inbound.busy is BusyMode.STEER)
        place = self.on.where_now(running.source).address
        here = (each for each in wanted if self.on.where_now(each.inbound.source).address == place)
        return [each for each in here if each.inbound.is_whole]

    def _more_follows(self, received: Received) -> bool:
        """An album, or a text so long that the platform may have cut it."""
        inbound = received.inbound
        adapter = self.on.replies.adapter_for(inbound.source.platform, inbound.source.account)
        if inbound.burst or adapter is None:
            return bool(inbound.burst)
        return adapter.limits.unit.measure(inbound.text) > _ALMOST_FULL * adapter.limits.text

    def _is_worth_it(self, turn: Turn) -> bool:
        """Within the budget of attempts, and not too long after it was cut off."""
        fresh_for, cut_off = self.on.options.fresh_for, turn.halted or turn.started
        is_fresh = fresh_for is None or self.on.clock.now() - cut_off <= fresh_for
        return is_fresh and turn.attempt <= self.on.options.attempts

    def _began(self, begun: Begun, now: datetime) -> list[Happening]:
        """What has happened when a turn begins."""
        opened, told = begun.opened, partial(self.closing.happening, turn=begun.turn, at=now)
        happened: list[Happening] = []
        if opened.ended is not None:
            happened.append(told(Kind.SESSION_ENDED, reason=opened.reason, session=opened.ended))
        if opened.opening is Opening.RESET:
            happened.append(told(Kind.SESSION_RESET, reason=opened.reason))
        if opened.opening in {Opening.RESET, Opening.CREATED}:
            happened.append(told(Kind.SESSION_STARTED))
        is_capped = begun.turn.state is TurnState.FAILED
        happened.append(told(Kind.TURN_FAILED, reason="capped") if is_capped else told(Kind.TURN_STARTED))
        return happened

    # Run

    async def _see_through(
        self, turn: Turn, messages: Sequence[Received], bell: Bell, scene: Scene | None = None
    ) -> None:
        """A turn to its end, and then what is due after it."""
        log.info("turn began", extra={"action": "turn.began", "turn": turn.number, "key": turn.key.text})
        with self._at_work(turn, messages, bell) as running, self.on.meter.step("turn"):
            running.scene = scene
            await self._run(running)
        self.titles.consider(running)
        if self.compacting.is_due(running) and not self._drains:
            tidying = await self.compacting.occupy(bell.key)
            if tidying is not None:
                bell.ring()  # What was said since the last turn ended counts.
                await self._compact(tidying, messages, bell, Wish())

    async def _compact(self, turn: Turn, messages: Sequence[Received], bell: Bell, wish: Wish) -> None:
        with self._at_work(turn, messages, bell) as running:
            await self.compacting.run(running, wish)

    @contextmanager
    def _at_work(self, turn: Turn, messages: Sequence[Received], bell: Bell) -> Generator[Running]:
        """While it is, its lease is extended and what is said to it is heard. Taken over, it is left where it is."""
        running = Running(turn=turn, messages=messages, stop=asyncio.get_running_loop().create_future())
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

    async def _run(self, running: Running) -> None:
        if all(message.inbound.observed for message in running.messages):
            await self.closing.settle(running, [], [])
            return
        limit = self.on.options.turn_limit
        presence = Presence(self.on, running.source)
        try:
            outcome = await running.until_over(self._ask_until_clear(running), limit, self.on)
        finally:
            presence.end()
        if running.draft is not None:
            await running.draft.rest()
        if isinstance(outcome, Stop):
            await self.closing.cut_short(running, outcome)
        else:
            late = Failure(kind=FailureKind.STUCK, detail=f"the turn took longer than {limit}")
            await self.closing.conclude(running, outcome or late)

    async def _heed(self, running: Running, bell: Bell) -> None:
        """Something was said to the turn: that it stop, or a message that, in this chat, takes its place."""
        said = await through_outages(lambda: self.on.store.read(self.on.store.steering.signals(running.turn)))
        if said.key != bell.key:
            bell.follow(said.key)
            running.turn = replace(running.turn, key=said.key)
        if said.stop:
            running.end(Stop.ASKED)
        elif any(self._interrupts(each.inbound) for each in said.waiting):
            running.end(Stop.NEWER)

    def _interrupts(self, inbound: Inbound) -> bool:
        """Not what is only overheard, nor what acts at once beside the turn."""
        takes_its_place = self.on.options.busy_mode(inbound) is BusyMode.INTERRUPT
        return takes_its_place and not inbound.observed and not self.obedience.is_urgent(inbound)

    async def _ask_until_clear(self, running: Running) -> Outcome:
        """Where the model finds the conversation too long it is summarised, once, and the agent asked again."""
        answering = running.answering = self._answering(running)
        outcome = await self._ask_while_busy(running, answering)
        is_too_long = isinstance(outcome, Failure) and outcome.kind is FailureKind.OVERFLOW
        if is_too_long and await self.compacting.make_room(running):
            return await self._ask_while_busy(running, answering)
        return outcome

    async def _ask_while_busy(self, running: Running, answering: Answering) -> Outcome:
        outcome = await self._ask(running, answering)
        for earlier in range(1, self.on.options.agent_tries):
            if not (isinstance(outcome, Failure) and outcome.kind is FailureKind.TRANSIENT):
                break
            asked_for = outcome.after or 0.0
            if asked_for > _PATIENCE:
                break
            self.on.meter.count("agent_retries")
            log.info("asking the agent again", extra={"action": "agent.retry", "turn": running.turn.number})
            await asyncio.sleep(max(asked_for, 2**earlier * self.on.chance.uniform(0.5, 1.0)))
            outcome = await self._ask(running, answering)
        return outcome

    async def _ask(self, running: Running, answering: Answering) -> Outcome:
        """With the transcript as it is now: what tools did before a failure is in it."""
        scene, running.scene = running.scene or await self._look(running), None
        if running.shown is not None:  # what was allowed may have been used by the agent that was asked before
            scene = replace(scene, goes_on=False)
        running.shown = scene
        request = self.scenes.request(
            running.turn,
            scene,
            meanwhile=self._meanwhile(running),
            read_file=partial(Filing(self.on).read, running.turn),
        )
        toolbox = await Tooling(self.on).toolbox(running, request.approvals)
        return await answering.ask(replace(request, toolbox=toolbox) if toolbox.tools else request)

    async def _look(self, running: Running) -> Scene:
        look = self.scenes.scene(running.turn, running.messages)
        return await through_outages(lambda: self.on.store.read(look))

    def _meanwhile(self, running: Running) -> Callable[[], Awaitable[tuple[str, ...]]]:
        async def meanwhile() -> tuple[str, ...]:
            offers = partial(self._offered, running, self.on.clock.now())
            steering = self.on.store.steering
            said = await through_outages(lambda: self.on.store.read(steering.signals(running.turn)))
            if not offers(said.waiting):
                return ()
            running.hear(await self.on.surely(steering.steer(running.turn, offers, self.on.clock.now())))
            before, running.shown = running.shown, await self._look(running)
            return self.scenes.since(before or running.shown, running.shown)

        return meanwhile

    def _answering(self, running: Running) -> Answering:
        async def write(entry: Entry) -> None:
            if entry.answers in running.filed:
                entry = entry._replace(files=running.filed.pop(entry.answers))
            await self.on.surely(self.on.store.turns.append_to_turn(running.turn, [entry]))

        def show(text: str) -> None:
            if running.is_over:
                return
            if watch := self.on.happenings.watch:
                watch(Growth(session=running.turn.session, turn=running.turn.number, text=text))
            if running.draft is None:
                running.draft = self._draft(running)
            if running.draft is not None:
                running.draft.show(text)

        return Answering(
            agent=self.on.agents.of(running.turn.key.profile),
            write=write,
            show=show,
            now=self.on.clock.now,
            limits=self.on.limits,
            quiet_limit=self.on.options.quiet_limit,
        )

    def _draft(self, running: Running) -> Draft | None:
        source, turn = running.source, running.turn
        adapter = self.on.replies.adapter_for(source.platform, source.account)
        first = self.on.replies.to(source, "…")
        if adapter is None or not first:
            return None

        async def keep(receipt: str) -> None:
            await self.on.store.transact(self.on.store.steering.keep_draft(turn, receipt))

        async def is_next() -> bool:
            return not await self.on.store.read(self.on.store.outbox.is_owed(first[0]))

        name, limit = turn.draft_name, self.on.options.send_limit.total_seconds()
        return Draft(
            adapter, first[0], self.on.budget, keep=keep, may_begin=is_next, receipt=turn.draft, name=name, limit=limit
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
            running.end(Stop.DRAIN)

    def abandon(self) -> None:
        """Nobody waits for a title."""
        self.titles.abandon()

    async def heartbeat(self) -> None:
        """Extend the leases of all running turns; what another worker has taken over is dropped."""
        # Turns that begin meanwhile are not asked about.
        if mine := tuple(self._running.values()):
            extend = self.on.store.turns.extend(
                [running.turn for running in mine], self.on.clock.now(), self.on.options.lease
            )
            held = await self.on.store.transact(extend)
            for running in mine:
                if running.turn.number not in held:
                    running.end(Stop.LOST)
