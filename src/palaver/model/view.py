"""The view: turn any transcript into a message sequence that every provider accepts.

`view` is `render`, which turns entries into messages, followed by `repair`, which makes the sequence valid:

- it starts with a user message, and user and assistant alternate except for tool results
- every tool call has exactly one result, right after the message that made it, in the order of the calls
- call ids are unique and, like tool names, use characters that providers accept; arguments are a JSON object
- no message is empty, and all text can be encoded

Only a turn that resumes after an approval has calls without results: those of its last message, at the end.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from itertools import compress, cycle, groupby, takewhile
from operator import attrgetter, is_, itemgetter, methodcaller
from typing import NamedTuple, NoReturn
from zoneinfo import ZoneInfo

from palaver.model.attachment import Attachment, describe_attachment
from palaver.model.label import (
    CLOSE,
    OPEN,
    OUTPUT_END,
    gap_marker,
    marker,
    note_marker,
    quote_text,
    strip_markers,
    time_marker,
)
from palaver.model.prompt import Naming
from palaver.model.source import source_of_identity
from palaver.model.text import one_line, whole_characters
from palaver.model.transcript import QUOTE_LIMIT, Entry, Quote, Role, Sender, ToolCall
from palaver.model.value import value

LONG_GAP = timedelta(hours=6)
INTERRUPTED = "(interrupted: no result was recorded, its effect is unknown)"
NOT_RUN = "(not run: nobody approved it)"
_NO_OUTPUT = "(no output)"
_BYTES_PER_TOKEN = 4
# Bound once: this runs for every entry, and looking up an enum member costs more than comparing it.
_USER, _ASSISTANT, _TOOL, _NOTE, _SUMMARY = Role.USER, Role.ASSISTANT, Role.TOOL, Role.NOTE, Role.SUMMARY
_ROLE = attrgetter("role")
_OF_AGENT = frozenset((_ASSISTANT, _TOOL))
_POSITION = attrgetter("position")
_SEQ = itemgetter(Entry._fields.index("seq"))
_COVERS = itemgetter(Entry._fields.index("covers"))
_BEGINNING = note_marker("the conversation begins with something you said")


class Message(NamedTuple):
    role: Role
    """USER, ASSISTANT or TOOL."""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    reasoning: str = ""
    blobs: tuple[bytes, ...] = ()


_Values = tuple[Role, str, tuple[ToolCall, ...], str, str, tuple[bytes, ...]]
_message: Callable[[_Values], Message] = partial(tuple.__new__, Message)  # pyright: ignore[reportUnknownMemberType]
"""Make a message from all its values. Skipping the defaults saves a third of the time."""


def view(
    entries: Iterable[Entry],
    naming: Naming,
    *,
    shared: bool = False,
    zone: ZoneInfo | None = None,
    resumed_turn: str | None = None,
) -> tuple[Message, ...]:
    """Return what the model sees.

    With a `zone`, each message of a person says when it was sent, on the clock of that zone.
    `resumed_turn` names a turn that waited for an approval: its last calls without results stay open, at the end.
    """
    visible = visible_entries(entries)
    last = _last_step(visible, resumed_turn) if resumed_turn else None
    if last is None:
        return repair(render(visible, naming, shared=shared, zone=zone))
    moved = {entry.seq for entry in last}
    ordered = [*(entry for entry in visible if entry.seq not in moved), *last]
    messages = repair(render(ordered, naming, shared=shared, zone=zone))
    answered = _answered(last)
    results = messages[len(messages) - len(answered) :]
    return messages[: -len(answered)] + tuple(compress(results, answered))


@value
class ViewStyle:
    """What a view depends on besides the entries."""

    naming: Naming
    shared: bool = False
    zone: ZoneInfo | None = None


@value
class ViewedStart:
    """The view of the beginning of a conversation, up to an answer. What follows can be viewed without it."""

    style: ViewStyle
    entries: list[Entry] = field(default_factory=list[Entry])
    messages: tuple[Message, ...] = ()
    latest: datetime | None = None
    """The latest time in it, which tells how long a gap after it is."""
    call_ids: frozenset[str] = frozenset()
    size: int = 0
    """About how many bytes the entries and their messages take in memory."""


def extend_view(start: ViewedStart, entries: Sequence[Entry]) -> tuple[tuple[Message, ...], ViewedStart]:
    """Return what `view` returns, and the start for the next call: only what came after the last start is viewed.

    Correct for any entries: if what is new depends on what comes before it, everything is viewed.
    """
    style, new = start.style, _entries_after(start.entries, entries)
    if new is None:
        return extend_view(ViewedStart(style=style), entries)
    rendered = render(new, style.naming, shared=style.shared, zone=style.zone, latest=start.latest)
    messages = repair(rendered)
    call_ids = frozenset([call.id for each in (*new, *messages) for call in each.calls])
    used = call_ids.union([message.answers for message in rendered])
    if start.entries and rendered and not (rendered[0].role is _USER and start.call_ids.isdisjoint(used)):
        return extend_view(ViewedStart(style=style), entries)
    whole = start.messages + messages
    spoken = next((place for place in range(len(new), 0, -1) if new[place - 1].role in _OF_AGENT), 0)
    if not (spoken and _is_plain_answer(new[spoken - 1])):
        return whole, start
    # Only people have spoken since: their words are the last message, if they said anything.
    viewed = whole if whole[-1].role is _ASSISTANT else whole[:-1]
    times = [entry.at for entry in new[:spoken] if entry.role is not _SUMMARY]
    return whole, ViewedStart(
        style=style,
        entries=start.entries + new[:spoken],
        messages=viewed,
        latest=max(times if start.latest is None else (start.latest, *times)),
        call_ids=start.call_ids | call_ids,
        size=start.size + sum(map(entry_size, new[:spoken])) + sum(map(_own_size, viewed[len(start.messages) :])),
    )


def _entries_after(known: list[Entry], entries: Sequence[Entry]) -> list[Entry] | None:
    """Return the visible entries after those that are known; None if they do not begin with these."""
    count = len(known)
    if entries[:count] == known:
        new = visible_entries(entries[count:])
        if not (known and new) or known[-1].position < new[0].position:
            return new
    visible = visible_entries(entries)
    return visible[count:] if visible[:count] == known else None


def _is_plain_answer(entry: Entry) -> bool:
    """Return whether it becomes a message of its own, independent of its neighbours."""
    return entry.role is _ASSISTANT and not entry.calls and bool(entry.text) and not entry.text.isspace()


_bytes_of: Callable[[object], int] = methodcaller("__sizeof__")


def entry_size(entry: Entry) -> int:
    """Return about how many bytes an entry and its message take in memory."""
    quoted, arguments = entry.quote and entry.quote.text, [call.arguments for call in entry.calls]
    return _ENTRY_BYTES + sum(map(_bytes_of, (entry.text, entry.reasoning, entry.blob, quoted, *arguments)))


def _own_size(message: Message) -> int:
    """Return the size of its text, if that is another than that of its entry."""
    return 0 if message.role is _ASSISTANT else _bytes_of(message.text)


_ENTRY_BYTES = 1_000
"""What an entry and its message take besides their text."""


def open_calls_of_turn(entries: Iterable[Entry], turn: str) -> tuple[ToolCall, ...]:
    """Return the last calls of a turn that have no result, as stored."""
    last = _last_step(visible_entries(entries), turn)
    if last is None:
        return ()
    return tuple(call for call, is_answered in zip(last[0].calls, _answered(last), strict=True) if not is_answered)


def answer_texts(entries: Sequence[Entry], client_tools: Collection[str]) -> list[str]:
    """Return what the agent said in a turn since the client gave its last tool result: the client has the rest."""
    theirs = {call.id for entry in entries for call in entry.calls if call.name in client_tools}
    given = [place for place, entry in enumerate(entries) if entry.answers in theirs]
    new = entries[given[-1] + 1 :] if given else entries
    return [entry.text for entry in new if entry.role is _ASSISTANT and entry.text.strip()]


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls at the end of a view that have no result yet, as the model sees them."""
    answered = {message.answers for message in takewhile(lambda message: message.role is _TOOL, reversed(messages))}
    last = next((message for message in reversed(messages) if message.role is not _TOOL), None)
    return tuple(call for call in last.calls if call.id not in answered) if last else ()


