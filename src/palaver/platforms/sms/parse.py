"""Check and parse what Twilio calls with: an SMS or MMS."""

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime
from urllib.parse import parse_qsl, urlsplit

from palaver.protocols import DM, UNKNOWN_TYPE, Attachment, Inbound, Label, Source

_MAX_FIELDS = 1000
_MAX_FILES = 10


def read_form(body: bytes) -> Mapping[str, str]:
    """Return the fields of a form. Raise ValueError if it is none."""
    text = body.decode("ascii")
    pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=_MAX_FIELDS, errors="replace")
    return dict(pairs)


def sign(url: str, form: Mapping[str, str], token: str) -> str:
    """Return the signature of a call: of its URL, and all fields in the order of their names."""
    plain = url + "".join(f"{name}{form[name]}" for name in sorted(form))
    digest = hmac.new(token.encode(), plain.encode("utf-8", "replace"), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


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
