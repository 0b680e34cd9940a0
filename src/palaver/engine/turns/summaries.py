"""Ask the agent for a summary of a long conversation, or for the title of a new one."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.hooks import count_usage
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.retry import contain_cancellation, log_error, retry_outage, retry_until_stored
from palaver.engine.settings import Settings
from palaver.engine.turns.agent import RequestBuilder, load_snapshot
from palaver.engine.turns.completion import TurnCompletion, in_one_step
from palaver.engine.turns.quotas import quota_reached
from palaver.engine.turns.running import CompactionRequest, RunningTurn, StopReason
from palaver.model.compaction import CompactionPlan, plan_compaction
from palaver.model.errors import NothingToCompact, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.quotas import QuotaReached
from palaver.model.session import Principal
from palaver.model.text import strip_markdown
from palaver.model.transcript import Entry, Role, turn_starts
from palaver.model.turn import Received, Turn, TurnState
from palaver.model.value import value
from palaver.protocols.agent import Excerpt, GeneratedText, Summarising, Titling
from palaver.protocols.capabilities import supports
from palaver.store.conversations import titles, transcript
from palaver.store.people import usage
from palaver.store.queue import turns

log = logging.getLogger(__name__)

COMPRESS = "compress"
"""The command that a compaction answers."""
AUTOMATIC = "compaction"
"""Who compacts a conversation if nobody asked for it."""
KEPT_EXCHANGES = 2
"""Exchanges that are never summarised. If the model refuses a conversation as too long, only the last one is kept."""
OVERDUE = 1.25
"""From this multiple of a limit on, a summary no longer gives way to messages that wait."""
RETRY_AFTER = timedelta(hours=1)
REMEMBER_FAILURE = timedelta(days=1)
"""How long not to tell again that a conversation cannot be summarised."""
STOPPED = "it was stopped"
TOOK_TOO_LONG = "it took too long"
OVER_QUOTA = "a usage limit is reached, see /usage"
RESTARTED = "the gateway restarted in the meantime"

TITLED_EXCHANGES = 3
"""How many exchanges a conversation may have to get a title."""
TITLE_ENTRIES, TITLE_ENTRY_CHARACTERS = 20, 2_000
"""How much of a conversation the agent sees to title it."""
TITLE_DRAIN_SECONDS = 1.0


def fullness(entries: int, tokens: int, *, message_limit: int, token_limit: float) -> float:
    """Return how full a conversation is: from 1 on, it has too many entries, or too many tokens for the model."""
    return max(entries / message_limit, tokens / token_limit)


@value
class _Summary:
    plan: CompactionPlan
    text: str


@dataclass(kw_only=True)
class Compaction:
    ctx: EngineContext
    requests: RequestBuilder
    commands: CommandDispatcher
    completion: TurnCompletion
    _not_before: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When to try again to summarise a session that could not be."""

    # After a turn

    def due(self, running: RunningTurn) -> CompactionRequest | None:
        """Return a request if the conversation comes close to what the model takes."""
        agent, shown, settings = self._agent(running.turn), running.shown, self.ctx.settings
        if running.answer is None or shown is None or not supports(agent, Summarising):
            return None
        window = agent.context_window(shown.session.override) or settings.limits.context_window
        how_full = fullness(
            len(shown.entries),
            # The last prompt as the provider counted it also has instructions and tools.
            max(shown.loaded.tokens, running.prompt_tokens),
            message_limit=settings.limits.message_limit,
            token_limit=settings.limits.context_percent / 100 * window,
        )
        if how_full < 1 or self._is_postponed(running.turn.session) or not _can_compact(shown.entries):
            return None
        return CompactionRequest(is_overdue=how_full >= OVERDUE)

    async def start_turn(self, key: SessionKey, request: CompactionRequest) -> Turn | None:
        """Start a turn for a compaction. Return None if a message is being answered, or one waits that goes first."""
        now, settings = self.ctx.clock.now(), self.ctx.settings
        start = _start_turn(key, self.ctx.worker, now, settings.limits.lease, gives_way=not request.is_overdue)
        try:
            return await self.ctx.store.transact(start)
        except StoreUnavailable:
            return None

    # In a turn of its own

    def requested(self, messages: Sequence[Received]) -> CompactionRequest | None:
        """Return the request of a turn without messages, or of `/compress`; None for a turn that answers messages."""
        if not messages:
            return CompactionRequest()
        invocation = self.commands.parse_received(messages[-1]).invocation
        if invocation is None or invocation.command.name != COMPRESS:
            return None
        return CompactionRequest(focus=invocation.words.get("focus", ""), is_asked=True)

    async def run(self, running: RunningTurn, request: CompactionRequest) -> None:
        """Run a compaction to its end. The conversation goes on even if it fails."""
        result = await running.run(
            self._try(running, request),
            self.ctx.settings.limits.turn_limit,
            timeouts=self.ctx.timeouts,
            meter=self.ctx.meter,
        )
        match result:
            case _Summary():
                await self._store(running, request, result)
            case StopReason.DRAIN | StopReason.LOST:
                await self.completion.stop(running, result)
            case StopReason():
                await self._fail(running, request, STOPPED, postpones=result is not StopReason.NEWER)
            case None:
                await self._fail(running, request, TOOK_TOO_LONG)
            case str():
                await self._fail(running, request, result)

    async def give_up(self, turn: Turn, messages: Sequence[Received]) -> None:
        """End an interrupted compaction without retrying it."""
        running = RunningTurn(turn=turn, messages=messages, stop=asyncio.get_running_loop().create_future())
        await self._fail(running, CompactionRequest(is_asked=bool(messages)), RESTARTED)

    async def _try(self, running: RunningTurn, request: CompactionRequest) -> "_Summary | str":
        """Return a summary, or why there is none."""
        reached = _quota_reached(running.turn, running.messages[-1], self.ctx.settings, self.ctx.clock.now())
        if await retry_outage(lambda: self.ctx.store.read(reached)):
            return OVER_QUOTA
        try:
            return await self._summarise(running, kept=KEPT_EXCHANGES, focus=request.focus)
        except NothingToCompact as refusal:
            return str(refusal)

    async def _store(self, running: RunningTurn, request: CompactionRequest, summary: _Summary) -> None:
        replies = (
            self.completion.notices(running, texts.compacted(_spoken_entries(summary.plan))) if request.is_asked else []
        )
        turn = running.turn
        by = Principal.speaking(running.source).name if request.is_asked else AUTOMATIC
        settle = self.ctx.store.turns.settle(turn, [], replies, self.ctx.clock.now(), usage=running.usage)
        try:
            await self.completion.end(turn, in_one_step(self._compact(turn, summary, by), settle), TurnState.DONE)
        except NothingToCompact as refusal:
            await self._fail(running, request, str(refusal))
        else:
            self._report(running)

    async def _fail(
        self, running: RunningTurn, request: CompactionRequest, why: str, *, postpones: bool = True
    ) -> None:
        """Record why there is no summary, and try again later."""
        now, turn, settings = self.ctx.clock.now(), running.turn, self.ctx.settings
        notice = None
        if request.is_asked:
            notice = texts.not_compacted(why)
        elif running.messages and why != STOPPED and turn.session not in self._not_before:
            notice = settings.for_reader(texts.not_compacted_alone(why), running.role)
        replies = self.completion.notices(running, notice) if notice else []
        settle = self.ctx.store.turns.settle(turn, [], replies, now, usage=running.usage, error=why)
        await self.completion.end(turn, settle, TurnState.FAILED)
        if postpones:
            pending = {session: until for session, until in self._not_before.items() if until > now - REMEMBER_FAILURE}
            self._not_before = {**pending, turn.session: now + RETRY_AFTER}
        log.info("nothing was summarised: %s", why, extra={"action": "compaction.skipped", "turn": turn.number})

    # Within a turn

    async def make_room(self, running: RunningTurn) -> bool:
        """Summarise a conversation that the model refuses as too long. Return whether that worked."""
        turn = running.turn
        try:
            summary = await self._summarise(running, kept=1)
            # Append nothing: this checks that the turn is still ours.
            check_fence = self.ctx.store.turns.append_to_turn(turn, [])
            await retry_until_stored(self.ctx.store, in_one_step(self._compact(turn, summary, AUTOMATIC), check_fence))
        except NothingToCompact as refusal:
            log.info("nothing was summarised: %s", refusal, extra={"action": "compaction.skipped", "turn": turn.number})
            return False
        self._report(running)
        return True

    # The summary

    async def _summarise(self, running: RunningTurn, *, kept: int, focus: str = "") -> _Summary:
        agent = self._agent(running.turn)
        if not supports(agent, Summarising):
            raise NothingToCompact("the agent cannot summarise")
        load = load_snapshot(running.turn, running.messages[-1], self.commands.rights.rules())
        snapshot = await retry_outage(lambda: self.ctx.store.read(load))
        plan = plan_compaction(snapshot.entries, keep_exchanges=kept)
        excerpt = self.requests.excerpt(running.turn, snapshot, plan.covered, focus)
        return _Summary(plan=plan, text=await self._ask(agent, excerpt, running))

    def _compact(self, turn: Turn, summary: _Summary, by: str) -> Transaction[object]:
        now = self.ctx.clock.now()
        return self.ctx.store.transcript.compact(turn.key, summary.plan, summary.text, now, by=by)

    async def _ask(self, agent: Summarising, excerpt: Excerpt, running: RunningTurn) -> str:
        extra = {"action": "agent.error", "turn": running.turn.number}
        quiet = asyncio.timeout(self.ctx.settings.limits.quiet_limit.total_seconds())
        try:
            async with quiet:
                with contain_cancellation():
                    summary = await agent.summarise(excerpt)
            running.summary_usage = running.summary_usage.plus(summary.usage)
        except Exception as error:
            log_error(log, "the agent failed to summarise", error, extra)
            raise NothingToCompact(TOOK_TOO_LONG if quiet.expired() else "the agent could not do it") from error
        return summary.text

    def _is_postponed(self, session: str) -> bool:
        until = self._not_before.get(session)
        return until is not None and until > self.ctx.clock.now()

    def _agent(self, turn: Turn) -> object:
        return self.ctx.agents.of(turn.key.profile)

    def _report(self, running: RunningTurn) -> None:
        self.ctx.meter.count("compactions")
        log.info("conversation summarised", extra={"action": "compaction.done", "turn": running.turn.number})


