"""Parse what signal-cli reports, and render what it sends."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from palaver.model.feedback import rating_of
from palaver.protocols import (
    DM,
    GROUP,
    UNKNOWN_TYPE,
    Attachment,
    Inbound,
    Label,
    Labels,
    Outbound,
    Quote,
    Reaction,
    Revision,
    Source,
    Unit,
    identity_of,
    parse_milliseconds,
)
from palaver.protocols.markdown import Layout, Style, to_spans

PLATFORM = "signal"
_AFTER_NAME = " \t\n,:"
_NOT_DOWNLOADED = "signal-cli did not download it"
_LONG_TEXT = "text/x-signal-plain"
"""The whole of a long text. Newer versions of signal-cli put it into the text itself."""
_MAX_SHORT_BYTES = 2000
_MAX_DIGITS = 18
_PERIODS = ((604_800, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))

Json: TypeAlias = Mapping[str, Any]


class Person(NamedTuple):
    """Somebody as an event names them: by number, account id (a UUID), or both."""

    number: str | None
    uuid: str | None

    @property
    def id(self) -> str:
        """The stable id if it is known."""
        return self.uuid or self.number or ""


class OwnAccount(NamedTuple):
    account: str
    number: str
    uuid: str | None = None

    def is_same(self, person: Person) -> bool:
        return person.number == self.number or (person.uuid is not None and person.uuid == self.uuid)


class Known(NamedTuple):
    """What earlier events told."""

    uuids: Mapping[str, str]
    """Account ids by number."""
    edits: Mapping[str, str]
    """When an edited message was first sent, by `edit_key`: an edit names only the version before it."""


def parse(event: Json, us: OwnAccount, known: Known) -> Inbound | None:
    """Parse an event; None for receipts, typing, calls, stories and what our other devices sent."""
    envelope: Json = event.get("envelope") or {}
    edit: Json = envelope.get("editMessage") or {}
    data: Json | None = edit.get("dataMessage") if edit else envelope.get("dataMessage")
    sender = _person(envelope, "sourceNumber", "sourceUuid", known)
    if not data or not sender.id or us.is_same(sender):
        return None
    sent = _time(data["timestamp"])
    source = _source(data, sender, sent, us)
    inbound = Inbound(source=source, text="", at=parse_milliseconds(sent))
    inbound = replace(inbound, labels=_labels(envelope, data))
    if reaction := data.get("reaction"):
        return _reaction(inbound, reaction, us, known)
    if deleted := _deleted(data, sender, known):
        return _change(inbound, deleted, Revision(version=sent, deleted=True))
    inbound = _with_content(inbound, data, us, known)
    if edit:
        target = message_id(_first_sent(edit["targetSentTimestamp"], sender, known), sender)
        return replace(_change(inbound, target, Revision(version=sent)), files=())
    return inbound if inbound.text or inbound.files else None


def message_id(sent: str, author: Person) -> str:
    return f"{sent}:{author.id}"


def split_message_id(text: str) -> tuple[int, str]:
    """Return the time and the author of somebody's message; 0 if it is no such id."""
    sent, _, author = text.partition(":")
    is_time = sent.isascii() and sent.isdecimal() and len(sent) <= _MAX_DIGITS
    return (int(sent) if is_time else 0), author


