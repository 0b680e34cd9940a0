"""Frames of the bridge: messages of a personal number, and the several ids of one person."""

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from palaver.platforms.whatsapp.parse import PLATFORM, NewMessage
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    Quote,
    Reaction,
    Revision,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
    after_name,
    identity_of,
)
from palaver.protocols.files import described_file

Frame = Mapping[str, Any]
_NUMBER = re.compile(r"\+?([0-9]{4,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?")
_LID = re.compile(r"([0-9]{1,32})(?::[0-9]+)?@lid")
_MAX_WAIT_SECONDS = 3600.0


def canonical_form(identity: str) -> str:
    """Return the number in digits, or the hidden id without its device: `49170:3@s.whatsapp.net` is `49170`."""
    if number := _NUMBER.fullmatch(identity):
        return number[1]
    lid = _LID.fullmatch(identity)
    return f"{lid[1]}@lid" if lid else identity


def aliases_of(*forms: str | None) -> list[tuple[str, str]]:
    """Return each other form of a person with the canonical one: the number, if one of them is a number."""
    known = [form for given in forms if given for form in (given, canonical_form(given))]
    if not known:
        return []
    person = next((form for form in known if form.isascii() and form.isdecimal()), canonical_form(known[0]))
    return [(form, person) for form in dict.fromkeys(known) if form != person]


def parse_frame(frame: Frame, account: str, ours: AbstractSet[str]) -> NewMessage | None:
    """Parse a message, change or reaction; None if we wrote it. `ours` has the canonical ids of our own number."""
    source = _source(frame, account)
    if canonical_form(source.user_id or "") in ours:
        return None
    if frame["type"] == "reaction":
        return NewMessage(inbound=_reaction(frame, source), aliases=aliases_of(source.user_id, frame.get("from_alt")))
    text, is_named = _addressed(str(frame.get("text") or ""), ours)
    mentions = {canonical_form(str(each)) for each in frame.get("mentions") or ()}
    quote = _quote(frame, source, ours)
    inbound = Inbound(
        source=source,
        text=f"[forwarded]\n{text}" if frame.get("forwarded") else text,
        at=datetime.fromtimestamp(float(frame["at"]), UTC),
        labels=Labels(user=Label.of(frame.get("name")), chat=Label.of(frame.get("group_name"))),
        mentions_us=is_named or bool(mentions & ours) or bool(quote and quote.is_ours),
        reply_to=str(frame["reply_to"]) if frame.get("reply_to") else None,
        quote=quote if quote and quote.text else None,
        files=tuple(_files(frame.get("files") or ())),
        revision=Revision(version=str(frame["version"]), deleted=bool(frame.get("deleted")))
        if frame["type"] == "change"
        else None,
    )
    return NewMessage(inbound=inbound, aliases=aliases_of(source.user_id, frame.get("from_alt")))


def _reaction(frame: Frame, source: Source) -> Inbound:
    """`id` names the message; without an emoji the reaction is taken back."""
    emoji = str(frame.get("emoji") or "")
    return Inbound(
        source=replace(source, message_id=None),
        text="",
        at=datetime.fromtimestamp(float(frame["at"]), UTC),
        labels=Labels(user=Label.of(frame.get("name")), chat=Label.of(frame.get("group_name"))),
        reply_to=source.message_id,
        reaction=Reaction(emoji=emoji, removed=not emoji),
    )


def _source(frame: Frame, account: str) -> Source:
    """The id of a direct chat is the person's."""
    sender, group = _required(frame, "from"), frame.get("group")
    return Source(
        platform=PLATFORM,
        account=account,
        chat_kind=GROUP if group else DM,
        chat_id=str(group or sender),
        user_id=sender,
        message_id=_required(frame, "id"),
    )


def _required(frame: Frame, name: str) -> str:
    found = frame[name]
    if not isinstance(found, str) or not found:
        raise ValueError(name)
    return found


def _addressed(text: str, ours: AbstractSet[str]) -> tuple[str, bool]:
    """Return the text without a mention of us in front: `@` and the part of our id before its own `@`."""
    rest = after_name(text, [f"@{each.partition('@')[0]}" for each in ours])
    return (text, False) if rest is None else (rest, True)


def _quote(frame: Frame, source: Source, ours: AbstractSet[str]) -> Quote | None:
    quoted: Frame | None = frame.get("quote")
    if not quoted:
        return None
    author = canonical_form(str(quoted.get("from") or ""))
    return Quote(
        text=str(quoted.get("text") or ""),
        author=identity_of(Source(platform=PLATFORM, account=source.account, user_id=author)) if author else None,
        name=Label.of(quoted.get("name")),
        is_ours=author in ours,
    )


def _files(files: Sequence[Frame]) -> Iterator[Attachment]:
    for file in files:
        yield described_file(file.get("name"), file.get("type"), file.get("size"), handle=str(file["handle"]))


def error_of(result: Frame) -> PlatformError | None:
    """Return what a failed send means; None if it was sent."""
    words = str(result.get("words") or "the bridge does not say why")[:200]
    match result.get("error"):
        case None:
            return None
        case "down":
            return PlatformDown(f"The bridge has no connection to WhatsApp: {words}")
        case "busy":
            after = result.get("after")
            return PlatformBusy(
                min(float(after), _MAX_WAIT_SECONDS) if isinstance(after, int | float) and after > 0 else 5.0
            )
        case "gone":
            return TargetGone(f"WhatsApp has no such chat, or we are not in it: {words}")
        case "refused":
            return SendRefused(f"WhatsApp rejects it: {words}")
        case _:
            return SendUnclear(f"The bridge does not know whether it was sent: {words}")
