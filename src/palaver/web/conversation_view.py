"""What the chat shows of a conversation: its entries as messages and answers, with notices between them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum

from markupsafe import Markup

from palaver.engine import texts
from palaver.model.attachment import Attachment
from palaver.model.session import Session
from palaver.model.tools import NOT_ANSWERED, NOT_APPROVED, Question, parse_question
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.value import value
from palaver.model.versions import Choice
from palaver.store.status.chat_list import AnswerFacts
from palaver.store.status.overview import OpenTurn
from palaver.store.status.webchat_log import WebchatMessage
from palaver.web.growing_answer import GrowingAnswer
from palaver.web.markdown import render

MAX_SHOWN = 60_000
"""Characters of one message; the transcript has the rest."""


class CallState(StrEnum):
    RUNNING = "running"
    ASKS = "asks"
    DONE = "done"
    DENIED = "denied"


@value
class ToolUse:
    call: ToolCall
    state: CallState
    since: datetime
    result: str = ""
    files: tuple[Attachment, ...] = ()
    seconds: float | None = None
    """How long it took, once it has a result."""

    @property
    def question(self) -> Question | None:
        return parse_question(self.call)

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Return the arguments by name, for people; one without a name if they are no object."""
        try:
            given = json.loads(self.call.arguments or "{}")
        except ValueError:
            given = self.call.arguments
        if not isinstance(given, dict):
            return [("", str(given))]
        return [(str(name), _readable(each)) for name, each in given.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _readable(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


@value
class Part:
    """A piece of an answer: what the agent thought, said, or did."""

    reasoning: str = ""
    html: Markup = field(default_factory=Markup)
    tool: ToolUse | None = None
    files: tuple[Attachment, ...] = ()


@value
class Item:
    """One element of the list of messages."""

    id: str
    kind: str
    """`user`, `answer`, `summary` or `aside`."""
    at: datetime
    seq: int = 0
    """The last entry of it."""
    turn: str | None = None
    name: str = ""
    """Who wrote it, where several people do."""
    is_mine: bool = False
    text: str = ""
    parts: tuple[Part, ...] = ()
    files: tuple[Attachment, ...] = ()
    message_id: str = ""
    facts: AnswerFacts | None = None
    choice: Choice | None = None
    problem: str = ""
    waits: bool = False
    is_running: bool = False
    asks: OpenTurn | None = None
    growing: GrowingAnswer | None = None
    shown_length: int = 0
    """How long the whole text is, if only a part is shown."""
    aside: WebchatMessage | None = None


@value
class Around:
    """What belongs to the entries that are shown."""

    facts: Mapping[int, AnswerFacts] = field(default_factory=dict[int, AnswerFacts])
    failures: Mapping[int, str] = field(default_factory=dict[int, str])
    choices: Mapping[int, Choice] = field(default_factory=dict[int, Choice])
    asides: Sequence[WebchatMessage] = ()
    open_turn: OpenTurn | None = None
    growing: tuple[int, GrowingAnswer] | None = None
    users: frozenset[str] = frozenset()
    """The reader's ids in the conversation."""


def arrange(entries: Sequence[Entry], session: Session | None, around: Around) -> list[Item]:
    """Return the items to show, in order."""
    items: list[Item] = []
    results = {entry.answers: entry for entry in entries if entry.role is Role.TOOL and entry.answers}
    for group in _groups(entries):
        first = group[0]
        if first.role is Role.USER:
            items.append(_user(first, session, around))
        elif first.role is Role.SUMMARY:
            items.append(Item(id=f"e-{first.seq}", kind="summary", at=first.at, seq=first.seq, text=first.text))
        elif first.role is not Role.NOTE:  # Notes are for the model; the transcript shows them.
            items.append(_answer(group, results, around))
    items = _with_own_ids(items)
    items = _with_open_turn(items, around, entries)
    items = _with_ends(items, around)
    items = _with_choices(items, around)
    stored = {entry.message_id for entry in entries if entry.message_id}
    return _with_asides(items, [aside for aside in around.asides if aside.id not in stored])


def _groups(entries: Iterable[Entry]) -> Iterable[list[Entry]]:
    """Yield each message, and all that the agent did in one turn together."""
    group: list[Entry] = []
    for entry in entries:
        is_agent = entry.role in {Role.ASSISTANT, Role.TOOL}
        if group and is_agent and _continues(group, entry):
            group.append(entry)
            continue
        if group:
            yield group
        group = [entry] if is_agent else []
        if not is_agent:
            yield [entry]
    if group:
        yield group


def _continues(group: Sequence[Entry], entry: Entry) -> bool:
    """Return whether an entry of the agent belongs to its last answer.

    Without a turn, as after an import, only a tool belongs to what was said before it: two reminders are two messages.
    """
    if entry.turn is not None:
        return group[0].turn == entry.turn
    return group[0].turn is None and Role.TOOL in {entry.role, group[-1].role}


def _user(entry: Entry, session: Session | None, around: Around) -> Item:
    sender = entry.sender
    is_shared = session is not None and session.key.shared
    name = ((sender.name.plain() if sender.name else "") or sender.id or "") if sender and is_shared else ""
    is_mine = not is_shared or (sender is not None and sender.id in around.users)
    return Item(
        id=f"e-{entry.seq}",
        kind="user",
        at=entry.at,
        seq=entry.seq,
        turn=entry.turn,
        name="" if is_mine else name,
        is_mine=is_mine,
        text=entry.text[:MAX_SHOWN],
        shown_length=len(entry.text) if len(entry.text) > MAX_SHOWN else 0,
        files=entry.files,
        message_id=entry.message_id or "",
    )


def _answer(group: Sequence[Entry], results: Mapping[str, Entry], around: Around) -> Item:
    last, turn = group[-1], group[0].turn
    answered = {call.id for entry in group for call in entry.calls}
    parts = [
        part
        for entry in group
        for part in (
            _parts(entry, results, around.open_turn)
            if entry.role is Role.ASSISTANT
            else [Part(files=entry.files)]
            if entry.files and entry.answers not in answered
            else []
        )
    ]
    longest = max(len(entry.text) for entry in group)
    return Item(
        id=f"t-{turn}" if turn else f"e-{last.seq}",
        kind="answer",
        at=last.at,
        seq=last.seq,
        turn=turn,
        parts=tuple(parts),
        facts=around.facts.get(int(turn)) if turn else None,
        shown_length=longest if longest > MAX_SHOWN else 0,
    )


def _parts(entry: Entry, results: Mapping[str, Entry], open_turn: OpenTurn | None) -> Iterable[Part]:
    if entry.reasoning:
        yield Part(reasoning=entry.reasoning[:MAX_SHOWN])
    if entry.text or entry.files:
        shown = entry.text[:MAX_SHOWN]
        yield Part(html=render(texts.cut_answer(shown) if entry.cut else shown), files=entry.files)
    for call in entry.calls:
        result = results.get(call.id)
        is_asked = open_turn is not None and open_turn.asked is not None and open_turn.asked.id == call.id
        state = _state_of(result) if result else CallState.ASKS if is_asked else CallState.RUNNING
        yield Part(
            tool=ToolUse(
                call=call,
                state=state,
                since=entry.at,
                seconds=(result.at - entry.at).total_seconds() if result else None,
                result=result.text[:MAX_SHOWN] if result else "",
                files=result.files if result else (),
            )
        )


def _state_of(result: Entry) -> CallState:
    return CallState.DENIED if result.text in {NOT_APPROVED, NOT_ANSWERED} else CallState.DONE


def _with_own_ids(items: list[Item]) -> list[Item]:
    """Only the last part of a turn that messages joined has its name; a page knows the others by their entries."""
    last = {item.id: place for place, item in enumerate(items)}
    return [item if last[item.id] == place else replace(item, id=f"e-{item.seq}") for place, item in enumerate(items)]


def _with_open_turn(items: list[Item], around: Around, entries: Sequence[Entry]) -> list[Item]:
    """Show the turn that is open: what it says now, what it asks, or that it works."""
    item = around.open_turn
    if item is None:
        return items
    turn = item.turn.number
    growing = around.growing[1] if around.growing and around.growing[0] == turn else None
    stored = [entry.text for entry in entries if entry.role is Role.ASSISTANT and entry.turn == str(turn)]
    if growing and any(text.startswith(growing.text) for text in stored):
        growing = None  # It is complete; what the agent says next has not begun.
    state = {"is_running": item.question is None, "asks": item if item.question else None, "growing": growing}
    name = f"t-{turn}"
    if not any(each.id == name for each in items):
        items = [*items, Item(id=name, kind="answer", at=item.turn.started, turn=str(turn))]
    return [replace(each, **state) if each.id == name else each for each in items]


def _with_ends(items: list[Item], around: Around) -> list[Item]:
    """Show below its last message that a turn was stopped, or what people were told when it failed."""
    stopped = {turn: "" for turn, facts in around.facts.items() if facts.is_stopped}
    for turn, problem in {**stopped, **around.failures}.items():
        place = max((place for place, each in enumerate(items) if each.turn == str(turn)), default=None)
        if place is None:
            continue
        last = items[place]
        if last.kind == "user":  # it ended before it said anything
            last = Item(id=f"t-{turn}", kind="answer", at=last.at, seq=last.seq, turn=str(turn))
            last, place = replace(last, facts=around.facts.get(turn)), place + 1
            items.insert(place, last)
        items[place] = replace(last, problem=problem)
    return items


def _with_choices(items: list[Item], around: Around) -> list[Item]:
    """Put each choice where versions part: at the message if it was edited, and else at its answer."""
    for seq, choice in around.choices.items():
        first = next((each for each in items if each.kind == "user" and each.seq > seq), None)
        if first is None:
            continue
        answers = [at for at, each in enumerate(items) if each.kind == "answer" and each.turn == first.turn]
        place = answers[0] if answers and not choice.is_edit else items.index(first)
        items[place] = replace(items[place], choice=choice)
    return items


def _with_asides(items: list[Item], asides: Sequence[WebchatMessage]) -> list[Item]:
    for aside in asides:
        item = Item(
            id=aside.name,
            kind="aside",
            at=aside.at,
            text=aside.text[:MAX_SHOWN],
            is_mine=aside.is_mine,
            message_id=aside.id if aside.is_mine else "",
            waits=aside.waits,
            problem=aside.problem or "",
            aside=aside,
        )
        place = (
            len(items) if aside.waits else next((at for at, each in enumerate(items) if each.at > aside.at), len(items))
        )
        items.insert(place, item)
    return items
