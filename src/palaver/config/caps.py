"""How much may be used: the caps of the domain as they are written in a file."""

from collections.abc import Mapping

from pydantic import Field

from palaver.config.forms import Money, Part, Tokens
from palaver.domain.access import AccessRole
from palaver.domain.caps import NO_CAP, Cap, CapRules, Measure

__all__ = ["CapChoice", "CapsChoice", "MeasureChoice"]


class CapChoice(Part):
    tokens: Tokens = Field(default=None, description="So many tokens, in and out.")
    cost: Money = Field(default=None, description="So much money, in the currency of the price table.")

    def cap(self, outer: Cap) -> Cap:
        """What is said; the rest is as outside."""
        said = self.model_fields_set
        return Cap(
            tokens=self.tokens if "tokens" in said else outer.tokens,
            cost_micros=self.cost if "cost" in said else outer.cost_micros,
        )


class MeasureChoice(Part):
    person_day: CapChoice = Field(default=CapChoice(), description="What one person may use in a day.")
    person_month: CapChoice = Field(default=CapChoice(), description="What one person may use in a month.")
    session: CapChoice = Field(default=CapChoice(), description="What one conversation may use.")
    day: CapChoice = Field(default=CapChoice(), description="What everybody together may use in a day.")

    def caps(self, outer: Mapping[Measure, Cap]) -> dict[Measure, Cap]:
        chosen: dict[str, CapChoice] = dict(self)
        return {measure: chosen[measure.value].cap(outer.get(measure, Cap())) for measure in Measure}


class CapsChoice(MeasureChoice):
    owner: MeasureChoice = Field(default=MeasureChoice(), description="What is different for owners.")
    admin: MeasureChoice = Field(default=MeasureChoice(), description="What is different for admins.")
    member: MeasureChoice = Field(default=MeasureChoice(), description="What is different for members.")
    guest: MeasureChoice = Field(default=MeasureChoice(), description="What is different for guests.")

    def rules(self) -> CapRules:
        usual = self.caps({})
        said: dict[str, MeasureChoice] = dict(self)
        roles = {role: said[role.name.lower()].caps(usual) for role in AccessRole}
        return CapRules(
            caps={measure: cap for measure, cap in usual.items() if cap != NO_CAP},
            roles={role: caps for role, caps in roles.items() if caps != usual},
        )
