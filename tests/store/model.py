"""What a store means, in plain Python: no SQL, no transactions, one thing after another."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from palaver.model.compaction import CompactionPlan, check_gain
from palaver.model.errors import NothingToCompact, SessionBusy
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, clean_title, next_in_lineage, owner_of
from palaver.model.source import Source, identity_of
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, InboxState, OutboxState, Turn, TurnState
from palaver.store.results import Opening, OperationKind

IDLE = timedelta(hours=1)
"""Of the one reset policy of the model, where there is one."""
_MOMENT = timedelta(microseconds=1)
_ENDED_BY_ITSELF = {EndReason.IDLE, EndReason.DAILY, EndReason.SUSPENDED, EndReason.EXPIRED}
_HIDING = {OperationKind.UNDO, OperationKind.COMPACTION}
_OPEN = {TurnState.RUNNING, TurnState.PARKED, TurnState.INTERRUPTED}
_STATE_BY_TURN = {TurnState.DONE: InboxState.DONE, TurnState.FAILED: InboxState.FAILED}


@dataclass
class Line:
    """One entry; hidden by at most one operation."""

    seq: int
    role: Role
    text: str
    turn: int | None = None
    observed: bool = False
    covers: tuple[int, int] | None = None
    hidden_by: int | None = None

    @property
    def position(self) -> int:
        return self.covers[1] if self.covers else self.seq

    @property
    def speaks(self) -> bool:
        return self.role is Role.USER and not self.observed

    def is_the_same_as(self, entry: Entry) -> bool:
        return (self.seq, self.role, self.text, self.covers) == (entry.seq, entry.role, entry.text, entry.covers)


@dataclass
class Talk:
    """A session."""

    id: str
    key: SessionKey
    owner: str
    last_human: datetime
    readers: set[str]
    title: str | None = None
    parent: str | None = None
    reason: EndReason | None = None
    next_seq: int = 1
    turns: int = 0
    tokens: int = 0
    lines: list[Line] = field(default_factory=list["Line"])

    @property
    def is_open(self) -> bool:
        return self.reason is None

    @property
    def shown(self) -> list[Line]:
        return [line for line in self.lines if line.hidden_by is None]

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.shown]

    @property
    def turn_starts(self) -> list[int]:
        firsts: dict[str, int] = {}
        for line in self.shown:
            if line.speaks:
                firsts.setdefault(f"turn {line.turn}" if line.turn else f"seq {line.seq}", line.seq)
        return list(firsts.values())

    def write(self, role: Role, text: str, turn: int | None = None, *, observed: bool = False) -> Line:
        line = Line(self.next_seq, role, text, turn, observed)
        self.lines.append(line)
        self.next_seq += 1
        return line


@dataclass
class Message:
    number: int
    key: SessionKey
    source: Source
    role: Role
    text: str
    received: datetime
    observed: bool = False
    refused: bool = False
    human: bool = True
    turn: int | None = None


@dataclass
class OpenTurn:
    """A turn."""

    number: int
    key: SessionKey
    session: str
    worker: str
    lease_until: datetime
    state: TurnState = TurnState.RUNNING
    attempt: int = 1
    fence: int = 1


@dataclass
class Send:
    number: int
    text: str
    due: datetime
    created: datetime
    state: OutboxState = OutboxState.DUE
    attempts: int = 0
    worker: str | None = None
    claim_until: datetime | None = None
    times_unclear: int = 0


@dataclass
class Operation:
    number: int
    kind: OperationKind
    key: SessionKey
    session: str
    before: str | None = None
    home: SessionKey | None = None
    reason: EndReason | None = None
    """Why the session had ended before it was moved; None if it was open."""
    summary: int | None = None
    compactions: "list[Operation]" = field(default_factory=list["Operation"])
    """What an undo took back first."""
    stands: bool = True


@dataclass
class Model:
    now: datetime
    talks: dict[str, Talk] = field(default_factory=dict[str, Talk])
    routes: dict[SessionKey, str] = field(default_factory=dict[SessionKey, str])
    inbox: dict[int, Message] = field(default_factory=dict[int, Message])
    line: list[SessionKey] = field(default_factory=list[SessionKey])
    """Conversations in which messages wait, in the order in which they get a turn."""
    known: set[tuple[str | None, str | None]] = field(default_factory=set[tuple[str | None, str | None]])
    turns: dict[int, OpenTurn] = field(default_factory=dict[int, OpenTurn])
    outbox: dict[int, Send] = field(default_factory=dict[int, Send])
    notices: set[str] = field(default_factory=set[str])
    operations: list[Operation] = field(default_factory=list[Operation])
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    # Inbox and turns

    def is_known(self, source: Source) -> bool:
        return (source.chat_id, source.message_id) in self.known

    def accept(self, message: Message) -> None:
        self.inbox[message.number] = message
        self.known.add((message.source.chat_id, message.source.message_id))
        if not message.refused and message.key not in self.line:
            self.line.append(message.key)

    def step_back(self, key: SessionKey) -> None:
        self.line.remove(key)
        if self.waiting(key):
            self.line.append(key)

    def state_of(self, message: Message) -> InboxState:
        if message.refused:
            return InboxState.REFUSED
        if message.turn is None:
            return InboxState.WAITING
        return _STATE_BY_TURN.get(self.turns[message.turn].state, InboxState.IN_TURN)

    def waiting(self, key: SessionKey) -> list[Message]:
        return [each for each in self.inbox.values() if each.key == key and self.state_of(each) is InboxState.WAITING]

    def is_busy(self, key: SessionKey) -> bool:
        return any(turn.key == key and turn.state in _OPEN for turn in self.turns.values())

    def is_worked_on(self, talk: Talk) -> bool:
        """A session in a turn does not change hands."""
        mine = (turn for turn in self.turns.values() if turn.session == talk.id and turn.key == talk.key)
        return any(turn.state in _OPEN for turn in mine)

    def claimable(self) -> list[SessionKey]:
        return [key for key in self.line if not self.is_busy(key)]

    def begin(self, turn: Turn, messages: list[Message], *, idle_policy: bool) -> Opening:
        """Claim the messages; gives how the session must have been opened."""
        source = messages[-1].source
        spoken = max((each.received for each in messages if each.human and not each.observed), default=None)
        said = messages[0].received
        expected = self.open(turn.key, source, turn.session, said=said, spoken=spoken, idle_policy=idle_policy)
        self.turns[turn.number] = OpenTurn(turn.number, turn.key, turn.session, turn.worker, turn.lease_until)
        for message in messages:
            message.turn = turn.number
            self.talks[turn.session].write(message.role, message.text, turn.number, observed=message.observed)
        self.step_back(turn.key)
        return expected

    def holds(self, turn: Turn) -> bool:
        held = self.turns[turn.number]
        return held.fence == turn.fence and held.state is TurnState.RUNNING

    def append(self, turn: Turn, texts: list[str]) -> None:
        for text in texts:
            self.talks[turn.session].write(Role.ASSISTANT, text, turn.number)

    def settle(self, turn: Turn, texts: list[str], replies: list[str], tokens: int, *, failed: bool) -> None:
        self.append(turn, texts)
        talk = self.talks[turn.session]
        talk.turns += bool(texts) and not failed
        talk.tokens += tokens
        self.turns[turn.number].state = TurnState.FAILED if failed else TurnState.DONE
        for ordinal, text in enumerate(replies):
            number = turn.number * 1024 + ordinal
            self.owe(number, text)

    def lapsed(self, worker: str, *, alone: bool) -> list[OpenTurn]:
        return [
            turn
            for turn in self.turns.values()
            if turn.state is TurnState.INTERRUPTED
            or (turn.state is TurnState.RUNNING and (turn.lease_until < self.now or (alone and turn.worker != worker)))
        ]

    def take(self, turn: OpenTurn, worker: str, lease: timedelta) -> None:
        turn.state, turn.worker, turn.lease_until = TurnState.RUNNING, worker, self.now + lease
        turn.attempt += 1
        turn.fence += 1

    # Sessions

    def open_at(self, key: SessionKey) -> Talk | None:
        found = [talk for talk in self.talks.values() if talk.key == key and talk.is_open]
        assert len(found) <= 1
        return found[0] if found else None

    def routed(self, key: SessionKey) -> Talk | None:
        """Where the key leads: a session that is still here and was not given up."""
        talk = self.talks.get(self.routes.get(key, ""))
        return talk if talk and talk.key == key and talk.reason is not EndReason.RESET else None

    def open(
        self,
        key: SessionKey,
        source: Source,
        session: str,
        *,
        said: datetime,
        spoken: datetime | None,
        idle_policy: bool,
    ) -> Opening:
        """Get or create; `session` is the id of the one that a reset or a creation has made."""
        current = self.routed(key)
        if current is None:
            self.create(key, source, session).last_human = spoken or self.now
            return Opening.CREATED
        idle = idle_policy and said - current.last_human >= IDLE and not self.is_worked_on(current)
        if current.reason in _ENDED_BY_ITSELF or (current.is_open and idle):
            self.start_fresh(key, source, session, EndReason.IDLE).last_human = spoken or self.now
            return Opening.RESET
        opening = Opening.REUSED if current.is_open else Opening.REOPENED
        current.reason = None
        self._enter(current, source, spoken)
        return opening

    def _enter(self, talk: Talk, source: Source, spoken: datetime | None) -> None:
        """Only people extend the idle time, from when what they said was received, and never backwards."""
        if spoken:
            talk.last_human = max(talk.last_human, spoken)
        talk.readers |= {identity_of(source) or ""}

    def create(self, key: SessionKey, source: Source, session: str, title: str | None = None) -> Talk:
        owner = owner_of(key, source)
        talk = Talk(session, key, owner, self.now, {identity_of(source) or ""})
        talk.title = title and self.free_title(owner, title)
        self.talks[session] = talk
        self.routes[key] = session
        return talk

    def free_title(self, owner: str, title: str, besides: Talk | None = None) -> str:
        others = [talk for talk in self.talks.values() if talk is not besides]
        taken = [talk.title for talk in others if talk.owner == owner and talk.title]
        return next_in_lineage(clean_title(title), taken)

    def start_fresh(
        self, key: SessionKey, source: Source, session: str, reason: EndReason, title: str | None = None
    ) -> Talk:
        current = self.routed(key)
        if current is not None:
            current.reason = current.reason or reason
            self._record(OperationKind.RESET, key, session, before=current.id)
        return self.create(key, source, session, title)

    def _record(
        self,
        kind: OperationKind,
        key: SessionKey,
        session: str,
        *,
        before: str | None = None,
        home: SessionKey | None = None,
        reason: EndReason | None = None,
    ) -> Operation:
        made = Operation(next(self._numbers), kind, key, session, before, home, reason)
        self.operations.append(made)
        return made

    def switch(self, key: SessionKey, source: Source, target: str) -> None:
        current, wanted = self.routed(key), self.talks[target]
        if wanted.key == key and wanted.is_open:
            return
        if wanted.key != key:
            self._refuse_busy(wanted)
        if current is not None:
            current.reason = current.reason or EndReason.SWITCHED
        before = current.id if current and current is not wanted else None
        self._record(OperationKind.SWITCH, key, target, before=before, home=wanted.key, reason=wanted.reason)
        self._go_on(wanted, key)
        self._enter(wanted, source, self.now)

    def _refuse_busy(self, talk: Talk) -> None:
        if self.is_worked_on(talk):
            raise SessionBusy(talk.id)

    def _go_on(self, talk: Talk, key: SessionKey) -> None:
        """Anyone who asks to go on in a session is a person, and speaks."""
        talk.key, talk.reason, talk.last_human = key, None, self.now
        self.routes[key] = talk.id

    def branch(self, key: SessionKey, source: Source, session: str, parent: Talk, at_seq: int | None) -> None:
        current = self.routed(key)
        if current is not None:
            current.reason = current.reason or EndReason.SWITCHED
        child = self.create(key, source, session, parent.title)
        child.parent = parent.id
        child.lines = [
            Line(line.seq, line.role, line.text, line.turn, line.observed, line.covers)
            for line in self._said_until(parent, at_seq)
        ]
        child.next_seq = max((line.seq for line in child.lines), default=0) + 1
        self._record(OperationKind.BRANCH, key, session, before=current and current.id)

    def _said_until(self, talk: Talk, at_seq: int | None) -> list[Line]:
        """What was shown then: what a later summary covers, and not the summary."""
        reached = [line for line in talk.lines if at_seq is None or line.position <= at_seq]
        summaries = {each.number: each.summary for each in self.operations if each.kind is OperationKind.COMPACTION}
        seqs = {line.seq for line in reached}
        return [
            line
            for line in reached
            if line.hidden_by is None or (line.hidden_by in summaries and summaries[line.hidden_by] not in seqs)
        ]

    # What can be taken back

    def undo(self, key: SessionKey, turns: int) -> list[str]:
        """The texts that went out of sight; none if there was nothing to undo."""
        talk = self.open_at(key)
        if talk is not None:
            self._refuse_busy(talk)
        if talk is None:
            return []
        compactions: list[Operation] = []
        while len(starts := talk.turn_starts) < turns and (summary := self._shown_compaction(talk)):
            summary.stands = False
            compactions.append(summary)
            self._show(summary)
        if len(starts) < turns:
            starts = [*(line.position for line in talk.shown if line.covers), *starts]
        if not starts:
            return []
        first = min(starts[-turns:])
        hidden = [line for line in talk.shown if line.position >= first]
        operation = self._record(OperationKind.UNDO, key, talk.id)
        operation.compactions = compactions
        for line in hidden:
            line.hidden_by = operation.number
        return [line.text for line in hidden]

    def _shown_compaction(self, talk: Talk) -> Operation | None:
        """The last compaction of a session, if its summary is shown."""
        standing = self._standing_compactions(talk)
        return standing[-1] if standing and standing[-1].summary in {line.seq for line in talk.shown} else None

    def _standing_compactions(self, talk: Talk) -> list[Operation]:
        return [
            each
            for each in self.operations
            if each.stands and each.session == talk.id and each.kind is OperationKind.COMPACTION
        ]

    def compact(self, key: SessionKey, plan: CompactionPlan, summary: str) -> None:
        talk = self.open_at(key)
        covered = {entry.seq: entry for entry in plan.covered}
        lines = [line for line in talk.shown if line.seq in covered] if talk else []
        if talk and any(
            line.covers == plan.covers and line.text == summary and line.seq not in covered for line in talk.shown
        ):
            return  # it stands already
        if (
            talk is None
            or len(lines) < len(covered)
            or not all(each.is_the_same_as(covered[each.seq]) for each in lines)
        ):
            raise NothingToCompact("the conversation has changed")
        check_gain(plan, Entry(seq=0, role=Role.SUMMARY, at=self.now, text=summary))
        operation = self._record(OperationKind.COMPACTION, key, talk.id)
        for line in lines:
            line.hidden_by = operation.number
        standing = talk.write(Role.SUMMARY, summary)
        standing.covers = plan.covers
        operation.summary = standing.seq

    def back(self, key: SessionKey, *kinds: OperationKind) -> tuple[OperationKind, str, list[str]] | None:
        """What was taken back, the session it leads to, the texts that came back."""
        here = self.routed(key)
        if here and here.reason in _ENDED_BY_ITSELF and OperationKind.RESET in kinds:
            self._go_on(here, key)
            return OperationKind.RESET, here.id, []
        standing = [
            each
            for each in self.operations
            if each.stands and each.kind in kinds
            if (here and each.session == here.id if each.kind in _HIDING else each.key == key)
        ]
        if not standing:
            return None
        operation = standing[-1]
        if operation.kind in _HIDING:
            operation.stands = False
            shown = self._show(operation)
            for compaction in reversed(operation.compactions):
                self._summarise_again(compaction)
            return operation.kind, operation.session, shown
        return operation.kind, self._return(operation), []

    def _show(self, operation: Operation) -> list[str]:
        lines = self.talks[operation.session].lines
        shown = [line for line in lines if line.hidden_by == operation.number]
        for line in shown:
            line.hidden_by = None
        for line in lines:
            if line.seq == operation.summary:
                line.hidden_by = operation.number
        return [line.text for line in shown]

    def _summarise_again(self, compaction: Operation) -> None:
        talk = self.talks[compaction.session]
        if any(each.number > compaction.number for each in self._standing_compactions(talk)):
            return
        summary = next(line for line in talk.lines if line.seq == compaction.summary)
        first, last = summary.covers or (0, 0)
        for line in talk.shown:
            line.hidden_by = compaction.number if first <= line.position <= last else None
        summary.hidden_by, compaction.stands = None, True

    def _return(self, operation: Operation) -> str:
        key, moved = operation.key, self.talks[operation.session]
        goes_home = operation.home not in {None, key} and moved.key == key
        left = self.talks.get(operation.before or "")
        if goes_home:
            self._refuse_busy(moved)
        begun = self._empty_since(left, moved, key)
        left = self.talks[begun[-1].before or ""] if begun else left
        if left and left.key != key:
            self._refuse_busy(left)
        for each in (operation, *begun):
            each.stands = False
        current = self.open_at(key)
        if current is not None:
            current.reason = EndReason.SWITCHED if left else EndReason.RESET
        if operation.home and moved.key == key:
            self._send_home(moved, operation)
        if left is None:
            return moved.id
        self._go_on(left, key)
        return left.id

    def _empty_since(self, left: Talk | None, moved: Talk, key: SessionKey) -> list[Operation]:
        """The resets that began sessions in which nothing was said, from the one that was left back."""
        begun: list[Operation] = []
        resets = [each for each in self.operations if each.stands and each.kind is OperationKind.RESET]
        while left and not left.lines:
            reset = next((each for each in resets if each.key == key and each.session == left.id), None)
            if reset is None or reset.before not in self.talks or reset.before == moved.id:
                break
            begun.append(reset)
            left = self.talks[reset.before]
        return begun

    def _send_home(self, moved: Talk, operation: Operation) -> None:
        home = operation.home
        assert home
        is_free = self.open_at(home) is None
        moved.key, moved.reason = home, operation.reason or EndReason.SWITCHED
        if operation.reason is None and is_free:
            self._go_on(moved, home)

    # Outbox

    def claim(self, claimed: list[Delivery], worker: str, until: datetime) -> None:
        for each in claimed:
            send = self.outbox[each.number]
            send.state, send.worker, send.claim_until = OutboxState.CLAIMED, worker, until

    def has_begun(self, delivery: Delivery, worker: str, until: datetime) -> bool:
        send = self.outbox[delivery.number]
        begun = (OutboxState.SENDING, worker, delivery.attempts + 1, until)
        return (send.state, send.worker, send.attempts, send.claim_until) == begun

    def begin_send(self, delivery: Delivery, until: datetime) -> None:
        send = self.outbox[delivery.number]
        send.state, send.claim_until = OutboxState.SENDING, until
        send.attempts += 1

    def owe(self, number: int, text: str) -> None:
        """Everything goes to one chat here: behind what is owed there already."""
        latest = max((send.created for send in self.owed()), default=self.now - _MOMENT)
        self.outbox[number] = Send(number, text, self.now, max(self.now, latest + _MOMENT))

    def owed(self) -> list[Send]:
        return [send for send in self.outbox.values() if send.state.is_open]

    def due(self) -> list[Send]:
        """What is owed longest, if its time has come and nobody is at it."""
        first = min(self.owed(), key=lambda send: (send.created, send.number), default=None)
        return [first] if first and first.state is OutboxState.DUE and first.due <= self.now else []

    def lose(self, send: Send, *, repeats: int) -> None:
        """Nobody knows whether it arrived."""
        send.times_unclear += 1
        send.state = OutboxState.UNCLEAR if send.times_unclear > repeats else OutboxState.DUE
        send.due, send.worker = self.now, None

    def holds_send(self, delivery: Delivery, worker: str) -> bool:
        send = self.outbox[delivery.number]
        return (send.state, send.worker, send.attempts) == (delivery.state, worker, delivery.attempts)

    def lapsed_sends(self, worker: str, *, alone: bool) -> list[Send]:
        return [
            send
            for send in self.outbox.values()
            if send.state in {OutboxState.CLAIMED, OutboxState.SENDING}
            and ((send.claim_until or self.now) < self.now or (alone and send.worker != worker))
        ]
