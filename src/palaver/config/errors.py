"""Mistakes in a configuration: each says where it is, what was found, what is allowed, and an example."""

from collections.abc import Sequence

from palaver.config.nodes import Spot
from palaver.model.errors import InvalidInput
from palaver.model.text import quoted
from palaver.model.value import value

__all__ = [
    "MalformedConfig",
    "Mistake",
]


@value
class Mistake:
    spot: Spot
    field: str = ""
    """`platforms.telegram.busy`; empty where it is no field's fault."""
    problem: str
    found: str
    allowed: str
    example: str

    def __str__(self) -> str:
        return f"{self.spot}: {self.problem} {quoted(self.found)}; allowed: {self.allowed}; for example: {self.example}"


class MalformedConfig(InvalidInput):
    """Speaks of the first mistake, counts the others, carries them all."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        more = f"; and {len(mistakes) - 1} more, see palaver config check" if mistakes[1:] else ""
        super().__init__(
            f"{first.spot}: {first.problem}",
            found=first.found,
            allowed=first.allowed,
            example=f"{first.example}{more}",
        )
        self.mistakes = tuple(mistakes)
