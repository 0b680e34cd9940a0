"""An agent as a program: it answers with the words that name a message, thinks for a while, or dies in the middle.

It runs by itself, without Palaver. What it did it writes to a file, so that a turn that ran twice at once is seen.
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

WORDS = re.compile(r"\b[ck]\d+-\d+\b")
LEFT_BEHIND = 100
"""Tool uses that it writes before it dies, and whose results it never reads."""
SLOW_SECONDS = 3.0


def say(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Agent:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs = os.open(folder / "runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def serve(self) -> None:
        say(type="hello", protocol=1, at_once=1, summarises=True)
        for line in map(json.loads, sys.stdin):
            if line["type"] == "answer":
                self._answer(line)
            elif line["type"] in {"summarise", "title"}:
                say(type="final", id=line["id"], text="They talked.")

    def _answer(self, line: dict[str, Any]) -> None:
        said = (each["text"] for each in reversed(line["messages"]) if each["role"] == "user")
        text = next(filter(WORDS.search, said))  # a note about the turn can follow it
        word = WORDS.findall(text)[-1]
        self._note("begins", line)
        if "!crash" in text and self._is_first(word):
            for number in range(LEFT_BEHIND):
                call = {"id": f"call{number}", "name": "nothing", "arguments": "{}"}
                say(type="use", id=line["id"], call=call)
            os._exit(3)
        if "!slow" in text:
            time.sleep(SLOW_SECONDS)
        self._note("ends", line)
        say(type="final", id=line["id"], text=f"You said: {word}")

    def _is_first(self, word: str) -> bool:
        """It dies once for each message, and answers the next time."""
        try:
            (self._folder / word).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _note(self, what: str, line: dict[str, Any]) -> None:
        noted = [time.monotonic(), what, line["turn"], os.getpid()]
        os.write(self._runs, (json.dumps(noted) + "\n").encode())


if __name__ == "__main__":
    Agent(Path(sys.argv[1])).serve()
