"""Reminders for a small model: it decides to set one, and says when and about what, by continuing examples.

A model of this size was not trained for tools, and a description of them tells it nothing. It continues a pattern well:
messages, and what to do about each. A grammar allows nothing else. The model decides; no rule looks for words.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from palaver.model.label import CLOSE, OPEN, OUTPUT_END
from palaver.model.prompt import SCHEDULE_JOB

_MARKERS = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")
_FIRED = re.compile(f"{OPEN}note: job [0-9]+ runs now")
_MAX_MESSAGE_LENGTH = 300
"""A longer message is not a plain request."""
_TALK, _REMIND, _RUN = "chat", "remind", "run"

_CHOICES = (
    ("How are you?", _TALK),
    ("Run make check and tell me if it fails.", _RUN),
    ("I was late for work today.", _TALK),
    ("Remind me in 10 minutes to call Bob.", _REMIND),
    ("Please start ./sync.sh --all", _RUN),
    ("The party was at 20:00.", _TALK),
    ("What is a reminder?", _TALK),
    ("set a reminder at 14:00 to buy milk", _REMIND),
    ("Tell me about dogs.", _TALK),
    ("wake me in 30 minutes", _REMIND),
    ("Give me an idea for lunch.", _TALK),
    ("What is the capital of Spain?", _TALK),
    ("test it with tox -e py311 and report the result", _RUN),
    ("Thanks!", _TALK),
)
"""What to do about a message. `run` does nothing: without it, the model takes other requests for reminders."""
_REMINDERS = (
    ("How are you?", None, None),
    ("I was late for work today.", None, None),
    ("Remind me every day at 9:00 to write my diary", "every day at 9:00", "Remind me to write my diary."),
    ("What is a reminder?", None, None),
    ("wake me in 30 minutes", "30 minutes", "Wake me."),
    ("Tell me about dogs.", None, None),
    ("set a reminder at 14:00 to buy milk", "14:00", "Remind me to buy milk."),
    ("What is the capital of Spain?", None, None),
    ("remind me to wash the dog in two hours", "2 hours", "Remind me to wash the dog."),
    ("Thanks!", None, None),
    ("Remind me in 10 minutes to call Bob.", "10 minutes", "Remind me to call Bob."),
    ("My sister is here.", None, None),
)
"""The arguments of a reminder. Here the model can still decide that a message is talk."""
_CHOICE_GRAMMAR = f'root ::= " {_TALK}" | " {_REMIND}" | " {_RUN}"'
_REMINDER_GRAMMAR = f"""\
root ::= " {_TALK}" | " {_REMIND}\\nwhen: " line "prompt: " line
line ::= [^\\n]+ "\\n"
"""
FIRED_JOBS = (
    {"role": "user", "content": "Remind me to call Bob."},
    {"role": "assistant", "content": "Reminder: call Bob."},
    {"role": "user", "content": "Write one sentence about dogs."},
    {"role": "assistant", "content": "Dogs are loyal animals that like to play."},
    {"role": "user", "content": "Remind me to buy milk."},
    {"role": "assistant", "content": "Reminder: buy milk."},
)
"""What a good answer to the prompt of a job looks like."""


class Call(NamedTuple):
    name: str
    arguments: str


def choose_call(request: Mapping[str, Any], complete: Callable[[str, str], str]) -> Call | None:
    """Ask the model whether it calls a tool now. `complete` continues a prompt within a grammar."""
    text = _said(request["messages"])
    if not text or all(tool["name"] != SCHEDULE_JOB for tool in request["tools"]):
        return None
    if complete(_choice_prompt(text), _CHOICE_GRAMMAR).strip() != _REMIND:
        return None
    chosen = complete(_reminder_prompt(text), _REMINDER_GRAMMAR)
    match chosen.strip().split("\n") if chosen.endswith("\n") else ():  # else it was cut off
        case [_, when, prompt]:
            arguments = {"when": when.removeprefix("when: "), "prompt": prompt.removeprefix("prompt: ")}
            return Call(SCHEDULE_JOB, json.dumps(arguments))
        case _:
            return None


def is_fired_job(messages: Sequence[Mapping[str, Any]]) -> bool:
    return bool(messages and _FIRED.search(messages[-1].get("text", "")))


def without_markers(text: str) -> str:
    return _MARKERS.sub("", text).strip()


def _said(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what a person just said; nothing if a tool, a job or the output of a program spoke last."""
    last = messages[-1] if messages else {"role": ""}
    if last["role"] != "user" or OUTPUT_END in last.get("text", "") or is_fired_job(messages):
        return ""
    text = " ".join(without_markers(last.get("text", "")).split())
    return text if len(text) <= _MAX_MESSAGE_LENGTH else ""


def _choice_prompt(text: str) -> str:
    return _continued((f"{_question(message)} {action}\n" for message, action in _CHOICES), text)


def _reminder_prompt(text: str) -> str:
    return _continued((_reminder_example(*example) for example in _REMINDERS), text)


def _reminder_example(message: str, when: str | None, prompt: str | None) -> str:
    if when is None:
        return f"{_question(message)} {_TALK}\n"
    return f"{_question(message)} {_REMIND}\nwhen: {when}\nprompt: {prompt}\n"


def _continued(examples: Iterable[str], text: str) -> str:
    return "\n".join((*examples, _question(text)))


def _question(message: str) -> str:
    return f"Message: {message}\nAction:"
