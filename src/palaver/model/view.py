"""The view: what the model is shown of a transcript. From any log whatsoever to a sequence every provider accepts.

`view` is `render`, which turns entries into messages, followed by `repair`, which makes the sequence valid:

- it starts with a user message; user and assistant alternate but for tool results
- every tool call has exactly one result, right behind the message that made it, in the order of the calls
- call ids are unique and, like tool names, made of letters providers accept; arguments are a JSON object
- no message is empty, all text can be encoded

Only a turn that goes on after a person was asked has calls without results: those of its last message, at the end.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import cycle, groupby, takewhile
from operator import attrgetter, is_, itemgetter
from typing import NamedTuple, NoReturn

from palaver.model.attachment import describe_attachment
from palaver.model.label import Label
from palaver.model.naming import Naming
from palaver.model.prompt_markers import gap_marker, marker, note_marker, quote_label, strip_markers
from palaver.model.transcript import Entry, Role, Sender, ToolCall

__all__ = [
    "INTERRUPTED",
    "LONG_GAP",
    "Message",
    "open_calls",
    "open_calls_of_turn",
    "render",
    "repair",
    "view",
    "visible_entries",
]

LONG_GAP = timedelta(hours=6)
INTERRUPTED = "(interrupted: no result was recorded, its effect is unknown)"
_NO_OUTPUT = "(no output)"
# Bound once: looking an enum member up costs more than comparing it, and this runs for every entry.
_USER, _ASSISTANT, _TOOL, _NOTE, _SUMMARY = Role.USER, Role.ASSISTANT, Role.TOOL, Role.NOTE, Role.SUMMARY
_ROLE = attrgetter("role")
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
"""A message of all its values. Without looking for those that were left out it is made in two thirds of the time."""


def view(
    entries: Iterable[Entry],
    naming: Naming,
    *,
    shared: bool = False,
    message_ids: bool = False,
    goes_on: str | None = None,
) -> tuple[Message, ...]:
    """What the model is shown; message ids, when asked for, only where ids are not hidden.

    `goes_on` names a turn that was waiting for a person: what it called last and did not use stays open, at the end.
    """
    shown = visible_entries(entries)
    last = _last_step(shown, goes_on) if goes_on else None
    if last is None:
        return repair(render(shown, naming, shared=shared, message_ids=message_ids))
    told = {entry.seq for entry in last}
    ordered = [*(entry for entry in shown if entry.seq not in told), *last]
    messages = repair(render(ordered, naming, shared=shared, message_ids=message_ids))
    used = _used(last)
    results = messages[len(messages) - len(used) :]
    return messages[: -len(used)] + tuple(result for result, is_used in zip(results, used, strict=True) if is_used)


def open_calls_of_turn(entries: Iterable[Entry], turn: str) -> tuple[ToolCall, ...]:
    """What a turn called last and has no result of, as it was written down."""
    last = _last_step(visible_entries(entries), turn)
    if last is None:
        return ()
    return tuple(call for call, is_used in zip(last[0].calls, _used(last), strict=True) if not is_used)


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls at the end of a view that have no result yet, as they are shown."""
    answered = {message.answers for message in takewhile(lambda message: message.role is _TOOL, reversed(messages))}
    last = next((message for message in reversed(messages) if message.role is not _TOOL), None)
    return tuple(call for call in last.calls if call.id not in answered) if last else ()


def _last_step(entries: Sequence[Entry], turn: str) -> list[Entry] | None:
    """What a turn called last, and the results of that; None where nothing of it is open."""
    mine = [entry for entry in entries if entry.turn == turn]
    called = next((entry for entry in reversed(mine) if entry.calls and entry.role is _ASSISTANT), None)
    if called is None:
        return None
    names = {call.id for call in called.calls}
    results = (entry for entry in mine if entry.role is _TOOL and (entry.answers or "") in names)
    step = [called, *(entry for entry in results if entry.seq > called.seq)]
    return None if all(_used(step)) else step


