"""What a conversation learns about its processes. The output of a process begins on a line of its own."""

from datetime import datetime

from palaver.model.process import Process, duration_text
from palaver.processes.output import last_lines, readable
from palaver.store.process_notices import Notice

MAX_WATCH_NOTICES = 20
"""After so many matches, a process reports no more."""
_OUTPUT_CHARACTERS = 2_000
_TAIL_BYTES = 16_384
_HEAD = "background process"
"""Every notice begins with this."""


def exit_notice(process: Process, tail: bytes) -> Notice:
    since = process.exited or process.ended
    took = f" after {duration_text(since - process.started)}" if since else ""
    told = f"{process.name} ({process.line}) has ended{took}: {process.outcome}."
    return Notice(name="exit", text=f"{_HEAD} {told}{_output(tail)}", summary=f"Process {told}")


def match_notice(process: Process, line: bytes, offset: int, more: int) -> Notice:
    told = f"{process.name} ({process.line}) has written what you watch for"
    others = f", and {more} more times since the last notice" if more else ""
    last = ". This is the last notice of this kind" if process.watch_notices + 1 >= MAX_WATCH_NOTICES else ""
    text = f"{_HEAD} {told}{others}{last}:\n{last_lines(readable(line), _OUTPUT_CHARACTERS)}"
    return Notice(name=f"match:{offset}", text=text, summary=f"Process {told}.")


def check_notice(process: Process, tail: bytes, now: datetime) -> Notice:
    told = f"{process.name} ({process.line}) still runs after {duration_text(now - process.started)}."
    at = int(process.check_at.timestamp()) if process.check_at else 0
    return Notice(name=f"check:{at}", text=f"{_HEAD} {told}{_output(tail)}", summary=f"Process {told}")


def _output(tail: bytes) -> str:
    text = last_lines(readable(tail[-_TAIL_BYTES:]).strip(), _OUTPUT_CHARACTERS)
    return f" Its last output:\n{text}" if text else " It has written nothing."
