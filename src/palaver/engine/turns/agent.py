"""Ask the agent: build its request from one consistent state of the store, and turn its events into entries."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from zoneinfo import ZoneInfo

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.context import EngineContext
from palaver.engine.delivery.replies import LONGEST_ANSWER
from palaver.engine.retry import Timeout, Timeouts, contain_cancellation, log_error
from palaver.model.errors import StoreError
from palaver.model.memory import notes_section
from palaver.model.platform import Platform
from palaver.model.prompt import (
    HomeChannel,
    Naming,
    Pseudonyms,
    Situation,
    TurnFacts,
    client_instructions,
    context_section,
    conversation_instructions,
    place_instructions,
    turn_facts,
)
from palaver.model.session import ModelOverride, Session
from palaver.model.source import Labels, Source
from palaver.model.text import whole_characters, without_half
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import ANY_FORM, NO_USAGE, AnswerForm, Received, Turn, Usage
from palaver.model.value import value
from palaver.model.view import (
    Message,
    ViewedStart,
    ViewStyle,
    entry_size,
    extend_view,
    open_calls,
    open_calls_of_turn,
    render,
    view,
    visible_entries,
    with_overheard,
)
from palaver.protocols.agent import (
    Agent,
    ApprovalNeeded,
    Choosing,
    Event,
    Excerpt,
    Failure,
    FailureKind,
    FallingBack,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
    no_file,
    no_new_messages,
)
from palaver.store import accounts
from palaver.store.accounts import NamedHome
from palaver.store.conversations import attach, transcript
from palaver.store.conversations.transcript import NOTHING_LOADED, LoadedEntries
from palaver.store.people import memory
from palaver.store.people.access_rules import AccessRules
from palaver.store.queue import turn_control, turns
from palaver.store.results import Begun, Held

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_SECONDS = 5.0
RECENT_PROMPTS_SIZE = 64_000_000
"""About how many bytes of recent prompts to keep in memory."""
RECENT_PROMPT_LIFETIME = timedelta(minutes=10)
_STEPS_OF_LONG_ANSWER = 100
"""A growing answer is shown when it is longer by one part of so many."""
_LASTING_FACTS = attrgetter(*(field.name for field in fields(Source) if field.name != "message_id"))

Outcome = Final | Failure | ApprovalNeeded


@value
class TurnSnapshot:
    """What the store knew about a turn when its agent was asked."""

    loaded: LoadedEntries
    homes: Sequence[NamedHome]
    session: Session
    """As it was before the turn."""
    last: Received
    approvals: Mapping[str, bool] = field(default_factory=dict[str, bool])
    resumes_calls: bool = False
    """Somebody answered a question: open tool calls may still be used."""
    shared: bool = False
    """Whether several people can speak in the conversation or take part in it."""
    memory: str = ""
    """The part of the prompt with the agent's notes about the person or the chat."""
    overheard: Sequence[Entry] = ()
    """What was said to others in the chat of a participant's conversation."""

    @property
    def entries(self) -> Sequence[Entry]:
        return self.loaded.entries

    @property
    def shown(self) -> Sequence[Entry]:
        """The entries with what was overheard before each question."""
        return with_overheard(self.entries, self.overheard)


@dataclass(kw_only=True)
class _RecentPrompt:
    """What the last request of a conversation had: most of the next one is the same."""

    facts: object = None
    section: str = ""
    """The prompt section that was made of these facts."""
    start: ViewedStart | None = None
    loaded: LoadedEntries = NOTHING_LOADED
    size: int = 0

    def measure(self) -> int:
        """Return about how many bytes it takes in memory. The entries of the start are counted with it."""
        counted, size = (len(self.start.entries), self.start.size) if self.start else (0, 0)
        others = sum(map(entry_size, self.loaded.entries[counted:]))
        return len(self.section) + size + others + self.loaded.size


class RecentPrompts:
    """The prompts of the conversations that spoke last. What is kept never decides what a request contains."""

    def __init__(self) -> None:
        self._prompts: dict[str, tuple[datetime, _RecentPrompt]] = {}
        """By conversation, with the time of their last use, the latest at the end."""
        self._size = 0

    def loaded(self, key: str) -> LoadedEntries:
        """Return the entries that the next request of a conversation probably begins with."""
        return self._prompts[key][1].loaded if key in self._prompts else NOTHING_LOADED

    def take(self, key: str) -> _RecentPrompt:
        if key not in self._prompts:
            return _RecentPrompt()
        _, prompt = self._prompts.pop(key)
        self._size -= prompt.size
        return prompt

    def keep(self, key: str, prompt: _RecentPrompt, now: datetime) -> None:
        prompt.size = prompt.measure()
        self._prompts[key] = now, prompt
        self._size += prompt.size
        while self._size > RECENT_PROMPTS_SIZE:
            self.take(next(iter(self._prompts)))

    def forget_old(self, now: datetime) -> None:
        """Keep no text of a conversation in memory for long: it can be deleted from the store."""
        while self._prompts:
            key, (used, _) = next(iter(self._prompts.items()))
            if abs(now - used) < RECENT_PROMPT_LIFETIME:  # later than now if the clock was set back
                break
            self.take(key)
        if not self._prompts:
            self._prompts = {}  # an emptied dict keeps the table it had


