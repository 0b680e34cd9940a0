"""Parse what Twilio calls with: an SMS or MMS."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from urllib.parse import urlsplit

from palaver.protocols import DM, UNKNOWN_TYPE, Attachment, Inbound, Label, Source

_MAX_FILES = 10


def parse(form: Mapping[str, str], account: str, now: datetime) -> Inbound:
    """Parse a message. Twilio does not say when it was sent."""
    sender = form["From"]
    if not sender or not form["MessageSid"]:
        raise ValueError
    return Inbound(
        source=Source(
            platform="sms",
            account=account,
            chat_kind=DM,
            chat_id=sender,
            user_id=sender,
            message_id=form["MessageSid"],
        ),
        text=form.get("Body", ""),
        at=now,
        files=tuple(_files(form)),
    )


def _files(form: Mapping[str, str]) -> Iterator[Attachment]:
    """Only the path of a file is kept: it is fetched from the API and from nowhere else."""
    for number in range(min(int(form.get("NumMedia") or 0), _MAX_FILES)):
        media_type = form.get(f"MediaContentType{number}") or UNKNOWN_TYPE
        kind = media_type.partition("/")[0]
        name = kind if kind in {"image", "audio", "video"} else "file"
        yield Attachment(Label(name), media_type, handle=urlsplit(form[f"MediaUrl{number}"]).path)
