"""Archives as one HTML page: no script, nothing loaded from anywhere, every word from outside escaped."""

from collections.abc import Iterator
from html import escape

from palaver.domain.text import one_line
from palaver.domain.transcript import Entry
from palaver.stores.archive.form import Record
from palaver.stores.archive.legible import (
    facts,
    file_lines,
    heading,
    legible,
    marks,
    moment_text,
    shown_entries,
    speaker,
)

__all__ = ["FOOT", "HEAD", "html"]

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

HEAD = f"""<!doctype html>
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
FOOT = "</body>\n</html>\n"


def html(record: Record, *, hidden: bool = False) -> Iterator[str]:
    """The part of the page that shows one session."""
    entries = shown_entries(record, hidden=hidden)
    yield f'<section id="{escape(record.session.id)}">\n<h1 dir="auto">{escape(heading(record.session))}</h1>\n<dl>\n'
    for name, value in facts(record.session, len(entries)):
        yield f"<dt>{name}</dt><dd>{escape(one_line(value, 1000))}</dd>\n"
    yield "</dl>\n"
    for entry in entries:
        yield "".join(_entry(entry))
    yield "</section>\n"


def _entry(entry: Entry) -> Iterator[str]:
    kind = f"{entry.role.value} hidden" if entry.hidden_by is not None else entry.role.value
    special = "".join(f" · {escape(mark)}" for mark in marks(entry))
    who = f"<bdi>{escape(speaker(entry))}</bdi> · <time>{moment_text(entry.at)}</time>{special}"
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
    return f'<pre class="{kind}" dir="auto">{escape(legible(text))}</pre>\n'
