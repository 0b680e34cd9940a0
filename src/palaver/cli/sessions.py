"""`palaver sessions`: list, show and rename sessions; other commands are in `search`, `export` and `delete`."""

from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import print_json, print_note, print_result
from palaver.cli.shared_options import (
    EXAMPLES,
    OPERATOR,
    After,
    Json,
    Limit,
    Name,
    Person,
    Platform,
    Profile,
    Since,
    StoreOption,
    Until,
    ask_database,
    filled,
    find,
    help_of,
    moment,
)
from palaver.cli.transcripts import (
    entry_fields,
    name_of,
    preview_fields,
    print_entries,
    print_previews,
    print_session,
    session_fields,
)
from palaver.db.transaction import DatabaseClient
from palaver.model.errors import BadArgument
from palaver.model.session import TITLE_LIMIT, Session, SessionState
from palaver.model.text import counted, one_line
from palaver.model.transcript import Entry
from palaver.store.conversations import titles, transcript
from palaver.store.status import session_list
from palaver.store.status.session_list import ListFilter, Page

app = typer.Typer(help="List, search, export and delete sessions.", rich_markup_mode=None)


@app.command("list", help=help_of("list", "List sessions, newest first."))
def list_newest(
    *,
    platform: Platform = "",
    profile: Profile = "",
    person: Person = "",
    still_open: Annotated[bool, typer.Option("--open", help="Only open sessions.")] = False,
    ended: Annotated[bool, typer.Option("--ended", help="Only ended sessions.")] = False,
    titled: Annotated[bool, typer.Option("--titled", help="Only sessions with a title.")] = False,
    title: Annotated[
        str, typer.Option("--title", help="Only sessions with this text in the title.", callback=filled)
    ] = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 20,
    after: After = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    wanted = ListFilter(
        platform=platform or None,
        profile=profile or None,
        person=person or None,
        state=_state(still_open=still_open, ended=ended),
        titled=titled,
        title=title or None,
        since=moment("--since", since, EXAMPLES["list"]),
        until=moment("--until", until, EXAMPLES["list"]),
    )
    page = ask_database(
        store,
        lambda opened: opened.read(
            session_list.list_sessions(OPERATOR, wanted=wanted, after=after or None, limit=limit)
        ),
        Page(previews=(), after=None),
        nothing="There are no such sessions.",
    )
    _print_page(page, as_json=json)


def _state(*, still_open: bool, ended: bool) -> SessionState | None:
    if still_open and ended:
        raise BadArgument(
            "Use --open or --ended, not both.",
            found="--open --ended",
            allowed="one of them, or none",
            example=EXAMPLES["list"],
            fix="",
        )
    if still_open:
        return SessionState.OPEN
    return SessionState.ENDED if ended else None


def _print_page(page: Page, *, as_json: bool) -> None:
    if as_json:
        print_json({"sessions": [preview_fields(preview) for preview in page.previews], "after": page.after})
        return
    if page.previews:
        print_previews(page.previews, shared_options.now())
    if page.after:
        print_note(f"For more, use --after {page.after}")


@app.command("show", help=help_of("show", "Show the messages of a session."))
def show_session(
    session: Name,
    *,
    hidden: Annotated[bool, typer.Option("--all", help="Include hidden entries: undone or summarised.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Show this many of the newest entries; 0 for all.")
    ] = 100,
    after: Annotated[int, typer.Option("--after", min=0, help="Only entries after this one.")] = 0,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    async def load(opened: DatabaseClient) -> tuple[Session, list[Entry]]:
        found = await find(opened, session)
        return found, await opened.read(transcript.load_all(found.id, OPERATOR))

    found, written = ask_database(store, load)
    written = [entry for entry in written if entry.seq > after]
    entries = [entry for entry in written if hidden or entry.hidden_by is None]
    shown = entries[:limit] if limit and after else entries[-limit:]
    if json:
        print_json({"session": session_fields(found), "entries": [entry_fields(entry) for entry in shown]})
        return
    present = shared_options.local_now()
    print_session(found, present)
    _tell_left_out(len(entries) - len(shown), "not shown: --limit 0 shows all")
    _tell_left_out(len(written) - len(entries), "hidden (undone or summarised): --all shows all")
    print_entries(shown, present.tzinfo)


def _tell_left_out(number: int, why: str) -> None:
    if number:
        print_note(f"{counted(number, 'entry')} {'is' if number == 1 else 'are'} {why}.")


@app.command("rename", help=help_of("rename", "Rename a session. If the title is taken, add a number."))
def rename_session(
    session: Name,
    title: Annotated[str, typer.Argument(help="The new title, at most 100 characters.")],
    *,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    async def rename(opened: DatabaseClient) -> Session:
        found = await find(opened, session)
        return await opened.transact(titles.rename(found.id, title, OPERATOR))

    renamed = ask_database(store, rename)
    if one_line(title, TITLE_LIMIT) != one_line(title, len(title)):
        print_note(f"The title was cut to {TITLE_LIMIT} characters.")
    done = f"{renamed.id} is now called {name_of(renamed)}"
    print_result({"session": session_fields(renamed)}, done, as_json=json)
