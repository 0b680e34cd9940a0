"""How much may be used: the caps of the domain as they are written in a file."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from palaver.model.access import AccessRole, Basis, ChatKind, Effect, Grant
from palaver.model.errors import InvalidInput
from palaver.model.key import ProfileRule
from palaver.model.quotas import UNLIMITED, Quota, QuotaKind, QuotaRules
from palaver.platforms.plugins import known_platforms
from palaver.settings.types import MaybeName, Money, Role, Section, Syntax, Tokens, as_pydantic_error


class CapConfig(Section):
    tokens: Tokens = Field(default=None, description="At most this many tokens, input and output together.")
    cost: Money = Field(default=None, description="At most this cost, in the currency of the price table.")

    def cap(self, outer: Quota) -> Quota:
        """What is said; the rest is as outside."""
        sources = self.model_fields_set
        return Quota(
            tokens=self.tokens if "tokens" in sources else outer.tokens,
            cost_micros=self.cost if "cost" in sources else outer.cost_micros,
        )


class MeasureConfig(Section):
    person_day: CapConfig = Field(default=CapConfig(), description="For one person, per day.")
    person_month: CapConfig = Field(default=CapConfig(), description="For one person, per month.")
    session: CapConfig = Field(default=CapConfig(), description="For one conversation.")
    day: CapConfig = Field(default=CapConfig(), description="For everybody together, per day.")

    def caps(self, outer: Mapping[QuotaKind, Quota]) -> dict[QuotaKind, Quota]:
        chosen: dict[str, CapConfig] = dict(self)
        return {measure: chosen[measure.value].cap(outer.get(measure, Quota())) for measure in QuotaKind}


class CapsConfig(MeasureConfig):
    owner: MeasureConfig = Field(default=MeasureConfig(), description="Overrides for owners.")
    admin: MeasureConfig = Field(default=MeasureConfig(), description="Overrides for admins.")
    member: MeasureConfig = Field(default=MeasureConfig(), description="Overrides for members.")
    guest: MeasureConfig = Field(default=MeasureConfig(), description="Overrides for guests.")

    def rules(self) -> QuotaRules:
        usual = self.caps({})
        sources: dict[str, MeasureConfig] = dict(self)
        roles = {role: sources[role.name.lower()].caps(usual) for role in AccessRole}
        return QuotaRules(
            caps={measure: cap for measure, cap in usual.items() if cap != UNLIMITED},
            roles={role: caps for role, caps in roles.items() if caps != usual},
        )


TERMINAL_OWNER = Grant(platform="terminal", role=AccessRole.OWNER)
"""The person at the terminal owns the gateway."""
WEB_OWNER = Grant(platform="web", user_id="owner", role=AccessRole.OWNER)
"""So does a person with an owner login link: only the web server speaks for this platform."""
API_OWNER = Grant(platform="api", user_id="owner", role=AccessRole.OWNER)
"""So does a program with a token of the owner's."""


class RouteConfig(Section):
    platform: MaybeName = Field(default=None, description="Only on this platform.")
    account: MaybeName = Field(default=None, description="Only for this bot account.")
    scope_id: MaybeName = Field(default=None, description="Only on this server or workspace.")
    chat_id: MaybeName = Field(default=None, description="Only in this chat and its threads.")
    thread_id: MaybeName = Field(default=None, description="Only in this thread.")

    def rule(self, profile: str, number: int) -> ProfileRule:
        return ProfileRule(profile=profile, origin=("profiles", profile, "serves", number), **dict(self))


class GrantConfig(Section):
    effect: Effect = Field(default=Effect.ALLOW, description="Whether to allow or to block.")
    role: Role = Field(default=AccessRole.MEMBER, description="The role that the grant gives.")
    basis: Basis = Field(default=Basis.IDENTITY, description="How senders are identified.")
    platform: MaybeName = Field(default=None, description="Only on this platform.")
    account: MaybeName = Field(default=None, description="Only for this bot account.")
    scope_id: MaybeName = Field(default=None, description="Only on this server or workspace.")
    kind: Annotated[ChatKind | None, Syntax(", ".join(ChatKind), "group")] = Field(
        default=None, description="Only in direct chats (dm), or only in groups, channels and threads (group)."
    )
    chat_id: MaybeName = Field(default=None, description="Only in this chat and its threads.")
    user_id: MaybeName = Field(default=None, description="Only this user id, or alternate id written as alt:ID.")
    person: MaybeName = Field(default=None, description="Only this person, on every account linked to them.")

    @model_validator(mode="after")
    def _names_the_platform_of_an_id(self) -> Self:
        try:
            self.grant()
        except InvalidInput as refusal:
            raise as_pydantic_error(refusal) from refusal
        return self

    def grant(self, number: int = 0) -> Grant:
        fields, platform = dict(self), known_platforms().get(self.platform or "")
        if platform and self.user_id:
            fields["user_id"] = platform.canonical_user(self.user_id)
        return Grant(origin=("grants", number), **fields)
