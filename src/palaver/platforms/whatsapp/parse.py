"""Parse the webhooks of the Cloud API. One call can bring several messages and statuses."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from palaver.platforms.whatsapp import PLATFORM
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    Reaction,
    Revision,
    Source,
    after_name,
    value,
)
from palaver.protocols.files import described_file

Json = Mapping[str, Any]
# Names of files that come without one.
_MEDIA = {
    "image": "image.jpg",
    "video": "video.mp4",
    "audio": "audio.ogg",
    "document": "document",
    "sticker": "sticker.webp",
}
_NEW_NUMBER = frozenset({"user_changed_number", "customer_changed_number"})
_IGNORED = frozenset({"system", "request_welcome", "ephemeral"})
_MAX_CONTACTS = 10
_MAX_LINES = 50
"""Of a form or an order."""
_FORM_TOKEN = "flow_token"  # noqa: S105 - it is the field's name


@value
class OwnNumber:
    account: str
    id: str
    """The phone number ID."""


@value
class Change:
    """The part of a webhook about one number: raw messages, and statuses of ours."""

    number_id: str
    display_number: str
    """Our number, in digits: in groups people mention it."""
    names: Mapping[str, str]
    messages: Sequence[Json]
    statuses: Sequence[Json]


class NewMessage(NamedTuple):
    inbound: Inbound
    aliases: Sequence[tuple[str, str]] = ()
    """Pairs of an id and the canonical id of the same person."""


@value
class FailedSend:
    """WhatsApp accepted a message of ours and could not deliver it."""

    message_id: str
    code: int


def list_changes(update: Json) -> list[Json]:
    """Return the parts of a webhook, each as it came: one that is unreadable spoils no other."""
    return [change for entry in update["entry"] for change in entry["changes"]]


def parse_change(change: Json) -> Change | None:
    """Return None for what is not about messages."""
    if change["field"] != "messages":
        return None
    found: Json = change["value"]
    number = str(found["metadata"].get("display_phone_number", ""))
    names: dict[str, str] = {}
    for contact in found.get("contacts") or ():
        profile: Json = contact.get("profile") or {}
        if name := profile.get("name") or profile.get("username"):
            names |= {str(contact[key]): str(name) for key in ("wa_id", "user_id") if contact.get(key)}
    return Change(
        number_id=str(found["metadata"]["phone_number_id"]),
        display_number="".join(filter(str.isdecimal, number)),
        names=names,
        messages=list(found.get("messages") or ()),
        statuses=list(found.get("statuses") or ()),
    )


def parse_failure(status: Json) -> FailedSend | None:
    """Return None for statuses that say nothing new: sent, delivered, read."""
    if status["status"] != "failed":
        return None
    codes = [int(error["code"]) for error in status.get("errors", ())]
    return FailedSend(message_id=str(status["id"]), code=codes[0] if codes else 0)


def parse_new_number(message: Json) -> tuple[str, str, datetime] | None:
    """Return somebody's old and new number if one is reported, and when; old versions of the API name it otherwise."""
    system: Json = message.get("system") or {}
    if message["type"] != "system" or system.get("type") not in _NEW_NUMBER:
        return None
    return str(message["from"]), str(system.get("wa_id") or system["new_wa_id"]), _time(message)


def parse_message(message: Json, change: Change, us: OwnNumber) -> NewMessage | None:
    """Return None for what the agent need not see, such as changes of a number."""
    kind = str(message["type"])
    if kind in _IGNORED:
        return None
    if kind in {"edit", "revoke"}:
        return _revision(message, change, us)
    if kind == "reaction":
        return _reaction(message, change, us)
    source, labels, aliases = _sender(message, change, us)
    text, is_named = _addressed(_text(message), change if source.chat_kind == GROUP else None)
    inbound = Inbound(
        source=source,
        text=text,
        at=_time(message),
        labels=labels,
        mentions_us=is_named or kind in {"button", "interactive"} or _is_reply_to_us(message, change),
        reply_to=_context(message).get("id") or None,
        files=(_attachment(kind, message[kind]),) if kind in _MEDIA and message.get(kind) else (),
    )
    return NewMessage(inbound=inbound, aliases=aliases)


def _reaction(message: Json, change: Change, us: OwnNumber) -> NewMessage:
    """A reaction; without an emoji it is taken back."""
    found = message["reaction"]
    (source, labels, aliases) = _sender(message, change, us)
    emoji = str(found.get("emoji") or "")
    inbound = Inbound(
        source=replace(source, message_id=None),
        text="",
        at=_time(message),
        labels=labels,
        reply_to=str(found["message_id"]),
        reaction=Reaction(emoji=emoji, removed=not emoji),
    )
    return NewMessage(inbound=inbound, aliases=aliases)


