"""Where a target leads: the chats that output goes to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.model.errors import BadArgument
from palaver.model.platform import Platform
from palaver.model.source import DM, Source, account_text, decode_id
from palaver.model.target import All, Home, Local, Origin, Place, Target
from palaver.model.value import value

_ELSEWHERE = "group"
"""Nothing is known of a place but its address."""


@value
class OutputFile:
    """The file that the target `local` makes."""

    owner: str
    """The identity of the person it belongs to."""
    name: str
    at: datetime

    @property
    def place(self) -> Source:
        """Return the file as a place to send to: a folder for the person, one for the name, and the time."""
        time = self.at.strftime("%Y-%m-%dT%H%M%SZ")
        return Source(platform=Local.text, chat_kind=DM, scope_id=self.owner, chat_id=self.name, thread_id=time)


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
    file: OutputFile | None = None

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
                return [self.file.place] if self.file and self._can_write_files else []

    def problem(self, target: Target) -> str | None:
        """Say why nothing can be sent to a target, or to one of the home channels it stands for."""
        match target:
            case Origin():
                wanted = [self.origin] if self.origin else []
            case Home(platform=platform):
                wanted = [home for home in self.homes if home.platform == platform]
            case All():
                wanted = self.homes
            case Place(platform=platform):
                wanted = self.places(target)
                if not wanted:
                    return f"this gateway has no such account on {platform}"
            case Local():
                return None if self.places(target) else "this gateway writes no files"
        if not wanted:
            return "there is no such chat" if isinstance(target, Origin) else "there is no home channel"
        accounts = (account_text(place.platform, place.account) for place in wanted)
        away = sorted({account for account in accounts if account not in self.accounts})
        return f"this gateway no longer has the account {', '.join(away)}" if away else None

    @property
    def _can_write_files(self) -> bool:
        return any(platform.name == Local.text for platform in self.accounts.values())

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


def reachable_places(targets: Sequence[Target], rules: TargetRules) -> list[Source]:
    """Return the places that the targets lead to, each once. Raises BadArgument if nothing can be sent to one."""
    found: list[Source] = []
    for target in targets:
        places = [
            place for place in rules.places(target) if account_text(place.platform, place.account) in rules.accounts
        ]
        if not places:
            files = "local, " if rules.places(Local()) else ""
            raise BadArgument(
                "Nothing can be sent to",
                found=target.text,
                allowed=f"origin, {files}platforms that have a home channel, <platform>:<chat>[:<thread>]",
                example="origin",
            )
        found += places
    return list({place.address: place for place in found}.values())
