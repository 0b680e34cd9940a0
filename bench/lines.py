"""Figures as lines for people."""

from bench.measure import Figure

__all__ = ["line"]

_UNITS = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3), (float("inf"), "s", 1.0))


def line(figure: Figure) -> str:
    bare, ratio = figure.bare, figure.ratio
    beside = f"{ratio:.2f} × {bare.name} ({_amount(bare.value, figure.unit)})" if bare and ratio else ""
    note = f" [{figure.note}]" if figure.note else ""
    value = _amount(figure.value, figure.unit)
    return f"{figure.name:<20} {value:>11}  {_bounds(figure):<18} {figure.verdict:<9} {beside}{note}".rstrip()


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "B":
        return f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"
    if unit == "/s":
        return f"{value:,.0f} /s"
    if unit != "s":
        return f"{value:.2f} {unit}".rstrip()
    name, factor = next((name, factor) for below, name, factor in _UNITS if value < below)
    return f"{value * factor:.2f} {name}"


def _bounds(figure: Figure) -> str:
    limit = figure.limit
    if limit is None:
        return ""
    sign = "≥" if limit.from_below else "≤"
    unit = "×" if limit.of_ratio else figure.unit
    bounds = (limit.bound, limit.goal)
    texts = [f"{bound:g} ×" if limit.of_ratio else _amount(bound, unit) for bound in bounds if bound is not None]
    return f"{sign} {' goal '.join(texts)}"