@dataclass(frozen=True, kw_only=True)
class RequestBuilder:
    ctx: EngineContext
    key: Pseudonyms | None = None
    """Pseudonyms, to be used if the settings say so."""
    recent: RecentPrompts = field(default_factory=RecentPrompts, init=False, compare=False)

    @property
    def pseudonyms(self) -> Pseudonyms | None:
        return self.key if self.ctx.settings.config.privacy.pseudonyms else None

    def build(
        self,
        turn: Turn,
        snapshot: TurnSnapshot,
        *,
        new_messages: Callable[[], Awaitable[tuple[str, ...]]] = no_new_messages,
        read_file: Callable[[str], Awaitable[bytes]] = no_file,
        tools: frozenset[str] = frozenset(),
        jobs_send_elsewhere: bool = True,
    ) -> Request:
        """Return the request. `tools` are the names of the gateway's tools for this turn, which it will get."""
        platform = self._platform(snapshot.last.inbound.source)
        recent = self.recent.take(turn.key.text)
        recent.loaded = snapshot.loaded
        messages = self._messages(turn, snapshot, recent)
        parts = [self._section(snapshot, platform, tools, recent, jobs_send_elsewhere=jobs_send_elsewhere)]
        self.recent.keep(turn.key.text, recent, self.ctx.clock.now())
        if texts := self.ctx.settings.instructions_for(snapshot.last.inbound.source):
            parts.append(place_instructions(texts))
        if asked := snapshot.session.instructions:
            parts.append(conversation_instructions(asked))
        if snapshot.memory and self.ctx.settings.memory.find(snapshot.last.inbound.source):
            # Last: a provider's cache keeps what comes before the part that changes.
            parts.append(snapshot.memory)
        if told := snapshot.last.inbound.instructions:
            parts.append(client_instructions(told))
        return Request(
            session=turn.session,
            turn=turn.number,
            attempt=turn.attempt,
            section="\n\n".join(parts),
            messages=messages,
            override=chosen_model(snapshot),
            approvals=_approvals(turn, snapshot, messages) if snapshot.resumes_calls else {},
            new_messages=new_messages,
            read_file=read_file,
            facts=partial(self._facts, turn, snapshot, tools),
            form=snapshot.last.inbound.form,
        )

    def _facts(self, turn: Turn, snapshot: TurnSnapshot, tools: frozenset[str]) -> TurnFacts:
        inbound = snapshot.last.inbound
        platform = self._platform(inbound.source)
        situation = replace(self._situation(snapshot, platform, tools), labels=inbound.labels)
        senders = [entry.sender for entry in visible_entries(snapshot.entries) if entry.sender]
        moments, naming = (snapshot.session.started, inbound.at), Naming(platform=platform, pseudonyms=self.pseudonyms)
        return turn_facts(situation, turn.key.text, moments, senders, naming)

    def texts_since(self, before: TurnSnapshot, now: TurnSnapshot) -> tuple[str, ...]:
        """Return what people said since the agent got a snapshot, in the form in which the next request has it."""
        entries = visible_entries(now.entries)
        known = max((entry.seq for entry in before.entries), default=0)
        latest = max((entry.seq for entry in entries if entry.role in {Role.ASSISTANT, Role.TOOL}), default=0)
        earlier = [entry for entry in entries if entry.seq <= max(known, latest)]
        naming = Naming(platform=self._platform(now.last.inbound.source), pseudonyms=self.pseudonyms)
        rendered = partial(render, naming=naming, shared=now.shared, zone=self._zone(now))
        return tuple(message.text for message in rendered(entries)[len(rendered(earlier)) :])

    def excerpt(self, turn: Turn, snapshot: TurnSnapshot, entries: Sequence[Entry], focus: str = "") -> Excerpt:
        """Return a part of what the agent sees, to be summarised or titled."""
        messages = self._view(snapshot, entries)
        return Excerpt(session=turn.session, messages=messages, override=snapshot.session.override, focus=focus)

    def _view(
        self, snapshot: TurnSnapshot, entries: Sequence[Entry], goes_on: str | None = None
    ) -> tuple[Message, ...]:
        style = self._style(snapshot)
        return view(entries, style.naming, shared=style.shared, zone=style.zone, resumed_turn=goes_on)

    def _style(self, snapshot: TurnSnapshot) -> ViewStyle:
        naming = Naming(platform=self._platform(snapshot.last.inbound.source), pseudonyms=self.pseudonyms)
        return ViewStyle(naming=naming, shared=snapshot.shared, zone=self._zone(snapshot))

    def _messages(self, turn: Turn, snapshot: TurnSnapshot, recent: _RecentPrompt) -> tuple[Message, ...]:
        """Return the view. It mostly extends that of the last request."""
        if snapshot.resumes_calls:
            return self._view(snapshot, snapshot.shown, str(turn.number))
        style = self._style(snapshot)
        start = recent.start if recent.start and recent.start.style == style else ViewedStart(style=style)
        messages, recent.start = extend_view(start, snapshot.shown)
        return messages

    def _section(
        self,
        snapshot: TurnSnapshot,
        platform: Platform,
        tools: frozenset[str],
        recent: _RecentPrompt,
        *,
        jobs_send_elsewhere: bool,
    ) -> str:
        """Return the prompt section: its facts rarely change from turn to turn."""
        source, labels = snapshot.last.inbound.source, _labels(snapshot, platform)
        told = tools, jobs_send_elsewhere, self._zone(snapshot), self.pseudonyms is None
        facts = _LASTING_FACTS(source), labels, snapshot.shared, tuple(snapshot.homes), told
        if recent.facts != facts:
            situation = self._situation(snapshot, platform, tools, jobs_send_elsewhere=jobs_send_elsewhere)
            recent.facts, recent.section = facts, context_section(situation, self.pseudonyms)
        return recent.section

    def _situation(
        self,
        snapshot: TurnSnapshot,
        platform: Platform,
        tools: frozenset[str],
        *,
        jobs_send_elsewhere: bool = True,
    ) -> Situation:
        connected = self.ctx.replies.platforms
        return Situation(
            source=snapshot.last.inbound.source,
            platform=platform,
            labels=_labels(snapshot, platform),
            shared=snapshot.shared,
            zone=self._zone(snapshot),
            connected=tuple(each for each in connected.values() if not each.output_only),
            writes_files=any(each.output_only for each in connected.values()),
            homes=tuple(
                HomeChannel(platform=connected[home.place.platform], chat_id=home.place.chat, name=home.name)
                for home in snapshot.homes
                if home.place.chat and home.place.platform in connected
            ),
            tools=tools,
            jobs_send_elsewhere=jobs_send_elsewhere,
        )

    def _zone(self, snapshot: TurnSnapshot) -> ZoneInfo:
        return self.ctx.settings.zones.find(snapshot.last.inbound.source)

    def _platform(self, source: Source) -> Platform:
        """Return the platform, even if it is no longer connected."""
        return self.ctx.replies.platforms.get(source.platform) or Platform(
            name=source.platform, title=source.platform.title()
        )