def _revision(message: Json, change: Change, us: OwnNumber) -> NewMessage:
    """An edit or deletion; numbers that are also used in the WhatsApp Business app get them."""
    kind = str(message["type"])
    changed = message[kind]
    source, labels, aliases = _sender({**message, "id": changed["original_message_id"]}, change, us)
    inbound = Inbound(
        source=source,
        text=_text(changed["message"]) if kind == "edit" else "",
        at=_time(message),
        labels=labels,
        revision=Revision(version=str(message["id"]), deleted=kind == "revoke"),
    )
    return NewMessage(inbound=inbound, aliases=aliases)


def _sender(message: Json, change: Change, us: OwnNumber) -> tuple[Source, Labels, Sequence[tuple[str, str]]]:
    """Return who wrote it. People with a user name can hide their number; then only the other id comes."""
    number = message.get("from")
    user_id = message.get("from_user_id")
    sender = str(number or user_id or "")
    group = message.get("group_id")
    if not sender:
        raise ValueError("no sender")
    source = Source(
        platform=PLATFORM.name,
        account=us.account,
        chat_kind=GROUP if group else DM,
        chat_id=str(group or sender),
        user_id=sender,
        message_id=str(message["id"]),
    )
    aliases = [(str(user_id), sender)] if number and user_id else []
    return source, Labels(user=Label.of(change.names.get(sender))), aliases


def _time(message: Json) -> datetime:
    return datetime.fromtimestamp(int(message["timestamp"]), UTC)


def _context(message: Json) -> Json:
    return message.get("context") or {}


def _addressed(text: str, group: Change | None) -> tuple[str, bool]:
    """Return the text without our number in front, and whether it mentions us. Nobody does in a direct chat."""
    if group is None or not group.display_number:
        return text, False
    mention = f"@{group.display_number}"
    rest = after_name(text, (mention,))
    if rest is not None:
        return rest, True
    return text, re.search(rf"{mention}(?![0-9])", text) is not None


def _is_reply_to_us(message: Json, change: Change) -> bool:
    author = "".join(filter(str.isdecimal, str(_context(message).get("from", ""))))
    return bool(author) and author == change.display_number


# Content


def _text(message: Json) -> str:
    context = _context(message)
    is_forwarded = context.get("forwarded") or context.get("frequently_forwarded")
    words = _words(str(message["type"]), message)
    # The line in front also keeps a forwarded command from being run.
    return "\n".join(line for line in ("[forwarded]" if is_forwarded else "", words) if line)


def _words(kind: str, message: Json) -> str:
    content: Any = message.get(kind) or {}
    if kind in _MEDIA and content:
        return str(content.get("caption") or "")
    # What WhatsApp cannot pass on comes without its content, with an error.
    read = _READERS.get(kind) if content else None
    return read(content) if read else f"[{Label(kind).plain()} message, which cannot be shown here]"


def _location(content: Json) -> str:
    place = content.get("name") or content.get("address")
    label = f" {Label(str(place)).quoted()}" if place else ""
    return f"[location {float(content['latitude']):g}, {float(content['longitude']):g}{label}]"


def _choice(content: Json) -> str:
    """Return what the pressed button says, or what somebody filled in."""
    kind = str(content["type"])
    if kind == "nfm_reply":
        return "\n".join(_form(content[kind]))
    if kind not in {"button_reply", "list_reply"}:
        return f"[{Label(kind).plain()}, which cannot be shown here]"
    return str(content[kind]["id"])


def _form(content: Json) -> Iterator[str]:
    """Yield the answers. The line in front also keeps one from being run as a command."""
    yield f"[form {Label(str(content.get('name') or '')).quoted()}]"
    answers: Json = json.loads(content["response_json"])
    for name, answer in list(answers.items())[:_MAX_LINES]:
        if name != _FORM_TOKEN:
            yield f"{name}: {answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)}"


def _order(content: Json) -> str:
    """Return a line for each product of the catalog, and what the person wrote with the order."""
    items: Sequence[Json] = content["product_items"]
    lines = [
        f"{each['quantity']} x {each['product_retailer_id']}, {each.get('item_price')} {each.get('currency')}"
        for each in items[:_MAX_LINES]
    ]
    return "\n".join(("[order]", *lines, *filter(None, (str(content.get("text") or ""),))))


def _contact(contact: Json) -> str:
    named: Json = contact.get("name") or {}
    name = Label(str(named.get("formatted_name", ""))).quoted()
    numbers = [Label(str(phone.get("phone", ""))).quoted() for phone in contact.get("phones", ())]
    return f"[contact {', '.join((name, *numbers))}]"


_READERS: Mapping[str, Callable[[Any], str]] = {
    "text": lambda content: str(content["body"]),
    "button": lambda content: str(content.get("payload") or content["text"]),
    "interactive": _choice,
    "order": _order,
    "location": _location,
    "contacts": lambda content: "\n".join(map(_contact, content[:_MAX_CONTACTS])),
}


def _attachment(kind: str, content: Json) -> Attachment:
    return described_file(content.get("filename") or _MEDIA[kind], content.get("mime_type"), handle=str(content["id"]))
