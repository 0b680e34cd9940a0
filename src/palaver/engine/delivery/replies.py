"""Turn an answer into messages: split to the platform's limits, addressed to where answers go."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaver.engine import texts
from palaver.model.attachment import Attachment
from palaver.model.platform import Platform
from palaver.model.source import Source
from palaver.model.split import split
from palaver.model.target import Place
from palaver.model.turn import Choice, Outbound, account_text, outbound_to
from palaver.protocols.adapter import Adapter, Limits
from palaver.protocols.capabilities import Forwarding, Uploading, supports

log = logging.getLogger(__name__)

MAX_PARTS = 64
READABLE_PARTS = 8
"""Send a longer answer as a file."""
PREVIEW_CHARACTERS = 600
"""How much of an answer in a file is shown in the chat."""
_ELSEWHERE = "group"
"""Nothing is known of a place but its address."""


class Replies:
    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self.adapters = adapters
        """Every adapter under the text of its account."""

    def adapter_for(self, platform: str, account: str | None) -> Adapter | None:
        return self.adapters.get(account_text(platform, account))

    @property
    def platforms(self) -> Mapping[str, Platform]:
        """Those on which there is an account of ours."""
        return {adapter.platform.name: adapter.platform for adapter in self.adapters.values()}

    def accounts(self, platform: str) -> list[str | None]:
        return [adapter.account for adapter in self.adapters.values() if adapter.platform.name == platform]

    def reaches_people(self, source: Source) -> bool:
        adapter = self.adapter_for(source.platform, source.account)
        return adapter is not None and adapter.platform.for_people and bool(source.chat or source.participant)

    def has_places(self, source: Source) -> bool:
        """Whether people have more than one place on this platform."""
        adapter = self.adapter_for(source.platform, source.account)
        return adapter is not None and adapter.platform.for_people and adapter.platform.place is None

    def takes_files(self, source: Source) -> bool:
        return supports(self.adapter_for(source.platform, source.account), Uploading)

    def place_at(self, target: Place, profile: str, near: Source | None = None) -> Source | None:
        """By the bot that is spoken to, if it is on that platform, else by the first there is; None without one."""
        platform, accounts = self.platforms.get(target.platform), self.accounts(target.platform)
        if platform is None or (platform.accounts_are_chats and not self._takes(target)):
            return None
        is_near = near is not None and near.platform == target.platform
        account = target.chat if platform.accounts_are_chats else near.account if near and is_near else accounts[0]
        return Source(
            platform=target.platform,
            account=account,
            chat_kind=_ELSEWHERE,
            chat_id=target.chat,
            thread_id=target.thread,
            profile=profile,
        )

    def _takes(self, account: Place) -> bool:
        """Whether something can be sent to an account that is a chat itself."""
        adapter = self.adapter_for(account.platform, account.chat)
        return adapter is not None and adapter.limits.accepts_messages

    def are_forwarded(self, source: Source) -> bool:
        """Tell whether answers to this source go to other chats, which have their own conversations."""
        return self._answered_at(source) != [source]

    def _answered_at(self, source: Source) -> Sequence[Source]:
        adapter = self.adapter_for(source.platform, source.account)
        # What goes to the account as a place is no answer.
        if not supports(adapter, Forwarding) or source.chat == source.account:
            return [source]
        places = [self.place_at(target, source.profile) for target in adapter.forwards_to()]
        if None in places:
            told = {"action": "forward.missing", "account": account_text(source.platform, source.account)}
            log.warning("there is no account of ours to send an answer by", extra=told)
        return [place for place in places if place is not None] or [source]

    def files(self, source: Source, files: Sequence[Attachment]) -> list[Outbound]:
        """Each in a message of its own; where it cannot be sent, the words that say so and where it is."""
        return [
            replace(part, text="", file=file, reply_to=None) if self.takes_files(place) and file.sha256 else part
            for place in (self._answered_at(source) if files else ())
            for file in files
            for part in self._parts(place, texts.file_left(file))[:1]
        ]

    def wants_file(self, source: Source, text: str) -> bool:
        """Whether the text is so long that somewhere it goes a file is better."""
        return any(self._wants_file(place, text) for place in self._answered_at(source))

    def _wants_file(self, place: Source, text: str) -> bool:
        adapter = self.adapter_for(place.platform, place.account)
        if not supports(adapter, Uploading):
            return False
        return adapter.limits.unit.measure(text) > READABLE_PARTS * adapter.limits.text

    def to(
        self,
        source: Source,
        text: str,
        *,
        draft: str | None = None,
        choices: tuple[Choice, ...] = (),
        whole: Attachment | None = None,
    ) -> list[Outbound]:
        """The messages that carry the text to where it was asked for, or where answers to that go.

        The first takes the place of a draft, the last has the answers to choose from. Where the text is too long for a
        chat, `whole` is sent, which holds all of it.
        """
        return [
            part
            for place in self._answered_at(source)
            for part in (
                self._in_a_file(place, text, whole, draft)
                if whole and self._wants_file(place, text)
                else self._parts(place, text, draft, choices)
            )
        ]

    def _in_a_file(self, place: Source, text: str, whole: Attachment, draft: str | None) -> list[Outbound]:
        beginning = split(text[: 2 * PREVIEW_CHARACTERS], PREVIEW_CHARACTERS)[0].text.rstrip()
        said = self._parts(place, f"{beginning}\n\n{texts.GOES_ON_IN_FILE}", draft)
        return [*said, replace(outbound_to(place, ""), file=whole)]

    def _parts(
        self, source: Source, text: str, draft: str | None = None, choices: tuple[Choice, ...] = ()
    ) -> list[Outbound]:
        adapter = self.adapter_for(source.platform, source.account)
        pieces = _pieces(text, adapter.limits if adapter else Limits()) if text.strip() else []
        parts = [
            outbound_to(source, piece)
            if position
            else outbound_to(source, piece, reply_to=source.message_id, edits=draft)
            for position, piece in enumerate(pieces)
        ]
        return [*parts[:-1], *(replace(part, choices=choices) for part in parts[-1:])] if choices else parts


def _pieces(text: str, limits: Limits) -> list[str]:
    room = _room(limits)
    # The rest is in none of the kept pieces: no piece holds more than `room` characters.
    beginning = text[: (MAX_PARTS + 1) * room]
    pieces = [piece.text for piece in split(beginning, room, limits.unit)]
    if len(pieces) <= MAX_PARTS and beginning == text:
        return pieces
    end = [piece.text for piece in split(texts.CUT, room, limits.unit)][:MAX_PARTS]
    return [*pieces[: MAX_PARTS - len(end)], *end]


def _room(limits: Limits) -> int:
    """What a message may hold, so that one that has to be sent twice can say so."""
    if limits.repeats_safely:
        return limits.text
    return max(limits.unit.widest, limits.text - limits.unit.measure(f"\n{texts.MAY_BE_DUPLICATE}"))