def edit_key(sent: str, author: str) -> str:
    """Name a version of a message without naming its author: it is stored, and nobody is to be found by it."""
    return hashlib.sha256(f"{sent}:{author}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def undecrypted(event: Json) -> str | None:
    """Return why signal-cli could not decrypt a message; None if it could."""
    failure: Json | None = event.get("exception")
    return _text(failure.get("type")) or "unknown" if failure else None


# Who and where


def _person(found: Json, number: str, uuid: str, known: Known) -> Person:
    shown = _text(found.get(number)) or None
    return Person(shown, _text(found.get(uuid)) or (known.uuids.get(shown) if shown else None))


def _source(data: Json, sender: Person, sent: str, us: OwnAccount) -> Source:
    group = _text(_group(data).get("groupId"))
    return Source(
        platform=PLATFORM,
        account=us.account,
        chat_kind=GROUP if group else DM,
        chat_id=group or sender.id,
        user_id=sender.number,
        user_id_alt=sender.uuid,
        message_id=message_id(sent, sender),
    )


def _group(data: Json) -> Json:
    return data.get("groupInfo") or {}


def _labels(envelope: Json, data: Json) -> Labels:
    name = _text(envelope.get("sourceName"))
    group = _text(_group(data).get("groupName"))
    seconds = int(data.get("expiresInSeconds") or 0)
    topic = f"messages disappear after {_duration(seconds)}" if seconds > 0 else None
    return Labels(chat=Label.of(group), user=Label.of(name), topic=Label.of(topic))


def _duration(seconds: int) -> str:
    """Return the time in the largest unit that fits: `4 weeks`."""
    size, unit = next(each for each in _PERIODS if seconds % each[0] == 0)
    return f"{seconds // size} {unit}{'s' * (seconds != size)}"


# Changes


def _first_sent(found: object, author: Person, known: Known) -> str:
    sent = _time(found)
    return known.edits.get(edit_key(sent, author.id), sent)


def _deleted(data: Json, sender: Person, known: Known) -> str | None:
    """Return the id of a message that its author or an admin has deleted."""
    if found := data.get("remoteDelete"):
        return message_id(_first_sent(found["timestamp"], sender, known), sender)
    if found := data.get("adminDelete"):
        author = _person(found, "targetAuthorNumber", "targetAuthorUuid", known)
        return message_id(_first_sent(found["targetSentTimestamp"], author, known), author)
    return None


def _change(inbound: Inbound, target: str, revision: Revision) -> Inbound:
    return replace(inbound, source=replace(inbound.source, message_id=target), revision=revision)


# Content


def _reaction(inbound: Inbound, found: Json, us: OwnAccount, known: Known) -> Inbound | None:
    """Return a reaction to our message. One that is no feedback cannot be answered: the agent sees it later."""
    author = _person(found, "targetAuthorNumber", "targetAuthorUuid", known)
    emoji = _text(found.get("emoji"))
    if not us.is_same(author) or not emoji:
        return None
    text = f"[took back {emoji}]" if found.get("isRemove") else f"[reacted with {emoji}]"
    reply_to = _first_sent(found["targetSentTimestamp"], author, known)
    if rating_of(emoji):
        reaction = Reaction(emoji=emoji, removed=bool(found.get("isRemove")))
        return replace(inbound, source=replace(inbound.source, message_id=None), reply_to=reply_to, reaction=reaction)
    return replace(inbound, text=text, observed=True, mentions_us=True, reply_to=reply_to)


def _with_content(inbound: Inbound, data: Json, us: OwnAccount, known: Known) -> Inbound:
    text, is_ours = _addressed(_text(data.get("message")), _mentions(data, known), us)
    reply_to, quote = _quoted(data.get("quote") or {}, inbound.source, us, known)
    return replace(
        inbound,
        text="\n".join((*_described(data), *((text,) if text else ()))),
        mentions_us=is_ours or bool(quote and quote.is_ours),
        reply_to=reply_to,
        quote=quote if quote and quote.text else None,
        files=() if data.get("viewOnce") else tuple(_files(data, inbound.source)),
    )


class _Mention(NamedTuple):
    start: int
    end: int
    person: Person


def _mentions(data: Json, known: Known) -> list[_Mention]:
    found: Sequence[Json] = data.get("mentions") or ()
    return sorted(
        _Mention(each["start"], each["start"] + each["length"], _person(each, "number", "uuid", known))
        for each in found
    )


def _addressed(text: str, mentions: Sequence[_Mention], us: OwnAccount) -> tuple[str, bool]:
    """Write mentions as `@ID`, and ours as `@ACCOUNT`. The text has a placeholder for each; offsets count UTF-16 units.

    Return the text without a mention of us in front, and whether there is any.
    """
    units = text.encode("utf-16-le", "surrogatepass")
    pieces = list[str]()
    at = 0
    is_first = False
    for start, end, person in mentions:
        if not at <= start < end <= len(units) // 2:
            continue  # It is outside of the text, or within another.
        pieces += [_decode(units[2 * at : 2 * start]), f"@{us.account if us.is_same(person) else person.id}"]
        is_first = is_first or (start == 0 and us.is_same(person))
        at = end
    pieces.append(_decode(units[2 * at :]))
    if is_first and (rest := "".join(pieces[2:]).lstrip(_AFTER_NAME)):
        return rest, True
    return "".join(pieces), any(us.is_same(mention.person) for mention in mentions)


def _decode(units: bytes) -> str:
    return units.decode("utf-16-le", "surrogatepass")


def _quoted(found: Json, source: Source, us: OwnAccount, known: Known) -> tuple[str | None, Quote | None]:
    """Return the id of the message that it replies to, and the message as the sender saw it."""
    if not found:
        return None, None
    author = _person(found, "authorNumber", "authorUuid", known)
    sent = _first_sent(found["id"], author, known)
    is_ours = us.is_same(author)
    text, _ = _addressed(_text(found.get("text")), _mentions(found, known), us)
    identity = identity_of(replace(source, user_id=author.number, user_id_alt=author.uuid))
    return sent if is_ours else message_id(sent, author), Quote(text=text, author=identity, is_ours=is_ours)


def _files(data: Json, source: Source) -> Iterator[Attachment]:
    attachments: Sequence[Json] = data.get("attachments") or ()
    is_whole = len(_text(data.get("message")).encode("utf-8", "surrogatepass")) > _MAX_SHORT_BYTES
    for number, file in enumerate(attachments, 1):
        kind = _text(file.get("contentType")) or UNKNOWN_TYPE
        handle = _text(file.get("id"))
        name = _text(file.get("filename")) or f"{kind.partition('/')[0]}-{number}"
        size = file.get("size")
        if kind == _LONG_TEXT and is_whole:
            continue
        yield Attachment(
            Label(name),
            kind,
            size if isinstance(size, int) else None,
            handle=f"{source.chat_id}/{handle}" if handle else None,
            problem="" if handle else _NOT_DOWNLOADED,
        )


def _described(data: Json) -> Iterator[str]:
    """Describe other content for the agent, one line each. It is untrusted, so it is quoted."""
    if data.get("storyContext"):
        yield "[in reply to a story]"
    if data.get("sticker"):
        yield "[sticker]"
    if data.get("viewOnce"):
        yield "[a picture or video to view once: not kept]"
    for contact in data.get("contacts") or ():
        names: Json = contact.get("name") or {}
        name = " ".join(filter(None, (_text(names.get("given")), _text(names.get("family")))))
        numbers = (Label(_text(phone.get("value"))).plain() for phone in contact.get("phone") or ())
        yield f"[contact {Label(name).quoted()}: {', '.join(numbers)}]"
    if poll := data.get("pollCreate"):
        options = ", ".join(Label(_text(option)).quoted() for option in poll.get("options") or ())
        yield f"[poll {Label(_text(poll.get('question'))).quoted()}: {options}]"
    if data.get("payment"):
        yield "[payment, not supported here]"


def _text(found: object) -> str:
    if found is None:
        return ""
    if not isinstance(found, str):
        raise TypeError(type(found).__name__)
    return found


def _time(found: object) -> str:
    if not isinstance(found, int) or found <= 0:
        raise TypeError(type(found).__name__)
    return str(found)


Params: TypeAlias = Mapping[str, object]

_STYLES = {
    Style.BOLD: "BOLD",
    Style.ITALIC: "ITALIC",
    Style.STRUCK: "STRIKETHROUGH",
    Style.CODE: "MONOSPACE",
    Style.CODE_BLOCK: "MONOSPACE",
}
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PERSON = re.compile(rf"\+[0-9]{{5,15}}|{_UUID}")
_MENTION = re.compile(rf"(?<![\w@])@({_UUID}|\+[0-9]{{5,15}})(?!\w)")


def is_person(chat_id: str) -> bool:
    """Anything that is no number and no account id is a group."""
    return bool(_PERSON.fullmatch(chat_id))


def target(outbound: Outbound) -> Params:
    chat = outbound.chat_id
    return {"recipient": [chat]} if is_person(chat) else {"groupId": chat}


def render(outbound: Outbound) -> Params:
    """Return the parameters of `send`. Ranges count UTF-16 units."""
    shown = to_spans(outbound.text, Layout())
    text, spans = (shown.text, shown.spans) if shown.text.strip() else (outbound.text, ())
    styles = [f"{span.offset}:{span.length}:{_STYLES[span.kind]}" for span in spans if span.length]
    parts = {"message": text, "textStyle": styles, **target(outbound)}
    is_group = "groupId" in parts
    parts |= _quote(outbound.quoted(in_group=is_group))
    if is_group:
        parts |= {"mention": _mentioned(text)}
    return {name: value for name, value in parts.items() if value != []}


def _mentioned(text: str) -> list[str]:
    """Find people that the agent mentions as messages show them: `@` and an id."""
    return [
        f"{Unit.UTF16.measure(text[: found.start()])}:{len(found[0])}:{found[1]}" for found in _MENTION.finditer(text)
    ]


def _quote(message_id: str | None) -> Params:
    """Quote a person's message. Clients look up the text themselves."""
    timestamp, author = split_message_id(message_id or "")
    return {"quoteTimestamp": timestamp, "quoteAuthor": author} if timestamp and author else {}
