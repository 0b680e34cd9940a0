"""Answering: what came of a message as OpenAI's clients read it, whole or as it grows."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from palaver.engine import texts
from palaver.model.lifecycle import InboxState, TurnState
from palaver.model.quotas import QuotaKind, period_end
from palaver.model.transcript import Role
from palaver.model.turn import Turn
from palaver.model.value import value
from palaver.store.status.message_status import Reply
from palaver.web.openai.schema import MODEL
from palaver.web.services import Services

__all__ = [
    "Grown",
    "Outcome",
    "Telling",
    "line",
    "outcome_of",
]

_NOT_AGAIN = {"x-should-retry": "false"}
"""Clients of OpenAI's try again by themselves, unless they are told that it would not help."""
_BETWEEN = "\n\n"


@value
class Outcome:
    content: str
    calls: Sequence[Mapping[str, Any]] = ()

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"


def outcome_of(reply: Reply, services: Services) -> Outcome:
    """Raises what is said instead of an answer."""
    turn = reply.turn
    if reply.received.state is InboxState.WAITING:
        raise HTTPException(409, f"{texts.ASKED_FIRST} {_elsewhere(services)}", headers=_NOT_AGAIN)
    if turn is None and reply.received.state is InboxState.FAILED:
        raise HTTPException(409, _BETWEEN.join(reply.notices), headers=_NOT_AGAIN)
    if turn is not None and turn.state is TurnState.FAILED:
        raise _failed(reply, turn, services)
    if turn is None or (reply.is_parked and not reply.pending_tool_calls):
        where = (_elsewhere(services),) if reply.is_parked else ()
        return Outcome(content=_BETWEEN.join((*reply.notices, *where)))
    said = [entry.text for entry in reply.entries if entry.role is Role.ASSISTANT and entry.text.strip()]
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.pending_tool_calls
    ]
    return Outcome(content=_BETWEEN.join(said), calls=calls)


def _elsewhere(services: Services) -> str:
    """Where commands are heard: a client sends what anybody wrote, so nothing that it sends is one."""
    return f"Not here, where no commands are heard, but at {services.address.url}/turns."


def _failed(reply: Reply, turn: Turn, services: Services) -> HTTPException:
    told = _BETWEEN.join(reply.notices) or texts.SORRY
    if turn.quota is None:
        return HTTPException(500, told, headers=_NOT_AGAIN)
    source, now = reply.received.inbound.source, services.clock.now()
    free = period_end(QuotaKind(turn.quota), now, services.engine.options.zones.find(source).value)
    after = {"retry-after": str(math.ceil((free - now).total_seconds()))} if free else {}
    return HTTPException(429, told, headers={**_NOT_AGAIN, **after})


@value
class Telling:
    """One answer, in pieces or whole."""

    number: int
    created: int

    def whole(self, outcome: Outcome, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": outcome.content or None}
        if outcome.calls:
            message["tool_calls"] = list(outcome.calls)
        choice = {"index": 0, "message": message, "finish_reason": outcome.finish_reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def piece(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": finish_reason, "logprobs": None}
        return line({**self._head("chat.completion.chunk"), "choices": [choice]})

    def ending(self, outcome: Outcome, reply: Reply, *, usage: bool) -> list[bytes]:
        calls = [{"index": place, **call} for place, call in enumerate(outcome.calls)]
        pieces = [self.piece({"tool_calls": calls})] if calls else []
        pieces.append(self.piece({}, outcome.finish_reason))
        if usage:
            pieces.append(line({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(reply)}))
        return [*pieces, b"data: [DONE]\n\n"]

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-in-{self.number}", "object": kind, "created": self.created, "model": MODEL}


def line(body: Mapping[str, Any]) -> bytes:
    """ASCII only, on one line: no text of anybody's can look like another event."""
    return f"data: {json.dumps(body)}\n\n".encode()


def _usage(reply: Reply) -> dict[str, int]:
    used = reply.usage
    total = used.input_tokens + used.output_tokens
    return {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens, "total_tokens": total}


@dataclass(slots=True)
class Grown:
    """What was told of an answer that grows, so that the rest can be."""

    told: str = ""

    def more(self, said: Sequence[str]) -> str:
        """What is new of what was said so far, each time the agent began to speak."""
        return self._until(_BETWEEN.join(filter(str.strip, said)))

    def rest(self, content: str) -> str:
        """What is missing at the end. Where the agent began anew, what it said at last is told as a whole."""
        _, known, rest = content.partition(self.told) if self.told else ("", " ", content)
        return rest if known else f"{_BETWEEN}{content}"

    def _until(self, text: str) -> str:
        new = text[len(self.told) :] if text.startswith(self.told) else ""
        self.told += new
        return new
