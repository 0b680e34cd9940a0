"""No matter what is done in which order, the store shows what the model shows, and no invariant breaks."""

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.compaction import CompactionPlan, plan_compaction
from palaver.model.errors import NotFound, NothingToCompact, SessionBusy, StaleFence
from palaver.model.session import EndReason, Principal, Session
from palaver.model.source import Source
from palaver.model.transcript import Role
from palaver.model.turn import (
    REPEATS_AFTER_CRASH,
    REPEATS_AFTER_OUTAGE,
    Cause,
    Delivery,
    Inbound,
    Outbound,
    OutboxState,
    Turn,
    TurnState,
    Usage,
)
from palaver.store.conversations import branches, history, sessions, titles, transcript
from palaver.store.conversations.transcript import NOTHING_LOADED, LoadedEntries
from palaver.store.damage.missing import find_missing_messages
from palaver.store.opening import open_store
from palaver.store.queue import inbox, outbox, turns
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    delivery_of,
    entries_of,
    received_of,
    session_of,
    source_of,
    turn_of,
)
from palaver.store.results import Opening, OperationKind, RepeatSafety
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.conftest import fresh_store
from tests.store.model import Message, Model, Talk
from tests.store.opened import open_session
from tests.store.world import (
    IDLE_HOUR,
    LEASE,
    NEVER,
    NOON,
    OPERATOR,
    World,
    answer,
    cause,
    collecting,
    dm,
    key_of,
    only_begun,
)

T = TypeVar("T")

# Alice talks in three places, Bob in one: she may carry her conversations about, he can not reach them.
PLACES = {"alice": dm("7"), "alice a": dm("7", thread_id="a"), "alice b": dm("7", thread_id="b"), "bob": dm("8")}
KEYS = {name: key_of(source) for name, source in PLACES.items()}
PEOPLE = {name: Principal.speaking(source) for name, source in PLACES.items()}
TABLES = (
    "sessions",
    "participants",
    "routes",
    "entries",
    "journal",
    "inbox",
    "ready_queue",
    "turns",
    "outbox",
    "operations",
)
STEPS = 50

places = st.sampled_from(tuple(PLACES))
workers = st.sampled_from(("w1", "w2"))
picks = st.integers(0, 20)
seldom = st.sampled_from((False, False, False, True))


@transaction
def empty() -> Statements[None]:
    for table in TABLES:
        yield f"DELETE FROM {table}", ()  # noqa: S608 - our own words


Seen = dict[str, object]
"""Everything that can be seen of a store, by what it is about."""


