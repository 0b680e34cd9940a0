"""What was said to an agent, without the gateway's own words in its marks. For agents that do not read like a model."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from palaver.model.label import CLOSE, OPEN, OUTPUT_END, marker
from palaver.model.text import one_line
from palaver.model.transcript import Role
from palaver.model.view import Message

SUMMARY_END = marker("end of summary")
_MAX_EXCERPT_LENGTH = 40
_MAX_SUMMARY_LENGTH = 400
_OUTPUT = f"(?:\n[^{OPEN}{CLOSE}]*\n{OUTPUT_END})?"
_NOTE = re.compile(f"{OPEN}note: [^{CLOSE}]*{CLOSE}{_OUTPUT}")
_NOTICE = re.compile(
    f".*{OPEN}note: (background process [^{CLOSE}]*){CLOSE}({_OUTPUT})(?:\\s*{_NOTE.pattern})*", re.DOTALL
)
"""A message whose last words are a notice about a process; after an interruption a note about that follows."""
_FIRING = re.compile(f".*{OPEN}note: job [0-9]+ runs now[^{CLOSE}]*{CLOSE}", re.DOTALL)
_NOT_ADDRESSED = re.compile(
    f"{OPEN}overheard[^{CLOSE}]*{CLOSE}.*?{OPEN}end of overheard{CLOSE}"
    f"|{OPEN}summary of[^{CLOSE}]*{CLOSE}.*?{SUMMARY_END}"
    f"|{OPEN}[^{CLOSE}]*{CLOSE} ?",
    re.DOTALL,
)


class Said(NamedTuple):
    """What the last message says."""

    text: str
    by_process: bool = False
    """It is the gateway's notice about a background process."""
    by_job: bool = False
    """It is the prompt of a job that runs now."""


def last_said(messages: Sequence[Message]) -> Said:
    last = messages[-1].text if messages else ""
    if OPEN in last and (notice := _NOTICE.fullmatch(last.rstrip())):
        return Said(notice[1] + notice[2].removesuffix(f"\n{OUTPUT_END}"), by_process=True)
    texts = (spoken_text(message.text) for message in reversed(messages) if message.role is Role.USER)
    users = (message.text for message in reversed(messages) if message.role is Role.USER)
    return Said(next(filter(None, texts), ""), by_job=_FIRING.match(next(users, "")) is not None)


def spoken_text(text: str) -> str:
    """Return a person's words, without the gateway's: those after the last note, or else before it."""
    if OPEN not in text:
        return text.strip()
    parts = (_NOT_ADDRESSED.sub("", part).strip() for part in reversed(_NOTE.split(text)))
    return next((part for part in parts if part), "")


def brief_title(messages: Sequence[Message]) -> str:
    """Return the beginning of what was said last, as a title."""
    return one_line(last_said(messages).text, _MAX_EXCERPT_LENGTH)


def brief_summary(messages: Sequence[Message], focus: str) -> str:
    """Return the beginning of each message, those about the focus first, as far as there is room."""
    excerpts = [one_line(_NOT_ADDRESSED.sub("", message.text), _MAX_EXCERPT_LENGTH) for message in messages]
    excerpts.sort(key=lambda excerpt: focus.casefold() not in excerpt.casefold())
    return f"{len(excerpts)} messages: {'; '.join(filter(None, excerpts))[:_MAX_SUMMARY_LENGTH]}"
