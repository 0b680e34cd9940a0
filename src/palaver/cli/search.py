"""`palaver sessions search`: search what was said, and titles."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import print_json, print_text
from palaver.cli.shared_options import (
    EXAMPLES,
    OPERATOR,
    Json,
    Limit,
    Platform,
    Since,
    StoreOption,
    Until,
    ask,
    filled,
    find,
    help_of,
    identity,
    moment,
)
from palaver.cli.transcripts import PREVIEW_CHARS, STYLES, call_text, entry_fields, name_of
from palaver.commands.formatting import ago
from palaver.model.text import one_line
from palaver.model.transcript import Entry, Role
from palaver.store.archive.render import speaker, without_control_characters
from palaver.store.search.search import SPOKEN_ROLES, Hit, Order, SearchFilter
from palaver.store.store import Store

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "search", help=help_of("search", 'Search all sessions and titles for words, "a phrase", prefix*, a OR b, a NOT b.')
)
def search_words(
    words: Annotated[list[str], typer.Argument(help="Words, a phrase in quotes, or a prefix and *.")],
    *,
    platform: Platform = "",
    person: Annotated[
        str, typer.Option(help="Only messages from this account, for example telegram:7.", callback=identity)
    ] = "",
    role: Annotated[
        list[Role] | None,
        typer.Option(help="Only messages with this role. Repeat for several.", show_default="user and assistant"),
    ] = None,
    session: Annotated[str, typer.Option(help="Only in this session.", callback=filled)] = "",
    since: Since = "",
    until: Until = "",
    order: Annotated[
        Order | None, typer.Option(help="Which come first.", show_default="the best for several words, else the newest")
    ] = None,
    around: Annotated[int, typer.Option(min=0, max=20, help="Show this many entries before and after.")] = 0,
    limit: Limit = 20,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    wanted = SearchFilter(
        platform=platform or None,
        people=frozenset({person} if person else ()),
        roles=frozenset(role or SPOKEN_ROLES),
        since=moment("--since", since, EXAMPLES["search"]),
        until=moment("--until", until, EXAMPLES["search"]),
    )

    async def search(opened: Store) -> list[Hit]:
        narrowed = replace(wanted, session=(await find(opened, session)).id) if session else wanted
        query = " ".join(words).encode(errors="replace").decode()
        return await opened.search.find(query, OPERATOR, filter=narrowed, order=order, limit=limit, neighbours=around)

    hits = ask(store, search, [], nothing="Nothing found.")
    if json:
        print_json({"hits": [hit_fields(hit) for hit in hits]})
        return
    print_hits(hits, shared_options.now())


def hit_fields(hit: Hit) -> dict[str, object]:
    return {
        "session": hit.session.id,
        "title": hit.session.title,
        "entry": hit.entry and entry_fields(hit.entry),
        "snippet": hit.snippet,
        "marks": [list(mark) for mark in hit.marks],
        "before": [entry_fields(entry) for entry in hit.before],
        "after": [entry_fields(entry) for entry in hit.after],
    }


def print_hits(hits: Iterable[Hit], present: datetime) -> None:
    for position, hit in enumerate(hits):
        if position:
            print_text(("", ""))
        where = f" · {hit.session.id}" if hit.session.title else ""
        place = f"entry {hit.entry.seq}" if hit.entry else hit.found_in
        when = f" · {place} · {ago(hit.at, present)}"
        print_text((name_of(hit.session), "bold"), (where + when, "dim"))
        _print_neighbours(hit.before)
        said = (f"{speaker(hit.entry)}: ", STYLES[hit.entry.role]) if hit.entry else ("title: ", "dim")
        print_text(said, *_highlighted(hit))
        _print_neighbours(hit.after)


def _print_neighbours(entries: Iterable[Entry]) -> None:
    for entry in entries:
        for text in filter(None, (entry.text, *map(call_text, entry.calls))):
            print_text((f"{speaker(entry)}: {one_line(text, PREVIEW_CHARS)}", "dim"))


def _highlighted(hit: Hit) -> Iterator[tuple[str, str]]:
    """Yield the snippet in styled pieces, cleaned one by one to keep the marks in place."""
    at = 0
    for start, end in hit.marks:
        yield _line(hit.snippet[at:start]), ""
        yield _line(hit.snippet[start:end]), "bold reverse"
        at = end
    yield _line(hit.snippet[at:]), ""


def _line(text: str) -> str:
    return without_control_characters(text).replace("\n", " ").replace("\t", " ")
