"""Figures of plots, as people read them."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest

from palaver.config.model import Config
from palaver.model.session import UsageTotal
from palaver.protocols.clock import SystemClock
from palaver.web.pages.common import currency_of, money
from palaver.web.pages.usage import column_chart, last_days, row_chart, short_number, ticks
from tests.web.conftest import Opened
from tests.web.demo_data import Stage, dm


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0125, "0.0125"),
        (9_999, "9,999"),
        (12_345, "12.3 k"),
        (999_960, "1.0 M"),
        (31_000_700, "31.0 M"),
        (2_500_000_000_000, "2,500.0 G"),
    ],
)
def test_a_figure_takes_little_room_and_no_exponent(value: float, text: str) -> None:
    assert short_number(value) == text


def test_a_bar_says_its_figure_exactly() -> None:
    plot = column_chart([("1 Mar", (31_000_700, 12))], ("in", "out"))
    assert [bar.title for bar in plot.bars] == ["1 Mar: 31,000,700 in", "1 Mar: 12 out"]


def test_an_axis_has_round_numbers_up_to_the_largest() -> None:
    assert ticks(1) == [0, 0.25, 0.5, 0.75, 1]
    assert ticks(8_400) == [0, 2_500, 5_000, 7_500, 10_000]
    assert ticks(0.0583)[-1] == pytest.approx(0.06)
    plot = column_chart([("1 Mar", (31_000_700, 12)), ("2 Mar", (0, 0))], ("in", "out"))
    assert [label[3] for label in plot.labels] == ["0", "10.0 M", "20.0 M", "30.0 M", "40.0 M", "1 Mar", "2 Mar"]
    assert all(bar.x >= 0 and bar.x + bar.width <= plot.width and bar.y >= 0 for bar in plot.bars)


def test_rows_have_an_axis_and_names_that_fit() -> None:
    for width in (1080, 340):
        plot = row_chart(
            [("Bea with a very long name (signal:1009)", (31_000, 12)), ("You", (5, 0))], ("in", "out"), "", width
        )
        name, total, *_, last = (label[3] for label in plot.labels)
        assert (total, last) == ("31.0 k", "40.0 k")
        assert len(name) * 7 < plot.labels[0][0]
        assert len(plot.rules) == 5
        assert all(0 <= label[0] <= width for label in plot.labels)


def test_a_cost_has_its_currency_or_is_unknown() -> None:
    assert money(UsageTotal(cost_micros=12_000), "$") == "$0.0120"
    assert money(UsageTotal(unpriced_tokens=5), "$") == "unknown"
    assert money(UsageTotal(cost_micros=12_000, unpriced_tokens=5), "$") == "$0.0120 + unknown"
    assert money(UsageTotal(cost_micros=12_000), "") == "0.0120 (unknown currency)"


def test_only_built_in_prices_have_a_known_currency(tmp_path: Path) -> None:
    agent = {"name": "model", "model": "openai:gpt-5-mini"}
    for prices, currency in ({}, "$"), ({"prices": "prices.yaml"}, ""):
        config = Config.model_validate({"data_dir": tmp_path, "store": "x", "agent": {**agent, **prices}})
        assert currency_of(config) == currency


async def test_the_first_day_of_a_plot_is_a_whole_one(window: Opened, client: httpx.AsyncClient) -> None:
    midnight = SystemClock().now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight - timedelta(days=6)
    await Stage(window.store, first).exchange(dm("7"), "hello", "hi")
    assert str(first.date()) in (await client.get("/usage?days=7")).text


async def test_people_whose_names_begin_alike_are_all_counted(window: Opened, client: httpx.AsyncClient) -> None:
    stage = Stage(window.store, SystemClock().now() - timedelta(hours=1))
    for end in "12":
        await stage.exchange(dm("x" * 80 + end), "hello", "hi")
    page = (await client.get("/usage?by=person&days=7")).text
    assert '<th scope="row">All</th><td data-label="Turns">2</td>' in page
    assert page.count('<th scope="row">') == 3


def test_a_plot_ends_today_right_after_midnight_too() -> None:
    """In the night after clocks went forward, six days of 24 hours reach back to a seventh one."""
    now = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)
    days = last_days(now, ZoneInfo("Europe/Berlin"), 7)
    assert (days[0], days[-1], len(days)) == (date(2026, 3, 24), date(2026, 3, 30), 7)
