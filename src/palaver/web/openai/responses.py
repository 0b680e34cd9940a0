"""Write an answer as a response of the Responses API: whole, or as events while it grows."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from palaver.model.transcript import ToolCall
from palaver.store.status.message_status import Reply
from palaver.web.openai.items import ResponseRequest
from palaver.web.openai.outcome import Outcome
from palaver.web.openai.schema import MODEL


@dataclass(kw_only=True)
class ResponseWriter:
    """Writes one response. A stream has the same ids, and events with rising numbers."""

    name: str
    """That of the message, within ids."""
    created: int
    request: ResponseRequest | None = None
    """None if a stored response is asked for again."""
    suffix: str = field(default_factory=lambda: f"_{secrets.token_hex(4)}")
    """The end of its ids. A turn that calls a client's tools gives several responses to one message."""
    _events: int = 0
    _sent: str = ""
    """The text of the message item so far; it exists once it has text."""

    def whole(self, outcome: Outcome, reply: Reply) -> dict[str, Any]:
        return self._ended(outcome, self._output(outcome.content, outcome), reply)

    def _ended(self, outcome: Outcome, output: list[dict[str, Any]], reply: Reply) -> dict[str, Any]:
        details = {"reason": "max_output_tokens"} if outcome.cut else None
        return {**self._response(_status(outcome), output, reply), "incomplete_details": details}

    def unfinished(self, status: str, error: Mapping[str, object] | None = None) -> dict[str, Any]:
        return {**self._response(status, [], None), "error": error}

    def text(self, more: str, *, is_first: bool) -> bytes:
        events = b""
        if is_first:
            response = self._response("in_progress", [], None)
            events += self._event("response.created", response=response)
            events += self._event("response.in_progress", response=response)
        if more and not self._sent:
            item: dict[str, Any] = {**self._message("", "in_progress"), "content": []}
            events += self._event("response.output_item.added", output_index=0, item=item)
            events += self._event("response.content_part.added", **self._place(), part=_text_part(""))
        self._sent += more
        if more:
            events += self._event("response.output_text.delta", **self._place(), delta=more, logprobs=[])
        return events

    def ending(self, outcome: Outcome, reply: Reply) -> list[bytes]:
        output = self._output(self._sent, outcome)
        events: list[bytes] = []
        if self._sent:
            place = self._place()
            events += [
                self._event("response.output_text.done", **place, text=self._sent, logprobs=[]),
                self._event("response.content_part.done", **place, part=_text_part(self._sent)),
                self._event("response.output_item.done", output_index=0, item=output[0]),
            ]
        first = len(output) - len(outcome.calls)
        for index, item in enumerate(output[first:], first):
            place = {"item_id": item["id"], "output_index": index}
            arguments = item["arguments"]
            begun = {**item, "status": "in_progress", "arguments": ""}
            done = {"arguments": arguments, "name": item["name"]}
            events += [
                self._event("response.output_item.added", output_index=index, item=begun),
                self._event("response.function_call_arguments.delta", **place, delta=arguments),
                self._event("response.function_call_arguments.done", **place, **done),
                self._event("response.output_item.done", output_index=index, item=item),
            ]
        return [*events, self._event(f"response.{_status(outcome)}", response=self._ended(outcome, output, reply))]

    def failure(self, problem: Mapping[str, object]) -> bytes:
        return self._event("error", code=problem["code"], message=problem["message"], param=None)

    def _event(self, kind: str, **facts: object) -> bytes:
        """JSON in ASCII stays on one line, so no text can look like another event."""
        body = {"type": kind, "sequence_number": self._events, **facts}
        self._events += 1
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()

    def _place(self) -> dict[str, object]:
        return {"item_id": self._id("msg"), "output_index": 0, "content_index": 0}

    def _id(self, kind: str) -> str:
        return f"{kind}_in_{self.name}{self.suffix}"

    def _message(self, text: str, status: str = "completed") -> dict[str, Any]:
        content = [_text_part(text)]
        return {"id": self._id("msg"), "type": "message", "role": "assistant", "status": status, "content": content}

    def _output(self, text: str, outcome: Outcome) -> list[dict[str, Any]]:
        return [*([self._message(text, _status(outcome))] if text else []), *map(self._call, outcome.calls)]

    def _call(self, call: ToolCall) -> dict[str, Any]:
        return {
            "id": f"fc_in_{self.name}_{call.id}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }

    def _response(self, status: str, output: list[dict[str, Any]], reply: Reply | None) -> dict[str, Any]:
        asked: dict[str, Any] = msgspec.to_builtins(self.request) if self.request else {}
        return {
            "id": self._id("resp"),
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": MODEL,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": None,
            "top_p": None,
            "store": True,
            "instructions": asked.get("instructions"),
            "previous_response_id": asked.get("previous_response_id"),
            "tools": asked.get("tools") or [],
            "tool_choice": asked.get("tool_choice") or "auto",
            "text": asked.get("text") or {"format": {"type": "text"}},
            "metadata": asked.get("metadata") or {},
            "usage": reply and _usage(reply),
        }


def input_items(reply: Reply, name: str, suffix: str) -> list[dict[str, Any]]:
    """Return what a client sent for a response, in order: its message, and the results of its tools."""
    received = reply.received
    message: dict[str, Any] = {
        "id": f"msg_in_{name}{suffix}_input",
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": received.inbound.text}],
    }
    theirs = {tool.name for tool in received.inbound.client_tools}
    calls = {call.id for entry in reply.entries for call in entry.calls if call.name in theirs}
    results: list[dict[str, Any]] = [
        {
            "id": f"fc_in_{name}_{entry.answers}_output",
            "type": "function_call_output",
            "call_id": entry.answers,
            "output": entry.text,
            "status": "completed",
        }
        for entry in reply.entries
        if entry.answers in calls
    ]
    return [message, *results]


def _status(outcome: Outcome) -> str:
    return "incomplete" if outcome.cut else "completed"


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(reply: Reply) -> dict[str, Any]:
    used = reply.usage
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input_tokens + used.output_tokens,
    }
