"""Run turns: begin one from waiting messages, ask the agent, complete it; resume one that was interrupted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from palaver.db.transaction import Statements, Transaction, keyed, transaction
from palaver.engine import texts
from palaver.engine.attachments import Attachments
from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.hooks import count_usage
from palaver.engine.intake.admission import AccessLost, CurrentRights, OutputLost, Overheard
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.retry import off_loop, retry_outage, retry_until_stored
from palaver.engine.turns.agent import AgentRun, Outcome, RequestBuilder, TurnSnapshot, begin_and_load, load_snapshot
from palaver.engine.turns.completion import TurnCompletion, turn_event
from palaver.engine.turns.job_script import JobScript
from palaver.engine.turns.live_answer import show_answer, show_tools
from palaver.engine.turns.quotas import begin_within_quota, quota_reached
from palaver.engine.turns.running import CompactionRequest, RunningTurn, StopReason, TurnSignals, TypingIndicator
from palaver.engine.turns.summaries import Compaction, TitleGenerator
from palaver.engine.turns.tools import NO_TURN_TOOLS, TurnTools
from palaver.engine.voice import with_speech
from palaver.model.access import can_send_elsewhere
from palaver.model.addressing import choose_batch
from palaver.model.backoff import backoff
from palaver.model.command import runs_alone
from palaver.model.errors import StaleFence, StoreUnavailable
from palaver.model.key import SessionKey, chat_key
from palaver.model.transcript import Entry
from palaver.model.turn import BusyMode, Cause, Outbound, Received, Turn, TurnState
from palaver.model.view import answer_texts, with_files
from palaver.protocols.agent import Failure, FailureKind, Final
from palaver.protocols.hooks import EventKind, EventSubscription, GatewayEvent
from palaver.store import process_notices
from palaver.store.queue import inbox, turn_control, turns
from palaver.store.queue.outbox import enqueue_events
from palaver.store.results import Begun, Held, Opening

log = logging.getLogger(__name__)

_MOMENT = timedelta(seconds=0.5)
_RETRIED = frozenset({FailureKind.TRANSIENT, FailureKind.UNREACHABLE, FailureKind.RATE_LIMITED})
LONGEST_AGENT_PAUSE_SECONDS = 120.0
"""Do not ask an agent again in the same turn if it wants a longer pause."""


@dataclass(kw_only=True)
class TurnRunner:
    ctx: EngineContext
    resources: Resources
    live: LiveState
    attachments: Attachments
    tools: TurnTools
    requests: RequestBuilder
    commands: CommandDispatcher
    completion: TurnCompletion = field(init=False)
    compaction: Compaction = field(init=False)
    titles: TitleGenerator = field(init=False)
    _running: dict[int, RunningTurn] = field(default_factory=dict[int, RunningTurn])
    _is_draining: bool = False

    def __post_init__(self) -> None:
        self.completion = TurnCompletion(self.ctx, self.live, self.attachments)
        self.compaction = Compaction(
            ctx=self.ctx, requests=self.requests, commands=self.commands, completion=self.completion
        )
        self.titles = TitleGenerator(ctx=self.ctx, requests=self.requests)

    # Begin

    async def start_next(self, key: SessionKey) -> datetime | None:
        """Run what waits longest in a conversation: a command, or a turn for its messages.

        Returns when to look at the conversation again, if it is too early now.
        """
        known = self.requests.recent.loaded(key.text)
        begin = begin_and_load(self._begin(key), self.commands.rights.rules(), known)
        if not self._has_limits:  # they count what the same person does in other conversations
            begin = keyed(key.text, begin)
        # Subscribe before the turn exists, so that no signal to it is missed.
        with TurnSignals(self.ctx.store, key) as signals:
            try:
                with self.ctx.meter.step("begin"):
                    begun, snapshot = await self.ctx.store.transact(begin)
            except AccessLost as lost:
                return await self.commands.refuse(lost)
            except Overheard as overheard:
                await self.ctx.store.transact(inbox.move_messages(overheard.messages))
                return None
            except OutputLost as lost:
                await self.ctx.store.transact(process_notices.hide_outputs(lost.notices))
                return await self.start_next(key)
            if isinstance(begun, Held):
                return await self._advance(begun.head) if begun.head and begun.until is None else begun.until
            if begun is not None:
                self.completion.tell_hooks(lambda: begin_events(begun, self.ctx.clock.now()))
                if begun.turn.state is TurnState.FAILED:
                    self.completion.report_over_quota(begun.turn)
                else:
                    if begun.more_wait:
                        signals.notify()
                    await self._run(begun.turn, begun.messages, signals, snapshot)
        return None

    @property
    def _has_limits(self) -> bool:
        return bool(self.ctx.settings.caps.caps or self.ctx.settings.caps.roles)

    def _begin(self, key: SessionKey) -> Transaction[Begun | Held | None]:
        ctx, settings, now = self.ctx, self.ctx.settings, self.ctx.clock.now()
        routes = ctx.replies.routes
        begin = ctx.store.turns.begin(key, ctx.worker, now, settings.limits.lease, settings, routes)
        begin = _begin_with_rights(begin, self.commands.rights)
        if self._has_limits:
            begin = begin_within_quota(begin, settings, routes, now)
        return _begin_with_events(begin, ctx.subscriptions, now) if ctx.subscriptions else begin

    async def _advance(self, head: Received) -> datetime | None:
        """Run the command in front, or make the message in front ready for a turn."""
        if runs_alone(head.inbound):
            await self.commands.run(head)
            return None
        if not self.ctx.settings.is_undecided(head.inbound):
            return await self.attachments.fetch(head.key, self._is_over_quota)
        until = head.received + self.ctx.settings.burst_window
        if self.ctx.clock.now() < until:
            return until
        await self.ctx.store.transact(self.ctx.store.inbox.settle_overheard(head))
        return None

    async def _is_over_quota(self, received: Received) -> bool:
        """Tell it before the turn, which would say so: a transcription costs something, too."""
        if not self._has_limits:
            return False
        reached = quota_reached(received, None, self.ctx.settings, self.ctx.clock.now())
        return await retry_outage(lambda: self.ctx.store.read(reached)) is not None

    # Resume

    async def resume(self, turn: Turn) -> None:
        """Continue an interrupted turn and tell the agent, or give it up and tell the chat."""
        with TurnSignals(self.ctx.store, turn.key) as signals:
            signals.notify()  # Something may have been said while nobody ran the turn.
            load = _load_with_rights(turn, self.commands.rights)
            messages, lost, asked = await retry_outage(lambda: self.ctx.store.read(load))
            is_worth_it = bool(messages) and self._is_fresh(turn) and self._has_attempts(turn)
            try:
                request = self.compaction.requested(messages)
                if lost and not messages:
                    # A notice of a process can have joined what a person asked.
                    last = next((each for each in reversed(asked) if each.inbound.counts_as_activity), asked[-1])
                    reason = lost.get(last.number) or next(iter(lost.values()))
                    await self.completion.end_without_access(turn, last, reason)
                elif request and is_worth_it:
                    await self._compact(turn, messages, signals, request)
                elif request:
                    await self.compaction.give_up(turn, messages)
                elif is_worth_it:
                    if turn.attempt > 1:  # the first attempt was not interrupted: it asked, and got an answer
                        note = self.completion.note(texts.cut_off_note(turn.attempt))
                        await retry_until_stored(self.ctx.store, self.ctx.store.turns.append_to_turn(turn, [note]))
                    self.completion.tell_hooks(lambda: [turn_event(turn, self.ctx.clock.now(), EventKind.TURN_STARTED)])
                    await self._run(turn, messages, signals)
                else:
                    await self.completion.give_up(turn, messages[-1], suspends=not self._has_attempts(turn))
            except StaleFence:
                self.completion.report_lost(turn)

    def _is_fresh(self, turn: Turn) -> bool:
        """Tell whether a turn was not interrupted too long ago."""
        fresh_for, interrupted = self.ctx.settings.limits.fresh_for, turn.halted or turn.started
        return fresh_for is None or self.ctx.clock.now() - interrupted <= fresh_for

    def _has_attempts(self, turn: Turn) -> bool:
        return turn.attempt <= self.ctx.settings.limits.attempts

    # Run

    async def _run(
        self, turn: Turn, messages: Sequence[Received], signals: TurnSignals, snapshot: TurnSnapshot | None = None
    ) -> None:
        """Run a turn to its end, then title or compact its conversation if that is due."""
        log.info("turn began", extra={"action": "turn.started", "turn": turn.number, "key": turn.key.text})
        with self._registered(turn, messages, signals) as running, self._measured(turn, messages):
            running.next_snapshot = snapshot
            if turn.fence == 1:  # a turn that goes on has been charged with it
                running.charge_transcriptions(messages)
            await self._answer(running)
        self.titles.consider(running)
        request = self.compaction.due(running)
        if request is not None and not self._is_draining:
            compacting = await self.compaction.start_turn(signals.key, request)
            if compacting is not None:
                signals.notify()  # Something may have been said since the turn ended.
                await self._compact(compacting, messages, signals, request)

    def _measured(self, turn: Turn, messages: Sequence[Received]) -> AbstractContextManager[None]:
        received = messages[0].received if messages and turn.fence == 1 else None
        return self.ctx.meter.step("turn", turn.number, received)

    async def _compact(
        self, turn: Turn, messages: Sequence[Received], signals: TurnSignals, request: CompactionRequest
    ) -> None:
        with self._registered(turn, messages, signals) as running:
            running.gives_way = not request.is_overdue
            await self.compaction.run(running, request)

    @contextmanager
    def _registered(self, turn: Turn, messages: Sequence[Received], signals: TurnSignals) -> Generator[RunningTurn]:
        """Extend the turn's lease and handle its signals meanwhile. Leave it alone if another worker took it over."""
        stop = asyncio.get_running_loop().create_future()
        running = RunningTurn(turn=turn, messages=messages, stop=stop, signals=signals)
        self._running[turn.number] = running
        if self._is_draining:  # it began while the others were interrupted
            running.end(StopReason.DRAIN)
        signals.attach(partial(self._handle_signals, running, signals))
        try:
            yield running
        except StaleFence:
            self.completion.report_lost(turn)
        finally:
            signals.detach()
            if running.wait_notice is not None:
                running.wait_notice.cancel()
            del self._running[turn.number]
            count_usage(self.ctx.meter, running.usage)
            running.agent_run = None  # Break the reference cycle between the two.

    async def _answer(self, running: RunningTurn) -> None:
        if all(message.inbound.observed for message in running.messages):
            await self.completion.settle(running, [], [])
            return
        ctx, limit = self.ctx, self.ctx.settings.limits.turn_limit
        # Nobody waits for the answer of a job.
        typing = running.typing = None if running.job else TypingIndicator(ctx.replies, ctx.timeouts, running.source)
        try:
            outcome = await running.run(self._ask(running), limit, timeouts=ctx.timeouts, meter=ctx.meter)
        finally:
            if running.progress is not None:
                running.progress.end()
            if typing is not None:
                typing.end()
        if running.draft is not None and not self._settles_at_once(running, outcome):
            await running.draft.finish()
        await self._end(running, outcome)
        if running.draft is not None:
            await running.draft.finish()
            if running.draft.delays_answer:
                end_draft = self.ctx.store.turn_control.end_draft(running.turn, self.ctx.clock.now())
                await retry_until_stored(self.ctx.store, end_draft)

    async def _end(self, running: RunningTurn, outcome: Outcome | StopReason | None) -> None:
        """Store what came of it; None if it took too long."""
        if isinstance(outcome, StopReason):
            await self.completion.stop(running, outcome)
            return
        if running.job:  # Its owner may have lost rights since it began.
            await self._read_rights(running)
        if outcome is None:
            limit = self.ctx.settings.limits.turn_limit
            outcome = Failure(kind=FailureKind.STUCK, detail=f"the turn took longer than {limit}")
        if self.resources.voice and isinstance(outcome, Final):
            outcome = await with_speech(self.ctx, self.resources, running, outcome)
        await self.completion.complete(running, outcome)

    def _settles_at_once(self, running: RunningTurn, outcome: Outcome | StopReason | None) -> bool:
        """Return whether to store the answer while its draft is still being sent, so that a crash loses neither.

        It replaces the draft afterwards.
        """
        places = [to.place.address for to in running.destinations]
        is_answer = isinstance(outcome, Final) and bool(outcome.text.strip())
        return is_answer and places == [running.source.address]

    async def _read_rights(self, running: RunningTurn) -> None:
        """Give the messages the roles that their senders have now."""
        rights, store = self.commands.rights, self.ctx.store
        kept, _ = await retry_outage(lambda: store.read(rights.split(running.messages)))
        roles = {each.number: each.role for each in kept}
        running.messages = [replace(each, role=roles.get(each.number)) for each in running.messages]

    async def _handle_signals(self, running: RunningTurn, signals: TurnSignals) -> None:
        """Stop the turn if somebody asked for it, or sent a message that interrupts it."""
        found = await retry_outage(lambda: self.ctx.store.read(self.ctx.store.turn_control.read_signals(running.turn)))
        if found.key != signals.key:
            signals.follow(found.key)
            running.turn = replace(running.turn, key=found.key)
        running.note_waiting(found.waiting)
        if found.stop:
            running.end(StopReason.ASKED)
        elif running.gives_way and any(self._interrupts(received) for received in found.waiting):
            running.end(StopReason.NEWER)
        elif running.wait_notice is None and self.ctx.settings.config.acknowledges:
            notices = ((each, notice) for each in found.waiting if (notice := self._wait_notice(each)))
            for received, notice in islice(notices, 1):
                running.wait_notice = asyncio.create_task(self._acknowledge(running, received, notice))

    async def _acknowledge(self, running: RunningTurn, received: Received, notice: Outbound) -> None:
        """Tell somebody that the turn goes on, once their message has waited a while.

        A message that has waited for something else, such as a pairing, gives the turn a moment to end.
        """
        after = self.ctx.settings.limits.acknowledge_after
        rest = received.received + after - self.ctx.clock.now()
        await asyncio.sleep(max(rest, min(after, _MOMENT)).total_seconds())
        tell = turn_control.acknowledge_wait(running.turn, received.number, notice, self.ctx.clock.now())
        with suppress(StoreUnavailable):  # It matters only now.
            await self.ctx.store.transact(tell)

    def _wait_notice(self, received: Received) -> Outbound | None:
        """Return what to say to somebody whose message waits; None if nobody reads it, or it acts at once."""
        inbound, routes = received.inbound, self.ctx.replies.routes
        parsed = self.commands.parse_received(received)
        is_asked = inbound.cause is Cause.HUMAN and not inbound.observed and not parsed.is_urgent
        if not is_asked or not routes.reaches_people(inbound.source):
            return None
        text = texts.COMMAND_QUEUED if parsed.is_command else texts.BUSY_NOTICES[self.ctx.settings.busy_mode(inbound)]
        return replace(routes.notices(inbound.source, text)[0], is_passing=True)

    def _interrupts(self, received: Received) -> bool:
        """Overheard messages and commands do not interrupt a turn."""
        inbound = received.inbound
        interrupts = self.ctx.settings.busy_mode(inbound) is BusyMode.INTERRUPT
        return interrupts and not inbound.observed and not self.commands.parse_received(received).is_command

    # Ask the agent

    async def _ask(self, running: RunningTurn) -> Outcome:
        """Ask the agent. If its model refuses the conversation as too long, summarise it once and ask again."""
        running.agent_run = agent_run = self._agent_run(running)
        if (job := running.job) and job.script:
            ended = await JobScript(self.ctx, self.resources, running, job, job.script).run()
            if ended is not None:
                return ended
        outcome = await self._ask_with_retries(running, agent_run)
        is_too_long = isinstance(outcome, Failure) and outcome.kind is FailureKind.OVERFLOW
        if is_too_long and await self.compaction.make_room(running):
            outcome = await self._ask_with_retries(running, agent_run)
        return await self._ask_for_words(running, agent_run) if _is_silent(running, outcome) else outcome

    async def _ask_for_words(self, running: RunningTurn, agent_run: AgentRun) -> Outcome:
        """Ask once more after an empty answer, which some models give after a tool: a person waits."""
        self.ctx.meter.count("agent_retries")
        log.info("the answer is empty; asking again", extra={"action": "agent.empty", "turn": running.turn.number})
        await agent_run.write(self.completion.note(texts.EMPTY_NOTE))
        outcome = await self._ask_with_retries(running, agent_run)
        return Failure(kind=FailureKind.EMPTY, detail="two empty answers") if _is_silent(running, outcome) else outcome

    async def _ask_with_retries(self, running: RunningTurn, agent_run: AgentRun) -> Outcome:
        outcome = await self._ask_in_order(running, agent_run)
        for attempt in range(1, self.ctx.settings.limits.agent_tries):
            if not (isinstance(outcome, Failure) and outcome.kind in _RETRIED):
                break
            at_least = outcome.after or 0.0
            if at_least > LONGEST_AGENT_PAUSE_SECONDS:
                break
            self.ctx.meter.count("agent_retries")
            log.info("asking the agent again", extra={"action": "agent.retry", "turn": running.turn.number})
            pause = backoff(attempt, first=2.0, longest=LONGEST_AGENT_PAUSE_SECONDS)
            await asyncio.sleep(max(at_least, pause * self.ctx.rng.uniform(0.5, 1.0)))
            outcome = await self._ask_in_order(running, agent_run)
        return outcome

    async def _ask_in_order(self, running: RunningTurn, agent_run: AgentRun) -> Outcome:
        """Ask the agent, again at once as long as it has another model to answer with."""
        outcome = await self._ask_once(running, agent_run)
        while isinstance(outcome, Failure) and outcome.instead:
            running.switched = outcome
            if running.typing is not None:  # a terminal names the model
                running.typing.show_anew()
            self.ctx.meter.count("agent_fallbacks")
            extra = {"action": "agent.fallback", "turn": running.turn.number, "failure": outcome.kind.value}
            log.warning("another model answers instead", extra=extra)
            outcome = await self._ask_once(running, agent_run)
        return outcome

    async def _ask_once(self, running: RunningTurn, agent_run: AgentRun) -> Outcome:
        """Ask with the current transcript, which has what tools did before a failure."""
        snapshot, running.next_snapshot = running.next_snapshot or await self._load(running), None
        if running.shown is not None:  # an earlier attempt may have used what was approved
            snapshot = replace(snapshot, resumes_calls=False)
        running.shown = snapshot
        turn = str(running.turn.number)
        of_turn = [entry for entry in snapshot.entries if entry.turn == turn]
        agent_run.said = answer_texts(of_turn, running.offered)
        tools = await self.tools.for_turn(running) if self.resources.toolsets else NO_TURN_TOOLS
        request = self.requests.build(
            running.turn,
            snapshot,
            new_messages=self._new_messages(running),
            read_file=partial(_read_file, self.attachments, running.turn),
            tools=frozenset(tools),
            jobs_send_elsewhere=can_send_elsewhere(running.role),
        )
        if tools or running.offered:
            request = replace(request, toolbox=self.tools.toolbox(running, tools, request.approvals))
        if not running.is_held(self.ctx.clock.now()):  # this process was frozen
            await self._extend_lease(running)
        with self.ctx.meter.step("agent", running.turn.number):
            return await agent_run.ask(request)

    async def _extend_lease(self, running: RunningTurn) -> None:
        """Raise StaleFence if another worker has taken over the turn meanwhile."""
        await retry_outage(lambda: self._extend_leases([running]))
        if not running.is_held(self.ctx.clock.now()):
            raise StaleFence("turn", running.turn.number, running.turn.fence)

    async def _load(self, running: RunningTurn) -> TurnSnapshot:
        load = load_snapshot(running.turn, running.messages[-1], self.commands.rights.rules())
        return await retry_outage(lambda: self.ctx.store.read(load))

    def _new_messages(self, running: RunningTurn) -> Callable[[], Awaitable[tuple[str, ...]]]:
        async def new_messages() -> tuple[str, ...]:
            now = self.ctx.clock.now()
            found = await retry_outage(lambda: self.ctx.store.read(turn_control.read_signals(running.turn)))
            numbers = self._steered(running, found.waiting, now)
            if not numbers:
                return ()
            joining = [each for each in found.waiting if each.number in numbers]
            steer = _take_with_rights(running.turn, joining, now, self.commands.rights)
            running.add_steered(await retry_until_stored(self.ctx.store, steer))
            running.note_waiting([each for each in found.waiting if each.number not in numbers])
            before, running.shown = running.shown, await self._load(running)
            return self.requests.texts_since(before or running.shown, running.shown)

        return new_messages

    def _steered(self, running: RunningTurn, waiting: Sequence[Received], now: datetime) -> set[int]:
        """Return the numbers of the waiting messages that join the running turn.

        Those are messages sent with `/steer`, and the first ones of a chat whose busy mode is steer. Messages from
        another chat get a turn of their own, so that they are answered there.
        """
        ctx, settings = self.ctx, self.ctx.settings
        steers = bool(waiting) and settings.busy_mode(waiting[0].inbound) is BusyMode.STEER
        first = choose_batch(waiting, settings, ctx.replies.routes, now).take if steers else 0
        wanted = (item for index, item in enumerate(waiting) if index < first or item.inbound.busy is BusyMode.STEER)
        chat = ctx.current_source(running.source).address
        here = (item for item in wanted if ctx.current_source(item.inbound.source).address == chat)
        return {item.number for item in here if item.inbound.has_all_files}

    def _agent_run(self, running: RunningTurn) -> AgentRun:
        async def write(entry: Entry) -> None:
            if entry.answers in running.call_files:
                files = running.call_files.pop(entry.answers)
                # Their markers are made from the files each time, as for every other entry.
                entry = entry._replace(text=entry.text.removesuffix("\n" + with_files("", files)), files=files)
            append = await off_loop(len(entry.text), lambda: self.ctx.store.turns.append_to_turn(running.turn, [entry]))
            await retry_until_stored(self.ctx.store, append)

        return AgentRun(
            agent=self.ctx.agents.of(running.turn.key.profile),
            write=write,
            show=partial(show_answer, self.ctx, self.live, running),
            work=partial(show_tools, self.ctx, self.live, running),
            now=self.ctx.clock.now,
            timeouts=self.ctx.timeouts,
            quiet_limit=self.ctx.settings.limits.quiet_limit,
        )

    # From outside

    def answers_instead(self, key: SessionKey) -> str | None:
        """Return the model that answers in the running turn of a conversation after another one failed in it."""
        found = (each.switched for each in self._running.values() if each.turn.key == key and each.switched)
        return next((failure.instead for failure in found), None)

    @property
    def running(self) -> Collection[int]:
        return tuple(self._running)

    def drain(self) -> None:
        """Interrupt every running turn, to be resumed after the restart."""
        self._is_draining = True
        self.titles.abandon()
        for running in self._running.values():
            running.end(StopReason.DRAIN)

    def abandon(self) -> None:
        self.titles.abandon()

    async def heartbeat(self) -> None:
        """Extend the leases of all running turns. Stop those that another worker took over."""
        self.requests.recent.forget_old(self.ctx.clock.now())
        # Turns that begin during the transaction are not asked about.
        if mine := tuple(self._running.values()):
            await self._extend_leases(mine)

    async def _extend_leases(self, mine: Sequence[RunningTurn]) -> None:
        now, lease = self.ctx.clock.now(), self.ctx.settings.limits.lease
        extend = self.ctx.store.turns.extend_leases([running.turn for running in mine], now, lease)
        held = await self.ctx.store.transact(extend)
        for running in mine:
            if running.turn.number in held:
                running.held_until = now + lease
                if running.signals and not self.ctx.alone:  # a notification of another gateway can be lost
                    running.signals.notify()
            else:
                running.end(StopReason.LOST)


