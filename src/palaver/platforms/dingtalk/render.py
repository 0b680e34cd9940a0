"""Render messages for a DingTalk robot: plain text, or Markdown if there is something to format."""

import json

from palaver.protocols import Attachment, one_line
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks, to_spans

MAX_FILE_BYTES = 20_000_000
_MAX_BYTES = 15_000
_MAX_TITLE = 40
_MARKS = Marks(
    bold="**",
    italic="*",
    link=lambda url: ("[", f"]({url.replace(')', '%29')})"),
    layout=Layout(bullet="- ", is_linked=is_web_link, is_even=False),
)


def render(text: str) -> tuple[str, str]:
    """Return the key of the message, and its parameters. Its Markdown needs two spaces before a line break."""
    plain, shown = to_spans(text, _MARKS.layout), to_marks(text, _MARKS)
    is_plain = not plain.spans and plain.text.strip() in {"", text.strip()}
    if is_plain or len(shown.encode()) > _MAX_BYTES:
        return "sampleText", json.dumps({"content": text}, ensure_ascii=False)
    title = one_line(" ".join(shown.replace("*", "").split()), _MAX_TITLE)
    return "sampleMarkdown", json.dumps({"title": title, "text": shown.replace("\n", "  \n")}, ensure_ascii=False)


def render_file(file: Attachment, media_id: str) -> tuple[str, str]:
    name = file.name.plain() or "file"
    if file.media_type.startswith("image/"):
        return "sampleImageMsg", json.dumps({"photoURL": media_id})
    kind = name.rpartition(".")[2] if "." in name else "txt"
    return "sampleFile", json.dumps({"mediaId": media_id, "fileName": name, "fileType": kind}, ensure_ascii=False)
