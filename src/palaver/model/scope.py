"""Scopes: which sources share a conversation, and which profile answers them."""

from enum import StrEnum

from palaver.model.source import MAIN, Source
from palaver.model.value import value


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
    """Route a source that matches every given field to a profile. A rule for a chat also matches its threads."""

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
        """Return a sort key that puts the narrower rule last: thread, then chat, server, account, platform."""
        return (
            self.thread_id is not None,
            self.chat_id is not None and self.chat_id == source.chat,
            self.chat_id is not None,
            self.scope_id is not None,
            self.account is not None,
            self.platform is not None,
        )


def choose_profile(source: Source, rules: tuple[ProfileRule, ...]) -> str:
    """Return the profile of the most specific matching rule, unless the source already asked for a profile."""
    matching = [rule for rule in rules if rule.matches(source)]
    if not matching or source.profile != MAIN:
        return source.profile
    return max(matching, key=lambda rule: rule.specificity(source)).profile
