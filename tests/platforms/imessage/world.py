"""A Mac with Messages: its chats, its message database, its contacts, and what it shows of ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

__all__ = ["ANN", "DM_GUID", "GROUP_GUID", "US", "Json", "Mac", "No", "chat_of"]

Json = dict[str, Any]

US = "helper@example.org"
ANN = "+15551234567"
DM_GUID = f"iMessage;-;{ANN}"
GROUP_GUID = "iMessage;+;chat640000000000000001"
_FILE = "__kIMFileTransferGUIDAttributeName"
_START = 1_777_000_000_000


class No(Exception):
    """An error answer of the server."""

    def __init__(self, status: int, words: str, *, kind: str = "iMessage Error", data: Json | None = None) -> None:
        super().__init__(words)
        self.body = {"status": status, "message": "Failed", "error": {"type": kind, "message": words}, "data": data}
        self.status = status


def chat_of(guid: str, title: str = "") -> Json:
    is_group = ";+;" in guid
    return {
        "originalROWID": 1,
        "guid": guid,
        "style": 43 if is_group else 45,
        "chatIdentifier": guid.rpartition(";")[2],
        "isArchived": False,
        "displayName": title,
        "lastAddressedHandle": US,
    }


@dataclass(kw_only=True)
class Mac:
    messages: list[Json] = field(default_factory=list[Json])
    """The rows of chat.db, in the order in which they came."""
    chats: dict[str, Json] = field(default_factory=dict[str, Json])
    contacts: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    gone: set[str] = field(default_factory=set[str])
    """Chats that Messages no longer has."""
    has_private_api: bool = False
    typing: list[str] = field(default_factory=list[str])
    read: list[str] = field(default_factory=list[str])
    replies: list[str | None] = field(default_factory=list[str | None])
    """What each of our messages replies to."""
    _rows: "count[int]" = field(default_factory=lambda: count(1))
    _clock: "count[int]" = field(default_factory=lambda: count(_START, 1000))

    def start_clock(self, moment: datetime) -> None:
        self._clock = count(int(moment.timestamp() * 1000), 1000)

    def now(self) -> int:
        return next(self._clock)

    def chat(self, guid: str, title: str = "") -> Json:
        return self.chats.setdefault(guid, chat_of(guid, title))

    def add(self, chat: str, text: str | None, *, sender: str | None = ANN, **fields: Any) -> Json:
        """Write a message into the database: the sender's, or ours if there is none."""
        row = next(self._rows)
        message: Json = {
            "originalROWID": row,
            "guid": f"{row:08X}-1111-2222-3333-444455556666",
            "text": text,
            "attributedBody": [{"string": text or "", "runs": [{"range": [0, len(text or "")], "attributes": {}}]}],
            "handle": {"originalROWID": 1, "address": sender, "service": "iMessage"} if sender else None,
            "handleId": 1 if sender else 0,
            "attachments": [],
            "subject": None,
            "error": 0,
            "dateCreated": self.now(),
            "isFromMe": sender is None,
            "itemType": 0,
            "groupTitle": None,
            "groupActionType": 0,
            "balloonBundleId": None,
            "associatedMessageGuid": None,
            "associatedMessageType": None,
            "threadOriginatorGuid": None,
            "isAutoReply": False,
            "isSystemMessage": False,
            "isServiceMessage": False,
            "chats": [self.chat(chat)],
            "messageSummaryInfo": None,
            "dateEdited": None,
            "dateRetracted": None,
            "partCount": 1,
            **fields,
        }
        self.messages.append(message)
        return message

    def attach(self, message: Json, files: Sequence[tuple[str, str, bytes]]) -> None:
        """Give a message files: a mark in its text for each, and the link to the file."""
        body = message["attributedBody"][0]
        for name, media_type, content in files:
            guid = f"at_{len(self.files)}_{message['guid']}"
            self.files[guid] = content
            body["runs"].append({"range": [len(body["string"]), 1], "attributes": {_FILE: guid}})
            body["string"] += "\ufffc"
            message["attachments"].append(
                {
                    "originalROWID": len(self.files),
                    "guid": guid,
                    "uti": "public.data",
                    "mimeType": media_type,
                    "transferName": name,
                    "totalBytes": len(content),
                    "isSticker": False,
                    "hideAttachment": False,
                }
            )

    def edit(self, message: Json, text: str) -> None:
        """Change the text; Messages keeps what it was."""
        new: Json = {"editedContent": {"0": []}, "retractedParts": [], "editedParts": [0]}
        info: list[Json] = message["messageSummaryInfo"] or [new]
        history = info[0]["editedContent"]["0"]
        if not history:
            history.append({"date": message["dateCreated"] / 1000, "text": {"values": [{"string": message["text"]}]}})
        message["dateEdited"] = self.now()
        history.append({"date": message["dateEdited"] / 1000, "text": {"values": [{"string": text}]}})
        message.update(text=text, messageSummaryInfo=info, attributedBody=[{"string": text, "runs": []}])

    def unsend(self, message: Json) -> None:
        new: Json = {"editedContent": {}, "editedParts": []}
        info: list[Json] = message["messageSummaryInfo"] or [new]
        info[0]["retractedParts"] = [0]
        fields: Json = {"text": None, "attributedBody": None, "partCount": 0, "attachments": []}
        message.update(fields, messageSummaryInfo=info, dateEdited=self.now())

    def find(self, guid: str) -> Json | None:
        return next((message for message in self.messages if message["guid"] == guid), None)

    def query(self, asked: Json) -> list[Json]:
        """As the server asks the database: messages without a chat are not found."""
        found = [message for message in self.messages if message["chats"]]
        if chat := asked.get("chatGuid"):
            found = [message for message in found if message["chats"][0]["guid"] == chat]
        for where in asked.get("where") or ():
            if where["statement"] != "message.ROWID > :row":
                raise No(500, f"SQLITE_ERROR: {where['statement']}", kind="Server Error")
            found = [message for message in found if message["originalROWID"] > where["args"]["row"]]
        found = [message for message in found if message["dateCreated"] >= asked.get("after", 0)]
        found.sort(key=lambda message: message["dateCreated"], reverse=asked.get("sort", "DESC") == "DESC")
        offset = asked.get("offset", 0)
        return [serialized(message, asked.get("with", ())) for message in found[offset : offset + asked["limit"]]]

    @property
    def sent(self) -> list[Json]:
        return [message for message in self.messages if message["isFromMe"]]


def serialized(message: Json, parts: Sequence[str]) -> Json:
    """Return what an answer has of it: only what was asked for."""
    left_out: Json = {}
    if "chats" not in parts:
        left_out["chats"] = []
    if "attachments" not in parts:
        left_out["attachments"] = []
    if "attributed-body" not in parts:
        left_out["attributedBody"] = None
    if "message-summary-info" not in parts:
        left_out["messageSummaryInfo"] = None
    return {**message, **left_out}
