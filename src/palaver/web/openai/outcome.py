"""What has come of a message: text, tool calls, or an error with the status that OpenAI's clients expect."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.exceptions import HTTPException

from palaver.engine import texts
from palaver.model.quotas import QuotaKind, period_end
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import InboxState, Turn, TurnState
from palaver.model.value import value
from palaver.model.view import answer_texts
from palaver.protocols.agent import FailureKind
from palaver.store.status.message_status import Reply
from palaver.web.errors import OpenAIError
from palaver.web.services import Services

_NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients retry unless a response says otherwise."""
_FAILURES = {
    FailureKind.TRANSIENT.value: (503, "provider_unavailable"),
    FailureKind.UNREACHABLE.value: (503, "provider_unavailable"),
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
    cut: bool = False
    """The answer reached the model's limit of tokens."""


def outcome_of(reply: Reply, services: Services) -> Outcome:
    """Return the answer; raise HTTPException if there is an error instead."""
    turn = reply.turn
    # A client sends text that anybody can have written, so it gives no commands: say where they work.
    elsewhere = f"Do so at {services.address.url}/turns: commands do not work here."
    if reply.received.state is InboxState.WAITING:
        raise HTTPException(409, f"{texts.ASKED_FIRST} {elsewhere}", headers=_NO_RETRY)
    if reply.received.state is InboxState.REFUSED:
        raise HTTPException(403, f"The message was refused: {reply.received.reason}.", headers=_NO_RETRY)
    if turn is None and reply.received.state is InboxState.FAILED:
        raise HTTPException(409, _PARAGRAPH.join(reply.notices), headers=_NO_RETRY)
    if turn is None and reply.received.turn is not None:  # the sender lost access while it was answered
        raise HTTPException(403, "You can no longer read the conversation of this message.", headers=_NO_RETRY)
    if turn is not None and turn.state is TurnState.FAILED:
        raise _failure(reply, turn, services)
    if turn is None or (reply.is_parked and not reply.pending_tool_calls):
        notices = [*reply.notices, elsewhere] if reply.is_parked else reply.notices
        return Outcome(content=_PARAGRAPH.join(notices))
    answers = answer_texts(reply.entries, {tool.name for tool in reply.received.inbound.client_tools})
    if reply.received.inbound.form.schema is not None:
        answers = answers[-1:]
    outcome = Outcome(content=_PARAGRAPH.join(answers), calls=reply.pending_tool_calls, cut=_is_cut(reply))
    _check_form(outcome, reply)
    return outcome


def _is_cut(reply: Reply) -> bool:
    said = [entry for entry in reply.entries if entry.role is Role.ASSISTANT]
    return bool(said) and said[-1].cut


def _check_form(outcome: Outcome, reply: Reply) -> None:
    """Raise 500 if the agent ignored what the client demands: programs can do so, and some models do."""
    form, problem = reply.received.inbound.form, None
    if form.must_call and not any(call.name in form.must_call for entry in reply.entries for call in entry.calls):
        problem = "The agent called no tool, though tool_choice requires it."
    if form.schema is not None and not (outcome.calls or outcome.cut) and not _is_json(outcome.content):
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
        return OpenAIError(status, text, code, _NO_RETRY | _retry_after(turn.retry_at, services))
    source, now = reply.received.inbound.source, services.clock.now()
    free = period_end(QuotaKind(turn.quota), now, services.engine.settings.zones.find(source))
    return HTTPException(429, text, headers=_NO_RETRY | _retry_after(free, services))


def _retry_after(free: datetime | None, services: Services) -> dict[str, str]:
    """Return the header that says how long to wait: until a provider or a quota allows more."""
    seconds = math.ceil((free - services.clock.now()).total_seconds()) if free else 0
    return {"retry-after": str(seconds)} if seconds > 0 else {}


_RESTARTED = (
    "The agent started its answer over, so the text so far is not the answer. Send the request again. With the same"
    " Idempotency-Key you get the answer that is stored."
)


@dataclass(kw_only=True, slots=True)
class StreamedText:
    """What was already streamed of a growing answer. A client cannot take it back."""

    is_json: bool = False
    """The answer is the JSON that the agent says last, not what it says before it uses a tool."""
    sent: str = ""

    def more(self, segments: Sequence[str]) -> str:
        """Return what is new, unless the agent said something else before. It starts a segment after each tool."""
        said = [segment for segment in segments if segment.strip()]
        if self.is_json:
            said = [segment for segment in said[-1:] if segment.lstrip()[0] in "{["]
        text = _PARAGRAPH.join(said)
        new = text[len(self.sent) :] if text.startswith(self.sent) else ""
        self.sent += new
        return new

    def rest(self, content: str) -> str:
        """Return what is missing at the end. Raises 500 if what was streamed is not the beginning of the answer."""
        if content.startswith(self.sent):
            return content[len(self.sent) :]
        if content.rstrip() == self.sent.rstrip():
            return ""
        raise OpenAIError(500, _RESTARTED, "answer_restarted", _NO_RETRY)
