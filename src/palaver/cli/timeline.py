"""A fate for people: what happened, one line after the other."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from palaver.cli.output import counted, print_heading, print_text
from palaver.cli.when import ago
from palaver.domain.lifecycle import InboxState, OutboxState, TurnState
from palaver.domain.redact import redact
from palaver.domain.session import identity_of
from palaver.domain.text import one_line, visible
from palaver.domain.turn import Inbound
from palaver.stores.archive.legible import moment_text
from palaver.stores.fates import Arrival, Fate, Run, Sending

__all__ = ["print_fate"]

_LONGEST = 300
_WELL, _OPEN, _BAD = "green", "yellow", "bold red"
_STYLES = {
    TurnState.DONE: _WELL,
    TurnState.FAILED: _BAD,
    OutboxState.DELIVERED: _WELL,
    OutboxState.DEAD: _BAD,
    OutboxState.UNCLEAR: _BAD,
}
_WHY = {
    "reply": "a reply is owed",
    "command": "the answer to the command is owed",
    "pair": "a code to be let in with is owed",
    "paired": "a word that they are let in is owed",
    "busy": "a word that the turn is still at work is owed",
    "halt": "a question is owed",
    "welcome": "a word about the fresh conversation is owed",
    "revision": "a word about a deleted message is owed",
    "gone": "a word about a chat that is gone is owed",
    "handoff": "a conversation is announced, and comes along where this arrives;",
    "handed-off": "a word that a conversation was handed off is owed",
    "not-handed-off": "a word that a conversation could not be handed off is owed",
    "recalled": "a word that a conversation was called back on its way is owed",
    "taken-back": "a word that something was taken back elsewhere is owed",
}


class _Step(NamedTuple):
    at: datetime
    """Where the exact time is not kept, that of the step before."""
    what: str
    sentence: str
    style: str = ""
    text: str = ""
    exact: bool = True


def print_fate(fate: Fate, present: datetime, *, content: bool) -> None:
    steps = sorted(_steps(fate, present), key=lambda step: step.at)
    began = steps[0].at
    print_heading(visible(_title(fate)))
    print_text((f"{moment_text(began)} ({ago(began, present)})", "dim"))
    width = max(len(step.what) for step in steps)
    for step in steps:
        offset = _offset(step.at - began) if step.exact else ""
        print_text((f"{offset:>9}  ", "dim"), (f"{step.what:<{width}}  ", "cyan"), (visible(step.sentence), step.style))
        if content and step.text:
            for line in step.text.splitlines():
                print_text((" " * (width + 13), ""), (visible(line), "italic"))


def _title(fate: Fate) -> str:
    if fate.run:
        return f"turn {fate.run.turn.number} in {fate.run.turn.key.text}"
    if fate.arrivals:
        return f"message {fate.arrivals[0].number} in {fate.arrivals[0].key}"
    return f"send {fate.sendings[0].delivery.number}"


def _offset(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"+{seconds:.2f} s" if abs(seconds) < _MINUTE else f"+{timedelta(seconds=round(seconds))}"


_MINUTE = 60


def _steps(fate: Fate, present: datetime) -> Iterator[_Step]:
    for arrival in fate.arrivals:
        yield from _arrival_steps(arrival)
        if arrival.state is InboxState.DONE and (arrival.reason or fate.run is None):
            done = arrival.reason or "obeyed as a command"
            yield _Step(arrival.received, f"in:{arrival.number}", done, _WELL, exact=False)
        elif arrival.state is InboxState.FAILED and fate.run is None:
            failed = f"a command that was not obeyed: {arrival.reason}"
            yield _Step(arrival.received, f"in:{arrival.number}", failed, _BAD, exact=False)
    if fate.run:
        yield from _run_steps(fate.run, present)
    for sending in fate.sendings:
        yield from _sending_steps(sending, present)


def _arrival_steps(arrival: Arrival) -> Iterator[_Step]:
    name, at, inbound = f"in:{arrival.number}", arrival.received, arrival.inbound
    if inbound is None:
        yield _Step(at, name, "received; what it said was deleted with its session")
        return
    source = inbound.source
    sender = identity_of(source) or "somebody without an id"
    let_in = f", let in as {arrival.role.name.lower()}" if arrival.role else ""
    message = f" {_as_what(inbound)} message {source.message_id}" if source.message_id else ""
    chat = f" in chat {source.chat}" if source.chat else ""
    observed = ", said to others" if inbound.observed else ""
    yield _Step(at, name, f"received from {sender}{message}{chat}{observed}{let_in}", text=inbound.text)
    if arrival.place:
        yield _Step(at, name, f"went to {arrival.key}, which its place {arrival.place} is attached to", exact=False)
    if arrival.state is InboxState.REFUSED:
        yield _Step(at, name, f"refused: {arrival.reason}", _BAD)
    elif arrival.state is InboxState.WAITING:
        yield _Step(at, name, f"waits for {_waits_for(arrival)}", _OPEN, exact=False)


def _as_what(inbound: Inbound) -> str:
    if inbound.revision is None:
        return "with newer words as" if inbound.earlier else "as"
    return "as the deletion of" if inbound.revision.deleted else "as a change of"


def _waits_for(arrival: Arrival) -> str:
    first = f"turn:{arrival.behind_turn}" if arrival.behind_turn else "a gateway to take it up"
    return f"{first}, behind {counted(arrival.behind, 'message')}" if arrival.behind else first


def _run_steps(run: Run, present: datetime) -> Iterator[_Step]:
    turn, name = run.turn, f"turn:{run.turn.number}"
    yield _Step(turn.started, name, f"began in session {turn.session}")
    for entry in run.entries:
        calls = f", calls {', '.join(call.name for call in entry.calls)}" if entry.calls else ""
        yield _Step(max(entry.at, turn.started), name, f"entry {entry.seq}: {entry.role}{calls}", text=entry.text)
    if turn.halted:
        yield _Step(turn.halted, name, "was cut off or halted", _OPEN)
    if run.stop:
        yield _Step(run.ended or turn.started, name, f"was asked to stop by {run.stop}", _OPEN, exact=False)
    attempt = f"at attempt {turn.attempt} by {turn.worker}"
    spent = f"; {run.usage.input_tokens} tokens in, {run.usage.output_tokens} out" if run.usage.model else ""
    style = _STYLES.get(turn.state, _OPEN)
    outcome = f"{turn.state.value} {attempt}{_words(turn.error)}{spent}{_lease(run)}"
    yield _Step(run.ended or present, name, outcome, style, exact=run.ended is not None)


def _lease(run: Run) -> str:
    return f"; held until {moment_text(run.turn.lease_until)}" if run.turn.state is TurnState.RUNNING else ""


def _sending_steps(sending: Sending, present: datetime) -> Iterator[_Step]:
    delivery, outbound = sending.delivery, sending.delivery.outbound
    name, at = f"out:{delivery.number}", delivery.created
    why = _WHY.get(sending.why, f"{sending.why} is owed")
    thread = f", thread {outbound.thread_id}" if outbound.thread_id else ""
    yield _Step(at, name, f"{why} to {outbound.platform} chat {outbound.chat_id}{thread}", text=outbound.text)
    marked = ", marked as a possible duplicate" if delivery.may_be_duplicate else ""
    tries = f" ({counted(delivery.attempts, 'attempt')}{marked})" if delivery.attempts else ""
    state = f"{_outcome(sending, present)}{tries}{_words(delivery.error)}"
    yield _Step(at, name, state, _STYLES.get(delivery.state, _OPEN), exact=False)
    if delivery.state is OutboxState.UNCLEAR:
        yield _Step(at, name, f"look, then: palaver fate {name} --delivered, or --again", exact=False)


def _outcome(sending: Sending, present: datetime) -> str:
    delivery = sending.delivery
    match delivery.state:
        case OutboxState.DELIVERED:
            return f"delivered as message {delivery.receipt}" if delivery.receipt else "delivered"
        case OutboxState.DUE:
            return f"due {ago(delivery.due, present)}"
        case OutboxState.CLAIMED:
            return f"on its way by {sending.worker}"
        case OutboxState.DEAD:
            return "given up"
        case OutboxState.UNCLEAR:
            return "unclear whether it arrived"


def _words(error: str | None) -> str:
    """An error as the platform or the agent put it, on one line and without secrets."""
    return f": {one_line(redact(error), _LONGEST)}" if error else ""
