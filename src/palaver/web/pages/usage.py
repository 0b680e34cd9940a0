"""The usage page: turns, tokens and cost by day, person and model, as a bar chart and a table.

The server lays out the chart, so that the page needs neither script nor style for it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any

from starlette.responses import Response

from palaver.model.providers import spell_model
from palaver.model.session import UsageTotal
from palaver.model.source import readable_identity
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.store.people.usage import GroupBy
from palaver.web.pages.common import currency_of, list_names, query_value, show_page
from palaver.web.routes import WebRequest, page

WIDE, NARROW = 1080, 340
"""Widths of a chart, for a desk and for a phone: text keeps its size."""
_HEIGHT, _AXIS_HEIGHT, _TOP_MARGIN, _AXIS_WIDTH, _RIGHT_MARGIN = 240, 20, 12, 52, 20
_ROW_HEIGHT, _FIGURE_WIDTH = 26, 70
_NAME_WIDTH, _LETTER_WIDTH = 136, 7.4
_TICKS = 4
_LABEL_WIDTH = 84
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
    rules: tuple[tuple[float, float, float, float], ...] = ()
    """Lines: x1, y1, x2 and y2 of each."""


def short_number(number: float) -> str:
    """`9,999`, `31.0 M`."""
    for size, unit in _UNITS:
        if number >= _MAX_EXACT and (rounded := round(number / size, 1)) >= 1:
            return f"{rounded:,.1f} {unit}"
    return _exact_number(number)


def _exact_number(number: float) -> str:
    return f"{number:,.4f}".rstrip("0").rstrip(".")


def _axis_number(number: float) -> str:
    return _exact_number(number) if number < _MAX_EXACT * 10 else short_number(number)


def _largest(values: Sequence[tuple[str, Sequence[float]]]) -> float:
    return max((sum(parts) for _, parts in values), default=0) or 1


def ticks(largest: float) -> list[float]:
    """Return round numbers from 0 to at least `largest`, for an axis."""
    rough = largest / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * (1 - 1e-9))
    return [step * place for place in range(math.ceil(largest / step - 1e-9) + 1)]


def column_chart(
    values: Sequence[tuple[str, Sequence[float]]], series: Sequence[str], unit: str = "", width: int = WIDE
) -> Chart:
    """Draw one column per value, its parts stacked, over an axis with round numbers."""
    marks = ticks(_largest(values))
    top, bottom = float(_TOP_MARGIN), float(_HEIGHT - _AXIS_HEIGHT)
    step, room = (width - _AXIS_WIDTH - _RIGHT_MARGIN) / max(len(values), 1), bottom - top
    bars: list[Bar] = []
    for place, (label, parts) in enumerate(values):
        y, title = bottom, _title(label, parts, series, unit)
        for number, part in enumerate(parts):
            height = part / marks[-1] * room
            y -= height
            if part:
                x, across = _AXIS_WIDTH + place * step + step * 0.12, step * 0.76
                bars.append(Bar(x=x, y=y, width=across, height=height, kind="ab"[number % 2], title=title[number]))
    every = max(1, math.ceil(len(values) / max((width - _AXIS_WIDTH - _RIGHT_MARGIN) / _LABEL_WIDTH, 1)))
    below = [
        (_AXIS_WIDTH + (place + 0.5) * step, _HEIGHT - 5.0, "middle", label)
        for place, (label, _) in enumerate(values)
        if (len(values) - 1 - place) % every == 0
    ]
    heights = [(bottom - mark / marks[-1] * room, mark) for mark in marks]
    beside = [(_AXIS_WIDTH - 6.0, y + 4, "end", f"{_sign(unit)}{_axis_number(mark)}") for y, mark in heights]
    rules = tuple((float(_AXIS_WIDTH), y, float(width - _RIGHT_MARGIN), y) for y, _ in heights)
    return Chart(width=width, height=_HEIGHT, bars=tuple(bars), labels=(*beside, *below), rules=rules)


def row_chart(
    values: Sequence[tuple[str, Sequence[float]]], series: Sequence[str], unit: str = "", width: int = WIDE
) -> Chart:
    """Draw one row per value, its parts side by side, with its name before and its sum behind, over an axis."""
    marks, name_width = ticks(_largest(values)), max(width * 0.25, _NAME_WIDTH)
    room, bottom, money = width - name_width - _FIGURE_WIDTH, len(values) * _ROW_HEIGHT + 4.0, _sign(unit)
    bars: list[Bar] = []
    labels: list[tuple[float, float, str, str]] = []
    for place, (label, parts) in enumerate(values):
        x, y, title = name_width, place * _ROW_HEIGHT + 4.0, _title(label, parts, series, unit)
        labels.append((name_width - 6.0, y + 13, "end", one_line(label, int(name_width / _LETTER_WIDTH))))
        for number, part in enumerate(parts):
            across = part / marks[-1] * room
            if part:
                bars.append(
                    Bar(x=x, y=y, width=across, height=_ROW_HEIGHT - 8.0, kind="ab"[number % 2], title=title[number])
                )
            x += across
        labels.append((x + 6.0, y + 13, "start", f"{money}{short_number(sum(parts))}"))
    places = [(name_width + mark / marks[-1] * room, mark) for mark in marks]
    every = math.ceil(len(marks) * _FIGURE_WIDTH / (room + _FIGURE_WIDTH))
    labels += [
        (x, bottom + _AXIS_HEIGHT - 5.0, "middle", f"{money}{short_number(mark)}") for x, mark in places[::every]
    ]
    rules = tuple((x, 0.0, x, bottom) for x, _ in places)
    height = int(bottom) + _AXIS_HEIGHT
    return Chart(width=width, height=height, bars=tuple(bars), labels=tuple(labels), rules=rules)


def _sign(unit: str) -> str:
    return unit if unit == "$" else ""


def _title(label: str, parts: Sequence[float], series: Sequence[str], unit: str) -> list[str]:
    """Say the exact figure of each part."""
    return [f"{label}: {_sign(unit)}{_exact_number(part)} {series[number]}" for number, part in enumerate(parts)]


_SPANS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
_METRICS = {"tokens": ("tokens in", "tokens out"), "cost": ("cost",), "turns": ("turns",)}
_MAX_ROWS = 20


@page("/usage")
async def usage(request: WebRequest) -> Response:
    by_name, span, metric = (query_value(request, name) for name in ("by", "days", "metric"))
    by = GroupBy(by_name) if by_name in set(GroupBy) else GroupBy.DAY
    span = span if span in _SPANS else "30"
    metric = metric if metric in _METRICS else "tokens"
    zone = request.services.engine.settings.zones.default
    days = last_days(request.now, zone, int(span))
    since = datetime.combine(days[0], time.min, zone)
    found = await request.browse(lambda who: request.store.usage.totals_by(by, who, since=since, zone=zone))
    names = await list_names(request) if by is GroupBy.PERSON else {}
    # Not by what is shown: names that are cut can be alike.
    table = [(_shown(str(name), names) or by.unnamed, spent) for name, spent in found.items()]
    unit = currency_of(request.services.config()) if metric == "cost" else ""
    return show_page(
        request,
        "usage.html",
        table=table,
        total=total_of(found),
        charts=[_chart(by, metric, table, days, unit=unit, width=width) for width in (WIDE, NARROW)] if table else [],
        caption=f"{_caption(metric, unit)} by {by.value}",
        by=by.value,
        metric=metric,
        days=span,
        by_choices=[(choice.value, choice.value) for choice in GroupBy],
        metric_choices=[(name, name) for name in _METRICS],
        span_choices=list(_SPANS.items()),
        series=_METRICS[metric],
    )


def last_days(now: datetime, zone: tzinfo, count: int) -> list[date]:
    """Return so many days up to today, the first one first."""
    today = now.astimezone(zone).date()
    return [today - timedelta(days=ago) for ago in reversed(range(count))]


def _caption(metric: str, unit: str) -> str:
    if metric != "cost":
        return metric
    return "cost in US dollars" if unit else "cost in an unknown currency"


def _chart(
    by: GroupBy, metric: str, table: Sequence[tuple[str, UsageTotal]], days: list[date], *, unit: str, width: int
) -> Chart:
    if by is GroupBy.DAY:
        spent_on = dict(table)
        values = [(f"{day.day} {day:%b}", _values(metric, spent_on.get(str(day), UsageTotal()))) for day in days]
        return column_chart(values, _METRICS[metric], unit, width)
    values = [(name, _values(metric, spent)) for name, spent in table]
    return row_chart(sorted(values, key=lambda row: -sum(row[1]))[:_MAX_ROWS], _METRICS[metric], unit, width)


def _shown(name: str, names: Mapping[str, str]) -> str:
    """Return a day or model as it is, and a person by name."""
    known = names.get(name)
    return one_line(f"{known} ({readable_identity(name)})" if known else spell_model(name), 60)


def _values(metric: str, spent: UsageTotal) -> tuple[float, ...]:
    match metric:
        case "cost":
            return (spent.cost_micros / 1_000_000,)
        case "turns":
            return (spent.turns,)
        case _:
            return spent.input_tokens, spent.output_tokens


def total_of(table: Mapping[Any, UsageTotal]) -> UsageTotal:
    names = [field.name for field in fields(UsageTotal)]
    return UsageTotal(**{name: sum(getattr(spent, name) for spent in table.values()) for name in names})


ROUTES = (usage,)
