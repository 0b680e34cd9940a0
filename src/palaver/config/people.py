"""Who may talk, and which profile answers: the rules of the domain as they are written in a file."""

from typing import Self

from pydantic import Field, model_validator

from palaver.config.forms import MaybeName, Part, Role, refused
from palaver.domain.access import AccessRole, Basis, Effect, Grant
from palaver.domain.errors import InvalidInput
from palaver.domain.scope import ProfileRule

__all__ = ["API_OWNER", "TERMINAL_OWNER", "WEB_OWNER", "GrantChoice", "RouteChoice"]

TERMINAL_OWNER = Grant(platform="terminal", role=AccessRole.OWNER)
"""Whoever sits at the terminal owns the gateway."""
WEB_OWNER = Grant(platform="web", user_id="owner", role=AccessRole.OWNER)
"""So does whoever was given a login link: only the window speaks in the name of this platform."""
API_OWNER = Grant(platform="api", user_id="owner", role=AccessRole.OWNER)
"""So does a program with a token of the owner's."""


class RouteChoice(Part):
    platform: MaybeName = Field(default=None, description="Only there.")
    account: MaybeName = Field(default=None, description="Only to this bot of yours.")
    scope_id: MaybeName = Field(default=None, description="Only on this server or workspace.")
    chat_id: MaybeName = Field(default=None, description="Only in this chat and its threads.")
    thread_id: MaybeName = Field(default=None, description="Only in this thread.")

    def rule(self, profile: str) -> ProfileRule:
        return ProfileRule(profile=profile, **dict(self))


class GrantChoice(Part):
    effect: Effect = Field(default=Effect.ALLOW, description="Whether it lets in or keeps out.")
    role: Role = Field(default=AccessRole.MEMBER, description="As what.")
    basis: Basis = Field(default=Basis.IDENTITY, description="What a sender must show.")
    platform: MaybeName = Field(default=None, description="Only there.")
    account: MaybeName = Field(default=None, description="Only to this bot of yours.")
    scope_id: MaybeName = Field(default=None, description="Only on this server or workspace.")
    chat_id: MaybeName = Field(default=None, description="Only in this chat and its threads.")
    user_id: MaybeName = Field(default=None, description="Only this user.")
    person: MaybeName = Field(default=None, description="Only this person, on every account linked to them.")

    @model_validator(mode="after")
    def _names_the_platform_of_an_id(self) -> Self:
        try:
            self.grant()
        except InvalidInput as refusal:
            raise refused(refusal) from refusal
        return self

    def grant(self) -> Grant:
        return Grant(**dict(self))
