"""Write an answer as a chat completion: whole, or in chunks as it grows."""

import json
from collections.abc import Mapping
from typing import Any

from palaver.model.value import value
from palaver.store.status.message_status import Reply
from palaver.web.openai.outcome import Outcome
from palaver.web.openai.schema import MODEL


@value
class CompletionWriter:
    """Writes one answer."""

    name: str
    """That of the message, within ids."""
    created: int
    wants_usage: bool

    def whole(self, outcome: Outcome, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": outcome.content or None, "refusal": None}
        if outcome.calls:
            message["tool_calls"] = _calls(outcome)
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(outcome), "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def text(self, more: str, *, is_first: bool) -> bytes:
        """Return more of the answer. Only the first chunk names the role: clients join what chunks say."""
        return self._chunk({"role": "assistant", "content": more} if is_first else {"content": more})

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": finish_reason, "logprobs": None}
        return _event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def ending(self, outcome: Outcome, reply: Reply) -> list[bytes]:
        calls = [{"index": place, **call} for place, call in enumerate(_calls(outcome))]
        chunks = [self._chunk({"tool_calls": calls})] if calls else []
        chunks.append(self._chunk({}, _finish_reason(outcome)))
        if self.wants_usage:
            chunks.append(_event({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(reply)}))
        return [*chunks, b"data: [DONE]\n\n"]

    def failure(self, problem: Mapping[str, object]) -> bytes:
        return _event({"error": problem})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-in-{self.name}", "object": kind, "created": self.created, "model": MODEL}


def _event(body: Mapping[str, Any]) -> bytes:
    """JSON in ASCII stays on one line, so no text can look like another event."""
    return f"data: {json.dumps(body)}\n\n".encode()


def _finish_reason(outcome: Outcome) -> str:
    return "tool_calls" if outcome.calls else "length" if outcome.cut else "stop"


def _calls(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in outcome.calls
    ]


def _usage(reply: Reply) -> dict[str, Any]:
    used = reply.usage
    total = used.input_tokens + used.output_tokens
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }
