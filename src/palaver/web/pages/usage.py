"""The usage page: turns, tokens and cost by day, person and model, as a chart and a table."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import date, timedelta

from starlette.responses import Response

from palaver.model.session import UsageTotal
from palaver.model.text import one_line
from palaver.store.people.usage import GroupBy
from palaver.web.pages.charts import Chart, column_chart, row_chart
from palaver.web.pages.common import query_value, show_page
from palaver.web.routes import WebRequest, page

_SPANS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
_METRICS = {"tokens": ("tokens in", "tokens out"), "cost": ("cost",), "turns": ("turns",)}
_MAX_ROWS = 20
_UNNAMED = {GroupBy.PERSON: "(nobody)", GroupBy.MODEL: "(unknown)", GroupBy.DAY: ""}


@page("/usage")
async def usage(request: WebRequest) -> Response:
    by_name, span, metric = (query_value(request, name) for name in ("by", "days", "metric"))
    by = GroupBy(by_name) if by_name in set(GroupBy) else GroupBy.DAY
    span = span if span in _SPANS else "30"
    metric = metric if metric in _METRICS else "tokens"
    zone = request.services.engine.options.zones.default
    first = request.now - timedelta(days=int(span) - 1)
    found = await request.read(lambda who: request.store.usage.totals_by(by, who, since=first, zone=zone))
    table = {one_line(str(name), 60) or _UNNAMED[by]: spent for name, spent in found.items()}
    days = [first.astimezone(zone).date() + timedelta(days=day) for day in range(int(span))]
    return show_page(
        request,
        "usage.html",
        table=table,
        total=_total(table),
        chart=_chart(by, metric, table, days) if table else None,
        by=by.value,
        metric=metric,
        days=span,
        by_choices=[(choice.value, choice.value) for choice in GroupBy],
        metric_choices=[(name, name) for name in _METRICS],
        span_choices=list(_SPANS.items()),
        series=_METRICS[metric],
    )


def _chart(by: GroupBy, metric: str, table: Mapping[str, UsageTotal], days: list[date]) -> Chart:
    if by is GroupBy.DAY:
        values = [(f"{day:%d %b}", _values(metric, table.get(str(day), UsageTotal()))) for day in days]
        return column_chart(values, _METRICS[metric])
    values = [(one_line(name, 28), _values(metric, spent)) for name, spent in table.items()]
    return row_chart(sorted(values, key=lambda row: -sum(row[1]))[:_MAX_ROWS], _METRICS[metric])


def _values(metric: str, spent: UsageTotal) -> tuple[float, ...]:
    match metric:
        case "cost":
            return (spent.cost_micros / 1_000_000,)
        case "turns":
            return (spent.turns,)
        case _:
            return spent.input_tokens, spent.output_tokens


def _total(table: Mapping[str, UsageTotal]) -> UsageTotal:
    names = [field.name for field in fields(UsageTotal)]
    return UsageTotal(**{name: sum(getattr(spent, name) for spent in table.values()) for name in names})


ROUTES = (usage,)
