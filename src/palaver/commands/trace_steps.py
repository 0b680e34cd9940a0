"""Describe the steps of a trace to people, in order of time."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from palaver.commands.formatting import ago
from palaver.model.epochs import NO_EPOCHS, Epochs
from palaver.model.redact import redact
from palaver.model.source import describe_source, identity_of, readable_identity
from palaver.model.text import counted, one_line
from palaver.model.turn import Inbound, InboxState, OutboxState, TurnState, Usage
from palaver.store.archive.render import moment_text
from palaver.store.status.trace import DeliveryTrace, InboundTrace, Trace, TurnTrace


class Tone(StrEnum):
    """How a step of a trace is coloured."""

    PLAIN = "plain"
    WELL = "well"
    OPEN = "open"
    BAD = "bad"


_MAX_CHARS = 300
_TONES = {
    TurnState.DONE: Tone.WELL,
    TurnState.FAILED: Tone.BAD,
    OutboxState.DELIVERED: Tone.WELL,
    OutboxState.DEAD: Tone.BAD,
    OutboxState.UNCLEAR: Tone.BAD,
}
_PURPOSE = {
    "command": "answer to the command",
    "pair": "pairing code",
    "paired": "notice that access was approved",
    "asked": "notice that somebody asks for access",
    "busy": "notice that the agent is still answering",
    "parked": "notice that the turn is waiting for approval",
    "withdrawn": "notice that the question was withdrawn",
    "halt": "question",
    "tool": "message that the agent sends with a tool",
    "process": "notice about a process of an earlier conversation",
    "welcome": "notice about the new conversation",
    "revision": "notice about a deleted message",
    "gone": "notice about a chat that is gone",
    "job": "notice about a job",
    "handoff": "announcement of a conversation that was handed off",
    "handed-off": "notice that a conversation was handed off",
    "not-handed-off": "notice that a conversation could not be handed off",
    "recalled": "notice that a handoff was cancelled",
    "taken-back": "notice that something was undone elsewhere",
}


class Step(NamedTuple):
    at: datetime
    """The exact time, or that of the step before."""
    what: str
    sentence: str
    tone: Tone = Tone.PLAIN
    text: str = ""
    exact: bool = True


def trace_title(trace: Trace) -> str:
    if trace.turn:
        return f"turn {trace.turn.turn.number} in {trace.turn.turn.key.text}"
    if trace.messages:
        return f"message {trace.messages[0].number} in {trace.messages[0].key}"
    return f"send {trace.deliveries[0].delivery.number}"


def trace_steps(trace: Trace, present: datetime, epochs: Epochs = NO_EPOCHS) -> list[Step]:
    """Return the steps of a trace in order of time; they name times in the zone of `present`."""
    return sorted(_steps(trace, present, epochs), key=lambda step: step.at)


def _steps(trace: Trace, present: datetime, epochs: Epochs) -> Iterator[Step]:
    for arrival in trace.messages:
        name = epochs.message(arrival.number)
        yield from _arrival_steps(arrival, name)
        if arrival.state is InboxState.DONE and (arrival.reason or trace.turn is None):
            done = arrival.reason or "ran as a command"
            yield Step(arrival.received, name, done, Tone.WELL, exact=False)
        elif arrival.state is InboxState.FAILED and trace.turn is None:
            failed = f"command failed: {arrival.reason}"
            yield Step(arrival.received, name, failed, Tone.BAD, exact=False)
    if trace.turn:
        yield from _run_steps(trace.turn, present, epochs)
    for sending in trace.deliveries:
        yield from _sending_steps(sending, present, epochs.send(sending.delivery.number))


def _arrival_steps(arrival: InboundTrace, name: str) -> Iterator[Step]:
    at, inbound = arrival.received, arrival.inbound
    if inbound is None:
        yield Step(at, name, "received; its text was deleted with its session")
        return
    source = inbound.source
    identity = identity_of(source)
    sender = readable_identity(identity) if identity else "somebody without an id"
    let_in = f", role {arrival.role.name.lower()}" if arrival.role else ""
    message = f" {_as_what(inbound)} message {source.message_id}" if source.message_id else ""
    chat = f", {describe_source(source, inbound.labels)}" if source.chat else ""
    observed = ", not for the agent" if inbound.observed else ""
    origin = f"job:{inbound.job.number} fired for {sender}" if inbound.job else f"received from {sender}"
    yield Step(at, name, f"{origin}{message}{chat}{observed}{let_in}", text=inbound.text)
    if arrival.place:
        yield Step(at, name, f"went to {arrival.key}: its chat {arrival.place} is attached to it", exact=False)
    if arrival.withdrew:
        yield Step(at, name, f"withdrew the question of turn:{arrival.withdrew}", exact=False)
    if arrival.answered:
        yield Step(at, name, f"answered the question of turn:{arrival.answered}", exact=False)
    if arrival.state is InboxState.REFUSED:
        yield Step(at, name, f"refused: {arrival.reason}", Tone.BAD)
    elif arrival.state is InboxState.WAITING:
        yield Step(at, name, f"waits for {_waits_for(arrival)}", Tone.OPEN, exact=False)


def _as_what(inbound: Inbound) -> str:
    if inbound.revision is None:
        return "with newer text as" if inbound.earlier else "as"
    return "as the deletion of" if inbound.revision.deleted else "as an edit of"


def _waits_for(arrival: InboundTrace) -> str:
    first = f"turn:{arrival.behind_turn}" if arrival.behind_turn else "a gateway"
    return f"{first}, behind {counted(arrival.behind, 'message')}" if arrival.behind else first


def _run_steps(run: TurnTrace, present: datetime, epochs: Epochs) -> Iterator[Step]:
    turn, name = run.turn, f"turn:{run.turn.number}"
    yield Step(turn.started, name, f"began in session {turn.session}")
    if run.reset:
        yield Step(turn.started, name, f"began a new session after {run.session_before} (reset: {run.reset})")
    for entry in run.entries:
        calls = f", calls {', '.join(call.name for call in entry.calls)}" if entry.calls else ""
        yield Step(max(entry.at, turn.started), name, f"entry {entry.seq}: {entry.role}{calls}", text=entry.text)
    for process in run.processes:
        yield Step(process.started, process.name, f"started: {process.outcome}", text=process.command)
    if turn.halted:
        yield Step(turn.halted, name, "was interrupted or parked", Tone.OPEN)
    if run.stop:
        yield Step(run.ended or turn.started, name, f"was asked to stop by {run.stop}", Tone.OPEN, exact=False)
    if run.withdrawn_by:
        withdrawn = f"its question was withdrawn by {epochs.message(run.withdrawn_by)}"
        yield Step(run.ended or turn.started, name, withdrawn, Tone.OPEN, exact=False)
    attempt = f"on attempt {turn.attempt}{_by(turn.worker)}"
    spent = f"; the answer used {_used(run.usage)}" if run.usage.model else ""
    tone = _TONES.get(turn.state, Tone.OPEN)
    outcome = f"{turn.state.value} {attempt}{_words(turn.error)}{spent}{_lease(run, present)}"
    yield Step(run.ended or present, name, outcome, tone, exact=run.ended is not None)
    if run.title_usage and run.titled_at:
        yield Step(run.titled_at, name, f"generated a title, which used {_used(run.title_usage)}")


def _used(usage: Usage) -> str:
    """Return tokens and cost."""
    cost = f", cost {usage.cost}" if usage.cost_micros or usage.unpriced_tokens else ""
    return f"{usage.input_tokens} tokens in, {usage.output_tokens} out{cost}"


def _lease(run: TurnTrace, present: datetime) -> str:
    until = moment_text(run.turn.lease_until, present.tzinfo)
    return f"; held until {until}" if run.turn.state is TurnState.RUNNING else ""


def _sending_steps(sending: DeliveryTrace, present: datetime, name: str) -> Iterator[Step]:
    delivery, outbound, at = sending.delivery, sending.delivery.outbound, sending.delivery.created
    purpose = _PURPOSE.get(sending.why, sending.why)
    thread = f", thread {outbound.thread_id}" if outbound.thread_id else ""
    yield Step(at, name, f"queued {purpose} to {outbound.platform} chat {outbound.chat_id}{thread}", text=outbound.text)
    marked = ", marked as a possible duplicate" if delivery.may_be_duplicate else ""
    tries = f" ({counted(delivery.attempts, 'attempt')}{marked})" if delivery.attempts else ""
    state = f"{_outcome(sending, present)}{tries}{_words(delivery.error)}"
    yield Step(at, name, state, _TONES.get(delivery.state, Tone.OPEN), exact=False)
    if delivery.state is OutboxState.UNCLEAR:
        yield Step(at, name, f"check the chat, then run palaver trace {name} --delivered or --again", exact=False)


def _outcome(sending: DeliveryTrace, present: datetime) -> str:
    delivery = sending.delivery
    match delivery.state:
        case OutboxState.DELIVERED:
            return f"delivered as message {delivery.receipt}" if delivery.receipt else "delivered"
        case OutboxState.DUE:
            return f"due {ago(delivery.due, present)}"
        case OutboxState.CLAIMED:
            return f"about to be sent{_by(sending.worker)}"
        case OutboxState.SENDING:
            return f"on its way{_by(sending.worker)}"
        case OutboxState.DEAD:
            return "given up"
        case OutboxState.UNCLEAR:
            return "unclear whether it arrived"


def _by(worker: str | None) -> str:
    return f" by {worker}" if worker else ""


def _words(error: str | None) -> str:
    """Return an error on one line, without secrets."""
    return f": {one_line(redact(error), _MAX_CHARS)}" if error else ""
