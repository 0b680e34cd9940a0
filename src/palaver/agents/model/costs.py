"""Costs of an answer, by the owner's price file or the built-in price table. Nothing is fetched."""

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any

import yaml
from genai_prices import calc_price
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_ai.usage import RequestUsage

from palaver.model.errors import InvalidInput
from palaver.model.turn import Usage
from palaver.model.value import value

_MILLION = 1_000_000
_Amount = Annotated[Decimal, Field(ge=0, le=_MILLION)]
_ALIASES = {"openai-chat": "openai", "openai-responses": "openai"}
"""Names of one provider's interfaces."""


class Price(BaseModel):
    """Prices for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: _Amount
    output: _Amount
    cached_input: _Amount | None = None
    """The price of cached input; by default, that of other input."""

    def micros(self, usage: RequestUsage) -> int:
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = max(usage.input_tokens - usage.cache_read_tokens, 0)
        # The price of a million tokens equals the price of one token in millionths.
        return round(fresh * self.input + usage.cache_read_tokens * cached + usage.output_tokens * self.output)


_PRICES: TypeAdapter[dict[str, Price]] = TypeAdapter(dict[str, Price])


@value(kw_only=False)
class Costs:
    own: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """By `provider:model`."""
    is_custom_server: bool = False
    """The server is not the provider's own, so the provider's prices do not apply."""

    @classmethod
    def of(cls, prices: bytes | None, *, is_custom_server: bool) -> "Costs":
        """Parse a price file. Raises InvalidInput."""
        try:
            return cls(_PRICES.validate_python(yaml.safe_load(prices) if prices else {}), is_custom_server)
        except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
            raise InvalidInput(
                "The price file cannot be read ({found})",
                found=type(error).__name__,
                allowed="models, each with input, output and optionally cached_input per million tokens",
                example='"openai:gpt-5-mini": {input: 0.25, output: 2}',
            ) from error

    def usage(self, name: str, used: RequestUsage) -> Usage:
        cost, tokens = self._micros(name, used), used.input_tokens + used.output_tokens
        return Usage(
            model=name,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cache_read_tokens,
            cost_micros=cost or 0,
            unpriced_tokens=tokens if cost is None else 0,
            prompt_tokens=tokens,
        )

    def knows(self, name: str) -> bool:
        """Return whether `provider:model` has a price."""
        return self._micros(name, RequestUsage(input_tokens=1, output_tokens=1)) is not None

    def _micros(self, name: str, used: RequestUsage) -> int | None:
        """Return the cost in millionths; None if the price is unknown."""
        if name in self.own:
            return self.own[name].micros(used)
        if self.is_custom_server:
            return None
        provider, _, model = name.partition(":")
        price_usage: Any = used
        try:
            price = calc_price(price_usage, model, provider_id=_ALIASES.get(provider, provider))
        except (LookupError, ValueError):
            return None
        return round(price.total_price * _MILLION)