def _can_compact(entries: Sequence[Entry]) -> bool:
    try:
        plan_compaction(entries, keep_exchanges=KEPT_EXCHANGES)
    except NothingToCompact:
        return False
    return True


def _spoken_entries(plan: CompactionPlan) -> int:
    return sum(entry.role in {Role.USER, Role.ASSISTANT} for entry in plan.covered)


@transaction
def _quota_reached(turn: Turn, last: Received, settings: Settings, now: datetime) -> Statements[QuotaReached | None]:
    session = yield from turns.session_of(turn)
    return (yield from quota_reached(last, session, settings, now))


@transaction
def _start_turn(
    key: SessionKey, worker: str, now: datetime, lease: timedelta, *, gives_way: bool
) -> Statements[Turn | None]:
    number = yield from turns.reserve(key, now, gives_way=gives_way)
    if number is None:
        return None
    yield from usage.charge_to_previous(number)
    return (yield from turns.resume(number, worker, now, lease))


@dataclass(kw_only=True)
class TitleGenerator:
    """Titles conversations in the background. Nobody waits for a title."""

    ctx: EngineContext
    requests: RequestBuilder
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    def consider(self, running: RunningTurn) -> None:
        """Ask for a title after a turn, if the conversation has none yet."""
        snapshot, answer = running.shown, running.answer
        if snapshot is None or answer is None or not self.ctx.settings.config.titles:
            return
        if snapshot.session.title or len(turn_starts(snapshot.entries)) > TITLED_EXCHANGES:
            return
        agent = self.ctx.agents.of(running.turn.key.profile)
        # If too many run at once, the next exchange asks again.
        if supports(agent, Titling) and len(self._tasks) < self.ctx.settings.limits.concurrent_turns:
            last = Entry(
                seq=snapshot.session.counters.entries + len(snapshot.entries),
                role=Role.ASSISTANT,
                at=running.turn.started,
            )
            recent = _shorten([*snapshot.entries, last._replace(text=answer.text)])
            excerpt = self.requests.excerpt(running.turn, snapshot, recent)
            stored = [entry.seq for entry in (recent[:-1] if answer.text.strip() else recent)]
            task = asyncio.create_task(self._generate(agent, excerpt, running.turn, stored))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait a moment for titles that are being generated."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=TITLE_DRAIN_SECONDS)

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _generate(self, agent: Titling, excerpt: Excerpt, turn: Turn, entries: Sequence[int]) -> None:
        try:
            async with asyncio.timeout(self.ctx.settings.limits.quiet_limit.total_seconds()):
                with contain_cancellation():
                    title = await agent.title(excerpt)
            count_usage(self.ctx.meter, title.usage)
            await self.ctx.store.transact(_record_title(turn, title, entries, self.ctx.clock.now()))
        except Exception as error:  # noqa: BLE001 - a conversation can do without a title
            log_error(log, "no title could be generated", error, {"action": "title.failed", "session": turn.session})


@transaction
def _record_title(turn: Turn, title: GeneratedText, entries: Sequence[int], now: datetime) -> Statements[None]:
    """Suggest the title if what it was made from is still there; count its usage in any case."""
    last = yield from transcript.find_last(turn.session_number, turn.number, entries)
    if last is not None:
        yield from titles.suggest_title(turn.session, strip_markdown(title.text), made_from=last)
    yield from turns.charge_title(turn, title.usage, now)


def _shorten(entries: Sequence[Entry]) -> list[Entry]:
    spoken = [entry for entry in entries if entry.role in {Role.USER, Role.ASSISTANT} and entry.text.strip()]
    return [entry._replace(text=entry.text[:TITLE_ENTRY_CHARACTERS], calls=()) for entry in spoken[-TITLE_ENTRIES:]]
