"""Scopes: the rules that say which sources share a conversation."""

from enum import StrEnum

from palaver.model.source import MAIN, Source
from palaver.model.value import value

__all__ = [
    "DmScope",
    "GroupScope",
    "ProfileRule",
    "Scope",
    "ThreadScope",
    "choose_profile",
]


class DmScope(StrEnum):
    PER_CHAT = "per-chat"
    PER_PERSON = "per-person"
    SHARED = "shared"


class GroupScope(StrEnum):
    PER_USER = "per-user"
    SHARED = "shared"


class ThreadScope(StrEnum):
    SHARED = "shared"
    PER_USER = "per-user"


@value
class Scope:
    dm: DmScope = DmScope.PER_CHAT
    group: GroupScope = GroupScope.PER_USER
    thread: ThreadScope = ThreadScope.SHARED


@value
class ProfileRule:
    """Sends what matches every given field to a profile. A rule for a chat also holds in its threads."""

    profile: str
    platform: str | None = None
    account: str | None = None
    scope_id: str | None = None
    chat_id: str | None = None
    thread_id: str | None = None

    def matches(self, source: Source) -> bool:
        return (
            self.platform in {None, source.platform}
            and self.account in {None, source.account}
            and self.scope_id in {None, source.scope_id}
            and self.chat_id in {None, source.chat, source.parent_chat_id}
            and self.thread_id in {None, source.thread_id}
        )

    def specificity(self, source: Source) -> tuple[bool, bool, bool, bool, bool, bool]:
        """The narrower place first: a thread is inside a chat, that inside a scope, that before an account of ours."""
        return (
            self.thread_id is not None,
            self.chat_id is not None and self.chat_id == source.chat,
            self.chat_id is not None,
            self.scope_id is not None,
            self.account is not None,
            self.platform is not None,
        )


def choose_profile(source: Source, rules: tuple[ProfileRule, ...]) -> str:
    """The most specific matching rule wins; of two equals the first. Where a profile was asked for, it stays."""
    matching = [rule for rule in rules if rule.matches(source)]
    if not matching or source.profile != MAIN:
        return source.profile
    return max(matching, key=lambda rule: rule.specificity(source)).profile