def model_name(agent: Agent, override: ModelOverride | None) -> str | None:
    """Return the model that an agent answers with, if it has several or says which."""
    if isinstance(agent, FallingBack) and (instead := agent.answers_instead()):
        return instead
    models = agent.models() if isinstance(agent, Choosing) else ()
    used = override if override in models else next(iter(models), None)
    return used and ":".join(filter(None, (used.provider, used.model)))


def chosen_model(snapshot: TurnSnapshot) -> ModelOverride | None:
    """Return the model of the job, or else the one that was chosen for the conversation."""
    job = snapshot.last.inbound.job
    return (job and job.model) or snapshot.session.override


def _labels(snapshot: TurnSnapshot, platform: Platform) -> Labels:
    """Return the lasting labels. Where an account is a chat, each message names its sender instead."""
    labels = snapshot.last.inbound.labels
    return replace(labels, user=None) if platform.accounts_are_chats else labels


def _approvals(turn: Turn, snapshot: TurnSnapshot, messages: Sequence[Message]) -> dict[str, bool]:
    """Return the decisions about open calls, by the call ids in the request, which the view may have repaired.

    A call id that was used before does not count again: an approval is for one call.
    """
    pairs = zip(open_calls_of_turn(snapshot.entries, str(turn.number)), open_calls(messages), strict=True)
    decisions = {
        call.id: snapshot.approvals.get(call.id, snapshot.approvals.get(written.id)) for written, call in pairs
    }
    return {call: is_approved for call, is_approved in decisions.items() if is_approved is not None}


