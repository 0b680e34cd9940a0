"""What providers say when they fail: the bodies of their own interfaces, as documented and as seen."""

import json
from dataclasses import replace

from tests.agents.fake_provider import Recorded

__all__ = ["CASES", "FORMATS"]

FORMATS = {
    "chat": ("openai:scripted", "/v1"),
    "responses": ("openai-responses:scripted", "/v1"),
    "anthropic": ("anthropic:scripted", ""),
    "google": ("google:scripted", ""),
}
"""The model that speaks each interface, and the path of its address."""


def _openai(status: int, message: str, kind: str, code: str | None, param: str | None = None) -> Recorded:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Recorded(status=status, body=json.dumps({"error": error}))


def _anthropic(status: int, kind: str, message: str) -> Recorded:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Recorded(status=status, body=json.dumps(error))


def _google(code: int, status: str, message: str, *details: dict[str, object]) -> Recorded:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return Recorded(status=code, body=json.dumps({"error": error}))


def _event(kind: str, **said: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **said})}\n\n"


def _waits(recorded: Recorded, seconds: int) -> Recorded:
    return replace(recorded, headers={"retry-after": str(seconds)})


# OpenAI, both interfaces

_OPENAI_LIMIT = _openai(
    429,
    "Rate limit reached for scripted in organization org-1 on requests per min (RPM): Limit 3, Used 3, Requested 1.",
    "requests",
    "rate_limit_exceeded",
)
_OPENAI = {
    "limited": _OPENAI_LIMIT,
    "limited, come back later": _waits(_OPENAI_LIMIT, 7),
    "no credit": _openai(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
        "insufficient_quota",
    ),
    "wrong key": _openai(
        401,
        "Incorrect API key provided: sk-very-*****6789. You can find your API key at your account page.",
        "invalid_request_error",
        "invalid_api_key",
    ),
    "unknown model": _openai(
        404,
        "The model `scripted` does not exist or you do not have access to it.",
        "invalid_request_error",
        "model_not_found",
    ),
    "down": _openai(
        500, "The server had an error while processing your request. Sorry about that!", "server_error", None
    ),
    "overloaded": _openai(503, "The engine is currently overloaded, please try again later.", "server_error", None),
}
_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}


def _chunk(delta: dict[str, object], stop: str | None = None) -> str:
    return f"data: {json.dumps({**_CHUNK, 'choices': [{'index': 0, 'delta': delta, 'finish_reason': stop}]})}\n\n"


_BEGUN = (_chunk({"role": "assistant", "content": ""}), _chunk({"content": "Once upon"}))
_CHAT = {
    **_OPENAI,
    "too long": _openai(
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
        " Please reduce the length of the messages.",
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
    ),
    "cut": Recorded(events=_BEGUN, is_cut=True),
    "malformed": Recorded(events=(*_BEGUN, 'data: {"id": "chatcmpl-1", "choices": [{"delta": {"con\n\n')),
    "error in the stream": Recorded(
        events=(
            *_BEGUN,
            'data: {"error": {"message": "The server had an error", "type": "server_error", "code": null}}\n\n',
        )
    ),
    "flagged": _openai(
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        "invalid_request_error",
        "invalid_prompt",
    ),
    "filtered": Recorded(events=(_BEGUN[0], _chunk({}, "content_filter"), "data: [DONE]\n\n")),
    "declined": Recorded(
        events=(_BEGUN[0], _chunk({"refusal": "I can't help with that."}), _chunk({}, "stop"), "data: [DONE]\n\n")
    ),
}


def _response(status: str, **said: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "scripted",
        "output": [],
    }
    common: dict[str, object] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    return {**plain, **common, "incomplete_details": None, "status": status, **said}


_CREATED = _event("response.created", response=_response("in_progress"), sequence_number=0)
_MESSAGE: dict[str, object] = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
_AT: dict[str, object] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_ADDED = _event("response.output_item.added", output_index=0, item={**_MESSAGE, "content": []}, sequence_number=1)
_GROWS = _event("response.output_text.delta", **_AT, delta="Once upon", logprobs=[], sequence_number=2)


def _failed(code: str, message: str) -> Recorded:
    response = _response("failed", error={"code": code, "message": message})
    return Recorded(events=(_CREATED, _event("response.failed", response=response, sequence_number=3)))


