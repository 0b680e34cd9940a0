"""Render messages for the Cloud API: Markdown with WhatsApp's marks, replies, buttons, files and templates."""

import re
from collections.abc import Mapping
from typing import Any

from palaver.protocols import Attachment, Outbound, SendRefused, Unit, one_line
from palaver.protocols.markdown import Layout, Marks, to_marks

MAX_TEXT = 4096
MAX_CAPTION = 1024
_MAX_QUESTION = 1024
_MAX_BUTTONS = 3
_MAX_LABEL = 20
_MAX_TEMPLATE_TEXT = 900
"""The body of a template can have 1024 characters, its own words included."""
MAX_FILE_BYTES = 100_000_000

# WhatsApp has no escapes: a mark that the author wrote stays as it is.
_MARKS = Marks(bold="*", italic="_", struck="~", code="`", code_block="```", layout=Layout(bullet="- "))
_UNALIGNED = Marks(
    bold="*", italic="_", struck="~", code="`", code_block="```", layout=Layout(bullet="- ", is_even=False)
)
_NUMBER = re.compile(r"\+?[0-9]{4,20}")
_USER_ID = re.compile(r"[A-Z]{2}\.[A-Za-z0-9.]{1,160}")
_OFFICE = "application/vnd.openxmlformats-officedocument"
# What WhatsApp takes as such, and how large. Everything else goes out as a document.
_MEDIA = {
    "image": (("image/jpeg", "image/png"), 5_000_000),
    "video": (("video/mp4", "video/3gpp"), 16_000_000),
    "audio": (("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"), 16_000_000),
}
_DOCUMENTS = frozenset(
    {
        "application/pdf",
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        f"{_OFFICE}.wordprocessingml.document",
        f"{_OFFICE}.spreadsheetml.sheet",
        f"{_OFFICE}.presentationml.presentation",
        "text/plain",
    }
)
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})


def render_text(text: str, room: int = MAX_TEXT) -> str:
    """Render at most `room` UTF-16 units; return the text as written if it gets longer."""
    for marks in (_MARKS, _UNALIGNED):
        shown = to_marks(text, marks)
        if shown.strip() and Unit.UTF16.measure(shown) <= room:
            return shown
    return text


def is_group(chat_id: str) -> bool:
    return not (_NUMBER.fullmatch(chat_id) or _USER_ID.fullmatch(chat_id))


def _address(outbound: Outbound) -> dict[str, Any]:
    """A number goes into `to`, the id of somebody who hides their number into `recipient`."""
    chat = outbound.chat_id
    where = {"recipient" if _USER_ID.fullmatch(chat) else "to": chat}
    quoted = outbound.quoted(in_group=is_group(chat))
    reply = {"context": {"message_id": quoted}} if quoted else {}
    kind = "group" if is_group(chat) else "individual"
    return {"messaging_product": "whatsapp", "recipient_type": kind, **where, **reply}


def render(outbound: Outbound) -> dict[str, Any]:
    address = _address(outbound)
    text = render_text(outbound.text)
    if buttons := _buttons(outbound, text):
        body: dict[str, Any] = {"type": "button", "body": {"text": text}, "action": {"buttons": buttons}}
        return {**address, "type": "interactive", "interactive": body}
    # Without a preview: WhatsApp would fetch the URL, and a crafted one could leak what the agent writes into it.
    return {**address, "type": "text", "text": {"body": text, "preview_url": False}}


def _buttons(outbound: Outbound, text: str) -> list[dict[str, Any]]:
    """Return no buttons if WhatsApp does not take all of them: people can type what they say."""
    choices = outbound.choices
    if not 1 <= len(choices) <= _MAX_BUTTONS or is_group(outbound.chat_id) or Unit.UTF16.measure(text) > _MAX_QUESTION:
        return []
    return [
        {"type": "reply", "reply": {"id": choice.says, "title": one_line(choice.label, _MAX_LABEL)}}
        for choice in choices
    ]


def render_template(outbound: Outbound, name: str, language: str) -> dict[str, Any]:
    """Put the text into the variable of a template, on one line, as WhatsApp wants it."""
    text = one_line(" ".join(outbound.text.split()), _MAX_TEMPLATE_TEXT)
    body = {"type": "body", "parameters": [{"type": "text", "text": text or "…"}]}
    template = {"name": name, "language": {"code": language}, "components": [body]}
    return {**_address(outbound), "type": "template", "template": template}


def media_of(file: Attachment, size: int, *, has_text: bool = False) -> tuple[str, str]:
    """Return as what to send a file, and the type to declare. Raise SendRefused if WhatsApp takes no such file."""
    declared = file.media_type
    for kind, (types, largest) in _MEDIA.items():
        # A voice message has no caption, a document has.
        if declared in types and size <= largest and not (has_text and kind == "audio"):
            return kind, declared
    if declared in _DOCUMENTS or any(declared in types for types, _ in _MEDIA.values()):
        return "document", declared
    if declared.startswith("text/") or declared in _TEXTS:
        return "document", "text/plain"
    raise SendRefused(f"WhatsApp takes no files of the type {declared}.")


def render_file(outbound: Outbound, kind: str, media_id: str, name: str) -> Mapping[str, Any]:
    caption = render_text(outbound.text, MAX_CAPTION)
    media = {"id": media_id, **({"caption": caption} if caption else {})}
    if kind == "document":
        media["filename"] = name
    return {**_address(outbound), "type": kind, kind: media}
