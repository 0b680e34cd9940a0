"""Render a session as Markdown or HTML, with untrusted text made harmless."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from html import escape
from typing import TYPE_CHECKING

from palaver.model.attachment import format_size
from palaver.model.feedback import format_ratings
from palaver.model.label import Label
from palaver.model.text import one_line
from palaver.model.transcript import Entry, Role, is_answer

if TYPE_CHECKING:
    from palaver.store.archive.format import ArchivedSession, SessionRecord

_BREAKS = re.compile("\r\n?|[\u2028\u2029\x85\x0b\x0c]")
# Control characters except tab and line feed, half surrogates, direction marks, tag characters.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def without_control_characters(text: str) -> str:
    """Keep line breaks; remove everything that could manipulate a terminal or a page."""
    return _CONTROL_CHARACTERS.sub("", _BREAKS.sub("\n", text))


def moment_text(moment: datetime, zone: tzinfo | None = UTC) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def heading(session: "ArchivedSession") -> str:
    return Label(session.title).plain() if session.title else f"Session {session.id}"


def session_facts(session: "ArchivedSession", entries: int, zone: tzinfo = UTC) -> Iterator[tuple[str, str]]:
    yield "id", session.id
    yield "conversation", session.key
    yield "started", moment_text(session.started, zone)
    if session.ended is not None:
        yield "ended", f"{moment_text(session.ended, zone)} ({session.end_reason})"
    if session.parent is not None:
        yield "branched from", session.parent
    yield "entries", str(entries)
    yield "tokens", f"{session.input_tokens} in, {session.output_tokens} out"


def shown_entries(record: "SessionRecord", *, hidden: bool) -> list[Entry]:
    return [entry for entry in record.entries if hidden or entry.hidden_by is None]


_ROLES = {Role.USER: "somebody", Role.ASSISTANT: "assistant", Role.TOOL: "tool", Role.NOTE: "note"}


def speaker(entry: Entry) -> str:
    if entry.role is Role.USER and entry.sender is not None:
        name = entry.sender.name or (entry.sender.id and Label(entry.sender.id))
        return (name and name.plain()) or _ROLES[Role.USER]
    return _ROLES.get(entry.role, entry.role.value)


def file_lines(entry: Entry) -> Iterator[str]:
    """Yield a line for each attached file."""
    for file in entry.files:
        here = f", {file.id}" if file.id else ", not kept"
        yield f"{file.name.plain()} ({one_line(file.media_type, 100)}, {format_size(file.size)}{here})"


def entry_flags(entry: Entry) -> Iterable[str]:
    if entry.hidden_by is not None:
        yield "hidden"
    if entry.observed:
        yield "observed"
    if entry.cut:
        yield "cut at the model's length limit"
    if entry.covers is not None:
        yield f"summary of {entry.covers[0]} to {entry.covers[1]}"


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")


def render_markdown(record: "SessionRecord", *, hidden: bool = False, zone: tzinfo = UTC) -> Iterator[str]:
    entries = shown_entries(record, hidden=hidden)
    yield f"# {_escaped(heading(record.session))}\n\n"
    for name, value in session_facts(record.session, len(entries), zone):
        yield f"- {name}: {_code(value)}\n"
    for entry in entries:
        yield "\n" + "\n".join(_entry(entry, zone, _ratings(entry, record.session))) + "\n"
    yield "\n"


def _ratings(entry: Entry, session: "ArchivedSession") -> str:
    """Return what people think of an answer: ` · 👍`."""
    if entry.turn is None or not is_answer(entry):
        return ""
    ratings = format_ratings([each.rating for each in session.turns[int(entry.turn) - 1].feedback])
    return f" · {ratings}" if ratings else ""


def _entry(entry: Entry, zone: tzinfo, ratings: str) -> Iterator[str]:
    flags = "".join(f" · {_escaped(flag)}" for flag in entry_flags(entry)) + ratings
    yield f"**{_escaped(speaker(entry))}** · {moment_text(entry.at, zone)}{flags}"
    yield ""
    if entry.text:
        yield from (f"> {line}".rstrip() for line in _without_html(entry.text).split("\n"))
    for line in file_lines(entry):
        yield f"> with the file {_escaped(line)}"
    for call in entry.calls:
        yield f"> calls {_code(call.name)} with {_code(call.arguments)}"


# What can begin a tag, a comment or a declaration. "a < b" is none of them.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def _without_html(text: str) -> str:
    """Keep the Markdown of a text and show its HTML as text, also in code: readers disagree on fences."""
    return _TAG.sub("&lt;", without_control_characters(text))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _code(text: str) -> str:
    """Fence with more backticks than the text has in a row."""
    text = " ".join(without_control_characters(text).split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5f6871; --page: #fcfcfd; --line: #d9dde2; --user: #eaf2fd;
  --agent: #f1f3f5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9aa4ae; --page: #15181b; --line: #363c43;
  --user: #1d2b3d; --agent: #22272c; } }
body { margin: 0 auto; padding: 1rem; max-width: 50rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
section { border-bottom: 1px solid var(--line); padding-bottom: 2rem; margin-bottom: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; color: var(--dim); font-size: .85rem; }
dd { margin: 0; overflow-wrap: anywhere; }
article { background: var(--agent); border-radius: .5rem; margin: .75rem 0; padding: .5rem .75rem; }
article.user { background: var(--user); }
article.hidden { opacity: .6; border-left: .25rem solid var(--line); }
header { color: var(--dim); font-size: .85rem; }
pre { font: inherit; margin: .25rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; }
pre.code { font-family: ui-monospace, monospace; font-size: .85rem; }
""".strip()
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

HTML_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Palaver sessions</title>
<style>
{_STYLE}
</style>
</head>
<body>
"""
HTML_FOOT = "</body>\n</html>\n"


def render_html(record: "SessionRecord", *, hidden: bool = False, zone: tzinfo = UTC) -> Iterator[str]:
    """Yield the part of the page for one session."""
    entries = shown_entries(record, hidden=hidden)
    yield f'<section id="{escape(record.session.id)}">\n<h1 dir="auto">{escape(heading(record.session))}</h1>\n<dl>\n'
    for name, value in session_facts(record.session, len(entries), zone):
        yield f"<dt>{name}</dt><dd>{escape(one_line(value, 1000))}</dd>\n"
    yield "</dl>\n"
    for entry in entries:
        yield "".join(_entry_html(entry, zone, _ratings(entry, record.session)))
    yield "</section>\n"


def _entry_html(entry: Entry, zone: tzinfo, ratings: str) -> Iterator[str]:
    kind = f"{entry.role.value} hidden" if entry.hidden_by is not None else entry.role.value
    flags = "".join(f" · {escape(flag)}" for flag in entry_flags(entry)) + ratings
    who = f"<bdi>{escape(speaker(entry))}</bdi> · <time>{moment_text(entry.at, zone)}</time>{flags}"
    yield f'<article class="{kind}">\n<header>{who}</header>\n'
    if entry.text:
        yield _block(entry.text)
    if entry.reasoning:
        yield f"<details><summary>reasoning</summary>{_block(entry.reasoning)}</details>\n"
    for line in file_lines(entry):
        yield f"<p>with the file <bdi>{escape(line)}</bdi></p>\n"
    for call in entry.calls:
        name = escape(one_line(call.name, 100))
        yield f"<details><summary>calls {name}</summary>{_block(call.arguments, 'code')}</details>\n"
    yield "</article>\n"


def _block(text: str, kind: str = "text") -> str:
    return f'<pre class="{kind}" dir="auto">{escape(without_control_characters(text))}</pre>\n'
