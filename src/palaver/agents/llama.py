"""llama.cpp as a program that speaks the agent protocol.

In its own process it can be stopped at any time, frees its memory when it ends, and cannot break the gateway.
"""

import json
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import msgspec
import xllamacpp

from palaver.agents.llama_tools import FIRED_JOBS, Call, choose_call, is_fired_job, without_markers
from palaver.agents.local import OPTIONS_VARIABLE, LocalModel, context_length
from palaver.model.label import without_times

_LLAMA: Any = xllamacpp  # the types are not ours
_SUMMARY_TOKENS = 200
_CALL_TOKENS = 80
_CONVERSATION_SLOT, _EXAMPLES_SLOT = range(2)
_SUMMARISE = "Summarise this part of a conversation in a few sentences. Keep names, facts and decisions."
_CHARACTERS_PER_TOKEN = 3
_TOP_P, _REPEAT_PENALTY = 0.9, 1.15


class _Model:
    """Generates one answer at a time, in pieces, and can be stopped."""

    def __init__(self, options: LocalModel, folder: str) -> None:
        self.window = min(options.context_window, context_length(Path(options.file)) or options.context_window)
        self._options = options
        params = _LLAMA.CommonParams()
        params.model.path = options.file
        # Two slots share it equally: one remembers the conversation, the other the examples that choose a tool.
        params.n_ctx = self.window * 2
        params.n_parallel = 2
        # Leave a core to the gateway: the threads wait for each other, and all of them for a busy core.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 1) - 1)
        params.verbosity = -1
        params.warmup = False
        params.ui = False
        params.endpoint_slots = False
        # It also serves HTTP: hide that in a private socket.
        params.hostnames = [f"{folder}/llama.sock"]
        self._server = _LLAMA.Server(params)

    def answer(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int, on_piece: Callable[[str], bool]
    ) -> dict[str, Any]:
        """Return the text with its usage, or an error. `on_piece` gets each piece and returns whether to stop."""
        request = {
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": self._options.temperature,
            # Without these a small model repeats itself until its answer is cut.
            "top_p": _TOP_P,
            "repeat_penalty": _REPEAT_PENALTY,
            # A model that can think before it answers would show its thoughts as the answer.
            "chat_template_kwargs": {"enable_thinking": False},
            "id_slot": _CONVERSATION_SLOT,
        }
        return _stream(self._server.handle_chat_completions, request, on_piece)

    def complete(self, prompt: str, grammar: str, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Continue the prompt with the likeliest text that the grammar allows."""
        request = {
            "prompt": prompt,
            "grammar": grammar,
            "max_tokens": _CALL_TOKENS,
            "temperature": 0,
            "id_slot": _EXAMPLES_SLOT,
        }
        return _stream(self._server.handle_completions, request, lambda _: is_cancelled())


def _stream(
    handle: Callable[..., object], request: Mapping[str, Any], on_piece: Callable[[str], bool]
) -> dict[str, Any]:
    outcome: dict[str, Any] = {"text": "", "cut": False}

    def take(chunk: Mapping[str, Any]) -> bool:
        outcome.update({name: chunk[name] for name in ("error", "usage") if chunk.get(name)})
        choices = chunk.get("choices", ())
        outcome["cut"] = outcome["cut"] or any(choice.get("finish_reason") == "length" for choice in choices)
        said = (choice.get("delta", choice) for choice in choices)
        piece = "".join(filter(None, (each.get("content") or each.get("text") for each in said)))
        outcome["text"] += piece
        return on_piece(piece)

    handle({**request, "stream": True, "stream_options": {"include_usage": True}}, take)
    return outcome


class _RequestLoop:
    """Answers one request at a time, while another thread reads lines, so that a request can be cancelled."""

    def __init__(self, model: _Model, options: LocalModel, out: TextIO) -> None:
        self._model = model
        self._options = options
        self._out = out
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        """Results of tools, and what ends the wait for one: a cancel, or None at the end of the input."""
        self._cancelled: set[str] = set()

    def read_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            message = json.loads(line)
            if message["type"] == "cancel":
                self._cancelled.add(message["id"])
            if message["type"] in {"cancel", "result"}:
                self._replies.put(message)
            else:
                self._requests.put(message)
        self._replies.put(None)
        self._requests.put(None)

    def run(self) -> None:
        self._write(type="hello", protocol=1, context_window=self._model.window, summarises=True)
        while request := self._requests.get():
            handler = self._summarise if request["type"] == "summarise" else self._answer
            self._write(id=request["id"], **handler(request))
            self._cancelled.discard(request["id"])

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        prompt = "\n\n".join(filter(None, (self._options.instructions, request.get("section", "").strip())))
        system = [{"role": "system", "content": prompt}] if prompt else []
        said = request["messages"]
        if call := choose_call(request, partial(self._complete, request["id"])):
            said = [*said, {"role": "tool", "text": self._use(request["id"], call)}]
        if said and said[-1]["role"] == "tool":
            # In the tool's own words: the model would get them wrong.
            return {"type": "final", "text": said[-1].get("text", "")}
        messages = _chat_messages(said)
        if is_fired_job(said):
            wanted = {"role": "user", "content": without_markers(said[-1]["text"])}
            messages = [*_chat_messages(said[:-1]), *FIRED_JOBS, wanted]
        return self._generate(request["id"], [*system, *messages], self._options.max_tokens)

    def _complete(self, name: str, prompt: str, grammar: str) -> str:
        outcome = self._model.complete(prompt, grammar, lambda: name in self._cancelled)
        self._report_usage(name, outcome)
        return outcome["text"]

    def _use(self, name: str, call: Call) -> str:
        """Run a tool of the gateway and return its result; nothing if the turn is cancelled while it waits."""
        self._write(type="use", id=name, call={"id": f"call_{name}", "name": call.name, "arguments": call.arguments})
        while (reply := self._replies.get()) and reply["id"] != name:
            pass
        return reply.get("text", "") if reply else ""

    def _summarise(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Summarise in pieces of half the context window."""
        chat = _chat_messages(request["messages"])
        conversation = "\n".join(f"{message['role']}: {message['content']}" for message in chat)
        size, texts = self._model.window * _CHARACTERS_PER_TOKEN // 2, list[str]()
        focus = f" It is about: {request['focus']}." if request.get("focus") else ""
        for start in range(0, len(conversation), size):
            prompt = f"{_SUMMARISE}{focus}\n\n{conversation[start : start + size]}"
            outcome = self._generate(
                request["id"], [{"role": "user", "content": prompt}], _SUMMARY_TOKENS, streams=False
            )
            if outcome["type"] != "final":
                return outcome
            texts.append(outcome["text"])
        return {"type": "final", "text": "\n".join(texts)}

    def _generate(
        self, name: str, messages: Sequence[Mapping[str, str]], max_tokens: int, *, streams: bool = True
    ) -> dict[str, Any]:
        def on_piece(piece: str) -> bool:
            if piece and streams:
                self._write(type="delta", id=name, text=piece)
            return name in self._cancelled

        if name in self._cancelled:
            return {"type": "failure", "kind": "fatal", "detail": "cancelled"}
        outcome = self._model.answer(messages, max_tokens, on_piece)
        if error := outcome.get("error"):
            kind = "overflow" if error.get("type") == "exceed_context_size_error" else "fatal"
            return {"type": "failure", "kind": kind, "detail": f"llama.cpp refused with code {error.get('code')}"}
        self._report_usage(name, outcome)
        return {"type": "final", "text": outcome["text"].strip(), "cut": outcome["cut"]}

    def _report_usage(self, name: str, outcome: Mapping[str, Any]) -> None:
        usage = outcome.get("usage", {})
        counts = {"input_tokens": usage.get("prompt_tokens", 0), "output_tokens": usage.get("completion_tokens", 0)}
        costs = {"cost_micros": 0, "prompt_tokens": sum(counts.values())}
        self._write(type="usage", id=name, model=Path(self._options.file).stem, **counts, **costs)

    def _write(self, **line: object) -> None:
        print(json.dumps(line), file=self._out, flush=True)


def _chat_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return alternating messages without tool results and times: a small model cannot use those, and repeats these."""
    spoken = [message for message in messages if message["role"] != "tool" and message.get("text")]
    return [
        {"role": str(role), "content": "\n\n".join(without_times(message["text"]) for message in group)}
        for role, group in groupby(spoken, key=lambda message: message["role"])
    ]


def main() -> None:
    # Keep what the library prints out of the protocol's lines.
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    options = msgspec.json.decode(os.environ[OPTIONS_VARIABLE], type=LocalModel)
    with tempfile.TemporaryDirectory(prefix="palaver-") as folder:
        try:
            model = _Model(options, folder)
        except Exception as error:  # noqa: BLE001 - any error means that there is no model
            _refuse_all(out, f"the model could not be loaded: {type(error).__name__}")
            return
        loop = _RequestLoop(model, options, out)
        threading.Thread(target=loop.read_lines, args=(sys.stdin,), daemon=True).start()
        loop.run()


def _refuse_all(out: TextIO, detail: str) -> None:
    for line in sys.stdin:
        failure = {"type": "failure", "id": json.loads(line)["id"], "kind": "fatal", "detail": detail}
        print(json.dumps(failure), file=out, flush=True)


if __name__ == "__main__":
    main()