_REFUSAL = {"type": "refusal", "refusal": "I can't help with that."}
_DECLINED = {**_MESSAGE, "status": "completed", "content": [_REFUSAL]}
_RESPONSES = {
    **_OPENAI,
    "too long": _openai(
        400,
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "invalid_request_error",
        "context_length_exceeded",
        "input",
    ),
    "too long, in the stream": _failed(
        "context_length_exceeded", "Your input exceeds the context window of this model."
    ),
    "limited, in the stream": _failed("rate_limit_exceeded", "Rate limit reached for scripted."),
    "down, in the stream": _failed("server_error", "An error occurred while processing your request."),
    "error in the stream": Recorded(
        events=(
            _CREATED,
            _event("error", code="server_error", message="The server had an error", param=None, sequence_number=1),
        )
    ),
    "cut": Recorded(events=(_CREATED, _ADDED, _GROWS), is_cut=True),
    "malformed": Recorded(events=(_CREATED, _ADDED, 'event: response.output_text.delta\ndata: {"type": "resp\n\n')),
    "flagged": _openai(
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        "invalid_request_error",
        "invalid_prompt",
    ),
    "filtered": Recorded(
        events=(
            _CREATED,
            _event(
                "response.incomplete",
                response=_response("incomplete", incomplete_details={"reason": "content_filter"}),
                sequence_number=1,
            ),
        )
    ),
    "declined": Recorded(
        events=(
            _CREATED,
            _ADDED,
            _event("response.content_part.added", **_AT, part={"type": "refusal", "refusal": ""}, sequence_number=2),
            _event("response.refusal.delta", **_AT, delta="I can't help with that.", sequence_number=3),
            _event("response.refusal.done", **_AT, refusal="I can't help with that.", sequence_number=4),
            _event("response.output_item.done", output_index=0, item=_DECLINED, sequence_number=5),
            _event("response.completed", response=_response("completed", output=[_DECLINED]), sequence_number=6),
        )
    ),
}

# Anthropic

_LIMIT = _anthropic(
    429, "rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute."
)
_STARTED = _event(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
)
_SAYS = (
    _STARTED,
    _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    _event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Once upon"}),
)


def _stops(reason: str) -> Recorded:
    delta = {"stop_reason": reason, "stop_sequence": None}
    end = (_event("message_delta", delta=delta, usage={"output_tokens": 1}), _event("message_stop"))
    return Recorded(events=(_STARTED, *end))


_ANTHROPIC = {
    "limited": _LIMIT,
    "limited, come back later": _waits(_LIMIT, 7),
    "no credit": _anthropic(
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade.",
    ),
    "wrong key": _anthropic(401, "authentication_error", "invalid x-api-key"),
    "unknown model": _anthropic(404, "not_found_error", "model: scripted"),
    "down": _anthropic(500, "api_error", "Internal server error"),
    "overloaded": _anthropic(529, "overloaded_error", "Overloaded"),
    "too long": _anthropic(400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
    "too long with its answer": _anthropic(
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 143653 + 64000 > 200000, decrease input length or"
        " `max_tokens` and try again",
    ),
    "too long, in the stream": _stops("model_context_window_exceeded"),
    "cut": Recorded(events=_SAYS, is_cut=True),
    "malformed": Recorded(events=(*_SAYS, 'event: content_block_delta\ndata: {"type": "content_blo\n\n')),
    "error in the stream": Recorded(
        events=(*_SAYS, _event("error", error={"type": "overloaded_error", "message": "Overloaded"}))
    ),
    "filtered": _stops("refusal"),
}

# Google

_RETRY_INFO: dict[str, object] = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
_BAD_KEY: dict[str, object] = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}


def _part(**said: object) -> str:
    return f"data: {json.dumps({'modelVersion': 'scripted', 'responseId': 'r1', **said})}\n\n"


def _candidate(text: str = "", **said: object) -> dict[str, object]:
    content = {"content": {"role": "model", "parts": [{"text": text}]}} if text else {}
    return {"index": 0, **content, **said}


_GOOGLE = {
    "limited": _google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "limited, come back later": _google(
        429, "RESOURCE_EXHAUSTED", "You exceeded your current quota. Please retry in 6.8s.", _RETRY_INFO
    ),
    "wrong key": _google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", _BAD_KEY),
    "no permission": _google(403, "PERMISSION_DENIED", "Your API key was reported as leaked."),
    "unknown model": _google(404, "NOT_FOUND", "models/scripted is not found for API version v1beta."),
    "down": _google(500, "INTERNAL", "An internal error has occurred. Please retry."),
    "overloaded": _google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "too long": _google(
        400,
        "INVALID_ARGUMENT",
        "The input token count (1091639) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "cut": Recorded(events=(_part(candidates=[_candidate("Once upon")]),), is_cut=True),
    "malformed": Recorded(events=(_part(candidates=[_candidate("Once upon")]), 'data: {"candidates": [{"con\n\n')),
    "filtered": Recorded(events=(_part(candidates=[_candidate(finishReason="SAFETY")]),)),
    "flagged": Recorded(events=(_part(promptFeedback={"blockReason": "PROHIBITED_CONTENT"}),)),
}

CASES = {"chat": _CHAT, "responses": _RESPONSES, "anthropic": _ANTHROPIC, "google": _GOOGLE}