@transaction
def begin_and_load(
    begin: Transaction[Begun | Held | None], rules: Transaction[AccessRules], known: LoadedEntries
) -> Statements[tuple[Begun | Held | None, TurnSnapshot | None]]:
    """Begin a turn and load its snapshot in the same transaction. Entries that are known are not decoded again."""
    begun = yield from begin
    if not isinstance(begun, Begun):
        return begun, None
    is_alone = begun.opened.is_alone and len(begun.messages) == 1
    session = begun.opened.session
    snapshot = yield from _snapshot(begun.turn, begun.messages[-1], session, rules, known, is_alone=is_alone)
    if begun.has_notes:
        snapshot = replace(snapshot, memory=(yield from _memory(begun.turn, snapshot)))
    return begun, snapshot


@transaction
def load_snapshot(turn: Turn, last: Received, rules: Transaction[AccessRules]) -> Statements[TurnSnapshot]:
    session = yield from turns.session_of(turn)
    snapshot = yield from _snapshot(turn, last, session, rules)
    notes = yield from _memory(turn, snapshot)
    approvals = yield from turn_control.read_approvals(turn)
    # A second attempt may already have used what was approved, so it has to ask again.
    resumes_calls = bool(approvals) and turn.attempt == 1
    return replace(snapshot, approvals=approvals, resumes_calls=resumes_calls, memory=notes)


def _memory(turn: Turn, snapshot: TurnSnapshot) -> Statements[str]:
    """Return the part of the prompt with the notes that everybody who reads this conversation can see."""
    scope = yield from memory.scope_of(turn.key, snapshot.session, snapshot.last, shared=snapshot.shared)
    notes = (yield from memory.list_notes(scope)) if scope else []
    return notes_section(notes, scope) if scope and notes else ""


def _snapshot(
    turn: Turn,
    last: Received,
    session: Session,
    rules: Transaction[AccessRules],
    known: LoadedEntries = NOTHING_LOADED,
    *,
    is_alone: bool = False,
) -> Statements[TurnSnapshot]:
    loaded = yield from transcript.load_again(turn.session_number, known)
    homes = yield from accounts.list_named_homes(turn.key.profile, rules)
    shared = turn.key.shared or (last.place or turn.key).shared
    if not shared and not is_alone:
        shared = yield from attach.is_shared(session)
    overheard = yield from turns.load_overheard(turn.key, last.inbound.source)
    return TurnSnapshot(loaded=loaded, homes=homes, session=session, last=last, shared=shared, overheard=overheard)


