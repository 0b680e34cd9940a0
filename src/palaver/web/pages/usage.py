"""Usage: turns, tokens and cost by day, person and model, drawn and as a table."""

from collections.abc import Mapping
from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.quotas import UsageTotal
from palaver.model.text import one_line
from palaver.store.people.usage import GroupBy
from palaver.web.caller import Caller
from palaver.web.pages.base import Link
from palaver.web.pages.parts import asked, show
from palaver.web.plots import Plot, columns, rows
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Usage", path="/usage", place=70)
_SPANS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year"}
_METRICS = {"tokens": "tokens", "cost": "cost", "turns": "turns"}
_NAMES = {"tokens": ("tokens in", "tokens out"), "cost": ("cost",), "turns": ("turns",)}
_MOST = 20
_NOBODY = {GroupBy.PERSON: "(nobody)", GroupBy.MODEL: "(not said)", GroupBy.DAY: ""}


def routes(services: Services) -> list[Route]:
    async def usage(request: Request, caller: Caller) -> Response:
        by, span = _chosen(request)
        metric = asked(request, "metric") if asked(request, "metric") in _METRICS else "tokens"
        zone, now = services.engine.options.zones.default, services.clock.now()
        first = now - timedelta(days=int(span) - 1)
        found = await services.read(
            caller, lambda principal: services.store.usage.totals_by(by, principal, since=first, zone=zone)
        )
        table = {one_line(str(name), 60) or _NOBODY[by]: spent for name, spent in found.items()}
        days = [first.astimezone(zone).date() + timedelta(days=day) for day in range(int(span))]
        return show(
            services,
            request,
            "usage.html",
            caller,
            table=table,
            total=_total(table),
            plot=_plot(by, metric, table, days) if table else None,
            by=by.value,
            metric=metric,
            days=span,
            choices=([(each.value, each.value) for each in GroupBy], list(_METRICS.items()), list(_SPANS.items())),
            names=_NAMES[metric],
        )

    return [page("/usage", usage)]


def _chosen(request: Request) -> tuple[GroupBy, str]:
    by, span = asked(request, "by"), asked(request, "days")
    return GroupBy(by) if by in set(GroupBy) else GroupBy.DAY, span if span in _SPANS else "30"


def _plot(by: GroupBy, metric: str, table: Mapping[str, UsageTotal], days: list[date]) -> Plot:
    if by is GroupBy.DAY:
        values = [(f"{day:%d %b}", _parts(metric, table.get(str(day), UsageTotal()))) for day in days]
        return columns(values, _NAMES[metric])
    values = [(one_line(name, 28), _parts(metric, spent)) for name, spent in table.items()]
    return rows(sorted(values, key=lambda each: -sum(each[1]))[:_MOST], _NAMES[metric])


def _parts(metric: str, spent: UsageTotal) -> tuple[float, ...]:
    match metric:
        case "cost":
            return (spent.cost_micros / 1_000_000,)
        case "turns":
            return (spent.turns,)
        case _:
            return spent.input_tokens, spent.output_tokens


def _total(table: Mapping[str, UsageTotal]) -> UsageTotal:
    return UsageTotal(
        turns=sum(each.turns for each in table.values()),
        input_tokens=sum(each.input_tokens for each in table.values()),
        output_tokens=sum(each.output_tokens for each in table.values()),
        cost_micros=sum(each.cost_micros for each in table.values()),
    )
