"""Turn messages of BlueBubbles into ours: each with its edits and its deletion."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    Quote,
    Revision,
    Source,
    after_name,
    identity_of,
    parse_milliseconds,
)
from palaver.protocols.files import described_file

Json = Mapping[str, Any]

PLATFORM = "imessage"
_GROUP_STYLE = 43
_GROUP_MARK = ";+;"
_NOTHING: Json = {}
_OBJECT = "\ufffc"
"""Stands in a text for a file."""
_FILE_MARK = "__kIMFileTransferGUIDAttributeName"
_MENTION_MARK = "__kIMMentionConfirmedMention"
_CONVERTED = frozenset({"image/heic", "image/heif", "image/tiff", "audio/x-caf"})
"""BlueBubbles converts these for us, so their size is not known before."""


_TAPBACKS = {"love": "❤️", "like": "👍", "dislike": "👎", "laugh": "😂", "emphasize": "‼️", "question": "❓"}


class Context(NamedTuple):
    """What a message itself does not tell."""

    account: str
    us: str = ""
    """Our own address."""
    name: Label | None = None
    """The sender's name in the contacts of the Mac."""
    replied: Json | None = None
    """The message that it replies to."""


class Related(NamedTuple):
    """What to look up for a message."""

    sender: str | None
    replied_to: str | None


def related(message: Json) -> Related | None:
    """Return what to look up; None for our own message, a sticker on another, or a change of the group."""
    tapback = _tapback(message)
    is_ignored = (
        message["isFromMe"]
        or message.get("itemType")
        or (message.get("associatedMessageType") and not tapback)
        or message.get("isSystemMessage")
        or message.get("isServiceMessage")
    )
    return None if is_ignored else Related(_sender(message), _replied_to(message))


def _tapback(message: Json) -> str | None:
    """Return what a tapback says. One that was taken back has a minus before its name."""
    kind = str(message.get("associatedMessageType") or "")
    emoji = _TAPBACKS.get(kind.removeprefix("-"))
    return emoji and (f"[took back {emoji}]" if kind.startswith("-") else f"[reacted with {emoji}]")


def _replied_to(message: Json) -> str | None:
    """Return the message that it is about. A tapback names it as `p:0/ID`, with the number of a part, or `bp:ID`."""
    if _tapback(message):
        return str(message["associatedMessageGuid"]).rpartition("/")[2].removeprefix("bp:")
    return message.get("threadOriginatorGuid") or None


def is_complete(message: Json) -> bool:
    """Return whether its files are known. The Mac links them to the message a moment after it has come."""
    return len(_list(message.get("attachments"))) >= sum(_FILE_MARK in marks for marks, _ in _marked(message))


def _sender(message: Json) -> str | None:
    handle = message.get("handle")
    return str(handle["address"]) if handle else None


def parse(message: Json, context: Context) -> list[Inbound]:
    """Return the message and its changes, the oldest first."""
    versions = _versions(message)
    said = _inbound(message, versions[0].text, context)
    if tapback := _tapback(message):
        # The agent sees it with its next turn: it says nothing that could be answered.
        return [replace(said, text=tapback, observed=True)] if said.mentions_us else []
    is_known = bool(said.text or said.files)
    changes = [
        replace(said, text=each.text, files=(), at=parse_milliseconds(each.at), revision=Revision(version=each.id))
        for each in versions[1:]
    ]
    if deleted := _deleted_at(message):
        gone = Revision(version=f"unsent {deleted}", deleted=True)
        changes.append(replace(said, text="", files=(), at=parse_milliseconds(deleted), revision=gone))
    return [said, *changes] if is_known else changes


