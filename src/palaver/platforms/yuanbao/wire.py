"""The wire format of Yuanbao: frames, messages in, messages out."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, cast

from palaver.protocols import DM, GROUP, Attachment, Inbound, Label, Labels, Outbound, Quote, Revision, Source, value
from palaver.protocols.files import named_file
from palaver.protocols.protobuf import Fields, decode, encode, messages_of, number_of, text_of

Names: TypeAlias = Mapping[str, "int | tuple[int, Names]"]
CONNECTION = "conn_access"
MESSAGES = "yuanbao_openclaw_proxy"


def from_json(found: Mapping[str, object], names: Names) -> bytes:
    """Encode a JSON object, whose names stand for these numbers; a pair has the names within."""
    parts: list[tuple[int, int | str | bytes]] = []
    for name, meaning in names.items():
        content = found.get(name)
        for each in cast("list[object]", content) if isinstance(content, list) else [content]:
            if isinstance(meaning, int) and isinstance(each, int | str):
                parts.append((meaning, each))
            elif isinstance(meaning, tuple) and isinstance(each, dict):
                parts.append((meaning[0], from_json(cast("Mapping[str, object]", each), meaning[1])))
    return encode(*parts)


class Kind(IntEnum):
    REQUEST = 0
    RESPONSE = 1
    PUSH = 2
    ACK = 3


@value
class Frame:
    kind: Kind
    command: str
    id: str
    module: str
    number: int = 0
    needs_ack: bool = False
    status: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        head = encode(
            (1, self.kind),
            (2, self.command),
            (3, self.number),
            (4, self.id),
            (5, self.module),
            (6, int(self.needs_ack)),
            (10, self.status),
        )
        return encode((1, head), (2, self.data))

    @classmethod
    def decode(cls, raw: bytes) -> "Frame":
        outer = decode(raw)
        head = messages_of(outer, 1)[0]
        data = outer.get(2, [b""])[-1]
        return cls(
            kind=Kind(number_of(head, 1)),
            command=text_of(head, 2),
            number=number_of(head, 3),
            id=text_of(head, 4),
            module=text_of(head, 5),
            needs_ack=bool(number_of(head, 6)),
            status=number_of(head, 10),
            data=data if isinstance(data, bytes) else b"",
        )


def elements(parts: Iterable[tuple[str, bytes]]) -> list[bytes]:
    """Encode the parts of a message body: their type and content."""
    return [encode((1, kind), (2, content)) for kind, content in parts]


GROUP_PREFIX = "group/"
"""Of a chat id: groups and people have different numbers."""
_MENTION = re.compile(r"<@([^<>\s]{1,200})>")
MENTION = 1002
"""The type of a custom element that is a mention."""


def body_of(text: str, names: Mapping[str, str]) -> list[bytes]:
    """Return the parts of a text; `<@id>` of somebody we have met is a mention."""
    parts: list[tuple[str, bytes]] = []
    at = 0
    for found in _MENTION.finditer(text):
        if found[1] in names:
            parts += _text_elements(text[at : found.start()])
            mention = {"elem_type": MENTION, "text": f"@{names[found[1]]}", "user_id": found[1]}
            parts.append(("TIMCustomElem", encode((4, json.dumps(mention, ensure_ascii=False)))))
            at = found.end()
    return elements([*parts, *_text_elements(text[at:])])


def _text_elements(text: str) -> list[tuple[str, bytes]]:
    return [("TIMTextElem", encode((1, text)))] if text else []


def render(outbound: Outbound, body: list[bytes], *, us: str, key: str, met_in: str = "") -> tuple[str, bytes]:
    """Return the command and its data. `met_in` is the group in which we met a person to whom it is private."""
    digest = hashlib.sha256(key.encode()).digest()
    message_id = digest.hex()[:32]
    random = int.from_bytes(digest[:4], "big")
    if outbound.chat_id.startswith(GROUP_PREFIX):
        group = outbound.chat_id.removeprefix(GROUP_PREFIX)
        parts = [(6, part) for part in body]
        head = ((1, message_id), (2, group), (3, us), (5, str(random)))
        return "send_group_message", encode(*head, *parts, (7, outbound.quoted(in_group=True) or ""))
    parts = [(5, part) for part in body]
    return "send_c2c_message", encode((1, message_id), (2, outbound.chat_id), (3, us), (4, random), *parts, (6, met_in))


def receipt_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


Json = Mapping[str, Any]
_NOTHING: Json = {}
_RECALLED = frozenset({"Group.CallbackAfterRecallMsg", "C2C.CallbackAfterMsgWithDraw"})
_CONTENT: Names = {
    "text": 1,
    "uuid": 2,
    "data": 4,
    "url": 10,
    "file_size": 11,
    "file_name": 12,
    "image_info_array": (8, {"url": 5}),
}
_NAMES: Names = {
    "callback_command": 1,
    "from_account": 2,
    "sender_nickname": 4,
    "group_code": 6,
    "group_name": 7,
    "msg_seq": 8,
    "msg_time": 10,
    "msg_key": 11,
    "msg_id": 12,
    "cloud_custom_data": 14,
    "event_time": 15,
    "msg_body": (13, {"msg_type": 1, "msg_content": (2, _CONTENT)}),
    "recall_msg_seq_list": (17, {"msg_seq": 1, "msg_id": 2}),
    "private_from_group_code": 19,
}
_UNSHOWN = {"TIMFaceElem": "[sticker]", "TIMSoundElem": "[voice message]", "TIMVideoFileElem": "[video]"}


class Push(NamedTuple):
    inbounds: tuple[Inbound, ...]
    sender: str
    name: str
    group: str
    """The group where we met them, also if the message is private."""


def parse(data: bytes, account: str, us: str) -> Push | None:
    """Parse a pushed message for the bot `us`; None if nobody says anything to us."""
    fields = _unwrapped(data)
    sender = text_of(fields, 2)
    group = text_of(fields, 6)
    name = text_of(fields, 4)
    if sender == us or not (sender or text_of(fields, 1)):
        return None
    source = Source(
        platform="yuanbao",
        account=account,
        chat_kind=GROUP if group else DM,
        chat_id=f"{GROUP_PREFIX}{group}" if group else sender,
        user_id=sender,
    )
    at = datetime.fromtimestamp(number_of(fields, 10) or number_of(fields, 15), UTC)
    if text_of(fields, 1) in _RECALLED:
        found = tuple(_recalled(fields, source, at))
    else:
        labels = Labels(user=Label.of(name), chat=Label(text_of(fields, 7)) if group else None)
        found = (_message(fields, source, at, labels, us),)
    return Push(found, sender, name, group or text_of(fields, 19))


def _unwrapped(data: bytes) -> Fields:
    """A message can come in an envelope of its own, whose fourth field is the message, and as JSON."""
    fields = _fields(data)
    inner = fields.get(4, [b""])[-1]
    is_wrapped = 13 not in fields and 17 not in fields  # noqa: PLR2004 - its body, or what was recalled
    return _fields(inner) if is_wrapped and isinstance(inner, bytes) and inner else fields


def _fields(data: bytes) -> Fields:
    # No message begins with a brace: it would be a field of a kind that is not used any more.
    return decode(from_json(json.loads(data), _NAMES) if data.startswith(b"{") else data)


def _recalled(fields: Fields, source: Source, at: datetime) -> Iterable[Inbound]:
    for each in messages_of(fields, 17):
        message_id = text_of(each, 2) or str(number_of(each, 1))
        ids = {**source.to_json(), "message_id": message_id}
        yield Inbound(source=Source(**ids), text="", at=at, revision=Revision(version="recalled", deleted=True))


def _message(fields: Fields, source: Source, at: datetime, labels: Labels, us: str) -> Inbound:
    message_id = text_of(fields, 12) or text_of(fields, 11) or str(number_of(fields, 8) or "")
    if not message_id:
        raise ValueError("a message without an id")
    texts: list[str] = []
    files: list[Attachment] = []
    mentions_us = False
    for part in messages_of(fields, 13):
        kind = text_of(part, 1)
        content = (messages_of(part, 2) or [{}])[0]
        custom = _json(text_of(content, 4)) if kind == "TIMCustomElem" else _NOTHING
        if custom.get("elem_type") == MENTION and custom.get("user_id") == us:
            mentions_us = True
            texts += [] if not "".join(texts).strip() else [str(custom.get("text", ""))]
            continue
        texts.append(_text(kind, content, custom))
        files += _files(kind, content)
    quoted = cast("Json", _json(text_of(fields, 14)).get("quote") or _NOTHING)
    replies_to_us = bool(us) and quoted.get("sender_id") == us
    return Inbound(
        source=Source(**{**source.to_json(), "message_id": message_id}),
        text="".join(texts).lstrip() if mentions_us else "".join(texts),
        at=at,
        labels=labels,
        mentions_us=mentions_us or replies_to_us,
        reply_to=str(quoted["id"]) if quoted.get("id") else None,
        quote=_quote(quoted, is_ours=replies_to_us),
        files=tuple(files),
    )


def _quote(quoted: Json, *, is_ours: bool) -> Quote | None:
    text = str(quoted.get("desc") or "")
    return Quote(text=text, name=Label.of(quoted.get("sender_nickname")), is_ours=is_ours) if text else None


def _text(kind: str, content: Fields, custom: Json) -> str:
    if kind == "TIMTextElem":
        return text_of(content, 1)
    if kind == "TIMCustomElem":
        return str(custom.get("text") or "[content that cannot be shown here]")
    return _UNSHOWN.get(kind, "")


def _files(kind: str, content: Fields) -> Iterable[Attachment]:
    if kind == "TIMImageElem":
        pictures = [text_of(each, 5) for each in messages_of(content, 8)]
        name = text_of(content, 2) or "image"
        if pictures and pictures[0]:
            yield named_file(name, handle=pictures[0])
    if kind == "TIMFileElem" and text_of(content, 10):
        name = text_of(content, 12) or "file"
        yield named_file(name, number_of(content, 11) or None, handle=text_of(content, 10))


def _json(text: str) -> Json:
    found: object = json.loads(text) if text else None
    return cast("Json", found) if isinstance(found, dict) else {}
