"""Figures of plots, as people read them."""

import pytest

from palaver.web.pages.usage import column_chart, short_number


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
    assert plot.labels[0][3] == "31.0 M"