def _last_step(entries: Sequence[Entry], turn: str) -> list[Entry] | None:
    """Return the last entry of a turn with calls, and their results; None if every call has one."""
    of_turn = [entry for entry in entries if entry.turn == turn]
    called = next((entry for entry in reversed(of_turn) if entry.calls and entry.role is _ASSISTANT), None)
    if called is None:
        return None
    names = {call.id for call in called.calls}
    results = (entry for entry in of_turn if entry.role is _TOOL and (entry.answers or "") in names)
    step = [called, *(entry for entry in results if entry.seq > called.seq)]
    return None if all(_answered(step)) else step


def _answered(step: Sequence[Entry]) -> list[bool]:
    """Return for each call of a step whether it has a result. Results of a repeated id come in order."""
    results = Counter(entry.answers or "" for entry in step[1:])
    answered: list[bool] = []
    for call in step[0].calls:
        answered.append(results[call.id] > 0)
        results[call.id] -= 1
    return answered


def visible_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that are not hidden, each summary in the place of what it covers."""
    visible = [entry for entry in entries if entry.hidden_by is None]
    has_summary = any(map(_COVERS, visible))
    return sorted(visible, key=_POSITION if has_summary else _SEQ)


MAX_OVERHEARD = 50
"""How much of what was overheard a question is shown with."""


def estimate_tokens(*entries: Entry) -> int:
    """Estimate the tokens that entries take in a prompt, using the provider's count where there is one."""
    tokens = 0
    for entry in entries:
        text = entry.text
        if entry.calls or entry.reasoning:
            text += entry.reasoning + "".join(call.name + call.arguments for call in entry.calls)
        # Count bytes: scripts that need more bytes per character also need more tokens.
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        tokens += entry.tokens or 1 + size // _BYTES_PER_TOKEN
    return tokens


