"""A local model as a program that speaks the agent protocol: llama.cpp in a process of its own.

So it can be stopped in the middle of anything, takes its memory with it when it goes, and can break nothing but itself.
"""

import json
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import msgspec
import xllamacpp

from palaver.agents.local import OPTIONS_VARIABLE, LocalModel, context_length

__all__ = [
    "main",
]

_LLAMA: Any = xllamacpp  # the types are not ours
_SUMMARY_TOKENS = 200
_SUMMARISE = "Summarise this part of a conversation in a few sentences. Keep names, facts and decisions."
_CHARACTERS_PER_TOKEN = 3


class _Model:
    """One answer at a time, in pieces, until somebody wants no more of it."""

    def __init__(self, options: LocalModel, folder: str) -> None:
        self.window = min(options.context_window, context_length(Path(options.file)) or options.context_window)
        self._options = options
        params = _LLAMA.CommonParams()
        params.model.path = options.file
        params.n_ctx = self.window
        params.n_parallel = 1
        params.verbosity = -1
        params.warmup = False
        params.ui = False
        params.endpoint_slots = False
        # It serves HTTP, too. Here nobody can reach that.
        params.hostnames = [f"{folder}/llama.sock"]
        self._server = _LLAMA.Server(params)

    def answer(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int, hear: Callable[[str], bool]
    ) -> dict[str, Any]:
        """The usage, or an error; `hear` is given each piece and says whether that was enough."""
        found: dict[str, Any] = {}

        def take(chunk: Mapping[str, Any]) -> bool:
            found.update({name: chunk[name] for name in ("error", "usage") if chunk.get(name)})
            pieces = (choice["delta"].get("content") for choice in chunk.get("choices", ()))
            return hear("".join(filter(None, pieces)))

        asked = {
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": max_tokens,
            "temperature": self._options.temperature,
        }
        self._server.handle_chat_completions(asked, take)
        return found


class _Desk:
    """Questions one after the other, while another thread reads what comes: a question can be taken back."""

    def __init__(self, model: _Model, options: LocalModel, out: TextIO) -> None:
        self._model = model
        self._options = options
        self._out = out
        self._waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._dropped: set[str] = set()

    def listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            said = json.loads(line)
            if said["type"] == "cancel":
                self._dropped.add(said["id"])
            else:
                self._waiting.put(said)
        self._waiting.put(None)

    def work(self) -> None:
        self._say(type="hello", protocol=1, context_window=self._model.window, summarises=True)
        while question := self._waiting.get():
            name = question["id"]
            done = self._summarise(question) if question["type"] == "summarise" else self._answer(question)
            self._say(id=name, **done)
            self._dropped.discard(name)

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        told = "\n\n".join(filter(None, (self._options.instructions, question.get("section", "").strip())))
        messages = [{"role": "system", "content": told}] if told else []
        return self._ask(question["id"], [*messages, *_spoken(question["messages"])], self._options.max_tokens)

    def _summarise(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Piece by piece, each of them half of what the model takes."""
        said = "\n".join(f"{each['role']}: {each['content']}" for each in _spoken(question["messages"]))
        size, texts = self._model.window * _CHARACTERS_PER_TOKEN // 2, list[str]()
        about = f" It is about: {question['focus']}." if question.get("focus") else ""
        for start in range(0, len(said), size):
            asked = f"{_SUMMARISE}{about}\n\n{said[start : start + size]}"
            done = self._ask(question["id"], [{"role": "user", "content": asked}], _SUMMARY_TOKENS, shown=False)
            if done["type"] != "final":
                return done
            texts.append(done["text"])
        return {"type": "final", "text": "\n".join(texts)}

    def _ask(
        self, name: str, messages: Sequence[Mapping[str, str]], max_tokens: int, *, shown: bool = True
    ) -> dict[str, Any]:
        pieces: list[str] = []

        def hear(piece: str) -> bool:
            pieces.append(piece)
            if piece and shown:
                self._say(type="delta", id=name, text=piece)
            return name in self._dropped

        if name in self._dropped:
            return {"type": "failure", "kind": "fatal", "detail": "taken back"}
        found = self._model.answer(messages, max_tokens, hear)
        if error := found.get("error"):
            kind = "overflow" if error.get("type") == "exceed_context_size_error" else "fatal"
            return {"type": "failure", "kind": kind, "detail": f"llama.cpp refused with code {error.get('code')}"}
        used = found.get("usage", {})
        counts = {"input_tokens": used.get("prompt_tokens", 0), "output_tokens": used.get("completion_tokens", 0)}
        self._say(type="usage", id=name, model=Path(self._options.file).stem, **counts)
        return {"type": "final", "text": "".join(pieces).strip()}

    def _say(self, **line: object) -> None:
        print(json.dumps(line), file=self._out, flush=True)


def _spoken(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What was said, without tools, of which a small model makes nothing; speakers take turns."""
    said = [each for each in messages if each["role"] != "tool" and each.get("text")]
    return [
        {"role": str(role), "content": "\n\n".join(each["text"] for each in group)}
        for role, group in groupby(said, key=lambda each: each["role"])
    ]


def main() -> None:
    # Whatever the library prints must not stand between the lines.
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    options = msgspec.json.decode(os.environ[OPTIONS_VARIABLE], type=LocalModel)
    with tempfile.TemporaryDirectory(prefix="palaver-") as folder:
        try:
            model = _Model(options, folder)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no model
            _refuse_all(out, f"the model could not be loaded: {type(error).__name__}")
            return
        desk = _Desk(model, options, out)
        threading.Thread(target=desk.listen, args=(sys.stdin,), daemon=True).start()
        desk.work()


def _refuse_all(out: TextIO, why: str) -> None:
    for line in sys.stdin:
        said = {"type": "failure", "id": json.loads(line)["id"], "kind": "fatal", "detail": why}
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