def _used(step: Sequence[Entry]) -> list[bool]:
    """Of each call of a step, whether it has a result. Where an id is there twice, results come in order."""
    results = Counter(entry.answers or "" for entry in step[1:])
    used: list[bool] = []
    for call in step[0].calls:
        used.append(results[call.id] > 0)
        results[call.id] -= 1
    return used


def visible_entries(entries: Iterable[Entry]) -> list[Entry]:
    """What is not hidden, each summary in the place of what it covers."""
    shown = [entry for entry in entries if entry.hidden_by is None]
    has_summary = any(map(_COVERS, shown))
    return sorted(shown, key=_POSITION if has_summary else _SEQ)


def render(entries: Sequence[Entry], naming: Naming, *, shared: bool, message_ids: bool) -> list[Message]:
    """Each entry as a message. Whatever the gateway adds stands in marks that no other text can contain."""
    messages: list[Message] = []
    told = _Telling(naming, shared=shared, message_ids=message_ids).told
    latest: datetime | None = None
    for entry in entries:
        role, at = entry.role, entry.at
        if role is _ASSISTANT:
            blobs = (entry.blob,) if entry.blob else ()
            messages.append(_message((role, entry.text, entry.calls, "", entry.reasoning, blobs)))
        elif role is _TOOL:
            messages.append(_message((role, strip_markers(entry.text), (), entry.answers or "", "", ())))
        elif text := told(entry):
            if role is _USER and latest and at - latest >= LONG_GAP:
                # Taken from the entries' own times, so it never changes once written.
                text = f"{gap_marker((at - latest).total_seconds())} {text}"
            messages.append(_message((_USER, text, (), "", "", ())))
        if role is not _SUMMARY and (latest is None or at > latest):
            latest = at
    return messages


class _Telling:
    """How what stands on the user's side is told to the model, though not only users put it there."""

    def __init__(self, naming: Naming, *, shared: bool, message_ids: bool) -> None:
        self._naming = naming
        self._shared = shared
        self._message_ids = message_ids and not naming.hides_ids
        self._has_facts = shared or self._message_ids or naming.platform.accounts_are_chats
        self._names: dict[Sender | None, str] = {}

    def told(self, entry: Entry) -> str:
        if entry.role is _NOTE:
            return note_marker(entry.text)
        text = _with_files(entry) if entry.files else strip_markers(entry.text)
        if not text.strip():
            return ""
        if entry.role is _SUMMARY:
            return f"{marker('summary of the earlier conversation')}\n{text}\n{marker('end of summary')}"
        if entry.observed:
            who = self._who(entry.sender)
            return f"{marker(f'overheard, not said to you, from {who}')} {text} {marker('end of overheard')}"
        return self._facts(entry) + text if self._has_facts else text

    def _facts(self, entry: Entry) -> str:
        """Who says it, and under which id, where the model has to know."""
        facts = ""
        if self._shared or self._naming.has_display_name(entry.sender):
            facts = marker(f"from {self._who(entry.sender)}") + " "
        if self._message_ids and entry.message_id:
            facts += marker(f"message id {quote_label(Label(entry.message_id))}") + " "
        return facts

    def _who(self, sender: Sender | None) -> str:
        name = self._names.get(sender)
        if name is None:
            name = self._names[sender] = self._naming.sender(sender)
        return name


