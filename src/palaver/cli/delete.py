"""`palaver sessions delete`, `prune` and `stats`."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from palaver.cli import shared_options
from palaver.cli.output import (
    confirm,
    pick,
    print_error,
    print_facts,
    print_heading,
    print_json,
    print_line,
    print_list,
    print_note,
    print_rows,
    progress,
)
from palaver.cli.shared_options import (
    EXAMPLES,
    OPERATOR,
    DryRun,
    Json,
    Names,
    Platform,
    Profile,
    StoreOption,
    Yes,
    ZoneName,
    ask,
    ask_database,
    filled,
    find_exactly,
    help_of,
    long_ago,
    moment,
)
from palaver.cli.transcripts import name_of, session_fields
from palaver.commands.formatting import ago
from palaver.config.loader import load
from palaver.model.errors import SessionBusy
from palaver.model.local_time import first_instant, to_local
from palaver.model.session import Session
from palaver.model.text import counted
from palaver.processes.home import remove_forgotten_outputs
from palaver.store.conversations import deletion
from palaver.store.conversations.deletion import Pruned, PruneRule, Removed, Survey
from palaver.store.status import session_list
from palaver.store.status.session_list import Stats, Totals
from palaver.store.store import Store

app = typer.Typer(rich_markup_mode=None)


@app.command("delete", help=help_of("delete", "Delete sessions permanently."))
def delete_sessions(names: Names, *, yes: Yes = False, store: StoreOption = None, json: Json = False) -> None:
    async def look(opened: Store) -> list[Session]:
        found = [await find_exactly(opened, name) for name in names]
        return list({session.id: session for session in found}.values())

    async def delete(opened: Store) -> list[Removed]:
        """Delete all but those in use."""
        removed: list[Removed] = []
        for session in found:
            try:
                removed.append(await opened.transact(deletion.delete(session.id, OPERATOR, shared_options.now())))
            except SessionBusy as error:
                busy.append(error)
        await wipe(opened)
        return removed

    busy: list[SessionBusy] = []
    found = ask(store, look)
    for session in () if json else found:
        entries, last = session.counters.entries, ago(session.last_active, shared_options.now())
        print_line(f"{name_of(session)} ({session.id}): {counted(entries, 'entry')}, last active {last}")
    confirm(f"Permanently delete {counted(len(found), 'session')}?", EXAMPLES["delete"], yes=yes)
    _report_delete(ask(store, delete), busy, as_json=json)


async def wipe(store: Store) -> None:
    """Remove deleted text from the search index, the write-ahead log and the output of processes too."""
    outputs = partial(remove_forgotten_outputs, store, load().data_dir)
    for step in (store.search.catch_up, store.scrub, outputs):
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - an error here undeletes nothing
            print_note(f"Deleted text can stay in the index or the log for a while: {error}")


def _report_delete(removed: list[Removed], busy: list[SessionBusy], *, as_json: bool) -> None:
    if as_json:
        busy_ids = [error.session for error in busy]
        deleted = [pick(each.session, "id title") | pick(each, "entries turns") for each in removed]
        print_json({"deleted": deleted, "busy": busy_ids})
    else:
        for each in removed:
            print_line(f"{name_of(each.session)} deleted with {counted(each.entries, 'entry')}")
        for error in busy:
            print_error(str(error), as_json=False)
    if busy:
        raise typer.Exit(1)


# Prune


@app.command("prune", help=help_of("prune", "Delete sessions by age or number."))
def prune_sessions(
    *,
    before: Annotated[
        str,
        typer.Option("--before", help="Only sessions that nobody has used since this date or time.", callback=filled),
    ] = "",
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", help="Only sessions that nobody has used for this long, such as 90d.", callback=filled
        ),
    ] = "",
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, max=1_000_000_000, help="Keep this many of the newest.")
    ] = None,
    platform: Platform = "",
    profile: Profile = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    rule = PruneRule(
        before=_limit(before, older_than),
        keep_newest=keep,
        platform=platform or None,
        profile=profile or None,
    )
    found = ask(store, lambda opened: opened.read(deletion.survey(rule, OPERATOR)), Survey())
    if not json:
        _print_survey(found)
    if dry_run or not found.sessions:
        _report_prune(found, Pruned(), as_json=json)
        return
    confirm(f"Permanently delete {counted(found.sessions, 'session')}?", EXAMPLES["prune"], yes=yes)

    async def carry_out(opened: Store) -> Pruned:
        done = await deletion.prune(
            opened.database, found.where, shared_options.now(), progress=lambda done: show(done.sessions)
        )
        await wipe(opened)
        return done

    with progress("sessions deleted") as show:
        pruned = ask(store, carry_out)
    _report_prune(found, pruned, as_json=json)


def _limit(before: str, older_than: str) -> datetime | None:
    """Return the earlier limit."""
    limits = [moment("--before", before, EXAMPLES["prune"])]
    if older_than:
        limits.append(long_ago("--older-than", older_than, EXAMPLES["prune"]))
    return min((limit for limit in limits if limit is not None), default=None)


def _print_survey(found: Survey) -> None:
    print_line(f"{counted(found.sessions, 'session')} with {counted(found.entries, 'entry')} would be deleted")
    if found.sample:
        ended = [_ended(each) for each in found.sample]
        print_list(
            {"session": "", "title": "bold", "ended": "", "entries": ""},
            [
                (each.id, each.title or "", when, str(each.counters.entries))
                for each, when in zip(found.sample, ended, strict=True)
            ],
        )
    if found.sessions > len(found.sample):
        print_line(f"and {found.sessions - len(found.sample)} more")


def _ended(session: Session) -> str:
    since = ago(session.ended or session.last_active, shared_options.now())
    return since if session.ended else f"open, last used {since}"


def _report_prune(found: Survey, pruned: Pruned, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "found": pick(found, "sessions entries"),
                **pick(found, "oldest newest"),
                "sample": [session_fields(session) for session in found.sample],
                "deleted": pick(pruned, "sessions entries"),
                "busy": pruned.busy,
            }
        )
        return
    if pruned.sessions or pruned.busy:
        busy = f"; {counted(pruned.busy, 'session')} still in use" if pruned.busy else ""
        print_line(f"{counted(pruned.sessions, 'session')} deleted with {counted(pruned.entries, 'entry')}{busy}")


# Stats


class _Span(StrEnum):
    DAY = "day"
    WEEK = "week"


_USUAL = {_Span.DAY: "30d", _Span.WEEK: "12w"}


@app.command("stats", help=help_of("stats", "Count sessions, entries, turns, tokens and cost."))
def show_stats(
    *,
    by: Annotated[_Span, typer.Option("--by", help="Group by the day or week they started.")] = _Span.DAY,
    since: Annotated[str, typer.Option("--since", help="Start with this day or week. Default: 30d or 12w.")] = "",
    zone_name: ZoneName = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    where = shared_options.find_zone(zone_name)
    since_then = moment("--since", since or _USUAL[by], EXAMPLES["stats"], zone_name)
    start = since_then and _whole(by, since_then, where)
    empty = Stats(total=Totals(), platforms={}, days={}, weeks={}, database_bytes=0)
    found = ask_database(
        store, lambda opened: opened.read(session_list.stats(OPERATOR, zone=where, since=start)), empty
    )
    if json:
        print_json(_stats_fields(found))
        return
    _print_totals(found)
    periods = found.days if by is _Span.DAY else found.weeks
    if found.platforms:
        _print_table("platform", [(name, totals) for name, totals in found.platforms.items()])
    if periods:
        _print_table(f"{by.value} of start", [(str(first), totals) for first, totals in periods.items()])


def _whole(by: _Span, start: datetime, where: ZoneInfo) -> datetime:
    """Return the start of the day or week of `start`, so that the first row is complete."""
    day = to_local(start, where).replace(hour=0, minute=0, second=0, microsecond=0)
    return first_instant(day - timedelta(days=day.weekday() if by is _Span.WEEK else 0), where)


def _print_totals(found: Stats) -> None:
    total = found.total
    print_heading(f"{counted(total.sessions, 'session')}, {total.open} open")
    facts = [
        ("entries", str(total.entries)),
        ("turns", str(total.turns)),
        ("tokens", f"{total.input_tokens} in, {total.output_tokens} out"),
        ("cost", total.cost),
    ]
    if found.database_bytes is not None:
        facts.append(("database", f"{found.database_bytes / 1_000_000:.1f} MB"))
    print_facts(facts)


def _print_table(title: str, rows: list[tuple[str, Totals]]) -> None:
    print_line("")
    print_rows(
        (title, "sessions", "open", "entries", "turns", "tokens in", "tokens out", "cost"),
        [
            (name, *map(str, (t.sessions, t.open, t.entries, t.turns, t.input_tokens, t.output_tokens)), t.cost)
            for name, t in rows
        ],
    )


def _stats_fields(found: Stats) -> dict[str, object]:
    return {
        "total": _totals_fields(found.total),
        "platforms": {name: _totals_fields(totals) for name, totals in found.platforms.items()},
        "days": _period_fields(found.days),
        "weeks": _period_fields(found.weeks),
        "database_bytes": found.database_bytes,
    }


def _period_fields(periods: Mapping[date, Totals]) -> list[dict[str, object]]:
    return [{"first": first, **_totals_fields(totals)} for first, totals in periods.items()]


def _totals_fields(totals: Totals) -> dict[str, object]:
    return {"ended": totals.ended, **asdict(totals)}
