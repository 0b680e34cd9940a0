"""Render messages for WeChat, which shows plain text, and for WeCom, which shows some Markdown."""

from typing import Any
from xml.sax.saxutils import escape

from palaver.protocols import Attachment, Outbound, SendRefused, Unit
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks, to_plain

MAX_BYTES = 2048
MAX_FILE_BYTES = 20_000_000
_MARKS = Marks(
    bold="**",
    code="`",
    link=lambda url: ("[", f"]({url.replace(')', '%29')})"),
    layout=Layout(is_linked=is_web_link, is_even=False),
)
_MEDIA = {
    "image": (("image/png", "image/jpeg", "image/gif"), 10_000_000),
    "voice": (("audio/amr", "audio/mpeg"), 2_000_000),
    "video": (("video/mp4",), 10_000_000),
}


def plain_text(text: str) -> str:
    return to_plain(text, MAX_BYTES, Unit.UTF8)


def wecom_markdown(text: str) -> str:
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown.encode()) <= MAX_BYTES else text


def render(outbound: Outbound) -> dict[str, Any]:
    """Render a customer service message. Choices are a menu: its lines can be tapped."""
    to, text = {"touser": outbound.chat_id}, plain_text(outbound.text)
    if outbound.choices:
        lines = [{"id": choice.says, "content": choice.label} for choice in outbound.choices]
        return {**to, "msgtype": "msgmenu", "msgmenu": {"head_content": text, "list": lines, "tail_content": ""}}
    return {**to, "msgtype": "text", "text": {"content": text}}


def render_reply(text: str, *, to: str, us: str, at: int) -> str:
    """Render the answer to a callback."""
    fields = {"ToUserName": to, "FromUserName": us, "CreateTime": at, "MsgType": "text", "Content": plain_text(text)}
    return f"<xml>{''.join(f'<{tag}>{escape(str(value))}</{tag}>' for tag, value in fields.items())}</xml>"


def media_kind(file: Attachment, size: int, *, takes_files: bool) -> str:
    """Return as what to send a file. Raise SendRefused if there is no way."""
    for kind, (types, largest) in _MEDIA.items():
        if file.media_type in types and size <= largest:
            return kind
    if takes_files:
        return "file"
    raise SendRefused(f"WeChat takes no files of the type {file.media_type} and this size.")