def with_overheard(entries: Sequence[Entry], overheard: Sequence[Entry]) -> Sequence[Entry]:
    """Put what was overheard in a chat before the next question that somebody asked there."""
    if not overheard:
        return entries
    placed: list[Entry] = []
    left = deque(sorted(overheard, key=attrgetter("at")))
    for entry in entries:
        if entry.role is _USER and not entry.observed:
            heard: deque[Entry] = deque(maxlen=MAX_OVERHEARD)
            while left and left[0].at <= entry.at:
                heard.append(left.popleft()._replace(seq=entry.seq))
            placed += heard
        placed.append(entry)
    return placed


def render(
    entries: Sequence[Entry],
    naming: Naming,
    *,
    shared: bool,
    zone: ZoneInfo | None = None,
    latest: datetime | None = None,
) -> list[Message]:
    """Turn each entry into a message. The gateway's own words are in markers that no other text can contain.

    `latest` is the latest time of the entries before these.
    """
    messages: list[Message] = []
    render_user_side = _UserSideRenderer(naming, shared=shared).render
    for entry in entries:
        role, at = entry.role, entry.at
        if role is _ASSISTANT:
            blobs = (entry.blob,) if entry.blob else ()
            text, reasoning = strip_markers(entry.text), strip_markers(entry.reasoning)
            messages.append(_message((role, text, entry.calls, "", reasoning, blobs)))
        elif role is _TOOL:
            text = with_files(entry.text, entry.files) if entry.files else strip_markers(entry.text)
            messages.append(_message((role, text, (), entry.answers or "", "", ())))
        elif text := render_user_side(entry):
            if role is _USER:
                # From the entries' own times, so that it never changes.
                text = _when(at, latest, zone) + text
            messages.append(_message((_USER, text, (), "", "", ())))
        if role is not _SUMMARY and (latest is None or at > latest):
            latest = at
    return messages


def _when(at: datetime, latest: datetime | None, zone: ZoneInfo | None) -> str:
    """Return markers with the gap before a message, if it is long, and the time in the zone."""
    when = f"{time_marker(at, zone)} " if zone else ""
    if latest and at - latest >= LONG_GAP:
        when = f"{gap_marker((at - latest).total_seconds())} {when}"
    return when


class _UserSideRenderer:
    """Renders what the model sees as user messages: people's words, notes and summaries."""

    def __init__(self, naming: Naming, *, shared: bool) -> None:
        self._naming = naming
        self._shared = shared
        self._names_senders = shared or naming.platform.accounts_are_chats
        self._names: dict[Sender | None, str] = {}

    def render(self, entry: Entry) -> str:
        if entry.role is _NOTE:
            return note_marker(entry.text)
        text = with_files(entry.text, entry.files) if entry.files else strip_markers(entry.text)
        if not text.strip():
            return ""
        if entry.role is _SUMMARY:
            return f"{marker('summary of the earlier conversation')}\n{text}\n{marker('end of summary')}"
        if entry.quote:
            text = f"{self._quoted(entry.quote)} {text}"
        if entry.observed:
            who = self._who(entry.sender)
            return f"{marker(f'overheard, not said to you, from {who}')} {text} {marker('end of overheard')}"
        return self._from(entry.sender) + text if self._names_senders else text

    def _quoted(self, quote: Quote) -> str:
        """Return a marker with the message that this one replies to."""
        identity = quote.author and source_of_identity(quote.author).participant
        who = "you" if quote.is_ours else self._who(Sender(identity, quote.name))
        # Much more can be kept. Blanks become one, so a little more than the limit is looked at.
        shown = quote_text(quote.text[: 4 * QUOTE_LIMIT], QUOTE_LIMIT)
        return marker(f"in reply to {who}: {shown}")

    def _from(self, sender: Sender | None) -> str:
        """Return a marker with the sender, where the model needs it."""
        is_named = self._shared or self._naming.has_display_name(sender)
        return f"{marker(f'from {self._who(sender)}')} " if is_named else ""

    def _who(self, sender: Sender | None) -> str:
        name = self._names.get(sender)
        if name is None:
            name = self._names[sender] = self._naming.sender(sender)
        return name


