"""Compaction: the agent's summary in the place of what was said earlier, in a turn of its own or within one."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.retry import contain_cancellation, log_error, retry_outage
from palaver.engine.turns.agent_request import RequestBuilder, TurnSnapshot
from palaver.engine.turns.completion import TurnCompletion
from palaver.engine.turns.quotas import QuotaCheck
from palaver.engine.turns.running import CompactionRequest, RunningTurn, StopReason
from palaver.model.command import Invocation
from palaver.model.compaction import CompactionPlan, CompactionTrigger, plan_compaction
from palaver.model.errors import InvalidInput, NothingToCompact, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.lifecycle import TurnState
from palaver.model.quotas import QuotaReached
from palaver.model.session import Principal
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Received, Turn
from palaver.model.value import value
from palaver.protocols.agent import Excerpt, Summarising
from palaver.protocols.capabilities import supports
from palaver.store.store import Store

__all__ = [
    "COMPRESS",
    "Compaction",
]

log = logging.getLogger(__name__)

COMPRESS = "compress"
"""The command whose message is answered by a compaction."""
_BY_ITSELF = "compaction"
_KEPT = 2
"""Exchanges that are never summarised; of a conversation that is too long already, only what was said last is kept."""
_NOT_BEFORE = timedelta(hours=1)
"""Until a conversation that could not be summarised is tried again by itself."""
_STOPPED = "it was stopped"
_TOO_LONG = "it took too long"
_CAPPED = "there is no room left under a cap, /usage says how much is used"
_CUT_OFF = "the gateway was restarted meanwhile"


@value
class _Summary:
    plan: CompactionPlan
    text: str


@dataclass(kw_only=True)
class Compaction:
    ctx: EngineContext
    scenes: RequestBuilder
    obedience: CommandDispatcher
    closing: TurnCompletion
    _later: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """Sessions that could not be summarised, and until when they are left alone."""

    # After a turn

    def is_due(self, running: RunningTurn) -> bool:
        """Whether what the agent was shown in a turn nears what its model takes."""
        agent, shown, options = self._agent(running.turn), running.shown, self.ctx.options
        if running.answer is None or shown is None or not supports(agent, Summarising):
            return False
        window = agent.context_window(shown.session.override) or options.context_window
        trigger = CompactionTrigger(context_share=options.context_percent / 100, message_limit=options.message_limit)
        is_due = trigger.is_due(shown.entries, window) and not self._is_left_alone(running.turn.session)
        return is_due and _is_possible(shown.entries)

    async def occupy(self, key: SessionKey) -> Turn | None:
        """A turn for it; None where somebody speaks already, or waits."""
        now = self.ctx.clock.now()
        try:
            return await self.ctx.store.transact(
                _occupy(self.ctx.store, key, self.ctx.worker, now, self.ctx.options.lease)
            )
        except StoreUnavailable:
            return None

    # In a turn of its own

    def wish(self, messages: Sequence[Received]) -> CompactionRequest | None:
        """What a turn is for that answers nobody, or `/compress`; None for one that answers messages."""
        if not messages:
            return CompactionRequest()
        invocation = self._invocation(messages[-1])
        if invocation is None or invocation.command.name != COMPRESS:
            return None
        return CompactionRequest(focus=invocation.words.get("focus", ""), is_asked=True)

    async def run(self, running: RunningTurn, wish: CompactionRequest) -> None:
        """To its end; whatever comes of it, the conversation goes on after it."""
        made = await running.until_over(self._try(running, wish), self.ctx.options.turn_limit, self.ctx)
        match made:
            case _Summary():
                await self._put(running, wish, made)
            case StopReason.DRAIN | StopReason.LOST:
                await self.closing.cut_short(running, made)
            case StopReason():
                await self._leave(running, wish, _STOPPED)
            case None:
                await self._leave(running, wish, _TOO_LONG)
            case str():
                await self._leave(running, wish, made)

    async def give_up(self, turn: Turn, messages: Sequence[Received]) -> None:
        """It was cut off, and is not tried again; nothing has changed."""
        running = RunningTurn(turn=turn, messages=messages, stop=asyncio.get_running_loop().create_future())
        await self._leave(running, CompactionRequest(is_asked=bool(messages)), _CUT_OFF)

    async def _try(self, running: RunningTurn, wish: CompactionRequest) -> "_Summary | str":
        """A summary, or why there is none."""
        reached = self._reached(running, self.ctx.clock.now())
        if await retry_outage(lambda: self.ctx.store.read(reached)):
            return _CAPPED
        try:
            return await self._summarise(running, kept=_KEPT, focus=wish.focus)
        except NothingToCompact as refusal:
            return str(refusal)

    @transaction
    def _reached(self, running: RunningTurn, now: datetime) -> Statements[QuotaReached | None]:
        session = yield from self.ctx.store.turns.session_of(running.turn)
        return (yield from QuotaCheck(self.ctx).reached(running.messages[-1], session, now))

    async def _put(self, running: RunningTurn, wish: CompactionRequest, summary: _Summary) -> None:
        replies = self.closing.reply(running, texts.compacted(_spoken(summary.plan))) if wish.is_asked else []
        turn = running.turn
        by = Principal.speaking(running.source).name if wish.is_asked else _BY_ITSELF
        settle = self.ctx.store.turns.settle(turn, [], replies, self.ctx.clock.now(), usage=running.usage)
        try:
            steps = _all(self._compact(turn, summary, by), settle, self.ctx.store.usage.uncount_turn(turn))
            await self.closing.end(turn, steps, TurnState.DONE)
        except NothingToCompact as refusal:
            await self._leave(running, wish, str(refusal))
        else:
            self._told(running)

    async def _leave(self, running: RunningTurn, wish: CompactionRequest, why: str) -> None:
        """Everything stays as it was."""
        now, turn = self.ctx.clock.now(), running.turn
        replies = self.closing.reply(running, texts.not_compacted(why)) if wish.is_asked else []
        settle = self.ctx.store.turns.settle(turn, [], replies, now, usage=running.usage, error=why)
        await self.closing.end(turn, _all(settle, self.ctx.store.usage.uncount_turn(turn)), TurnState.FAILED)
        later = {session: until for session, until in self._later.items() if until > now}
        self._later = {**later, turn.session: now + _NOT_BEFORE}
        log.info("nothing was summarised: %s", why, extra={"action": "compaction.skipped", "turn": turn.number})

    # Within a turn

    async def make_room(self, running: RunningTurn) -> bool:
        """The model does not take the conversation: whether there is less of it now."""
        turn = running.turn
        try:
            summary = await self._summarise(running, kept=1)
            # Nothing to append: what is asked is whether the turn is still ours.
            hold = self.ctx.store.turns.append_to_turn(turn, [])
            await self.ctx.retry_until_stored(_all(self._compact(turn, summary, _BY_ITSELF), hold))
        except NothingToCompact as refusal:
            log.info("nothing was summarised: %s", refusal, extra={"action": "compaction.skipped", "turn": turn.number})
            return False
        self._told(running)
        return True

    # The summary

    async def _summarise(self, running: RunningTurn, *, kept: int, focus: str = "") -> _Summary:
        agent = self._agent(running.turn)
        if not supports(agent, Summarising):
            raise NothingToCompact("the agent cannot summarise")
        scene = await retry_outage(lambda: self.ctx.store.read(self._scene(running)))
        plan = plan_compaction(scene.entries, keep_exchanges=kept)
        passage = self.scenes.passage(running.turn, scene, plan.covered, focus)
        return _Summary(plan=plan, text=await self._ask(agent, passage, running))

    def _compact(self, turn: Turn, summary: _Summary, by: str) -> Transaction[object]:
        now = self.ctx.clock.now()
        return self.ctx.store.transcript.compact(turn.key, summary.plan, summary.text, now, by=by)

    def _scene(self, running: RunningTurn) -> Transaction[TurnSnapshot]:
        return self.scenes.scene(running.turn, running.messages)

    async def _ask(self, agent: Summarising, passage: Excerpt, running: RunningTurn) -> str:
        told = {"action": "agent.error", "turn": running.turn.number}
        quiet = asyncio.timeout(self.ctx.options.quiet_limit.total_seconds())
        try:
            async with quiet:
                with contain_cancellation():
                    gist = await agent.summarise(passage)
            running.spent = running.spent.plus(gist.usage)
        except Exception as error:
            log_error(log, "the agent broke while it summarised", error, told)
            raise NothingToCompact(_TOO_LONG if quiet.expired() else "the agent could not do it") from error
        return gist.text

    def _is_left_alone(self, session: str) -> bool:
        until = self._later.get(session)
        return until is not None and until > self.ctx.clock.now()

    def _agent(self, turn: Turn) -> object:
        return self.ctx.agents.of(turn.key.profile)

    def _invocation(self, received: Received) -> Invocation | None:
        try:
            return self.obedience.invocation(received.inbound)
        except InvalidInput:
            return None

    def _told(self, running: RunningTurn) -> None:
        self.ctx.meter.count("compactions")
        log.info("conversation summarised", extra={"action": "compaction.done", "turn": running.turn.number})


def _is_possible(entries: Sequence[Entry]) -> bool:
    try:
        plan_compaction(entries, keep_exchanges=_KEPT)
    except NothingToCompact:
        return False
    return True


def _spoken(plan: CompactionPlan) -> int:
    """How many messages it covers that people and the agent said."""
    return sum(entry.role in {Role.USER, Role.ASSISTANT} for entry in plan.covered)


@transaction
def _occupy(store: Store, key: SessionKey, worker: str, now: datetime, lease: timedelta) -> Statements[Turn | None]:
    number = yield from store.turns.occupy(key, now)
    if number is None:
        return None
    yield from store.usage.charge_to_previous(number)
    return (yield from store.turns.resume(number, worker, now, lease))


@transaction
def _all(*steps: Transaction[object]) -> Statements[None]:
    """Or none: what is not ours any more is not summarised."""
    for step in steps:
        yield from step
