"""Backoff: how long to wait between attempts."""

_MAX_STEPS = 16


def backoff(attempt: int, *, first: float = 0.1, factor: float = 2, longest: float = 10.0) -> float:
    """Return the seconds to wait after failed attempt number `attempt`, counted from 1: `factor` times longer each."""
    return min(longest, first * factor ** min(attempt - 1, _MAX_STEPS))