def _with_files(entry: Entry) -> str:
    """What was said, and the files that came with it, each described in a mark."""
    files = (marker(strip_markers(describe_attachment(file))) for file in entry.files)
    return "\n".join(part for part in (strip_markers(entry.text).strip(), *files) if part)


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A sequence every provider accepts. Valid sequences come out as they went in."""
    if not messages:
        return ()
    roles, texts, calls, _, thoughts, _ = zip(*messages, strict=True)
    if any(map(str.isspace, texts)) or not _is_encodable("".join(texts + thoughts)):
        messages = list(map(_sendable, messages))
    elif all(texts) and not any(calls) and all(map(is_, roles, cycle((_USER, _ASSISTANT)))):
        return tuple(messages)
    return _rearranged(messages)


def _sendable(message: Message) -> Message:
    """Without half surrogates, and without text that is nothing but space."""
    text = "" if message.text.isspace() else _encodable(message.text)
    return message._replace(text=text, reasoning=_encodable(message.reasoning))


def _rearranged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """In turn, the results behind their calls."""
    rearranged = _alternating(_paired(messages))
    # Reasoning that no words or calls came with has nobody to stand beside.
    spoken = [message for message in rearranged if message.text or message.calls]
    if len(spoken) < len(rearranged):
        rearranged = _alternating(spoken)
    if rearranged and rearranged[0].role is _ASSISTANT:
        rearranged.insert(0, Message(_USER, _BEGINNING))
    return tuple(rearranged)


def _alternating(messages: list[Message]) -> list[Message]:
    roles = [message.role for message in messages]
    if not any(map(is_, roles, roles[1:])):
        return messages
    alternating: list[Message] = []
    for role, neighbours in groupby(messages, key=_ROLE):
        group = list(neighbours)
        alternating += group if role is _TOOL or len(group) == 1 else [_joined(group)]
    return alternating


def _joined(group: Sequence[Message]) -> Message:
    return Message(
        group[0].role,
        "\n\n".join(message.text for message in group if message.text),
        tuple(call for message in group for call in message.calls),
        "",
        "\n\n".join(message.reasoning for message in group if message.reasoning),
        tuple(blob for message in group for blob in message.blobs),
    )


def _paired(messages: Iterable[Message]) -> list[Message]:
    """Every result behind its call, one each; results without a call left out; calls without a result closed."""
    paired: list[Message] = []
    owed: dict[str, list[int]] = {}
    taken: dict[str, int] = {}
    for message in messages:
        if message.role is _TOOL:
            if places := owed.get(message.answers):
                place = places.pop(0)
                paired[place] = _message((_TOOL, message.text or _NO_OUTPUT, (), paired[place].answers, "", ()))
        elif message.calls:
            calls = _valid_calls(message.calls, taken)
            _expect_results(message.calls, len(paired) + 1, owed)
            paired.append(message if calls == message.calls else message._replace(calls=calls))
            paired += [_message((_TOOL, INTERRUPTED, (), call.id, "", ())) for call in calls]
        elif message.text or message.blobs or message.reasoning:
            paired.append(message)
    return paired


def _expect_results(calls: tuple[ToolCall, ...], first_place: int, owed: dict[str, list[int]]) -> None:
    """An id used again belongs to the newer call; used twice in one message, the results come in order."""
    for call in calls:
        owed[call.id] = []
    for place, call in enumerate(calls, first_place):
        owed[call.id].append(place)


def _encodable(text: str) -> str:
    """The text without half surrogates, which no wire format can carry."""
    return text if _is_encodable(text) else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


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


def _valid_calls(calls: tuple[ToolCall, ...], taken: dict[str, int]) -> tuple[ToolCall, ...]:
    return tuple([call if _is_valid(call, taken) else _repaired_call(call, taken) for call in calls])


def _is_valid(call: ToolCall, taken: dict[str, int]) -> bool:
    """Nearly every call is; then its id counts as taken."""
    if call.id in taken or not (_ID.fullmatch(call.id) and _NAME.fullmatch(call.name)):
        return False
    if not _is_json_object(call.arguments):
        return False
    taken[call.id] = 1
    return True


def _repaired_call(call: ToolCall, taken: dict[str, int]) -> ToolCall:
    """The same call in words that providers take; arguments that are no object are held by one."""
    arguments = call.arguments
    if not _is_json_object(arguments):
        arguments = json.dumps({"malformed_arguments": _encodable(arguments)})
    return ToolCall(
        id=_unique(_NOT_IN_NAMES.sub("_", call.id)[:_ID_LIMIT] or "call", taken),
        name=_NOT_IN_NAMES.sub("_", call.name)[:_NAME_LIMIT] or "unknown_tool",
        arguments=arguments,
    )


def _unique(identity: str, taken: dict[str, int]) -> str:
    """`identity`, numbered if it was there before; `taken` remembers how far each id has been counted."""
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
