"""`palaver usage`: turns, tokens and cost by person, model or day."""

from dataclasses import asdict
from datetime import date, timedelta
from typing import Annotated

import typer

from palaver.cli import shared_options
from palaver.cli.output import print_found
from palaver.cli.shared_options import (
    OPERATOR,
    Json,
    Since,
    StoreOption,
    Until,
    ZoneName,
    ask_database,
    find_zone,
    moment,
)
from palaver.model.session import UsageTotal
from palaver.store.people import usage
from palaver.store.people.usage import GroupBy

EXAMPLES = {"usage": "palaver usage --by person --since 7d"}
_DEFAULT_SPAN = timedelta(days=30)

app = typer.Typer(rich_markup_mode=None)


@app.command(help=f"Show turns, tokens and cost by person, model or day.\n\n{EXAMPLES['usage']}")
def show_usage(
    *,
    by: Annotated[GroupBy, typer.Option("--by", help="Group by person, model or day.")] = GroupBy.DAY,
    since: Since = "",
    until: Until = "",
    zone_name: ZoneName = "",
    store: StoreOption = None,
    json: Json = False,
) -> None:
    where = find_zone(zone_name)
    first = moment("--since", since, EXAMPLES["usage"], zone_name) or shared_options.now() - _DEFAULT_SPAN
    last = moment("--until", until, EXAMPLES["usage"], zone_name)
    found: dict[str | date, UsageTotal] = ask_database(
        store,
        lambda opened: opened.read(usage.totals_by(by, OPERATOR, since=first, until=last, zone=where)),
        {},
        nothing="No usage in this period.",
    )
    fields = {by.value: [{by.value: str(name), **asdict(spent)} for name, spent in found.items()]}
    rows = [(str(name) or by.unnamed, *_columns(spent)) for name, spent in found.items()]
    print_found(fields, (by.value, "turns", "tokens in", "cached", "tokens out", "cost"), rows, as_json=json)


def _columns(spent: UsageTotal) -> tuple[str, ...]:
    tokens = map(str, (spent.turns, spent.input_tokens, spent.cached_tokens, spent.output_tokens))
    return (*tokens, spent.cost)
