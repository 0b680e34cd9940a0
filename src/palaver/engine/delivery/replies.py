"""Turn an answer into messages: split to the platform's limits, addressed to where answers go."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from palaver.engine import texts
from palaver.engine.delivery.targets import TargetRules
from palaver.model.attachment import Attachment
from palaver.model.key import ScopedSetting
from palaver.model.platform import Platform
from palaver.model.source import MAIN, Source, account_text
from palaver.model.split import MAX_PARTS, ReplyAccount, ReplyPlace, ReplyRoutes, split
from palaver.model.turn import Outbound, QuoteMode, outbound_to
from palaver.protocols.adapter import Adapter, Limits
from palaver.protocols.capabilities import Forwarding, Uploading, supports

log = logging.getLogger(__name__)

READABLE_PARTS = 8
"""Send a longer answer as a file."""
LONGEST_ANSWER = 1_000_000
"""How many characters of an answer are stored as text. A file has the whole of a longer one."""
PREVIEW_CHARACTERS = 600
"""How much of an answer in a file is shown in the chat."""


class Replies:
    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        commands: Collection[str] = (),
        quotes: ScopedSetting[QuoteMode] = ScopedSetting(default=QuoteMode.GROUPS),  # noqa: B008
    ) -> None:
        self.adapters = adapters
        """Every adapter under the text of its account."""
        self._commands = commands
        self._quotes = quotes

    def adapter_for(self, platform: str, account: str | None) -> Adapter | None:
        return self.adapters.get(account_text(platform, account))

    @cached_property
    def platforms(self) -> Mapping[str, Platform]:
        """Those on which there is an account of ours."""
        return {adapter.platform.name: adapter.platform for adapter in self.adapters.values()}

    def accounts(self, platform: str) -> list[str | None]:
        return [adapter.account for adapter in self.adapters.values() if adapter.platform.name == platform]

    @cached_property
    def routes(self) -> ReplyRoutes:
        """How to reply to any source, as a value for transactions."""
        accounts = {name: self._route(adapter) for name, adapter in self.adapters.items()}
        return ReplyRoutes(accounts=accounts, quotes=self._quotes)

    def set_quotes(self, quotes: ScopedSetting[QuoteMode]) -> None:
        """Use another setting from now on."""
        if quotes != self._quotes:
            self._quotes = quotes
            self.__dict__.pop("routes", None)

    def _route(self, adapter: Adapter) -> ReplyAccount:
        limits, platform = adapter.limits, adapter.platform
        return ReplyAccount(
            unit=limits.unit,
            limit=limits.text,
            room=_room(limits),
            one_line=limits.one_line,
            one_paragraph=limits.one_paragraph,
            for_people=platform.for_people,
            has_places=platform.place is None,
            bang_commands=self._commands if platform.keeps_slash else (),
            forwards_to=self._forwards_to(adapter) if supports(adapter, Forwarding) else (),
        )

    def _forwards_to(self, adapter: Forwarding) -> tuple[ReplyPlace, ...]:
        found: list[ReplyPlace] = []
        for target in adapter.forwards_to():
            place = TargetRules(accounts=self.senders, profile=MAIN).place_at(target)
            account = place and self.adapter_for(place.platform, place.account)
            if place and account:
                found.append(self._route(account).place(place))
            else:
                extra = {"action": "forward.missing", "account": target.platform}
                log.warning("there is no account of ours to send an answer by", extra=extra)
        return tuple(found)

    def takes_files(self, source: Source) -> bool:
        return supports(self.adapter_for(source.platform, source.account), Uploading)

    @cached_property
    def senders(self) -> Mapping[str, Platform]:
        """The platforms of the accounts that can send, by the text of each account."""
        return {
            name: adapter.platform
            for name, adapter in self.adapters.items()
            if adapter.limits.accepts_messages or not adapter.platform.accounts_are_chats
        }

    def files(self, source: Source, files: Sequence[Attachment]) -> list[Outbound]:
        """Return a message for each file. Where it cannot be sent, say so and where it is."""
        return [
            replace(part, text="", file=file, reply_to=None) if self.takes_files(place.source) and file.sha256 else part
            for place in (self.routes.places(source) if files else ())
            for file in files
            for part in place.messages(texts.file_left(file))[:1]
        ]

    def wants_file(self, source: Source, text: str) -> bool:
        """Tell whether the text is so long that somewhere it goes a file is better."""
        return any(self._wants_file(place, text) for place in self.routes.places(source))

    def _wants_file(self, place: ReplyPlace, text: str) -> bool:
        limit = min(LONGEST_ANSWER, READABLE_PARTS * place.account.limit)
        # No unit counts less than one for a character, so most long texts need no measuring.
        is_long = len(text) > limit or place.account.unit.measure(text) > limit
        return is_long and self.takes_files(place.source)

    def to(
        self,
        source: Source,
        text: str,
        *,
        draft: str | None = None,
        whole: Attachment | None = None,
        most: int = MAX_PARTS,
    ) -> list[Outbound]:
        """Return the messages that carry the agent's text to where answers to the source go, at most so many each.

        The first replaces a draft. Where the text is too long for a chat, `whole` is sent, which holds all of it.
        """
        return [
            part
            for place in self.routes.places(source)
            for part in (
                _in_a_file(place, text, whole, draft)
                if whole and self._wants_file(place, text)
                else place.messages(text, draft=draft, most=most)
            )
        ]


def _in_a_file(place: ReplyPlace, text: str, whole: Attachment, draft: str | None) -> list[Outbound]:
    beginning = split(text[: 2 * PREVIEW_CHARACTERS], PREVIEW_CHARACTERS)[0].text.rstrip()
    said = place.messages(f"{beginning}\n\n{texts.GOES_ON_IN_FILE}", draft=draft)
    return [*said, replace(outbound_to(place.source, ""), file=whole)]


def _room(limits: Limits) -> int:
    """Return what a message may hold, so that one that has to be sent twice can say so."""
    if limits.repeats_safely:
        return limits.text
    return max(limits.unit.widest, limits.text - limits.unit.measure(f"\n{texts.MAY_BE_DUPLICATE}"))