def with_files(text: str, files: Sequence[Attachment]) -> str:
    """Return the text and a marker for each file that came with it."""
    markers = (marker(strip_markers(describe_attachment(file))) for file in files)
    return "\n".join(part for part in (strip_markers(text).strip(), *markers) if part)


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a sequence that every provider accepts. Valid sequences stay unchanged."""
    if not messages:
        return ()
    roles, texts, calls, _, thoughts, _ = zip(*messages, strict=True)
    if any(map(str.isspace, texts)) or not _is_encodable("".join(texts + thoughts)):
        messages = list(map(_make_encodable, messages))
    elif all(texts) and not any(calls) and all(map(is_, roles, cycle((_USER, _ASSISTANT)))):
        return tuple(messages)
    return _rearrange(messages)


def _make_encodable(message: Message) -> Message:
    """Remove lone surrogates, and text that is only white space."""
    text = "" if message.text.isspace() else _encodable(message.text)
    return message._replace(text=text, reasoning=_encodable(message.reasoning))


def _rearrange(messages: Sequence[Message]) -> tuple[Message, ...]:
    rearranged = _join_neighbours(_pair_results(messages))
    # Drop reasoning without text or calls: it has no message to belong to.
    with_content = [message for message in rearranged if message.text or message.calls]
    if len(with_content) < len(rearranged):
        rearranged = _join_neighbours(with_content)
    if rearranged and rearranged[0].role is _ASSISTANT:
        rearranged.insert(0, Message(_USER, _BEGINNING))
    return tuple(rearranged)


def _join_neighbours(messages: list[Message]) -> list[Message]:
    """Join neighbours of the same role, so that user and assistant alternate."""
    roles = [message.role for message in messages]
    if not any(map(is_, roles, roles[1:])):
        return messages
    alternating: list[Message] = []
    for role, neighbours in groupby(messages, key=_ROLE):
        group = list(neighbours)
        alternating += group if role is _TOOL or len(group) == 1 else [_join(group)]
    return alternating


def _join(group: Sequence[Message]) -> Message:
    return Message(
        group[0].role,
        "\n\n".join(message.text for message in group if message.text),
        tuple(call for message in group for call in message.calls),
        "",
        "\n\n".join(message.reasoning for message in group if message.reasoning),
        tuple(blob for message in group for blob in message.blobs),
    )


def _pair_results(messages: Iterable[Message]) -> list[Message]:
    """Put one result after each call: drop results without a call, and close calls without a result."""
    paired: list[Message] = []
    owed: dict[str, list[int]] = {}
    taken: dict[str, int] = {}
    for message in messages:
        if message.role is _TOOL:
            if places := owed.get(message.answers):
                place = places.pop(0)
                paired[place] = _message((_TOOL, message.text or _NO_OUTPUT, (), paired[place].answers, "", ()))
        elif message.calls:
            calls = tuple([call if _is_valid(call, taken) else _repaired_call(call, taken) for call in message.calls])
            _expect_results(message.calls, len(paired) + 1, owed)
            paired.append(message if calls == message.calls else message._replace(calls=calls))
            paired += [_message((_TOOL, INTERRUPTED, (), call.id, "", ())) for call in calls]
        elif message.text or message.blobs or message.reasoning:
            paired.append(message)
    return paired


def _expect_results(calls: tuple[ToolCall, ...], first_place: int, owed: dict[str, list[int]]) -> None:
    """Note where each call's result goes. A repeated id belongs to the newer call; within a message, order decides."""
    for call in calls:
        owed[call.id] = []
    for place, call in enumerate(calls, first_place):
        owed[call.id].append(place)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no wire format can carry."""
    return text if _is_encodable(text) else whole_characters(text)


def _is_encodable(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


_NAME_LIMIT = 64
_ID_LIMIT = 40
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_LIMIT}}}")
_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{_ID_LIMIT}}}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def _is_valid(call: ToolCall, taken: dict[str, int]) -> bool:
    """Return whether providers accept the call as it is, and mark its id as taken."""
    if call.id in taken or not (_ID.fullmatch(call.id) and _NAME.fullmatch(call.name)):
        return False
    if not _is_json_object(call.arguments):
        return False
    taken[call.id] = 1
    return True


def _repaired_call(call: ToolCall, taken: dict[str, int]) -> ToolCall:
    """Return the call with a valid id and name, and malformed arguments wrapped in an object."""
    arguments = call.arguments
    if not _is_json_object(arguments):
        arguments = json.dumps({"malformed_arguments": _encodable(arguments)})
    return ToolCall(
        id=_unique(_NOT_IN_NAMES.sub("_", call.id)[:_ID_LIMIT] or "call", taken),
        name=_NOT_IN_NAMES.sub("_", call.name)[:_NAME_LIMIT] or "unknown_tool",
        arguments=arguments,
    )


def _unique(identity: str, taken: dict[str, int]) -> str:
    """Return `identity`, numbered if it is taken; `taken` holds the last number of each id."""
    unique = identity
    while unique in taken:
        taken[identity] += 1
        suffix = f"_{taken[identity]}"
        unique = identity[: _ID_LIMIT - len(suffix)] + suffix
    taken[unique] = 1
    return unique


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_STRICT_JSON = json.JSONDecoder(parse_constant=_refuse)


def _is_json_object(text: str) -> bool:
    if text == "{}":
        return True
    try:
        decoded = _STRICT_JSON.decode(text)
        if "\\u" in text or not text.isascii():
            json.dumps(decoded, ensure_ascii=False).encode()
        return isinstance(decoded, dict)
    except (ValueError, RecursionError):
        return False


# What was said, without the gateway's words: for agents that do not read like a model.

SUMMARY_END = marker("end of summary")
_MAX_EXCERPT_LENGTH = 40
_MAX_SUMMARY_LENGTH = 400
_OUTPUT = f"(?:\n[^{OPEN}{CLOSE}]*\n{OUTPUT_END})?"
_ANY_NOTE = re.compile(f"{OPEN}note: [^{CLOSE}]*{CLOSE}{_OUTPUT}")
_NOTICE = re.compile(
    f".*{OPEN}note: (background process [^{CLOSE}]*){CLOSE}({_OUTPUT})(?:\\s*{_ANY_NOTE.pattern})*", re.DOTALL
)
"""A message whose last words are a notice about a process; after an interruption a note about that follows."""
_FIRING = re.compile(f".*{OPEN}note: job [0-9]+ runs now[^{CLOSE}]*{CLOSE}", re.DOTALL)
_NOT_ADDRESSED = re.compile(
    f"{OPEN}overheard[^{CLOSE}]*{CLOSE}.*?{OPEN}end of overheard{CLOSE}"
    f"|{OPEN}summary of[^{CLOSE}]*{CLOSE}.*?{SUMMARY_END}"
    f"|{OPEN}[^{CLOSE}]*{CLOSE} ?",
    re.DOTALL,
)


class Said(NamedTuple):
    """What the last message says."""

    text: str
    by_process: bool = False
    """It is the gateway's notice about a background process."""
    by_job: bool = False
    """It is the prompt of a job that runs now."""


