"""What has come of a message: text, tool calls, or an error with the status that OpenAI's clients expect."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from palaver.engine import texts
from palaver.model.quotas import QuotaKind, period_end
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import InboxState, Turn, TurnState
from palaver.model.value import value
from palaver.protocols.agent import FailureKind
from palaver.store.status.message_status import Reply
from palaver.web.errors import OpenAIError
from palaver.web.services import Services

_NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients retry unless a response says otherwise."""
_FAILURES = {
    FailureKind.TRANSIENT.value: (503, "provider_unavailable"),
    FailureKind.RATE_LIMITED.value: (429, "rate_limit_exceeded"),
    FailureKind.REJECTED.value: (400, "invalid_prompt"),
    FailureKind.OVERFLOW.value: (400, "context_length_exceeded"),
    FailureKind.STUCK.value: (504, "timeout"),
}
"""The status and code of each kind of failure."""
_TOO_LONG = "This conversation is longer than the model's context window, and summarising it failed. Start a new one."
_PARAGRAPH = "\n\n"


@value
class Outcome:
    content: str
    calls: Sequence[ToolCall] = ()


def outcome_of(reply: Reply, services: Services) -> Outcome:
    """Return the answer; raise HTTPException if there is an error instead."""
    turn = reply.turn
    # A client sends text that anybody can have written, so it gives no commands: say where they work.
    elsewhere = f"Do so at {services.address.url}/turns: commands do not work here."
    if reply.received.state is InboxState.WAITING:
        raise HTTPException(409, f"{texts.ASKED_FIRST} {elsewhere}", headers=_NO_RETRY)
    if turn is None and reply.received.state is InboxState.FAILED:
        raise HTTPException(409, _PARAGRAPH.join(reply.notices), headers=_NO_RETRY)
    if turn is not None and turn.state is TurnState.FAILED:
        raise _failure(reply, turn, services)
    if turn is None or (reply.is_parked and not reply.pending_tool_calls):
        notices = [*reply.notices, elsewhere] if reply.is_parked else reply.notices
        return Outcome(content=_PARAGRAPH.join(notices))
    answers = [entry.text for entry in _new(reply) if entry.role is Role.ASSISTANT and entry.text.strip()]
    if reply.received.inbound.form.schema is not None:
        answers = answers[-1:]
    outcome = Outcome(content=_PARAGRAPH.join(answers), calls=reply.pending_tool_calls)
    _check_form(outcome, reply)
    return outcome


def _new(reply: Reply) -> Sequence[Entry]:
    """Return what was said since the client gave its last tool result: it has the rest already."""
    offered = {tool.name for tool in reply.received.inbound.client_tools}
    theirs = {call.id for entry in reply.entries for call in entry.calls if call.name in offered}
    given = [place for place, entry in enumerate(reply.entries) if entry.answers in theirs]
    return reply.entries[given[-1] + 1 :] if given else reply.entries


def _check_form(outcome: Outcome, reply: Reply) -> None:
    """Raise 500 if the agent ignored what the client demands: programs can do so, and some models do."""
    form, problem = reply.received.inbound.form, None
    if form.must_call and not any(call.name in form.must_call for entry in reply.entries for call in entry.calls):
        problem = "The agent called no tool, though tool_choice requires it."
    if form.schema is not None and not outcome.calls and not _is_json(outcome.content):
        problem = "The agent did not answer in the JSON that response_format requires."
    if problem:
        raise OpenAIError(500, problem, "agent_failed", _NO_RETRY)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _failure(reply: Reply, turn: Turn, services: Services) -> HTTPException:
    text = _PARAGRAPH.join(reply.notices) or texts.SORRY
    if turn.quota is None:
        status, code = _FAILURES.get(turn.failure or "", (500, "agent_failed"))
        text = _TOO_LONG if turn.failure == FailureKind.OVERFLOW else text
        return OpenAIError(status, text, code, _NO_RETRY)
    source, now = reply.received.inbound.source, services.clock.now()
    free = period_end(QuotaKind(turn.quota), now, services.engine.options.zones.find(source))
    retry_after = {"retry-after": str(math.ceil((free - now).total_seconds()))} if free else {}
    return HTTPException(429, text, headers={**_NO_RETRY, **retry_after})


@dataclass(slots=True)
class StreamedText:
    """What was already streamed of a growing answer."""

    sent: str = ""

    def more(self, segments: Sequence[str]) -> str:
        """Return what is new. The agent begins a segment each time it starts to speak."""
        text = _PARAGRAPH.join(filter(str.strip, segments))
        new = text[len(self.sent) :] if text.startswith(self.sent) else ""
        self.sent += new
        return new

    def rest(self, content: str) -> str:
        """Return what is missing at the end: the whole content if the agent began anew."""
        _, known, rest = content.partition(self.sent) if self.sent else ("", " ", content)
        return rest if known else f"{_PARAGRAPH}{content}"
