"""What is wanted of a model agent."""

from dataclasses import field
from datetime import timedelta

from palaver.model.value import value

__all__ = [
    "Wanted",
]


@value
class Wanted:
    model: str
    """`provider:model`."""
    models: tuple[str, ...] = ()
    """Others that a conversation may ask for."""
    key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    instructions: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: timedelta = timedelta(minutes=2)
    rounds: int = 40
    context_window: int | None = None
    prices: bytes | None = None
    """A price list that counts more than the one that is built in."""
