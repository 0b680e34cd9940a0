"""Read Feishu's callbacks: decrypt them, check their signature, parse messages."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Reaction,
    Revision,
    Source,
    Trust,
    is_secret,
    parse_milliseconds,
    read_object,
)
from palaver.protocols.files import named_file
from palaver.protocols.sealed import decode, decrypt

_BLOCK = 16


def open_event(encrypted: str, key: str) -> str:
    """Decrypt with the hash of the key; the first block is the initialisation vector."""
    sealed = decode(encrypted)
    return decrypt(
        hashlib.sha256(key.encode()).digest(), sealed[:_BLOCK].ljust(_BLOCK, b"\0"), sealed[_BLOCK:]
    ).decode()


def is_signed(headers: Mapping[str, str], body: bytes, key: str) -> bool:
    stamp = f"{headers.get('x-lark-request-timestamp', '')}{headers.get('x-lark-request-nonce', '')}{key}"
    expected = hashlib.sha256(stamp.encode("utf-8", "replace") + body).hexdigest()
    return is_secret(headers.get("x-lark-signature", ""), expected)


def read_event(body: bytes, key: str) -> tuple[Mapping[str, Any], bool]:
    """Return the event in a callback, and whether it was encrypted. Raise ValueError if there is none."""
    found = read_object(body)
    return (read_object(open_event(str(found["encrypt"]), key)), True) if "encrypt" in found else (found, False)


def token_of(event: Mapping[str, Any]) -> str:
    """Return the verification token: at the top of a question, in the header of an event."""
    header: object = event.get("header")
    return str(
        event.get("token") or (cast("Mapping[str, Any]", header).get("token") if isinstance(header, dict) else "")
    )


Json = Mapping[str, Any]
_RESOURCES = {"image": "image", "file": "file", "audio": "file", "media": "file"}
"""The messages that are files, and the type under which their content is fetched."""
_NAMES = {"image": "image", "audio": "voice.opus", "media": "video.mp4"}
_UNSHOWN = {
    "sticker": "[sticker]",
    "share_chat": "[a shared chat]",
    "share_user": "[a shared contact]",
    "location": "[a location]",
    "merge_forward": "[forwarded messages, not supported here]",
}


class Event(NamedTuple):
    inbound: Inbound
    trust: Trust = Trust()
    parent: str | None = None
    """What it replies to, if that decides whether it is for us."""
    kind_is_known: bool = True


def parse(event: Json, account: str, us: str) -> Event | None:
    """Parse an event for the bot with the open id `us`; None if nobody says anything to us."""
    match event["header"]["event_type"]:
        case "im.message.receive_v1":
            return _message(event["event"], account, us)
        case "im.message.recalled_v1":
            return _recalled(event["event"], account)
        case ("im.message.reaction.created_v1" | "im.message.reaction.deleted_v1") as kind:
            return _reaction(event["event"], account, removed="deleted" in kind)
        case "card.action.trigger":
            return _pressed(event, account)
        case _:
            return None


def _message(event: Json, account: str, us: str) -> Event:
    said = event["message"]
    sender = event["sender"]
    content: Json = json.loads(said["content"])
    text, mentions_us = _with_names(_text(said["message_type"], content), said.get("mentions") or (), us)
    # A topic is known by its first message, to which we can reply. In a topic everything replies to that.
    thread = said.get("root_id") or said["message_id"] if said.get("thread_id") else None
    parent = said.get("parent_id") or None
    inbound = Inbound(
        source=Source(
            platform="feishu",
            account=account,
            chat_kind=DM if said.get("chat_type") == "p2p" else GROUP,
            chat_id=str(said["chat_id"]),
            thread_id=thread,
            message_id=str(said["message_id"]),
            **_person(sender["sender_id"]),
        ),
        text=text,
        at=parse_milliseconds(said["create_time"]),
        mentions_us=mentions_us,
        reply_to=parent,
        files=tuple(_files(said, content)),
    )
    is_open = parent and parent != thread and not mentions_us
    return Event(inbound, Trust(is_bot=sender.get("sender_type") != "user"), parent if is_open else None)


def _recalled(event: Json, account: str) -> Event:
    """Feishu does not say who recalled it, nor in what kind of chat."""
    place = {"account": account, "chat_id": str(event["chat_id"]), "message_id": str(event["message_id"])}
    at = parse_milliseconds(event["recall_time"])
    source = Source(platform="feishu", chat_kind=GROUP, **place)
    return Event(Inbound(source=source, text="", at=at, revision=Revision(version="recalled", deleted=True)))


def _reaction(event: Json, account: str, *, removed: bool) -> Event | None:
    """Feishu does not say in which chat, and has no open id of an app that reacts."""
    if event.get("operator_type") != "user":
        return None
    said = Inbound(
        source=Source(platform="feishu", account=account, chat_kind=GROUP, **_person(event["user_id"])),
        text="",
        at=parse_milliseconds(event["action_time"]),
        reply_to=str(event["message_id"]),
        reaction=Reaction(emoji=str(event["reaction_type"]["emoji_type"]), removed=removed),
    )
    return Event(said, kind_is_known=False)


def _pressed(event: Json, account: str) -> Event:
    pressed = event["event"]
    header = event["header"]
    value: Json = pressed["action"]["value"]
    source = Source(
        platform="feishu",
        account=account,
        chat_kind=GROUP,
        chat_id=str(pressed["context"]["open_chat_id"]),
        thread_id=value.get("thread"),
        message_id=str(header["event_id"]),
        **_person(pressed["operator"]),
    )
    at = parse_milliseconds(str(header["create_time"])[:_MILLISECONDS])
    said = Inbound(source=source, text=str(value["says"]), at=at, mentions_us=True)
    return Event(said, kind_is_known=False)


_MILLISECONDS = 13
"""Digits; the time of a callback is in microseconds."""


def _person(ids: Json) -> dict[str, str]:
    """An open id belongs to one app, the union id is the same in all apps of a developer."""
    union = ids.get("union_id")
    return {"user_id": str(ids["open_id"]), **({"user_id_alt": str(union)} if union else {})}


def _text(kind: str, content: Json) -> str:
    match kind:
        case "text":
            return str(content["text"])
        case "post":
            lines = ["".join(map(_piece, line)) for line in content.get("content") or ()]
            return "\n".join([*filter(None, [content.get("title")]), *lines]).strip()
        case _ if kind in _RESOURCES:
            return ""
        case _:
            return _UNSHOWN.get(kind, "[content that cannot be shown here]")


def _piece(piece: Json) -> str:
    match piece.get("tag"):
        case "a":
            return f"{piece.get('text', '')} ({piece.get('href', '')})"
        case "at":
            return str(piece.get("user_id", ""))
        case "code_block":
            return f"```\n{piece.get('text', '')}\n```"
        case _:
            return str(piece.get("text") or "")


def _with_names(text: str, mentions: Sequence[Json], us: str) -> tuple[str, bool]:
    """Replace `@_user_1` by names, remove our own at the beginning, and say whether we are mentioned."""
    mentions_us = False
    # The longest first: @_user_1 begins @_user_10.
    for mention in sorted(mentions, key=lambda each: -len(str(each["key"]))):
        key = str(mention["key"])
        ids = cast("Json", mention.get("id") or {})
        is_us = bool(us) and ids.get("open_id") == us
        mentions_us |= is_us
        if is_us and text.lstrip().startswith(key):
            text = text.lstrip()[len(key) :].lstrip()
        text = text.replace(key, f"@{mention.get('name', '')}")
    return text, mentions_us


def _files(said: Json, content: Json) -> Iterator[Attachment]:
    """The handle names the message, too: Feishu gives a file only for the message that it is in."""
    kind = said["message_type"]
    message = said["message_id"]
    if kind in _RESOURCES:
        key = content["image_key" if kind == "image" else "file_key"]
        name = str(content.get("file_name") or _NAMES.get(kind, "file"))
        yield named_file(name, handle=f"{message}/{_RESOURCES[kind]}/{key}")
    if kind == "post":
        for piece in (piece for line in content.get("content") or () for piece in line):
            if piece.get("tag") in {"img", "media"}:
                is_image = piece["tag"] == "img"
                key = piece["image_key" if is_image else "file_key"]
                resource = "image" if is_image else "file"
                yield Attachment(Label("image" if is_image else "video.mp4"), handle=f"{message}/{resource}/{key}")
