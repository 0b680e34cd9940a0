"""Bar charts laid out on the server, so that a page needs neither script nor style for them."""

from collections.abc import Sequence

from palaver.model.value import value

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
