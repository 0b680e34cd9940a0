"""Plots: numbers as bars, laid out here so that a page needs neither script nor style for them."""

from collections.abc import Sequence

from palaver.model.value import value

__all__ = ["Bar", "Plot", "brief", "columns", "rows"]

_WIDTH = 720
_HEIGHT, _FOOT, _TOP = 200, 18, 14
_ROW, _NAMES, _FIGURES = 24, 200, 90
_LABELS = 8
_LONGEST_EXACT = 10_000
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
class Plot:
    width: int
    height: int
    bars: tuple[Bar, ...]
    labels: tuple[tuple[float, float, str, str], ...]
    """Where they stand, how they are anchored, and what they say."""
    rules: tuple[float, ...] = ()
    """How high lines are drawn across."""


def brief(value: float) -> str:
    """As there is room for it: `9,999`, `31.0 M`."""
    for size, unit in _UNITS:
        if value >= _LONGEST_EXACT and (rounded := round(value / size, 1)) >= 1:
            return f"{rounded:,.1f} {unit}"
    return _exactly(value)


def _exactly(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def columns(values: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]) -> Plot:
    """One column for each value, its parts on top of each other."""
    most = max((sum(parts) for _, parts in values), default=0) or 1
    step, room = _WIDTH / max(len(values), 1), _HEIGHT - _FOOT - _TOP
    bars: list[Bar] = []
    for place, (label, parts) in enumerate(values):
        foot = float(_HEIGHT - _FOOT)
        for number, part in enumerate(parts):
            height = part / most * room
            foot -= height
            if part:
                x, width = place * step + step * 0.1, step * 0.8
                title = f"{label}: {_exactly(part)} {names[number]}"
                bars.append(Bar(x=x, y=foot, width=width, height=height, kind="ab"[number % 2], title=title))
    every = max(1, -(-len(values) // _LABELS))
    below = [
        ((place + 0.5) * step, _HEIGHT - 5.0, "middle", label)
        for place, (label, _) in enumerate(values)
        if place % every == 0
    ]
    top = (4.0, _TOP - 3.0, "start", brief(most))
    rules = (float(_TOP), float(_HEIGHT - _FOOT))
    return Plot(width=_WIDTH, height=_HEIGHT, bars=tuple(bars), labels=(top, *below), rules=rules)


def rows(values: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]) -> Plot:
    """One row for each value, its parts one after the other, its name in front and its sum behind."""
    most = max((sum(parts) for _, parts in values), default=0) or 1
    room = _WIDTH - _NAMES - _FIGURES
    bars: list[Bar] = []
    labels: list[tuple[float, float, str, str]] = []
    for place, (label, parts) in enumerate(values):
        x, y = float(_NAMES), place * _ROW + 4.0
        labels.append((_NAMES - 6.0, y + 12, "end", label))
        for number, part in enumerate(parts):
            width = part / most * room
            if part:
                title = f"{label}: {_exactly(part)} {names[number]}"
                bars.append(Bar(x=x, y=y, width=width, height=_ROW - 8.0, kind="ab"[number % 2], title=title))
            x += width
        labels.append((x + 6.0, y + 12, "start", brief(sum(parts))))
    return Plot(width=_WIDTH, height=max(len(values), 1) * _ROW + 4, bars=tuple(bars), labels=tuple(labels))