def last_said(messages: Sequence[Message]) -> Said:
    last = messages[-1].text if messages else ""
    if OPEN in last and (notice := _NOTICE.fullmatch(last.rstrip())):
        return Said(notice[1] + notice[2].removesuffix(f"\n{OUTPUT_END}"), by_process=True)
    texts = (spoken_text(message.text) for message in reversed(messages) if message.role is Role.USER)
    users = (message.text for message in reversed(messages) if message.role is Role.USER)
    return Said(next(filter(None, texts), ""), by_job=_FIRING.match(next(users, "")) is not None)


def spoken_text(text: str) -> str:
    """Return a person's words, without the gateway's: those after the last note, or else before it."""
    if OPEN not in text:
        return text.strip()
    parts = (_NOT_ADDRESSED.sub("", part).strip() for part in reversed(_ANY_NOTE.split(text)))
    return next((part for part in parts if part), "")


def brief_title(messages: Sequence[Message]) -> str:
    """Return the beginning of what was said last, as a title."""
    return one_line(last_said(messages).text, _MAX_EXCERPT_LENGTH)


def brief_summary(messages: Sequence[Message], focus: str) -> str:
    """Return the beginning of each message, those about the focus first, as far as there is room."""
    excerpts = [one_line(_NOT_ADDRESSED.sub("", message.text), _MAX_EXCERPT_LENGTH) for message in messages]
    excerpts.sort(key=lambda excerpt: focus.casefold() not in excerpt.casefold())
    return f"{len(excerpts)} messages: {'; '.join(filter(None, excerpts))[:_MAX_SUMMARY_LENGTH]}"
