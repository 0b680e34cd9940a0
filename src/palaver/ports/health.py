"""Health: one thing that was looked at, what was found, and how to mend it."""

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    ok: bool
    found: str
    mend: str = ""
