"""What a conversation learns about its processes. The output of a process begins on a line of its own."""

from datetime import datetime

from palaver.model.process import Process, duration_text
from palaver.model.text import as_code, as_code_block, one_line
from palaver.processes.output import last_lines, readable, whole_lines
from palaver.store.process_notices import OUTPUT_HEAD, Notice

MAX_WATCH_NOTICES = 20
"""After so many matches, a process reports no more."""
_OUTPUT_CHARACTERS = 2_000
_SUMMARY_CHARACTERS = 200
_LINE_CHARACTERS = 500
"""How much of the line around a match is shown on each side."""
_TAIL_BYTES = 16_384
_NO_OUTPUT = " It has written nothing."
_NO_WHOLE_LINE = " Its last line is not finished, so it is not shown yet."
_HEAD = "background process"
"""Every notice begins with this."""


def exit_notice(process: Process, tail: bytes) -> Notice:
    since = process.exited or process.ended
    took = f" after {duration_text(since - process.started)}" if since else ""
    happened = f"has ended{took}: {process.outcome}."
    text = f"{_HEAD} {process.name} ({process.line}) {happened}{_output(tail) or _NO_OUTPUT}"
    return Notice(name="exit", text=text, summary=_summary(process, happened), bare=_summary(process, happened))


def match_notice(process: Process, line: bytes, offset: int, more: int) -> Notice:
    happened, found = "has written what you watch for", _around(readable(line), process.watch or "")
    others = f", and {more} more times since the last notice" if more else ""
    last = ". This is the last notice of this kind" if process.watch_notices + 1 >= MAX_WATCH_NOTICES else ""
    shown = as_code_block(found)
    text = f"{_HEAD} {process.name} ({process.line}) {happened}{others}{last}:\n{shown}"
    summary = f"{_summary(process, happened)}: {as_code(one_line(found, _SUMMARY_CHARACTERS))}"
    return Notice(name=f"match:{offset}", text=text, summary=summary, bare=_summary(process, f"{happened}."))


def _around(line: str, watched: str) -> str:
    at = max(line.find(watched), 0)
    return line[max(at - _LINE_CHARACTERS, 0) : at + _LINE_CHARACTERS]


def check_notice(process: Process, tail: bytes, now: datetime) -> Notice:
    happened = f"still runs after {duration_text(now - process.started)}."
    at = int(process.check_at.timestamp()) if process.check_at else 0
    whole = whole_lines(tail)
    output = _output(whole) or (_NO_OUTPUT if whole == tail else _NO_WHOLE_LINE)
    text = f"{_HEAD} {process.name} ({process.line}) {happened}{output}"
    return Notice(name=f"check:{at}", text=text, summary=_summary(process, happened), bare=_summary(process, happened))


def _summary(process: Process, happened: str) -> str:
    return f"Process {process.name} ({as_code(process.line)}) {happened}"


def _output(tail: bytes) -> str:
    text = last_lines(readable(tail[-_TAIL_BYTES:]).strip(), _OUTPUT_CHARACTERS)
    return f"{OUTPUT_HEAD}\n{as_code_block(text)}" if text else ""
