"""End a turn: answered, failed, parked, stopped or given up, always in a named state."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.attachments import Attachments
from palaver.engine.context import EngineContext, LiveState
from palaver.engine.delivery.owner import Reporting, notify_owner
from palaver.engine.delivery.replies import LONGEST_ANSWER
from palaver.engine.jobs.notices import report_dropped, report_failed
from palaver.engine.retry import log_error, off_loop, retry_outage, retry_until_stored
from palaver.engine.turns.agent import Outcome, chosen_model, model_name
from palaver.engine.turns.running import RunningTurn, StopReason
from palaver.model.access import AccessRole
from palaver.model.attachment import Attachment
from palaver.model.command import can_answer, can_use
from palaver.model.errors import PalaverError, StaleFence, StoreUnavailable
from palaver.model.problem import describe_agent_problem, is_agent_problem
from palaver.model.session import EndReason
from palaver.model.source import DM, describe_source
from palaver.model.split import MAX_PARTS
from palaver.model.tools import parse_question
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Choice, Destination, Outbound, Received, Turn, TurnState, outbound_to
from palaver.model.value import value
from palaver.protocols.agent import ApprovalNeeded, Failure, FailureKind, FallingBack, Final
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.store.people import access_rules
from palaver.store.privacy import pseudonyms
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue_events
from palaver.store.records import REPLIES
from palaver.store.status import problems

log = logging.getLogger(__name__)

_FAILURES = {
    FailureKind.STUCK: (texts.TOO_LONG_NOTE, texts.TOO_LONG),
    FailureKind.OVERFLOW: (texts.FAILED_NOTE, texts.OVERFLOW),
    FailureKind.EMPTY: (texts.NO_ANSWER_NOTE, texts.NO_ANSWER),
    FailureKind.RATE_LIMITED: (texts.FAILED_NOTE, texts.RATE_LIMITED),
    FailureKind.REJECTED: (texts.FAILED_NOTE, texts.REJECTED),
    FailureKind.UNREACHABLE: (texts.FAILED_NOTE, texts.UNAVAILABLE),
    FailureKind.UNAUTHORIZED: (texts.FAILED_NOTE, texts.UNAVAILABLE),
    FailureKind.NO_CREDIT: (texts.FAILED_NOTE, texts.UNAVAILABLE),
    FailureKind.UNKNOWN_MODEL: (texts.FAILED_NOTE, texts.UNAVAILABLE),
}
"""The note to the agent and the notice to the chat, for kinds of failure that have their own."""
_JOB_FAILURES = {
    FailureKind.STUCK: texts.JOB_TOO_LONG,
    FailureKind.OVERFLOW: texts.JOB_OVERFLOW,
    FailureKind.RATE_LIMITED: texts.JOB_RATE_LIMITED,
}
"""What its owner learns instead about the turn of a job."""
_LONGEST_PAUSE_SECONDS = 86_400.0
"""What an agent asks for beyond that is not believed: it need not even be a time that there is."""


@transaction
def in_one_step(*steps: Transaction[object]) -> Statements[None]:
    """Do all steps or none, so that a turn that is no longer ours changes nothing."""
    for step in steps:
        yield from step


@value(kw_only=False)
class TurnCompletion:
    ctx: EngineContext
    live: LiveState
    attachments: Attachments

    async def complete(self, running: RunningTurn, outcome: Outcome) -> None:
        match outcome:
            case Final():
                await self._answer(running, outcome)
            case Failure():
                await self._fail(running, outcome)
            case ApprovalNeeded():
                await self._park(running, outcome)

    async def _answer(self, running: RunningTurn, answer: Final) -> None:
        files = await self.attachments.store_all(answer.files) if answer.files else ()
        shown = texts.cut_answer(answer.text) if answer.cut else answer.text
        whole = await self._store_long_answer(running.destinations, shown)
        text, is_cut = answer.text, len(answer.text) > LONGEST_ANSWER
        if is_cut:
            text = shown = f"{text[:LONGEST_ANSWER]}\n\n{texts.CONTINUED_IN_FILE if whole else texts.NOT_KEPT}"
        tokens, cost = running.agent_run.take_usage() if running.agent_run else (0, None)
        entry = Entry(
            seq=0,
            role=Role.ASSISTANT,
            at=self.ctx.clock.now(),
            text=text,
            reasoning=answer.reasoning[:LONGEST_ANSWER],
            blob=answer.blob,
            tokens=tokens,
            cost_micros=cost,
            files=(*files, whole) if whole and is_cut else files,
            cut=answer.cut,
        )
        replies = await off_loop(len(shown), lambda: self._replies(running, shown, files, whole))
        await self.settle(running, [entry], replies)
        running.answer = replace(answer, text=text) if is_cut else answer
        running.prompt_tokens = running.usage.prompt_tokens

    def _replies(
        self, running: RunningTurn, text: str, files: Sequence[Attachment], whole: Attachment | None
    ) -> list[Outbound]:
        """Return the messages that carry the answer to each place it goes to; none for one that can stay unsaid."""
        if running.takes_silence(text) and not files:
            return []
        draft, destinations = self._draft(running), running.destinations
        if draft and not text.strip():
            text = texts.DONE  # Something has to take the place of the draft.
        most = self._parts_for_each(destinations, len(files))
        replies = [
            replace(part, mirror=to.mirror) if to.mirror and part.text else part
            for to in destinations
            for part in (
                *self.ctx.replies.to(to.place, text, draft=draft, whole=whole, most=most),
                *self.ctx.replies.files(to.place, files),
            )
        ]
        if replies and not draft and self._is_draft_unclear(running):
            replies[0] = replace(replies[0], repeats_draft=True)
            if running.draft:
                running.draft.is_answered = True
        return replies

    def _replies_due(self, running: RunningTurn, now: datetime) -> datetime | None:
        """Let the answer wait for the request of its draft, which another worker does not know of. None for now."""
        if self.ctx.alone or running.draft is None or not running.draft.is_under_way:
            return None
        running.draft.delays_answer = True
        return now + self.ctx.settings.limits.send_limit

    def _parts_for_each(self, destinations: Sequence[Destination], files: int) -> int:
        """Return in how many messages the text can be sent to each place: what a turn can send is for all of them."""
        places = sum(len(self.ctx.replies.routes.places(to.place)) for to in destinations)
        return max(1, min(MAX_PARTS, REPLIES // max(places, 1) - files))

    async def _fail(self, running: RunningTurn, failure: Failure) -> None:
        """Fail a turn. Its detail may quote content, so it goes to the store only, not to the chat or the log."""
        note, sorry = _FAILURES.get(failure.kind, (texts.FAILED_NOTE, texts.SORRY))
        log.error("turn failed: %s", failure.kind.value, extra={"action": "turn.failed", "turn": running.turn.number})
        if running.job:
            await self.settle(running, [self.note(texts.JOB_FAILED_NOTE)], [], failure=failure)
            return
        problem = self._problem(running, failure)
        if problem and self._owner_reads(running):
            sorry = texts.not_answered(problem, running.turn.number)
        notice = self.ctx.settings.for_reader(sorry, running.role)
        await self.settle(running, [self.note(note)], self.notices(running, notice), failure=failure)

    def _problem(self, running: RunningTurn, failure: Failure) -> str | None:
        """Return cause and fix of a failure for the owner; None if it says nothing about the agent itself."""
        if running.shown is None or not is_agent_problem(failure.kind):  # a script can fail before it is asked
            return None
        return " ".join(describe_agent_problem(failure.kind, self._model(running, failure), running.turn.key.profile))

    def _model(self, running: RunningTurn, failure: Failure) -> str | None:
        agent = self.ctx.agents.of(running.turn.key.profile)
        return failure.model or model_name(agent, chosen_model(running.shown) if running.shown else None)

    @staticmethod
    def _owner_reads(running: RunningTurn) -> bool:
        """Return whether the owner, and nobody else, reads what the chat gets."""
        return running.role is AccessRole.OWNER and running.source.chat_kind == DM and running.job is None

    async def _park(self, running: RunningTurn, needed: ApprovalNeeded) -> None:
        turns, turn, now = self.ctx.store.turns, running.turn, self.ctx.clock.now()
        # A client that offered a tool sees the call itself, and answers it.
        is_client_tool = needed.call.name in running.offered
        question = [] if is_client_tool else await self._question(running, needed)
        if running.stop.done() and not running.resumes:  # somebody stopped it before it could ask
            await self.stop(running, running.stop.result())
            return
        halt = turns.halt(
            turn,
            TurnState.PARKED,
            now,
            asked=None if is_client_tool else needed.call.id,
            asks_anew=running.agent_run is not None and running.agent_run.has_called,
            notices=question,
            usage=running.usage,
        )
        # Who resumes a turn that was stopped in this moment ends it.
        try:
            state = await retry_until_stored(self.ctx.store, halt)
        except StaleFence as stale:
            state = await self._earlier_state(turn, stale, TurnState.PARKED, TurnState.INTERRUPTED)
        if state is TurnState.PARKED:
            log.info("turn parked", extra={"action": "turn.parked", "turn": turn.number})

    async def _question(self, running: RunningTurn, needed: ApprovalNeeded) -> list[Outbound]:
        """Ask the sender, or say who can approve and ask in a direct home channel: a group would read the question."""
        name, role, roles = running.turn.question_id, running.messages[-1].role, self.ctx.settings.command_roles
        wanted = parse_question(needed.call)
        question = wanted.shown if wanted else needed.question
        if self.ctx.settings.config.privacy.pseudonyms:
            for_people = pseudonyms.reveal(question)
            question = await retry_outage(lambda: self.ctx.store.read(for_people))
        choices = texts.answer_choices(wanted, name) if wanted else texts.approval_choices(name)
        how_to = partial(texts.how_to_answer, wanted) if wanted else texts.how_to_approve
        command = "answer" if wanted else "approve"
        if not (can_answer(role, roles) if wanted else can_use(command, role, roles)):
            store, source = self.ctx.store, running.source
            rules = access_rules.load(self.ctx.settings.grants)
            homes = await retry_outage(lambda: store.read(store.accounts.list_homes(running.turn.key.profile, rules)))
            served = [home for home in homes if self.ctx.replies.routes.reaches_people(home)]
            direct = [home for home in served if home.chat_kind == DM and home.address[:-1] != source.address[:-1]]
            routes, where = self.ctx.replies.routes, self._where(running)
            at_home = f"{texts.asked_at_home(where)}\n{question}"
            asked = routes.notices(direct[0], how_to(name), question=at_home) if direct else []
            who = max(AccessRole.ADMIN, roles.get(command, AccessRole.ADMIN))
            is_direct, can_deny = source.chat_kind == DM, can_use("deny", role, roles)
            hint = texts.who_decides(
                who, name, command=command, is_direct=is_direct, is_asked=bool(asked), can_deny=can_deny
            )
            return [*self.notices(running, hint, question=question, choices=() if is_direct else choices), *asked]
        # The question of a job is not asked in its own conversation.
        is_elsewhere = running.job is not None or self.ctx.replies.routes.is_forwarded(running.source)
        return self.notices(running, how_to(name if is_elsewhere else ""), question=question, choices=choices)

    def _where(self, running: RunningTurn) -> str:
        """Return for people where the last message came from."""
        source, labels = running.source, running.messages[-1].inbound.labels
        adapter = self.ctx.replies.adapter_for(source.platform, source.account)
        return describe_source(source, labels, place=adapter.platform.place if adapter else None)

    async def stop(self, running: RunningTurn, why: StopReason) -> None:
        log.info("turn stopped: %s", why, extra={"action": "turn.stopped", "turn": running.turn.number})
        if why is StopReason.DRAIN:
            halt = self.ctx.store.turns.halt(
                running.turn, TurnState.INTERRUPTED, self.ctx.clock.now(), error=why.value, usage=running.usage
            )
            await self.ctx.store.transact(halt)
        elif why is StopReason.LOST:
            self.report_lost(running.turn)
        else:
            text = running.agent_run.text if running.agent_run else ""
            entries = [self._entry(Role.ASSISTANT, text)] if text.strip() else []
            said = ""
            if running.draft and running.draft.receipt:
                said = f"{text or running.draft.text} …" if running.draft.text else texts.STOPPED
            source, draft = running.source, self._draft(running)
            reply = await off_loop(len(said), lambda: self.ctx.replies.to(source, said, draft=draft))
            note = texts.INTERRUPTED_NOTE if why is StopReason.NEWER else texts.STOPPED_NOTE
            note += texts.SAID_BEFORE if entries else ""
            await self.settle(running, [*entries, self.note(note)], reply)

    async def give_up(self, turn: Turn, last: Received, *, suspends: bool) -> None:
        """End an interrupted turn that is not resumed, with a notice if one can be stored.

        With `suspends` its session ends too: the turn itself may be what crashes the gateway.
        """
        now = self.ctx.clock.now()
        events = [turn_event(turn, now, EventKind.TURN_FAILED, reason="given up")]
        if suspends:
            events.append(turn_event(turn, now, EventKind.SESSION_ENDED, reason=EndReason.SUSPENDED))
        try:
            notice = self.ctx.settings.for_reader(texts.GIVEN_UP if suspends else texts.STALE, last.role)
            routes = self.ctx.replies.routes
            notices = [] if last.inbound.job else routes.notices(last.inbound.origin, notice, draft=turn.draft)
            await self._fail_interrupted(turn, notices, events, suspends=suspends, last=last)
        except (StaleFence, StoreUnavailable):
            raise
        except PalaverError as error:
            log_error(log, "a notice was refused", error, {"action": "notice.failed", "turn": turn.number})
            await self._fail_interrupted(turn, [], events, suspends=suspends, last=last)
        log.warning("turn given up", extra={"action": "turn.abandoned", "turn": turn.number})
        self.ctx.meter.count("turns_failed")
        self.tell_hooks(lambda: events)

    async def end_without_access(self, turn: Turn, last: Received, reason: str) -> None:
        """End an interrupted turn for whose senders nothing is done any more, and tell the person who asked."""
        routes, is_told = self.ctx.replies.routes, last.inbound.counts_as_activity
        told = routes.notices(last.inbound.origin, texts.access_lost(reason), draft=turn.draft) if is_told else []
        events = (turn_event(turn, self.ctx.clock.now(), EventKind.TURN_FAILED, reason="no access"),)
        settle = self.ctx.store.turns.settle(turn, [], told, self.ctx.clock.now(), error=f"not resumed: {reason}")
        step = in_one_step(settle, enqueue_events(self.ctx.subscriptions, events))
        await self.end(turn, step, TurnState.FAILED)
        self.ctx.meter.count("turns_failed")
        self.tell_hooks(lambda: events)

    async def _fail_interrupted(
        self,
        turn: Turn,
        notices: Sequence[Outbound],
        events: Sequence[GatewayEvent],
        *,
        suspends: bool,
        last: Received,
    ) -> None:
        now, error = self.ctx.clock.now(), "interrupted and not resumed"
        notes, ends = ([], EndReason.SUSPENDED) if suspends else ([self.note(texts.STALE_NOTE)], None)
        settle = self.ctx.store.turns.settle(turn, notes, notices, now, error=error, ends=ends)
        report = report_failed(last.inbound, texts.JOB_CUT_OFF, self._reporting, now)
        step = in_one_step(settle, report, enqueue_events(self.ctx.subscriptions, events))
        await self.end(turn, step, TurnState.FAILED)

    async def settle(
        self,
        running: RunningTurn,
        entries: Sequence[Entry],
        replies: Sequence[Outbound],
        *,
        failure: Failure | None = None,
    ) -> None:
        turn, now, error = running.turn, self.ctx.clock.now(), failure.detail if failure else None
        kind, reason = (EventKind.TURN_FAILED, failure.kind.value) if failure else (EventKind.TURN_FINISHED, None)
        event = partial(turn_event, turn, now, kind, reason=reason)
        pause = min(failure.after or 0.0, _LONGEST_PAUSE_SECONDS) if failure else 0.0
        retry_at = now + timedelta(seconds=pause) if pause else None
        settle = await off_loop(
            sum(len(entry.text) for entry in entries),
            lambda: self.ctx.store.turns.settle(
                turn,
                entries,
                replies,
                now,
                usage=running.usage,
                error=error,
                failure=reason,
                retry_at=retry_at,
                replies_due=self._replies_due(running, now),
            ),
        )
        problem = self._problem(running, failure) if failure else None
        has_recovered = self._has_recovered(running, entries)
        steps: list[Transaction[object]] = [settle]
        if failure and problem:
            steps.append(self._record_problem(running, failure, problem, now))
        elif has_recovered:
            steps.append(problems.end(turn.key.profile))
        elif running.switched and not failure:
            steps.append(self._record_switch(running, running.switched, now))
        if failure and running.job:
            why = _JOB_FAILURES.get(failure.kind, texts.JOB_BROKE)
            steps.append(report_failed(running.messages[-1].inbound, why, self._reporting, now))
        elif dropped := running.dropped:
            steps.append(report_dropped(running.messages[-1].inbound, dropped, self._reporting, now))
        if self.ctx.subscriptions:
            steps.append(enqueue_events(self.ctx.subscriptions, [event()]))
        with self.ctx.meter.step("settle", turn.number):
            await self.end(turn, in_one_step(*steps), TurnState.FAILED if failure else TurnState.DONE)
        log.info("turn settled", extra={"action": "turn.finished", "turn": turn.number, "failed": failure is not None})
        if failure:
            self.ctx.meter.count("turns_failed")
        self._note_problem(turn, problem, has_recovered=has_recovered, is_switched=running.switched is not None)
        self.tell_hooks(lambda: [event()])

    def _has_recovered(self, running: RunningTurn, entries: Sequence[Entry]) -> bool:
        """Return whether an agent that failed before has said something."""
        if running.turn.key.profile not in self.live.failing_profiles or running.shown is None:
            return False
        if not any(entry.role is Role.ASSISTANT for entry in entries):
            return False
        agent = self.ctx.agents.of(running.turn.key.profile)
        return not (isinstance(agent, FallingBack) and agent.is_falling_back())

    @transaction
    def _record_switch(self, running: RunningTurn, failure: Failure, now: datetime) -> Statements[None]:
        """Record why another model answered. Tell the owner once, until the preferred one answers again."""
        turn, profile = running.turn, running.turn.key.profile
        if not is_agent_problem(failure.kind):
            return
        is_new = yield from problems.record(turn, failure.kind, failure.model, now)
        if is_new:
            problem = " ".join(describe_agent_problem(failure.kind, failure.model, profile))
            notice = texts.answers_instead(problem, failure.instead or "", turn.number)
            cause = SendCause(CauseKind.PROBLEM, profile, f"{failure.kind} turn {turn.number}")
            yield from notify_owner(outbound_to(running.source, ""), notice, cause, self._reporting, now)

    @transaction
    def _record_problem(self, running: RunningTurn, failure: Failure, problem: str, now: datetime) -> Statements[None]:
        """Record what is wrong with the agent. Tell the owner once a day, if they do not see it."""
        turn = running.turn
        yield from problems.record(turn, failure.kind, self._model(running, failure), now)
        if not self._owner_reads(running):
            notice, place = texts.agent_problem(problem, turn.number), outbound_to(running.source, "")
            cause = SendCause(CauseKind.PROBLEM, turn.key.profile, f"{failure.kind} {now:%Y-%m-%d}")
            yield from notify_owner(place, notice, cause, self._reporting, now)

    def _note_problem(self, turn: Turn, problem: str | None, *, has_recovered: bool, is_switched: bool) -> None:
        profile = turn.key.profile
        if problem or is_switched:
            self.live.failing_profiles = {*self.live.failing_profiles, profile}
        if problem:
            log.error("%s", problem, extra={"action": "agent.problem", "turn": turn.number})
        elif has_recovered:
            self.live.failing_profiles = {*self.live.failing_profiles} - {profile}
            log.info("the agent answers again", extra={"action": "agent.recovered", "turn": turn.number})

    async def end(self, turn: Turn, step: Transaction[object], state: TurnState) -> None:
        """Commit the last step of a turn, which leaves it in this state."""
        try:
            await retry_until_stored(self.ctx.store, step)
        except StaleFence as stale:
            await self._earlier_state(turn, stale, state)

    async def _earlier_state(self, turn: Turn, stale: StaleFence, *wanted: TurnState) -> TurnState:
        """Return the state in which an earlier commit left the turn, if it is one of those wanted."""
        store = self.ctx.store
        found = await retry_outage(lambda: store.read(store.turns.state_of(turn)))
        if found not in wanted:
            raise stale
        return found

    def notices(
        self, running: RunningTurn, text: str, *, question: str = "", choices: tuple[Choice, ...] = ()
    ) -> list[Outbound]:
        routes, draft = self.ctx.replies.routes, self._draft(running)
        return routes.notices(running.source, text, question=question, draft=draft, choices=choices)

    @staticmethod
    def _is_draft_unclear(running: RunningTurn) -> bool:
        return running.draft.is_unclear if running.draft else running.turn.draft_unclear

    def _draft(self, running: RunningTurn) -> str | None:
        return (running.draft and running.draft.receipt) or running.turn.draft

    @property
    def _reporting(self) -> Reporting:
        return Reporting(self.ctx.replies.routes, self.ctx.settings.grants)

    async def _store_long_answer(self, destinations: Sequence[Destination], text: str) -> Attachment | None:
        """Store an answer that is too long for a chat or the transcript as a file."""
        is_long = len(text) > LONGEST_ANSWER or any(self.ctx.replies.wants_file(to.place, text) for to in destinations)
        if not is_long:
            return None
        file = await self.attachments.store_text("answer.md", text, cut=texts.NOT_KEPT)
        return file if file.sha256 else None

    def _entry(self, role: Role, text: str) -> Entry:
        return Entry(seq=0, role=role, at=self.ctx.clock.now(), text=text)

    def note(self, text: str) -> Entry:
        return self._entry(Role.NOTE, text)

    def tell_hooks(self, events: Callable[[], Iterable[GatewayEvent]]) -> None:
        """Build the events only if a hook wants them."""
        if self.ctx.hooks.are_registered:
            for event in events():
                self.ctx.hooks.tell(event)

    def report_over_quota(self, turn: Turn) -> None:
        log.info(
            "turn over a usage limit", extra={"action": "turn.over_quota", "turn": turn.number, "key": turn.key.text}
        )
        self.ctx.meter.count("turns_failed")

    def report_lost(self, turn: Turn) -> None:
        log.warning("another worker took over a turn", extra={"action": "turn.lease_lost", "turn": turn.number})
        self.ctx.meter.count("turns_lost")


def turn_event(
    turn: Turn, at: datetime, kind: EventKind, *, reason: str | None = None, session: str | None = None
) -> GatewayEvent:
    return GatewayEvent(
        kind=kind, at=at, key=turn.key.text, session=session or turn.session, turn=turn.number, reason=reason
    )