@transaction
def look() -> Statements[Seen]:
    seen: Seen = {
        "claimable": set((yield from inbox.list_ready(10))),
        "broken": (yield from violations()) + (yield from find_missing_messages()),
    }
    sessions_ = yield f"SELECT {SESSION_COLUMNS} FROM sessions s ORDER BY s.no", ()  # noqa: S608
    entries = yield "SELECT id, body, hidden_by FROM entries ORDER BY id", ()
    for session in map(session_of, sessions_):
        mine = [row for row in entries if row[0] // transcript.SEQS == session.number]
        shown = entries_of([row for row in mine if row[2] is None])
        life = (session.key, session.end_reason, session.title, session.parent, session.last_human)
        counters = session.counters
        seen[f"life of {session.id}"] = life
        seen[f"counters of {session.id}"] = (counters.entries, counters.turns, counters.input_tokens)
        seen[f"words of {session.id}"] = [(entry.seq, entry.role, entry.text, entry.covers) for entry in shown]
        seen[f"all of {session.id}"] = [entry.seq for entry in entries_of(mine)]
    for place, key in KEYS.items():
        current = yield from sessions.open_by_key(key)
        seen[f"open at {place}"] = current and current.id
    query = f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no"  # noqa: S608
    for turn in map(turn_of, (yield query, ())):
        seen[f"turn {turn.number}"] = (turn.key, turn.session, turn.state, turn.attempt, turn.fence, turn.worker)
    query = f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"  # noqa: S608
    for message in map(received_of, (yield query, ())):
        seen[f"message {message.number}"] = (message.key, message.inbound.text, message.state, message.turn)
    for send in map(delivery_of, (yield f"SELECT {DELIVERY_COLUMNS} FROM outbox", ())):  # noqa: S608
        seen[f"send {send.number}"] = (send.outbound.text, send.state, send.attempts, send.times_unclear)
    return seen


Known = dict[int, LoadedEntries]
"""What is known of each session."""


@transaction
def load_all_again(known: Known) -> Statements[Known]:
    """Load every session: no matter what is known of it, that is what it shows."""
    loaded: Known = {}
    for (number,) in (yield "SELECT no FROM sessions ORDER BY no", ()):
        loaded[number] = yield from transcript.load_again(number, NOTHING_LOADED)
        assert loaded[number].entries == (yield from transcript.load_shown(number))
        # Also what is known of another session: it was read before this one.
        for each in (known.get(number), known.get(number - 1), loaded.get(number - 1)):
            assert (yield from transcript.load_again(number, each or NOTHING_LOADED)) == loaded[number]
    return loaded


def imagine(model: Model) -> Seen:
    """What `look` must show."""
    seen: Seen = {"claimable": set(model.claimable()), "broken": []}
    for talk in model.talks.values():
        seen[f"life of {talk.id}"] = (talk.key, talk.reason, talk.title, talk.parent, talk.last_human)
        seen[f"counters of {talk.id}"] = (talk.next_seq - 1, talk.turns, talk.tokens)
        seen[f"words of {talk.id}"] = [(line.seq, line.role, line.text, line.covers) for line in talk.shown]
        seen[f"all of {talk.id}"] = [line.seq for line in talk.lines]
    for place, key in KEYS.items():
        current = model.open_at(key)
        seen[f"open at {place}"] = current and current.id
    for turn in model.turns.values():
        seen[f"turn {turn.number}"] = (turn.key, turn.session, turn.state, turn.attempt, turn.fence, turn.worker)
    for message in model.inbox.values():
        state = model.state_of(message)
        seen[f"message {message.number}"] = (message.key, message.text, state, message.turn)
    for send in model.outbox.values():
        seen[f"send {send.number}"] = (send.text, send.state, send.attempts, send.times_unclear)
    return seen


class StoreMachine(RuleBasedStateMachine):
    """Two workers and two people at one store, and the model beside it."""

    def __init__(self, run: Callable[[Any], Any], store: Store) -> None:
        super().__init__()
        self.run = run
        self.store = store
        self.model = Model(now=NOON)
        self.held: list[Turn] = []
        self.claimed: list[tuple[Delivery, str]] = []
        self.plans: list[tuple[str, CompactionPlan]] = []
        self.words = count(1)
        self.known: Known = {}
        self.do(empty())

    def do(self, work: Transaction[T]) -> T:
        return self.run(self.store.transact(work))

    def see(self, work: Transaction[T]) -> T:
        return self.run(self.store.read(work))

    def refused(self, error: type[Exception], work: Transaction[object]) -> None:
        with pytest.raises(error):
            self.do(work)

    def word(self, kind: str) -> str:
        """Long enough that a summary is a gain."""
        return f"{kind} {next(self.words)} ..................."

    def may_see(self, place: str, talk: Talk) -> bool:
        return bool(talk.readers & PEOPLE[place].identities)

    def say(self, place: str, id_: str, cause: Cause, *, observed: bool, refused: bool) -> None:
        source = Source(**{**PLACES[place].to_json(), "message_id": id_})
        inbound = Inbound(source=source, text=self.word("said"), at=self.model.now, cause=cause, observed=observed)
        reason = "no" if refused else None
        number = self.do(inbox.accept(inbound, KEYS[place], self.model.now, refused=reason))
        assert (number is None) == self.model.is_known(source)
        if number is not None:
            role = Role.USER if cause in {Cause.HUMAN, Cause.SCHEDULE} else Role.NOTE
            human = cause is Cause.HUMAN
            said = Message(number, KEYS[place], source, role, inbound.text, self.model.now, observed, refused, human)
            self.model.accept(said)

    def take(self, place: str, worker: str, *, collects: bool, idle_policy: bool) -> None:
        rules = IDLE_HOUR if idle_policy else NEVER
        step = turns.begin(KEYS[place], worker, self.model.now, LEASE, collecting(rules) if collects else rules)
        begun = only_begun(self.do(step))
        waiting = [] if self.model.is_busy(KEYS[place]) else self.model.waiting(KEYS[place])
        messages = waiting if collects else waiting[:1]
        taken = [each.number for each in begun.messages] if begun else []
        assert taken == [each.number for each in messages]
        if begun:
            assert begun.opened.opening is self.model.begin(begun.turn, messages, idle_policy=idle_policy)
            self.held.append(begun.turn)

    def finish(self, turn: Turn, lines: int, replies: int, *, failed: bool) -> None:
        texts = [self.word("answered") for _ in range(lines)]
        owed = [self.word("reply") for _ in range(replies)]
        out = [Outbound(platform="web", chat_id="7", text=text) for text in owed]
        usage, error = Usage(input_tokens=3), "it broke" if failed else None
        step = turns.settle(turn, [answer(text) for text in texts], out, self.model.now, usage=usage, error=error)
        if not self.model.holds(turn):
            return self.refused(StaleFence, step)
        self.do(step)
        return self.model.settle(turn, texts, owed, usage.input_tokens, failed=failed)

    @rule(seconds=st.sampled_from((1, 30, 61, 3700)))
    def wait(self, seconds: int) -> None:
        self.model.now += timedelta(seconds=seconds)

    @rule(place=places, title=st.sampled_from((None, None, "Plan")))
    def reset(self, place: str, title: str | None) -> None:
        fresh = self.do(sessions.reset(KEYS[place], PLACES[place], self.model.now, by="somebody", title=title))
        self.model.start_fresh(KEYS[place], PLACES[place], fresh.id, EndReason.RESET, title)

    @rule(place=places, worker=workers, collects=st.booleans(), idle_policy=st.booleans())
    def begin(self, place: str, worker: str, collects: bool, idle_policy: bool) -> None:
        self.take(place, worker, collects=collects, idle_policy=idle_policy)

    @invariant()
    def agrees(self) -> None:
        seen, imagined = self.see(look()), imagine(self.model)
        different = {name for name in seen.keys() | imagined.keys() if seen.get(name) != imagined.get(name)}
        assert {name: seen.get(name) for name in different} == {name: imagined.get(name) for name in different}

    @invariant()
    def loads_again(self) -> None:
        self.known = self.see(load_all_again(self.known))

    def teardown(self) -> None:
        """At the end each person reads what is theirs, and nothing else."""
        for talk in self.model.talks.values():
            for place, principal in PEOPLE.items():
                step = transcript.load_visible(talk.id, principal)
                if self.may_see(place, talk):
                    assert [entry.text for entry in self.see(step)] == talk.texts
                else:
                    self.refused(NotFound, step)


class Turning(StoreMachine):
    """Messages come, two workers take them, lose them and send what is owed."""

    @rule(place=places, id_=st.integers(1, 25), of_a_schedule=seldom, observed=seldom, refused=seldom)
    def accept(self, place: str, id_: int, of_a_schedule: bool, observed: bool, refused: bool) -> None:
        cause = Cause.SCHEDULE if of_a_schedule else Cause.HUMAN
        self.say(place, f"m{id_}", cause, observed=observed, refused=refused)

    @precondition(lambda self: any(map(self.model.waiting, KEYS.values())))
    @rule(pick=picks)
    def refuse(self, pick: int) -> None:
        waiting = [message for key in KEYS.values() for message in self.model.waiting(key)]
        message = waiting[pick % len(waiting)]
        assert self.do(inbox.refuse(message.number, "changed my mind"))
        message.refused, message.text = True, ""
        self.model.step_back(message.key)
        assert not self.do(inbox.refuse(message.number, "twice"))

    def held_turn(self, pick: int) -> Turn:
        """One of the newest, at times one that was lost long ago."""
        return self.held[-1 - pick % len(self.held)]

    @precondition(lambda self: bool(self.held))
    @rule(pick=picks, lines=st.integers(1, 2))
    def append(self, pick: int, lines: int) -> None:
        turn, texts = self.held_turn(pick), [self.word("did") for _ in range(lines)]
        step = turns.append_to_turn(turn, [answer(text) for text in texts])
        if not self.model.holds(turn):
            return self.refused(StaleFence, step)
        assert self.do(step) == self.model.talks[turn.session].next_seq
        return self.model.append(turn, texts)

    @precondition(lambda self: bool(self.held))
    @rule(pick=picks, lines=st.integers(0, 2), replies=st.integers(0, 2), failed=st.booleans())
    def settle(self, pick: int, lines: int, replies: int, failed: bool) -> None:
        self.finish(self.held_turn(pick), lines, replies, failed=failed)

    @precondition(lambda self: bool(self.held))
    @rule(pick=picks)
    def extend(self, pick: int) -> None:
        turn = self.held_turn(pick)
        held = self.do(turns.extend_leases([turn], self.model.now, LEASE))
        assert held == ({turn.number} if self.model.holds(turn) else set())
        if held:
            self.model.turns[turn.number].lease_until = self.model.now + LEASE

    @precondition(lambda self: bool(self.held))
    @rule(pick=picks, state=st.sampled_from((TurnState.PARKED, TurnState.INTERRUPTED)))
    def halt(self, pick: int, state: TurnState) -> None:
        turn = self.held_turn(pick)
        step = turns.halt(turn, state, self.model.now)
        if not self.model.holds(turn):
            return self.refused(StaleFence, step)
        self.model.turns[turn.number].state = state
        assert self.do(step) is state
        return None

    @precondition(lambda self: bool(self.held))
    @rule(pick=picks, worker=workers)
    def resume(self, pick: int, worker: str) -> None:
        turn = self.model.turns[self.held_turn(pick).number]
        taken = self.do(turns.resume(turn.number, worker, self.model.now, LEASE))
        assert (taken is not None) == (turn.state in {TurnState.PARKED, TurnState.INTERRUPTED})
        if taken:
            self.model.take(turn, worker, LEASE)
            self.held.append(taken)

    @rule(worker=workers, alone=st.booleans())
    def reclaim(self, worker: str, alone: bool) -> None:
        taken = self.do(turns.reclaim(worker, self.model.now, LEASE, alone=alone))
        lapsed = self.model.lapsed(worker, alone=alone)
        assert {turn.number for turn in taken} == {turn.number for turn in lapsed}
        for turn in lapsed:
            self.model.take(turn, worker, LEASE)
        self.held += taken

    @rule(name=st.integers(1, 5))
    def owe(self, name: int) -> None:
        text = self.word("notice")
        number = self.do(
            outbox.enqueue(Outbound(platform="web", chat_id="7", text=text), cause(f"n{name}"), self.model.now)
        )
        assert (number is None) == (f"n{name}" in self.model.notices)
        self.model.notices.add(f"n{name}")
        if number is not None:
            self.model.owe(number, text)

    @rule(worker=workers, limit=st.integers(1, 3))
    def claim(self, worker: str, limit: int) -> None:
        due = self.model.due()
        claimed = self.do(outbox.claim(worker, self.model.now, LEASE, limit=limit))
        assert len(claimed) == min(limit, len(due))
        taken = {each.number for each in claimed}
        assert taken <= {send.number for send in due}
        left = [send.due for send in due if send.number not in taken]
        assert all(each.due <= moment for each in claimed for moment in left)
        self.model.claim(claimed, worker, self.model.now + LEASE)
        self.claimed += [(each, worker) for each in claimed]

    @precondition(lambda self: bool(self.claimed))
    @rule(pick=picks)
    def begin_send(self, pick: int) -> None:
        delivery, worker = self.claimed[-1 - pick % len(self.claimed)]
        if delivery.state is not OutboxState.CLAIMED:
            return None
        until = self.model.now + LEASE
        if self.model.has_begun(delivery, worker, until):  # repeated after a commit without an answer
            self.do(outbox.begin_send(delivery, worker, until))
            return None
        if not self.model.holds_send(delivery, worker):
            return self.refused(StaleFence, outbox.begin_send(delivery, worker, until))
        self.claimed.append((self.do(outbox.begin_send(delivery, worker, until)), worker))
        self.model.begin_send(delivery, until)
        return None

    @precondition(lambda self: any(delivery.state is OutboxState.SENDING for delivery, _ in self.claimed))
    @rule(
        pick=picks,
        state=st.sampled_from((OutboxState.DELIVERED, OutboxState.DUE, OutboxState.DEAD, OutboxState.UNCLEAR)),
        pause=st.sampled_from((None, 0, 45)),
    )
    def settle_send(self, pick: int, state: OutboxState, pause: int | None) -> None:
        begun = [each for each in self.claimed if each[0].state is OutboxState.SENDING]
        delivery, worker = begun[-1 - pick % len(begun)]
        due = None if pause is None else self.model.now + timedelta(seconds=pause)
        if state is OutboxState.UNCLEAR:
            step = outbox.mark_unclear(delivery, worker, self.model.now, safe=False, error="cut")
        else:
            step = outbox.settle_send(delivery, worker, state, due=due)
        if not self.model.holds_send(delivery, worker):
            return self.refused(StaleFence, step)
        send = self.model.outbox[delivery.number]
        if state is OutboxState.UNCLEAR:
            self.model.lose(send, repeats=REPEATS_AFTER_OUTAGE)
        else:
            send.state, send.due, send.worker = state, due or send.due, None
        self.do(step)
        return None

    @rule(worker=workers, alone=st.booleans())
    def reclaim_sends(self, worker: str, alone: bool) -> None:
        found = self.do(outbox.reclaim_sends(worker, self.model.now, safe=RepeatSafety(), alone=alone))
        lapsed = self.model.lapsed_sends(worker, alone=alone)
        begun = [send for send in lapsed if send.state is OutboxState.SENDING]
        assert {each.number for each in found} == {send.number for send in begun}
        for send in lapsed:
            if send in begun:
                self.model.lose(send, repeats=REPEATS_AFTER_CRASH)
            else:
                send.state, send.worker = OutboxState.DUE, None

    @precondition(lambda self: bool(self.model.outbox))
    @rule(pick=picks, state=st.sampled_from((OutboxState.DELIVERED, OutboxState.DUE)))
    def resolve(self, pick: int, state: OutboxState) -> None:
        send = list(self.model.outbox.values())[-1 - pick % len(self.model.outbox)]
        resolved = self.do(outbox.settle_unclear(send.number, state, self.model.now))
        assert resolved == (send.state is OutboxState.UNCLEAR)
        if resolved:
            send.state, send.due, send.times_unclear = state, self.model.now, 1


class Moving(StoreMachine):
    """People speak, and go back and forth between and within their conversations."""

    @rule(place=places, failed=seldom)
    def exchange(self, place: str, failed: bool) -> None:
        """A whole turn with nothing in between, if the conversation is free."""
        self.say(place, f"e{next(self.words)}", Cause.HUMAN, observed=False, refused=False)
        if not self.model.is_busy(KEYS[place]):
            self.take(place, "w1", collects=True, idle_policy=False)
            self.finish(self.held[-1], 1, 1, failed=failed)

    @rule(place=places, idle_policy=st.booleans(), human=st.booleans())
    def open(self, place: str, idle_policy: bool, human: bool) -> None:
        key, source = KEYS[place], PLACES[place]
        policy = (IDLE_HOUR if idle_policy else NEVER).reset_rule(source)
        opened = self.do(open_session(key, source, self.model.now, policy, human=human))
        now, new = self.model.now, opened.session.id
        expected = self.model.open(key, source, new, said=now, spoken=now if human else None, idle_policy=idle_policy)
        assert opened.opening is expected

    def picked(self, pick: int) -> Talk:
        talks = list(self.model.talks.values())
        return talks[-1 - pick % len(talks)]

    @precondition(lambda self: bool(self.model.talks))
    @rule(place=places, pick=picks, title=st.sampled_from(("Plan", "Plan #2", "Trip")))
    def rename(self, place: str, pick: int, title: str) -> None:
        talk = self.picked(pick)
        step = titles.rename(talk.id, title, PEOPLE[place])
        if not self.may_see(place, talk):
            return self.refused(NotFound, step)
        if talk.title != title:
            talk.title = self.model.free_title(talk.owner, title, besides=talk)
        assert self.do(step).title == talk.title
        return None

    @precondition(lambda self: bool(self.model.talks))
    @rule(place=places, pick=picks)
    def switch(self, place: str, pick: int) -> None:
        talk, source = self.picked(pick), PLACES[place]
        step = sessions.switch(KEYS[place], source, talk.id, PEOPLE[place], self.model.now, by="somebody")
        if not self.may_see(place, talk):
            return self.refused(NotFound, step)
        try:
            self.model.switch(KEYS[place], source, talk.id)
        except SessionBusy:
            return self.refused(SessionBusy, step)
        assert self.do(step).id == talk.id
        return None

    @precondition(lambda self: bool(self.model.talks))
    @rule(place=places, pick=picks, elsewhere=st.booleans(), at_seq=st.one_of(st.none(), st.integers(1, 6)))
    def branch(self, place: str, pick: int, elsewhere: bool, at_seq: int | None) -> None:
        key, source, me = KEYS[place], PLACES[place], PEOPLE[place]
        parent = self.picked(pick) if elsewhere else self.model.routed(key)
        given = parent.id if parent and elsewhere else None
        step = branches.branch(key, source, me, self.model.now, by="somebody", from_session=given, at_seq=at_seq)
        if parent and elsewhere and not self.may_see(place, parent):
            return self.refused(NotFound, step)
        child = self.do(step)
        if parent is None:
            self.model.create(key, source, child.id)
            return None
        return self.model.branch(key, source, child.id, parent, at_seq)

    @rule(place=places, reason=st.sampled_from((EndReason.EXPIRED, EndReason.SWITCHED)))
    def end(self, place: str, reason: EndReason) -> None:
        current = self.see(sessions.open_by_key(KEYS[place]))
        if current:
            self.do(sessions.end(current.number, reason, self.model.now))
            self.model.talks[current.id].reason = reason

    @rule(place=places, turns_=st.sampled_from((1, 1, 2, 9)))
    def undo(self, place: str, turns_: int) -> None:
        step = transcript.undo(KEYS[place], turns_, self.model.now, principal=OPERATOR)
        try:
            expected = self.model.undo(KEYS[place], turns_)
        except SessionBusy:
            return self.refused(SessionBusy, step)
        undone = self.do(step)
        assert ([entry.text for entry in undone.entries] if undone else []) == expected
        return None

    @rule(place=places, only_undo=seldom)
    def back(self, place: str, only_undo: bool) -> None:
        step = (history.redo if only_undo else history.back)(KEYS[place], self.model.now, principal=PEOPLE[place])
        try:
            expected = self.model.back(KEYS[place], *((OperationKind.UNDO,) if only_undo else OperationKind))
        except SessionBusy:
            return self.refused(SessionBusy, step)
        undone = self.do(step)
        assert (undone and (undone.kind, undone.session, [entry.text for entry in undone.entries])) == expected
        return None

    @rule(place=places, keep=st.integers(0, 1), at_once=st.booleans())
    def plan(self, place: str, keep: int, at_once: bool) -> None:
        """A summary is asked for; much can happen until it comes."""
        current = self.model.open_at(KEYS[place])
        entries = self.see(transcript.load_visible(current.id, OPERATOR)) if current else []
        try:
            plan = plan_compaction(entries, keep_exchanges=keep)
        except NothingToCompact:
            return
        self.plans.append((place, plan))
        if at_once:
            self.summarise(place, plan, "in short")

    @precondition(lambda self: bool(self.plans))
    @rule(pick=picks, words=st.sampled_from(("in short", "in short", "at great length " * 20)))
    def compact(self, pick: int, words: str) -> None:
        self.summarise(*self.plans[-1 - pick % len(self.plans)], words)

    def summarise(self, place: str, plan: CompactionPlan, words: str) -> None:
        step = transcript.compact(KEYS[place], plan, words, self.model.now, by="somebody")
        try:
            self.model.compact(KEYS[place], plan, words)
        except NothingToCompact:
            self.refused(NothingToCompact, step)
        else:
            self.do(step)


class Everything(Turning, Moving):
    """All of it at once."""


# What it has found, as short as it gets


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def test_someone_who_returns_to_an_old_conversation_stays_there(world: World) -> None:
    """Returning is human activity: the next message does not find the old conversation idle and reset it away."""
    key, me = KEYS["alice"], PEOPLE["alice"]
    old = await world.exchange("old topic", rules=IDLE_HOUR)
    world.later(hours=5)
    assert (await world.exchange("new topic", rules=IDLE_HOUR)).opened.opening is Opening.RESET
    await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert (await world.exchange("where were we", rules=IDLE_HOUR)).turn.session == old.turn.session
    await world.store.transact(sessions.reset(key, PLACES["alice"], world.now, by="alice"))
    world.later(hours=5)
    await world.store.transact(sessions.switch(key, PLACES["alice"], old.turn.session, me, world.now, by="alice"))
    assert (await world.exchange("here again", rules=IDLE_HOUR)).turn.session == old.turn.session
    await world.store.transact(sessions.end(old.opened.session.number, EndReason.SWITCHED, world.now))
    world.later(hours=5)
    assert (await world.exchange("and again", rules=IDLE_HOUR)).opened.opening is Opening.REOPENED
    assert (await world.exchange("still here", rules=IDLE_HOUR)).opened.opening is Opening.REUSED


async def test_a_schedule_that_reopens_a_conversation_is_no_human_activity(world: World) -> None:
    begun = await world.exchange("hello")
    await world.store.transact(sessions.end(begun.opened.session.number, EndReason.SWITCHED, world.now))
    world.later(minutes=50)
    await world.say("it is ten to one", cause=Cause.SCHEDULE)
    again = await world.begin(rules=IDLE_HOUR)
    assert again
    assert again.opened.opening is Opening.REOPENED
    await world.store.transact(turns.settle(again.turn, [], [], world.now))
    world.later(minutes=20)
    assert (await world.exchange("hello again", rules=IDLE_HOUR)).opened.opening is Opening.RESET


async def test_undo_after_a_compaction_leaves_the_summary(world: World) -> None:
    for text in ("one", "two", "three"):
        begun = await world.exchange(f"{text} ...................", "a long answer ...................")
    entries = await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    plan = plan_compaction(entries, keep_exchanges=1)
    await world.store.transact(transcript.compact(KEYS["alice"], plan, "in short", world.now, by="agent"))
    await world.store.transact(transcript.undo(KEYS["alice"], 1, world.now, principal=OPERATOR))
    assert await world.texts(begun.turn.session) == ["in short"]


async def test_a_branch_from_before_a_summary_was_written_has_the_summary(world: World) -> None:
    for text in ("one", "two", "three"):
        begun = await world.exchange(f"{text} ...................", "a long answer ...................")
    entries = await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    plan = plan_compaction(entries, keep_exchanges=1)
    await world.store.transact(transcript.compact(KEYS["alice"], plan, "in short", world.now, by="agent"))
    step = branches.branch(KEYS["alice"], PLACES["alice"], PEOPLE["alice"], world.now, by="alice", at_seq=5)
    child = await world.store.transact(step)
    assert sorted(await world.texts(child.id)) == ["in short", "three ..................."]
    await world.exchange("on", "and on")
    assert len(await world.texts(child.id)) == 4


async def test_a_summary_of_one_conversation_never_lands_in_another(world: World) -> None:
    key = KEYS["alice"]
    for text in ("one", "two"):
        begun = await world.exchange(f"{text} ...................", "a long answer ...................")
    entries = await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    plan = plan_compaction(entries, keep_exchanges=1)
    await world.store.transact(sessions.reset(key, PLACES["alice"], world.now, by="alice"))
    for text in ("three", "four"):
        begun = await world.exchange(f"{text} ...................", "a long answer ...................")
    before = await world.texts(begun.turn.session)
    with pytest.raises(NothingToCompact):
        await world.store.transact(transcript.compact(key, plan, "one and two", world.now, by="agent"))
    assert await world.texts(begun.turn.session) == before


async def open_at(world: World, place: str) -> str | None:
    current = await world.store.read(sessions.open_by_key(KEYS[place]))
    return current and current.id


async def carry(world: World, session: str, to: str) -> None:
    step = sessions.switch(KEYS[to], PLACES[to], session, PEOPLE[to], world.now, by="alice")
    await world.store.transact(step)


async def test_going_back_here_ends_nothing_elsewhere(world: World) -> None:
    """Each place goes back on its own; what has moved on since is not pulled out of the place where it is now."""
    first = (await world.exchange("first")).turn.session
    await world.store.transact(sessions.reset(KEYS["alice"], PLACES["alice"], world.now, by="alice"))
    await carry(world, first, "alice a")
    await world.store.transact(history.back(KEYS["alice"], world.now, principal=OPERATOR))
    assert await open_at(world, "alice") == first
    await world.store.transact(history.back(KEYS["alice a"], world.now, principal=OPERATOR))
    assert await open_at(world, "alice") == first
    assert await open_at(world, "alice a") is None


async def test_a_session_that_comes_home_is_found_there(world: World) -> None:
    first = (await world.exchange("first")).turn.session
    await carry(world, first, "alice a")
    second = (await world.exchange("second")).turn.session
    await carry(world, second, "alice b")
    await world.store.transact(history.back(KEYS["alice a"], world.now, principal=OPERATOR))
    assert await open_at(world, "alice") == first
    assert await world.store.read(violations()) == []
    await world.store.transact(sessions.end((await begun_in(world)).number, EndReason.SWITCHED, world.now))
    assert (await world.exchange("again")).turn.session == first


async def begun_in(world: World) -> Session:
    current = await world.store.read(sessions.open_by_key(KEYS["alice"]))
    assert current
    return current


async def test_back_twice_where_a_conversation_was_carried_away(world: World) -> None:
    first = (await world.exchange("first")).turn.session
    second = await world.store.transact(sessions.reset(KEYS["alice"], PLACES["alice"], world.now, by="alice"))
    await carry(world, second.id, "alice a")
    third = (await world.exchange("third", source=PLACES["alice b"])).turn.session
    await carry(world, third, "alice")
    await world.store.transact(history.back(KEYS["alice"], world.now, principal=OPERATOR))
    await world.store.transact(history.back(KEYS["alice"], world.now, principal=OPERATOR))
    assert await open_at(world, "alice") == first
    assert await world.store.read(violations()) == []


async def test_back_to_where_nothing_was_open_starts_fresh(world: World) -> None:
    """Neither a branch nor a resumed session that was taken back comes again with the next message."""
    first = (await world.exchange("first")).turn.session
    source, me = PLACES["alice a"], PEOPLE["alice a"]
    step = branches.branch(KEYS["alice a"], source, me, world.now, by="alice", from_session=first)
    child = await world.store.transact(step)
    await world.store.transact(history.back(KEYS["alice a"], world.now, principal=me))
    second = await world.exchange("second", source=source)
    assert (second.opened.opening, second.turn.session != child.id) == (Opening.CREATED, True)
    await world.store.transact(sessions.end(second.opened.session.number, EndReason.EXPIRED, world.now))
    await carry(world, second.turn.session, "alice a")
    await world.store.transact(history.back(KEYS["alice a"], world.now, principal=me))
    assert (await world.exchange("third", source=source)).turn.session != second.turn.session


@transaction
def address_of(place: str) -> Statements[Source]:
    rows = yield "SELECT address FROM routes WHERE key = ?", (KEYS[place].text,)
    return source_of(rows[0][0])


async def test_answers_go_where_the_conversation_is_now(world: World) -> None:
    first = (await world.exchange("first")).turn.session
    await carry(world, first, "alice a")
    await world.store.transact(sessions.reset(KEYS["alice a"], PLACES["alice a"], world.now, by="alice"))
    await world.store.transact(history.back(KEYS["alice a"], world.now, principal=PEOPLE["alice"]))
    assert await open_at(world, "alice a") == first
    assert await world.store.read(address_of("alice a")) == PLACES["alice a"]


async def test_going_back_takes_no_session_out_of_a_turn_elsewhere(world: World) -> None:
    first = (await world.exchange("first")).turn.session
    await world.store.transact(sessions.reset(KEYS["alice"], PLACES["alice"], world.now, by="alice"))
    await carry(world, first, "alice a")
    await world.say("question", PLACES["alice a"])
    assert await world.begin(PLACES["alice a"])
    with pytest.raises(SessionBusy):
        await world.store.transact(history.back(KEYS["alice"], world.now, principal=OPERATOR))
    assert await open_at(world, "alice a") == first


@contextmanager
def opened(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Generator[tuple[asyncio.Runner, Store]]:
    """One store for all examples, emptied before each: to make one takes longer than an example."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        url = str(tmp_path / "palaver.db")
        if engine == "postgres":
            url = runner.run(fresh_store(request.getfixturevalue("postgres_server")))
        store = runner.run(open_store(url))
        try:
            yield runner, store
        finally:
            runner.run(store.close())


EXAMPLES: tuple[tuple[str, type[StoreMachine], int], ...] = (
    ("sqlite", Turning, 10),
    ("sqlite", Moving, 20),
    ("sqlite", Everything, 10),
    ("postgres", Everything, 5),
)


@pytest.mark.parametrize(("engine", "machine", "examples"), EXAMPLES)
def test_the_store_does_what_the_model_does(
    engine: str, machine: type[StoreMachine], examples: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`PALAVER_EXAMPLES` multiplies how much is tried."""
    wanted = settings(
        max_examples=examples * int(os.environ.get("PALAVER_EXAMPLES", "1")),
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    with opened(engine, tmp_path, request) as (runner, store):
        machines: Any = lambda: machine(runner.run, store)  # noqa: E731 - it is called like a class
        run_state_machine_as_test(machines, settings=wanted)
