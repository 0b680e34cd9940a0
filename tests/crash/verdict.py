"""The verdict: what became of every message, from what people saw and from what the store says."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import NamedTuple, Protocol

from palaver.db.transaction import Row, Statements, transaction
from palaver.engine.texts import MAY_BE_DUPLICATE
from palaver.model.transcript import Role
from palaver.model.turn import OutboxState, Received
from palaver.store.records import DELIVERY_COLUMNS, INBOX_COLUMNS, REPLIES, SEQS, delivery_of, entries_of, received_of
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.fuse import ASKED, COMMITTED, ENDED, LEAVING

__all__ = ["GIVEN_UP", "LEAVING_MS", "Arrived", "Room", "Verdict", "judge", "line", "quiet", "token"]

LEAVING_MS = 10.0
"""The request leaves so soon after the commit that says so was answered: a kill meanwhile looks like one on its way."""
SEND, DRAFT = LEAVING
_TOKEN = re.compile(r"\bc\d+-\d+\b")
GIVEN_UP = "interrupted and not resumed"
_ENDS = frozenset({"delivered", "unclear"})


class Arrived(NamedTuple):
    """A request to send that arrived at the platform."""

    key: str
    is_marked: bool
    """Whether its text was marked as a possible duplicate."""
    at: float = inf


class Room(Protocol):
    """A chat as those in it see it: a message with a key is ours."""

    @property
    def id(self) -> str: ...
    @property
    def messages(self) -> Sequence[Message]: ...


def token(chat: Room, number: int) -> str:
    """A word that is said once, and names where."""
    return f"{chat.id}-{number}"


def _shown(room: Room) -> list[Message]:
    return [message for message in room.messages if message.key is not None and not message.deleted]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    kills: int = 0
    messages: int
    lost: Sequence[str] = ()
    duplicate_turns: Sequence[str] = ()
    duplicate_sends: Sequence[str] = ()
    unclear: int = 0
    out_of_order: Sequence[str] = ()
    leaked: Sequence[str] = ()
    given_up: int = 0
    failed: int = 0
    """Turns that failed with a notice."""
    cut_off: Sequence[Sequence[str]] = ()
    """Not lost by us: the end of what was written to a connection that died, where nothing is acknowledged."""
    unfinished: Sequence[str] = ()
    """Rows that still wait, run or are owed."""
    marked: int = 0
    """Sends that were shown with the mark."""
    marked_falsely: Mapping[str, float] = field(default_factory=dict[str, float])
    """Those of them of which no earlier request had arrived, although there was time for one."""
    killed_leaving: Mapping[str, float] = field(default_factory=dict[str, float])
    """Those whose gateway was killed in the commit that says that the request leaves (0), or so soon after it."""
    never_requested: Sequence[str] = ()
    """Sends that were given up or left to a person although no request for them ever arrived."""
    computed_again: Mapping[str, float] = field(default_factory=dict[str, float])
    """Turns for which the agent was asked again, and how many ms after it had ended the gateway was killed."""
    untold: Sequence[str] = ()
    """Sends that are unclear for good without a notice to the owner."""
    broken: Sequence[str] = ()
    """Entries that stand twice, and promises that the store itself finds broken."""
    outcomes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def complaints(self) -> list[str]:
        """Everything that should not be, each with the outcome of its message."""
        kinds = ("lost", "duplicate_turns", "duplicate_sends", "out_of_order", "leaked")
        found = [f"{kind}: {word}: {self.outcomes.get(word, '?')}" for kind in kinds for word in getattr(self, kind)]
        return [
            *found,
            *(f"unfinished: {words}" for words in self.unfinished),
            *(f"never requested: {send}" for send in self.never_requested),
            *(f"unclear, and the owner does not know: {send}" for send in self.untold),
            *(f"broken: {words}" for words in self.broken),
        ]


def line(*verdicts: Verdict) -> str:
    """Everything in one line."""
    figures = {
        "kills": sum(each.kills for each in verdicts),
        "messages": sum(each.messages for each in verdicts),
        "lost": sum(len(each.lost) for each in verdicts),
        "duplicate_turns": sum(len(each.duplicate_turns) for each in verdicts),
        "duplicate_sends": sum(len(each.duplicate_sends) for each in verdicts),
        "unclear": sum(each.unclear for each in verdicts),
        "out_of_order": sum(len(each.out_of_order) for each in verdicts),
        "leaked": sum(len(each.leaked) for each in verdicts),
        "marked": sum(each.marked for each in verdicts),
        "marked_falsely": sum(len(each.marked_falsely) for each in verdicts),
        "killed_leaving": sum(len(each.killed_leaving) for each in verdicts),
        "never_requested": sum(len(each.never_requested) for each in verdicts),
        "computed_again": sum(len(each.computed_again) for each in verdicts),
    }
    return " ".join(f"{name}={figure}" for name, figure in figures.items())


@dataclass(frozen=True, kw_only=True)
class _Story:
    """One message: what was said, what the store has of it, and where its answer was seen."""

    word: str
    chat: Room
    said: Message
    inbox: Sequence[Received]
    heard: int
    """How often it stands in a transcript."""
    turn: Row | None
    reply: Row | None
    seen: Sequence[tuple[int, Message]]
    """Its answer, and at which place in the chat."""

    @property
    def is_given_up(self) -> bool:
        return self.turn is not None and self.turn[3] == GIVEN_UP

    @property
    def has_failed(self) -> bool:
        return self.turn is not None and self.turn[1] == "failed" and not self.is_given_up

    @property
    def is_unknown_position(self) -> bool:
        if not self.inbox or not self.heard or self.reply is None or self.reply[1] not in _ENDS:
            return True
        return self.reply[1] == "delivered" and not (self.seen or self.is_given_up or self.has_failed)

    @property
    def is_shown_twice(self) -> bool:
        return sum(MAY_BE_DUPLICATE not in message.text for _, message in self.seen) > 1

    @property
    def outcome(self) -> str:
        seen = [(place, message.key, message.text) for place, message in self.seen]
        inbox = [(each.number, each.key.text, each.state.value, each.turn) for each in self.inbox]
        return f"inbox {inbox} heard {self.heard} turn {self.turn} reply {self.reply} seen {seen}"


_SENDS = "SELECT id, state, attempts, error, times_unclear, worker, created, due, cause_kind, cause_id FROM outbox"
_INBOX = f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no ORDER BY i.no"  # noqa: S608


@transaction
def _rows() -> Statements[dict[str, list[Row]]]:
    return {
        "inbox": (yield _INBOX, ()),
        "turns": (yield "SELECT no, state, attempt, error, worker FROM turns", ()),
        "outbox": (yield _SENDS, ()),
        "entries": (yield "SELECT id, body FROM entries ORDER BY id", ()),
        "sends": (yield f"SELECT {DELIVERY_COLUMNS} FROM outbox", ()),  # noqa: S608
    }


@transaction
def quiet() -> Statements[bool]:
    """Nothing waits, nothing runs, nothing is owed."""
    return not (yield from _unfinished())


@transaction
def _unfinished() -> Statements[list[str]]:
    waiting = yield "SELECT no, key, state FROM inbox WHERE state = 'waiting'", ()
    running = yield "SELECT no, key, state, attempt, worker, lease_until FROM turns WHERE ended IS NULL", ()
    owed = yield f"{_SENDS} WHERE state IN ('due', 'claimed', 'sending')", ()
    return [str(tuple(row)) for row in (*waiting, *running, *owed)]


@transaction
def all_told() -> Statements[bool]:
    return not (yield from _untold())


@transaction
def _untold() -> Statements[list[str]]:
    told = "SELECT 1 FROM outbox n WHERE n.cause_kind = 'unclear' AND n.created >= o.due"
    rows = yield f"SELECT id FROM outbox o WHERE state = 'unclear' AND NOT EXISTS ({told})", ()  # noqa: S608
    return [f"out:{number}" for (number,) in rows]


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _stories(chats: Iterable[Room], rows: Mapping[str, list[Row]]) -> list[_Story]:
    inbox: dict[tuple[str | None, str | None], list[Received]] = defaultdict(list)
    for received in map(received_of, rows["inbox"]):
        source = received.inbound.source
        inbox[source.chat_id, source.message_id].append(received)
    said = (entry.text for entry in entries_of(rows["entries"]) if entry.role is Role.USER)
    heard = Counter(chain.from_iterable(map(_words, said)))
    turns = {row[0]: row for row in rows["turns"]}
    outbox = {row[0]: row for row in rows["outbox"]}
    stories: list[_Story] = []
    for chat in chats:
        seen: dict[str, list[tuple[int, Message]]] = defaultdict(list)
        for place, message in enumerate(chat.messages):
            for word in _words(message.text) if message.key else ():
                seen[word].append((place, message))
        for said in (message for message in chat.messages if message.key is None and _words(message.text)):
            (word,) = _words(said.text)
            found = inbox[chat.id, said.id]
            turn = turns.get(found[0].turn) if found else None
            stories.append(
                _Story(
                    word=word,
                    chat=chat,
                    said=said,
                    inbox=found,
                    heard=heard[word],
                    turn=turn,
                    reply=outbox.get(turn[0] * REPLIES) if turn else None,
                    seen=seen[word],
                )
            )
    return stories


def _out_of_order(stories: Iterable[_Story]) -> list[str]:
    """In each conversation the order of the inbox is the truth."""
    latest: dict[str, int] = {}
    late: list[str] = []
    for story in sorted((each for each in stories if each.inbox), key=lambda each: each.inbox[0].number):
        key, place = story.inbox[0].key.text, story.seen[0][0] if story.seen else None
        if place is None:
            continue
        if place < latest.get(key, -1):
            late.append(story.word)
        latest[key] = max(place, latest.get(key, -1))
    return late


def _leaked(chats: Iterable[Room], stories: Iterable[_Story]) -> list[str]:
    """Seen where it was not said: in another chat, or another thread."""
    homes = {story.word: (story.chat.id, story.said.thread) for story in stories}
    shown = ((chat, message) for chat in chats for message in _shown(chat))
    return [
        word for chat, message in shown for word in _words(message.text) if homes.get(word) != (chat.id, message.thread)
    ]


def _shown_twice(chats: Iterable[Room]) -> list[str]:
    """Any send, be it a reply or a notice."""
    keys = Counter(
        message.key
        for chat in chats
        for message in _shown(chat)
        if message.key and MAY_BE_DUPLICATE not in message.text
    )
    return [key for key, times in keys.items() if times > 1]


def _written_twice(rows: Sequence[Row]) -> list[str]:
    """The same entry twice in a session, or two answers in one turn."""
    entries = entries_of(rows)
    same = Counter((row[0] // SEQS, repr(entry._replace(seq=0))) for row, entry in zip(rows, entries, strict=True))
    answers = Counter(entry.turn for entry in entries if entry.role is Role.ASSISTANT and not entry.calls)
    return [
        *(f"written twice: {entry}" for (_, entry), times in same.items() if times > 1),
        *(f"two answers in turn {turn}" for turn, times in answers.items() if times > 1),
    ]


def _cut_off(connections: Sequence[Sequence[str]], stored: AbstractSet[str]) -> list[list[str]]:
    """Return what each connection but the last wrote after the last message that was stored from it.

    What was written to several can have been stored from any of them. What was once written before a message that was
    stored should have been stored, too.
    """
    times = Counter(chain.from_iterable(connections))
    ends: list[list[str]] = []
    due: set[str] = set()
    for written in connections[:-1]:
        last = max((place for place, each in enumerate(written) if each in stored and times[each] == 1), default=-1)
        due.update(written[: last + 1])
        ends.append([each for each in dict.fromkeys(written[last + 1 :]) if each not in stored])
    return [end for each in ends if (end := [word for word in each if word not in due])]


def _first_marked(requests: Sequence[Arrived]) -> list[Arrived]:
    """Return the first request that arrived for each send of which that one was marked already.

    A draft is a request of the answer that should have replaced it.
    """
    drafted, first = set[int](), dict[str, Arrived]()
    for request in requests:
        kind, name, _ = request.key.split(":")
        if kind == "draft":
            drafted.add(int(name.partition("-")[0]) * REPLIES)
        else:
            first.setdefault(request.key, request._replace(is_marked=request.is_marked and int(name) not in drafted))
    return [request for request in first.values() if request.is_marked]


@dataclass(frozen=True, kw_only=True)
class _Note:
    """What a gateway wrote down of a send or a turn."""

    what: str
    number: int
    worker: str
    at: float
    lived: float
    """How long the gateway lived after it, in milliseconds; infinitely long if it was not killed."""


def _read_notes(notes: Sequence[str], killed: Mapping[str, float]) -> list[_Note]:
    found = (note.split() for note in notes)
    return [
        _Note(
            what=what,
            number=int(number),
            worker=worker,
            at=float(at),
            lived=1000 * (killed.get(worker, inf) - float(at)),
        )
        for what, number, worker, at in found
    ]


def _delays(marked: Sequence[Arrived], notes: Sequence[_Note]) -> dict[str, float]:
    """Return how long gateways lived after they knew that a request can leave which never arrived: the longest."""
    begun = defaultdict[tuple[str, int], list[_Note]](list)
    known = {(note.what, note.number, note.worker): note.lived for note in notes}
    for note in notes:
        begun[note.what, note.number].append(note)

    def lived(note: _Note) -> float:
        in_commit = inf if note.lived == inf else 0.0
        return known.get((f"{COMMITTED}{note.what}", note.number, note.worker), in_commit)

    delays = dict[str, float]()
    for request in marked:
        number = int(request.key.split(":")[1])
        sends, drafts = (
            [lived(note) for note in begun[what, each] if note.at < request.at]
            for what, each in ((SEND, number), (DRAFT, number // REPLIES))
        )
        delays[request.key] = max([*sends[:-1], *drafts], default=inf)  # The last one is of this request.
    return delays


def _never_requested(rows: Sequence[Row], requests: Sequence[Arrived]) -> list[str]:
    arrived = {request.key for request in requests}
    ended = (each for each in map(delivery_of, rows) if each.state in {OutboxState.UNCLEAR, OutboxState.DEAD})
    return [f"out:{each.number}" for each in ended if each.idempotency_key not in arrived]


def _computed_again(notes: Sequence[_Note]) -> dict[str, float]:
    """Return the turns that agents wrote down as asked after they had written them down as ended."""
    ended, again = dict[int, _Note](), dict[str, float]()
    for note in notes:
        if note.what == ENDED:
            ended.setdefault(note.number, note)
        elif note.what == ASKED and note.number in ended:
            again[str(note.number)] = ended[note.number].lived
    return again


async def judge(
    chats: Sequence[Room],
    store: Store,
    connections: Sequence[Sequence[str]] = (),
    *,
    requests: Sequence[Arrived] | None = None,
    notes: Sequence[str] = (),
    killed: Mapping[str, float] | None = None,
    told: bool = False,
) -> Verdict:
    """Say what became of everything.

    `requests` are the requests to send that arrived; None if nobody counted. `notes` are what gateways wrote down, and
    `killed` says when each was killed. With `told` there is an owner, who gets notices.
    """
    rows = await store.read(_rows())
    stories = _stories(chats, rows)
    cut_off = _cut_off(connections, {each.said.id for each in stories if each.inbox})
    missed = set(chain.from_iterable(cut_off))
    noted = _read_notes(notes, killed or {})
    delays = _delays(_first_marked(requests or ()), noted)
    twice = {story.word for story in stories if story.is_shown_twice}
    return Verdict(
        messages=len(stories),
        lost=[story.word for story in stories if story.is_unknown_position and story.said.id not in missed],
        duplicate_turns=[story.word for story in stories if story.heard > 1 or len(story.inbox) > 1],
        duplicate_sends=[*twice, *_shown_twice(chats)],
        unclear=sum(1 for row in rows["outbox"] if row[4] or row[1] == "unclear"),
        out_of_order=_out_of_order(stories),
        leaked=_leaked(chats, stories),
        given_up=sum(story.is_given_up for story in stories),
        failed=sum(story.has_failed for story in stories),
        cut_off=cut_off,
        unfinished=await store.read(_unfinished()),
        marked=sum(MAY_BE_DUPLICATE in message.text for chat in chats for message in _shown(chat)),
        marked_falsely={key: delay for key, delay in delays.items() if delay > LEAVING_MS},
        killed_leaving={key: delay for key, delay in delays.items() if delay <= LEAVING_MS},
        never_requested=[] if requests is None else _never_requested(rows["sends"], requests),
        computed_again=_computed_again(noted),
        untold=await store.read(_untold()) if told else [],
        broken=[*_written_twice(rows["entries"]), *map(str, await store.read(violations()))],
        outcomes={story.word: story.outcome for story in stories},
    )
