"""Tokens that were used, and what they cost."""

from dataclasses import fields

from palaver.model.value import value


@value
class Spent:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cost_micros: int = 0
    """Millionths of the price table's currency."""
    unpriced_tokens: int = 0
    """Tokens whose price is unknown: the cost does not include them."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> str:
        return format_cost(self)


def format_cost(spent: Spent) -> str:
    """Return the cost for people. An unknown price is never shown as zero."""
    if spent.unpriced_tokens and not spent.cost_micros:
        return "unknown"
    return f"{spent.cost_micros / 1_000_000:,.4f}{' + unknown' if spent.unpriced_tokens else ''}"


SPENT_FIELDS = tuple(each.name for each in fields(Spent))
