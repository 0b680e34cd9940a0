"""The usage page: turns, tokens and cost by day, person and model, as a bar chart and a table.

The server lays out the chart, so that the page needs neither script nor style for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date, timedelta

from starlette.responses import Response

from palaver.model.session import UsageTotal
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.store.people.usage import GroupBy
from palaver.web.pages.common import query_value, show_page
from palaver.web.routes import WebRequest, page

_WIDTH = 720
_HEIGHT, _AXIS_HEIGHT, _TOP_MARGIN = 200, 18, 14
_ROW_HEIGHT, _NAME_WIDTH, _FIGURE_WIDTH = 24, 200, 90
_MAX_LABELS = 8
_MAX_EXACT = 10_000
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@value
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@value
class Chart:
    width: int
    height: int
    bars: tuple[Bar, ...]
    labels: tuple[tuple[float, float, str, str], ...]
    """x, y, anchor and text of each."""
    rules: tuple[float, ...] = ()
    """y of the horizontal lines."""


def short_number(number: float) -> str:
    """`9,999`, `31.0 M`."""
    for size, unit in _UNITS:
        if number >= _MAX_EXACT and (rounded := round(number / size, 1)) >= 1:
            return f"{rounded:,.1f} {unit}"
    return _exact_number(number)


def _exact_number(number: float) -> str:
    return f"{number:,.4f}".rstrip("0").rstrip(".")


def _largest(values: Sequence[tuple[str, Sequence[float]]]) -> float:
    return max((sum(parts) for _, parts in values), default=0) or 1


def column_chart(values: Sequence[tuple[str, Sequence[float]]], series: Sequence[str]) -> Chart:
    """Draw one column per value, its parts stacked."""
    largest = _largest(values)
    step, room = _WIDTH / max(len(values), 1), _HEIGHT - _AXIS_HEIGHT - _TOP_MARGIN
    bars: list[Bar] = []
    for place, (label, parts) in enumerate(values):
        y = float(_HEIGHT - _AXIS_HEIGHT)
        for number, part in enumerate(parts):
            height = part / largest * room
            y -= height
            if part:
                x, width = place * step + step * 0.1, step * 0.8
                title = f"{label}: {_exact_number(part)} {series[number]}"
                bars.append(Bar(x=x, y=y, width=width, height=height, kind="ab"[number % 2], title=title))
    every = max(1, -(-len(values) // _MAX_LABELS))
    below = [
        ((place + 0.5) * step, _HEIGHT - 5.0, "middle", label)
        for place, (label, _) in enumerate(values)
        if place % every == 0
    ]
    top = (4.0, _TOP_MARGIN - 3.0, "start", short_number(largest))
    rules = (float(_TOP_MARGIN), float(_HEIGHT - _AXIS_HEIGHT))
    return Chart(width=_WIDTH, height=_HEIGHT, bars=tuple(bars), labels=(top, *below), rules=rules)


def row_chart(values: Sequence[tuple[str, Sequence[float]]], series: Sequence[str]) -> Chart:
    """Draw one row per value, its parts side by side, with its name before and its sum behind."""
    largest, room = _largest(values), _WIDTH - _NAME_WIDTH - _FIGURE_WIDTH
    bars: list[Bar] = []
    labels: list[tuple[float, float, str, str]] = []
    for place, (label, parts) in enumerate(values):
        x, y = float(_NAME_WIDTH), place * _ROW_HEIGHT + 4.0
        labels.append((_NAME_WIDTH - 6.0, y + 12, "end", label))
        for number, part in enumerate(parts):
            width = part / largest * room
            if part:
                title = f"{label}: {_exact_number(part)} {series[number]}"
                bars.append(Bar(x=x, y=y, width=width, height=_ROW_HEIGHT - 8.0, kind="ab"[number % 2], title=title))
            x += width
        labels.append((x + 6.0, y + 12, "start", short_number(sum(parts))))
    height = max(len(values), 1) * _ROW_HEIGHT + 4
    return Chart(width=_WIDTH, height=height, bars=tuple(bars), labels=tuple(labels))


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