def _inbound(message: Json, text: str, context: Context) -> Inbound:
    chat = message["chats"][0]
    is_group = chat.get("style") == _GROUP_STYLE or _GROUP_MARK in chat["guid"]
    source = Source(
        platform=PLATFORM,
        account=context.account,
        chat_kind=GROUP if is_group else DM,
        chat_id=str(chat["guid"]),
        user_id=_sender(message) or (None if is_group else chat.get("chatIdentifier")),
        message_id=str(message["guid"]),
    )
    mention = _mention(message, {context.us, chat.get("lastAddressedHandle")})
    addressed = after_name(text, (mention, f"@{mention}")) if mention else None
    files = tuple(_files(message))
    app = "[an iMessage app, not supported here]" if message.get("balloonBundleId") and not files else ""
    title = chat.get("displayName") if is_group else None
    return Inbound(
        source=source,
        text=addressed or text or app,
        at=parse_milliseconds(message["dateCreated"]),
        labels=Labels(chat=Label.of(title), user=context.name),
        mentions_us=mention is not None or bool(context.replied and context.replied.get("isFromMe")),
        reply_to=_replied_to(message),
        quote=_quote(context.replied, source) if context.replied else None,
        files=files,
    )


def _text(message: Json) -> str:
    lines = [str(message.get(field) or "").replace(_OBJECT, "") for field in ("subject", "text")]
    return "\n".join(line for line in lines if line)


def _quote(replied: Json, source: Source) -> Quote | None:
    text = _text(replied)
    is_ours = bool(replied.get("isFromMe"))
    author = None if is_ours else identity_of(replace(source, user_id=_sender(replied)))
    return Quote(text=text, author=author, is_ours=is_ours) if text else None


def _files(message: Json) -> Iterator[Attachment]:
    for file in _list(message.get("attachments")):
        if file.get("hideAttachment"):  # the picture of a link
            continue
        size = None if file.get("mimeType") in _CONVERTED else file.get("totalBytes") or None
        yield described_file(file.get("transferName"), file.get("mimeType"), size, handle=str(file["guid"]))


# Edits


class _Version(NamedTuple):
    text: str
    at: int = 0
    id: str = ""


def _versions(message: Json) -> list[_Version]:
    """Return the texts that it had; only the last one if the server does not tell or it has several parts."""
    text = _text(message)
    edited = message.get("dateEdited")
    if not edited:
        return [_Version(text)]
    texts = list(_history(message))
    if len(texts) > 1 and not message.get("attachments") and (texts[-1][1] == text or not text):
        return [_Version(texts[0][1]), *(_Version(each, edited, f"{date}") for date, each in texts[1:])]
    return [_Version(text), _Version(text, edited, f"{edited}")] if text else [_Version("")]


def _history(message: Json) -> Iterator[tuple[object, str]]:
    found: Any = _summary(message).get("editedContent") or []
    parts: list[object] = [found] if isinstance(found, list) else list(found.values())
    for entry in _list(parts[0]) if len(parts) == 1 else ():
        text: Json = entry.get("text") or _NOTHING
        values = _list(text.get("values"))
        yield entry.get("date"), "".join(str(each.get("string") or "") for each in values).replace(_OBJECT, "")


def _summary(message: Json) -> Json:
    return next(iter(_list(message.get("messageSummaryInfo"))), _NOTHING)


def _deleted_at(message: Json) -> int | None:
    """Return when all of it was taken back. Messages marks that as an edit that leaves no parts."""
    if message.get("dateRetracted"):
        return message["dateRetracted"]
    is_empty = _summary(message).get("retractedParts") and not message.get("partCount")
    return message.get("dateEdited") if is_empty else None


# Marks in the text


def _marked(message: Json) -> Iterator[tuple[Json, str]]:
    """Yield the attributes of each run of the text, and the run itself. Ranges count UTF-16 units."""
    for body in _list(message.get("attributedBody"))[:1]:
        units = str(body.get("string") or "").encode("utf-16-le", "surrogatepass")
        for run in _list(body.get("runs")):
            start, length = run["range"]
            yield run.get("attributes") or {}, units[2 * start : 2 * (start + length)].decode("utf-16-le", "replace")


def _mention(message: Json, ours: set[str | None]) -> str | None:
    """Return how the text mentions us."""
    return next((words for marks, words in _marked(message) if marks.get(_MENTION_MARK, "") in ours - {"", None}), None)


def _list(found: object) -> Sequence[Json]:
    return cast("list[Json]", found) if isinstance(found, list) else ()
