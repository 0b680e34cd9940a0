"""What has come of a message as OpenAI's clients read it: whole, or in chunks as it grows."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from palaver.engine import texts
from palaver.model.quotas import QuotaKind, period_end
from palaver.model.transcript import Role
from palaver.model.turn import InboxState, Turn, TurnState
from palaver.model.value import value
from palaver.protocols.agent import FailureKind
from palaver.store.status.message_status import Reply
from palaver.web.errors import OpenAIError
from palaver.web.openai.schema import MODEL
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
    calls: Sequence[Mapping[str, Any]] = ()

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"


def outcome_of(reply: Reply, services: Services) -> Outcome:
    """Return the answer; raise HTTPException if there is an error instead."""
    turn = reply.turn
    # A client sends text that anybody can have written, so it gives no commands: say where they work.
    elsewhere = f"Do so at {services.address.url}/turns, commands do not work here."
    if reply.received.state is InboxState.WAITING:
        raise HTTPException(409, f"{texts.ASKED_FIRST} {elsewhere}", headers=_NO_RETRY)
    if turn is None and reply.received.state is InboxState.FAILED:
        raise HTTPException(409, _PARAGRAPH.join(reply.notices), headers=_NO_RETRY)
    if turn is not None and turn.state is TurnState.FAILED:
        raise _failure(reply, turn, services)
    if turn is None or (reply.is_parked and not reply.pending_tool_calls):
        notices = [*reply.notices, elsewhere] if reply.is_parked else reply.notices
        return Outcome(content=_PARAGRAPH.join(notices))
    answers = [entry.text for entry in reply.entries if entry.role is Role.ASSISTANT and entry.text.strip()]
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.pending_tool_calls
    ]
    outcome = Outcome(content=_PARAGRAPH.join(answers), calls=calls)
    _check_form(outcome, reply)
    return outcome


def _check_form(outcome: Outcome, reply: Reply) -> None:
    """Raise 500 if the agent ignored what the client demands: programs can do so, and some models do."""
    form, problem = reply.received.inbound.form, None
    if form.must_call and not any(call.name in form.must_call for entry in reply.entries for call in entry.calls):
        problem = "The agent called no tool, though tool_choice demands it."
    if form.schema is not None and not outcome.calls and not _is_json(outcome.content):
        problem = "The agent did not answer in the JSON that response_format demands."
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


@value
class CompletionWriter:
    """Writes one answer in OpenAI's format."""

    number: int
    created: int

    def whole(self, outcome: Outcome, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": outcome.content or None}
        if outcome.calls:
            message["tool_calls"] = list(outcome.calls)
        choice = {"index": 0, "message": message, "finish_reason": outcome.finish_reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def text(self, more: str, *, is_first: bool) -> bytes:
        """Return more of the answer. Only the first chunk names the role: clients join what chunks say."""
        return self.chunk({"role": "assistant", "content": more} if is_first else {"content": more})

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": finish_reason, "logprobs": None}
        return sse_line({**self._head("chat.completion.chunk"), "choices": [choice]})

    def ending(self, outcome: Outcome, reply: Reply, *, usage: bool) -> list[bytes]:
        calls = [{"index": place, **call} for place, call in enumerate(outcome.calls)]
        chunks = [self.chunk({"tool_calls": calls})] if calls else []
        chunks.append(self.chunk({}, outcome.finish_reason))
        if usage:
            chunks.append(sse_line({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(reply)}))
        return [*chunks, b"data: [DONE]\n\n"]

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-in-{self.number}", "object": kind, "created": self.created, "model": MODEL}


def sse_line(body: Mapping[str, Any]) -> bytes:
    """JSON in ASCII stays on one line, so no text can look like another event."""
    return f"data: {json.dumps(body)}\n\n".encode()


def _usage(reply: Reply) -> dict[str, int]:
    used = reply.usage
    total = used.input_tokens + used.output_tokens
    return {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens, "total_tokens": total}


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
