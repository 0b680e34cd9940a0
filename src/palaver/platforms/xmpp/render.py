"""Render messages: Message Styling (XEP-0393), which has marks for text but no escapes, and the elements around it."""

import re
from xml.etree.ElementTree import Element, SubElement

from palaver.platforms.xmpp.names import CLIENT, CORRECT, FILE, HINTS, MUC_USER, OOB, SFS, SID, STATES, URL_DATA
from palaver.protocols import Attachment, Outbound
from palaver.protocols.markdown import Layout, Marks, to_marks

_MARKS = Marks(bold="*", italic="_", struck="~", code="`", code_block="```", layout=Layout(bullet="- "))
_NOT_XML = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
GROUP_CHAT = "groupchat"


def clean(text: str) -> str:
    """XML cannot contain control characters, and reads a carriage return as a new line."""
    return _NOT_XML.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def message(outbound: Outbound, message_id: str, *, in_room: bool, replaces: str | None = None) -> Element:
    """Return a message. `replaces` is the id of the message that it corrects."""
    built = _envelope(outbound, message_id, in_room=in_room)
    text = clean(to_marks(outbound.text, _MARKS)) or clean(outbound.text)
    SubElement(built, f"{{{CLIENT}}}body").text = text
    if replaces is not None:
        SubElement(built, f"{{{CORRECT}}}replace", id=replaces)
    return built


def file_message(outbound: Outbound, message_id: str, url: str, file: Attachment, *, in_room: bool) -> Element:
    """Return a message with a file: the URL alone, which every client shows as a file, and what we know of it."""
    built = _envelope(outbound, message_id, in_room=in_room)
    SubElement(built, f"{{{CLIENT}}}body").text = url
    SubElement(SubElement(built, f"{{{OOB}}}x"), f"{{{OOB}}}url").text = url
    sharing = SubElement(built, f"{{{SFS}}}file-sharing", disposition="inline")
    about = SubElement(sharing, f"{{{FILE}}}file")
    SubElement(about, f"{{{FILE}}}media-type").text = clean(file.media_type)
    SubElement(about, f"{{{FILE}}}name").text = clean(file.name.plain())
    SubElement(SubElement(sharing, f"{{{SFS}}}sources"), f"{{{URL_DATA}}}url-data", target=url)
    return built


def typing(outbound: Outbound, message_id: str, *, in_room: bool) -> Element:
    built = _envelope(outbound, message_id, in_room=in_room, state="composing")
    SubElement(built, f"{{{HINTS}}}no-store")
    return built


def _envelope(outbound: Outbound, message_id: str, *, in_room: bool, state: str = "active") -> Element:
    kind = GROUP_CHAT if in_room else "chat"
    built = Element(f"{{{CLIENT}}}message", {"to": outbound.chat_id, "type": kind, "id": message_id})
    SubElement(built, f"{{{SID}}}origin-id", id=message_id)
    SubElement(built, f"{{{STATES}}}{state}")
    if outbound.thread_id:
        SubElement(built, f"{{{CLIENT}}}thread").text = clean(outbound.thread_id)
    if not in_room and "/" in outbound.chat_id:
        SubElement(built, f"{{{MUC_USER}}}x")  # A private message in a room.
    return built