def _is_silent(running: RunningTurn, outcome: Outcome) -> bool:
    return isinstance(outcome, Final) and not outcome.files and running.is_silence(outcome.text)


async def _read_file(files: Attachments, turn: Turn, name: str) -> bytes:
    return (await files.read(turn, name)).content


def begin_events(begun: Begun, now: datetime) -> list[GatewayEvent]:
    opened, event = begun.opened, partial(turn_event, begun.turn, now)
    events: list[GatewayEvent] = []
    if opened.ended is not None:
        events.append(event(EventKind.SESSION_ENDED, reason=opened.reason, session=opened.ended))
    if opened.opening is Opening.RESET:
        events.append(event(EventKind.SESSION_RESET, reason=opened.reason))
    if opened.opening in {Opening.RESET, Opening.CREATED}:
        events.append(event(EventKind.SESSION_STARTED))
    is_over_quota = begun.turn.state is TurnState.FAILED
    events.append(event(EventKind.TURN_FAILED, reason="capped") if is_over_quota else event(EventKind.TURN_STARTED))
    return events


@transaction
def _begin_with_rights(
    begin: Transaction[Begun | Held | None], rights: CurrentRights
) -> Statements[Begun | Held | None]:
    """Begin a turn with the roles that the senders have now.

    Raise AccessLost if one of them has none, OutputLost if a process notice has to be written anew, and Overheard if
    the messages belong to the whole chat.
    """
    begun = yield from begin
    if not isinstance(begun, Begun):
        return begun
    # Its chat can be attached to a conversation of another chat.
    chats = [(each, chat_key(each.place or begun.turn.key)) for each in begun.messages if each.inbound.observed]
    overheard = [(each, chat) for each, chat in chats if chat]
    if overheard and len(overheard) == len(begun.messages):
        raise Overheard(overheard)
    current = yield from rights.check(begun.messages)
    if notices := (yield from rights.find_outputs(current)):
        raise OutputLost(notices)
    return begun if current is begun.messages else replace(begun, messages=tuple(current))


@transaction
def _load_with_rights(
    turn: Turn, rights: CurrentRights
) -> Statements[tuple[Sequence[Received], dict[int, str], Sequence[Received]]]:
    """Return the messages of those who have access, why others have none, and all messages as they were."""
    messages = yield from turns.list_messages(turn)
    return *(yield from rights.split(messages)), messages


@transaction
def _take_with_rights(
    turn: Turn, joining: Sequence[Received], now: datetime, rights: CurrentRights
) -> Statements[list[Received]]:
    """Add messages to the running turn, with the roles that their senders have now; others keep waiting."""
    current, _ = yield from rights.split(joining)
    yield from process_notices.hide_outputs((yield from rights.find_outputs(current)))
    roles = {each.number: each.role for each in current}
    messages = yield from turn_control.take_waiting(turn, roles, now)
    return [replace(each, role=roles.get(each.number, each.role)) for each in messages]


@transaction
def _begin_with_events(
    begin: Transaction[Begun | Held | None], subscriptions: Sequence[EventSubscription], now: datetime
) -> Statements[Begun | Held | None]:
    begun = yield from begin
    if isinstance(begun, Begun):
        yield from enqueue_events(subscriptions, begin_events(begun, now))
    return begun
