"""Turn events of Discord into messages. Payloads are as Discord documents them; pure functions."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from palaver.protocols import (
    CHANNEL,
    DM,
    Attachment,
    Inbound,
    Label,
    Labels,
    Quote,
    Reaction,
    Revision,
    Source,
    after_name,
    edit_version,
    identity_of,
    parse_milliseconds,
    parse_time,
)
from palaver.protocols.files import described_file

Payload = Mapping[str, Any]

PLATFORM = "discord"
_EPOCH_MS = 1_420_070_400_000
_WRITTEN = frozenset({0, 19})
"""Types of messages that people write: plain ones and replies. The others report joins, pins, new threads …"""
THREADS = frozenset({10, 11, 12})
COMMAND = 2
_REPLY = 19


EVENTS = frozenset(
    {
        *("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK"),
        *("INTERACTION_CREATE", "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE"),
    }
)
"""What `parse_event` reads."""


class Place(NamedTuple):
    """A channel that a message is in, and of a thread also the channel that owns it."""

    channel: Payload
    parent: Payload

    @property
    def is_thread(self) -> bool:
        return self.channel.get("type") in THREADS


class OwnBot(NamedTuple):
    account: str
    id: str
    roles: Collection[str] = ()
    """Roles that only this bot has. People mention them as if they were the bot."""
    opens_threads: bool = False


def parse_event(name: str, data: Payload, place: Place, us: OwnBot, now: datetime) -> list[Inbound]:
    """Parse an event by its name: a message, its edit or deletion, or an interaction."""
    match name:
        case "MESSAGE_CREATE":
            found = [parse_message(data, place, us)]
        case "MESSAGE_UPDATE":
            found = [parse_edit(data, place, us)]
        case "INTERACTION_CREATE":
            found = [parse_interaction(data, place, us)]
        case "MESSAGE_REACTION_ADD" | "MESSAGE_REACTION_REMOVE":
            found = [parse_reaction(data, place, us, now, removed=name.endswith("REMOVE"))]
        case _:
            found = parse_deletion(data, place, us, now)
    return [each for each in found if each]


def parse_message(data: Payload, place: Place, us: OwnBot) -> Inbound | None:
    """Parse a message or its edit; None for reports, our own messages, and updates that are not edits."""
    author: Payload = data["author"]
    if data.get("type", 0) not in _WRITTEN or author["id"] == us.id:
        return None
    said = str(data["content"])
    rest = after_name(said, _mentions_of(us))
    words = said if rest is None else rest or said
    source = _source(data, place, us, str(author["id"]), str(data["id"]))
    reply = _reply(data)
    inbound = Inbound(
        source=source,
        text="\n".join((*_describe(data), *((words,) if words else ()))),
        at=parse_time(data["timestamp"]),
        labels=_labels(place, author, data.get("member") or {}),
        mentions_us=rest is not None or _is_addressed(data, place, us),
        reply_to=reply,
        quote=_quote(data["referenced_message"], source, us) if reply and data.get("referenced_message") else None,
        files=tuple(_files(data)),
    )
    if not (inbound.text or inbound.files):
        return None
    if us.opens_threads and inbound.mentions_us and source.scope_id and not source.thread_id:
        # A thread at a message has its id. It is opened by the first answer, so that strangers open none.
        return replace(inbound, source=replace(source, thread_id=source.message_id))
    return inbound


def parse_edit(data: Payload, place: Place, us: OwnBot) -> Inbound | None:
    """Discord also reports link previews and pins as updates; only an edit has a time.

    The preview of an edited message comes as its edit once more, with the time cut to milliseconds.
    """
    if not data.get("edited_timestamp"):
        return None
    inbound = parse_message(data, place, us)
    edited = parse_time(data["edited_timestamp"])
    version = edit_version(edited.isoformat(timespec="milliseconds"), str(data["content"]))
    return inbound and replace(inbound, at=edited, revision=Revision(version=version))


def parse_deletion(data: Payload, place: Place, us: OwnBot, now: datetime) -> list[Inbound]:
    """Discord does not say who deleted it."""
    ids = data["ids"] if "ids" in data else [data["id"]]
    return [
        Inbound(
            source=_source(data, place, us, None, str(each)),
            text="",
            at=now,
            revision=Revision(version="deleted", deleted=True),
        )
        for each in ids
    ]


def parse_reaction(data: Payload, place: Place, us: OwnBot, now: datetime, *, removed: bool) -> Inbound | None:
    """Parse a reaction. Discord names the person only when it is added."""
    if data["user_id"] == us.id:
        return None
    member: Payload = data.get("member") or {}
    return Inbound(
        source=_source(data, place, us, str(data["user_id"]), None),
        text="",
        at=now,
        labels=_labels(place, member.get("user") or {}, member),
        reply_to=str(data["message_id"]),
        reaction=Reaction(emoji=str(data["emoji"].get("name") or "?"), removed=removed),
    )


def parse_interaction(data: Payload, place: Place, us: OwnBot) -> Inbound | None:
    """A pressed button says what it offers; a slash command is the same command typed."""
    chosen: Payload = data.get("data") or {}
    match data["type"]:
        case 3:  # a button
            text = str(chosen["custom_id"])
        case 2 if chosen.get("type", 1) == 1:
            given = [str(option["value"]) for option in chosen.get("options", ())]
            text = " ".join((f"/{chosen['name']}", *given))
        case _:
            return None
    member: Payload = data.get("member") or {}
    user: Payload = member.get("user") or data["user"]
    return Inbound(
        source=_source(data, place, us, str(user["id"]), f"interaction:{data['id']}"),
        text=text,
        at=parse_milliseconds((int(data["id"]) >> 22) + _EPOCH_MS),
        labels=_labels(place, user, member),
        mentions_us=True,
    )


def has_role(member: Payload | None, roles: Collection[str]) -> bool:
    return not set(roles).isdisjoint(member.get("roles", ()) if member else ())


def _source(data: Payload, place: Place, us: OwnBot, user: str | None, message: str | None) -> Source:
    channel = str(data["channel_id"])
    return Source(
        platform=PLATFORM,
        account=us.account,
        chat_kind=CHANNEL if data.get("guild_id") else DM,
        chat_id=str(place.channel["parent_id"]) if place.is_thread else channel,
        thread_id=channel if place.is_thread else None,
        scope_id=str(data["guild_id"]) if data.get("guild_id") else None,
        user_id=user,
        message_id=message,
    )


def _labels(place: Place, user: Payload, member: Payload) -> Labels:
    chat = place.parent if place.is_thread else place.channel
    topic = place.channel.get("name") if place.is_thread else place.channel.get("topic")
    name = member.get("nick") or user.get("global_name") or user.get("username")
    return Labels(chat=Label.of(chat.get("name")), user=Label.of(name), topic=Label.of(topic))


# Addressing


def _mentions_of(us: OwnBot) -> list[str]:
    return [f"<@{us.id}>", f"<@!{us.id}>", *(f"<@&{role}>" for role in us.roles)]


def _is_addressed(data: Payload, place: Place, us: OwnBot) -> bool:
    """Whether it mentions us, answers us, or is in a thread that we opened."""
    answered: Payload = data.get("referenced_message") or {}
    is_ours = place.is_thread and place.channel.get("owner_id") == us.id
    named = {each["id"] for each in data.get("mentions", ())}
    roles = set(data.get("mention_roles", ()))
    return is_ours or us.id in named or not roles.isdisjoint(us.roles) or _author(answered) == us.id


def _author(message: Payload) -> str | None:
    author: Payload = message.get("author") or {}
    return author.get("id")


def _reply(data: Payload) -> str | None:
    """Return the message of this channel that it replies to. A forwarded message has a reference, too."""
    reference: Payload = data.get("message_reference") or {}
    is_here = reference.get("channel_id", data["channel_id"]) == data["channel_id"]
    is_reply = data.get("type") == _REPLY and reference.get("message_id")
    return str(reference["message_id"]) if is_reply and is_here else None


def _quote(answered: Payload, source: Source, us: OwnBot) -> Quote | None:
    text = str(answered.get("content") or "") or "\n".join(_describe(answered))
    author: Payload = answered.get("author") or {}
    name = author.get("global_name") or author.get("username")
    quote = Quote(
        text=text,
        author=identity_of(replace(source, user_id=_author(answered))),
        name=Label.of(name),
        is_ours=_author(answered) == us.id,
    )
    return quote if text else None


# Content besides text


def _forwarded(data: Payload) -> Iterator[Payload]:
    yield from (each["message"] for each in data.get("message_snapshots", ()))


def attachments_in(data: Payload) -> Iterator[Payload]:
    for message in (data, *_forwarded(data)):
        yield from message.get("attachments", ())


def _files(data: Payload) -> Iterator[Attachment]:
    for file in attachments_in(data):
        handle = f"{data['channel_id']}/{data['id']}/{file['id']}"
        yield described_file(file["filename"], file.get("content_type"), file.get("size"), handle=handle)


def _describe(data: Payload) -> Iterator[str]:
    """Describe other content for the agent, one line each. It is untrusted, so it is quoted."""
    for message in _forwarded(data):
        yield f"[forwarded: {Label(str(message.get('content') or '')).quoted()}]"
    for sticker in data.get("sticker_items", ()):
        yield f"[sticker {Label(str(sticker['name'])).quoted()}]"
    if poll := data.get("poll"):
        answers = (str(each["poll_media"].get("text") or "") for each in poll["answers"])
        listed = ", ".join(Label(each).quoted() for each in answers)
        yield f"[poll {Label(str(poll['question'].get('text') or '')).quoted()}: {listed}]"