@dataclass(kw_only=True, slots=True)
class AgentRun:
    """One agent at work on one turn."""

    agent: Agent
    write: Callable[[Entry], Awaitable[None]]
    """Stores an entry under the turn's fence."""
    show: Callable[[str], None]
    """Gets the whole text so far, each time it grows."""
    work: Callable[[Sequence[str]], None]
    """Gets the names of the tools that run, each time some begin or one ends."""
    now: Callable[[], datetime]
    timeouts: Timeouts
    quiet_limit: timedelta
    usage: Usage = NO_USAGE
    said: list[str] = field(default_factory=list)
    """What the agent said before, each time it used a tool."""
    has_called: bool = False
    """The agent called a tool since the turn started, so earlier approvals are for other calls."""
    _shown: str = ""
    """The answer as it was shown last."""
    _added: list[str] = field(default_factory=list)
    """What the agent has said since."""
    _added_length: int = 0
    _half: str = ""
    """Half a character at the end of it: the other half comes with the next piece."""
    _open_calls: dict[str, ToolCall] = field(default_factory=dict)
    _form: AnswerForm = ANY_FORM
    _assigned: Usage = NO_USAGE
    """The usage that is already recorded with an entry."""

    @property
    def text(self) -> str:
        """The answer so far."""
        if self._added:
            self._shown, self._added, self._added_length = self._shown + "".join(self._added), [], 0
        return self._shown

    @text.setter
    def text(self, text: str) -> None:
        self._shown, self._added, self._added_length, self._half = text, [], 0, ""

    async def ask(self, request: Request) -> Outcome:
        """Run the agent until it is done, fails, or is silent for too long."""
        self.text = ""
        self._form = request.form
        self._open_calls = {call.id: call for call in open_calls(request.messages)}
        if request.approvals:  # What was not denied runs now, and nothing more is said of it.
            self.work([call.name for call in self._open_calls.values() if request.approvals.get(call.id, True)])
        try:
            with contain_cancellation():
                return _finish(await self._run(request), request.form)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - no error of an agent may end more than its turn
            log_error(log, "the agent failed", error, {"action": "agent.error", "turn": request.turn})
            return Failure(kind=FailureKind.FATAL, detail=f"the agent broke: {type(error).__name__}")

    def take_usage(self) -> tuple[int, int | None]:
        """Return the output tokens reported since the last entry, and the cost with the prompt; None if unknown."""
        before, self._assigned = self._assigned, self.usage
        tokens = self.usage.output_tokens - before.output_tokens
        reported = tokens + self.usage.input_tokens - before.input_tokens
        is_known = reported and self.usage.unpriced_tokens == before.unpriced_tokens
        return tokens, self.usage.cost_micros - before.cost_micros if is_known else None

    async def _run(self, request: Request) -> Outcome:
        stream = aiter(self.agent.answer(request))
        try:
            return await self._read(stream)
        finally:
            await self._close(stream, request.turn)

    async def _close(self, stream: AsyncIterator[Event], turn: int) -> None:
        try:
            if isinstance(stream, AsyncGenerator):
                with self.timeouts.timeout(CLOSE_TIMEOUT_SECONDS), contain_cancellation():
                    await stream.aclose()
        except Exception as error:  # noqa: BLE001 - the answer counts even if the agent fails to clean up
            log_error(log, "the agent did not close", error, {"action": "agent.close_error", "turn": turn})

    async def _read(self, stream: AsyncIterator[Event]) -> Outcome:
        quiet = self.timeouts.timeout(self.quiet_limit.total_seconds())
        while True:
            event = await self._next(stream, quiet)
            if isinstance(event, ApprovalNeeded):
                if event.call.id not in self._open_calls:
                    await self._handle(ToolCalled(calls=(event.call,)))
                elif event.call != self._open_calls[event.call.id]:
                    return Failure(kind=FailureKind.FATAL, detail="the agent asked about a different call than it made")
            if isinstance(event, Outcome):
                return event
            await self._handle(event)

    async def _next(self, stream: AsyncIterator[Event], quiet: Timeout) -> Event:
        try:
            with quiet:
                return await anext(stream)
        except TimeoutError:
            if not quiet.expired:  # the agent raised it
                raise
            return Failure(kind=FailureKind.STUCK, detail=f"the agent said nothing for {self.quiet_limit}")
        except StopAsyncIteration:
            return Failure(kind=FailureKind.FATAL, detail="the agent ended without an answer")

    async def _handle(self, event: TextDelta | ToolCalled | ToolReturned | UsageReport) -> None:
        match event:
            case TextDelta(text):
                self._grow(text)
            case UsageReport(usage):
                self.usage = self.usage.plus(usage)
            case ToolCalled():
                self.text = ""
                said = whole_characters(event.text)[:LONGEST_ANSWER]
                self.said.append(said)
                self.has_called = True
                self._open_calls = {call.id: call for call in event.calls}
                tokens, cost = self.take_usage()
                await self.write(
                    Entry(
                        seq=0,
                        role=Role.ASSISTANT,
                        at=self.now(),
                        text=said,
                        calls=event.calls,
                        reasoning=whole_characters(event.reasoning)[:LONGEST_ANSWER],
                        blob=event.blob,
                        tokens=tokens,
                        cost_micros=cost,
                    )
                )
                self.work([call.name for call in event.calls])
            case ToolReturned():
                self._open_calls.pop(event.call, None)
                self.work([call.name for call in self._open_calls.values()])
                result = whole_characters(event.text)[:LONGEST_ANSWER]
                await self.write(Entry(seq=0, role=Role.TOOL, at=self.now(), text=result, answers=event.call))

    def _grow(self, text: str) -> None:
        """Show the answer so far. Show a long one less often, because joining it each time would take ever longer."""
        if self._half or not text.isascii():
            text, self._half = without_half(self._half + text)
            text = whole_characters(text)
        added = text[: LONGEST_ANSWER - len(self._shown) - self._added_length]
        if not added:
            return
        self._added.append(added)
        self._added_length += len(added)
        if self._added_length * _STEPS_OF_LONG_ANSWER >= len(self._shown):
            self.show(self._form.cut(self.text, is_growing=True))


def _finish(outcome: Outcome, form: AnswerForm) -> Outcome:
    """Join halves of characters, and end an answer at a stop, for agents that did not."""
    if not isinstance(outcome, Final):
        return outcome
    whole = outcome.text if outcome.text.isascii() else whole_characters(outcome.text)
    if (text := form.cut(whole)) != whole:
        return replace(outcome, text=text, blob=b"", cut=False)  # the provider's blob has the rest of it too
    return outcome if whole == outcome.text else replace(outcome, text=whole)
