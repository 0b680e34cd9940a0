"""Where a target leads: the chats that output goes to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaver.model.platform import Platform
from palaver.model.source import Source, decode_id
from palaver.model.target import All, Home, Local, Origin, Place, Target
from palaver.model.turn import account_text
from palaver.model.value import value

_ELSEWHERE = "group"
"""Nothing is known of a place but its address."""


@value
class TargetRules:
    """What decides where targets lead."""

    accounts: Mapping[str, Platform]
    """The platform of each account that can send, by the text of the account."""
    profile: str
    homes: Sequence[Source] = ()
    """The home channels of the profile."""
    origin: Source | None = None
    """Where the request came from."""

    def places(self, target: Target) -> list[Source]:
        """Return the chats that a target leads to; none if nothing can be sent there."""
        match target:
            case Origin():
                return [replace(self.origin, message_id=None)] if self.origin else []
            case Home(platform=platform):
                return [home for home in self._reachable_homes() if home.platform == platform]
            case All():
                return self._reachable_homes()
            case Place():
                place = self.place_at(target)
                return [place] if place else []
            case Local():
                return []

    def _reachable_homes(self) -> list[Source]:
        """Return the home channels at accounts that can send."""
        return [home for home in self.homes if account_text(home.platform, home.account) in self.accounts]

    def place_at(self, target: Place) -> Source | None:
        """Return a place by the bot that is spoken to, if it is on that platform, else by the first; None without."""
        served = {
            decode_id(name.partition(":")[2]) or None: platform
            for name, platform in self.accounts.items()
            if platform.name == target.platform
        }
        if not served:
            return None
        account = next(iter(served))
        if served[account].accounts_are_chats:
            if target.chat not in served:
                return None
            account = target.chat
        elif self.origin is not None and self.origin.platform == target.platform:
            account = self.origin.account
        return Source(
            platform=target.platform,
            account=account,
            chat_kind=_ELSEWHERE,
            scope_id=target.server,
            chat_id=target.chat,
            thread_id=target.thread,
            profile=self.profile,
        )
