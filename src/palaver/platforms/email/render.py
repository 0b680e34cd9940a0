"""Render a message as a mail: plain text as it is, with the same in HTML if it has formatting."""

import hashlib
import re
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path

from palaver.platforms.email.options import ADDRESS, EmailOptions
from palaver.platforms.email.parse import UNVERIFIED
from palaver.protocols import Attachment, Outbound, SendRefused, one_line
from palaver.protocols.markdown import to_html

# Longer lines than usual, or ids of mails would be broken; every server reads 7-bit text.
_POLICY = SMTP.clone(max_line_length=998, cte_type="7bit")
_REFERENCE = re.compile(r"[\x21-\x3b\x3d\x3f-\x7e]{1,400}")
_MAX_SUBJECT = 120
_MEDIA_TYPE = re.compile(r"([\w.+-]+)/([\w.+-]+)", re.ASCII)


def recipients_of(outbound: Outbound) -> list[str]:
    found = outbound.chat_id.removeprefix(UNVERIFIED).split(",")
    if not all(ADDRESS.fullmatch(address.lower()) for address in found):
        raise SendRefused("The chat is not an e-mail address like ann@example.org.")
    return found


def message_id(account: str, key: str, options: EmailOptions) -> str:
    """Return the id of our mail: the same for the same key, so that mail programs recognise a repetition."""
    digest = hashlib.sha256(f"{account}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"palaver.{digest[:40]}@{options.address.rpartition('@')[2]}"


def subject_for(outbound: Outbound, thread_subject: str | None) -> str:
    """Return the thread's subject, or for a new thread its name or the beginning of the text."""
    if thread_subject is not None:
        return one_line(f"Re: {thread_subject}", _MAX_SUBJECT)
    file = outbound.file.name.plain() if outbound.file else ""
    text = outbound.text.strip().partition("\n")[0].strip("#*_` ")
    return one_line(outbound.opens or text or file or "Message", _MAX_SUBJECT)


def render(outbound: Outbound, options: EmailOptions, own_id: str, subject: str, now: datetime) -> EmailMessage:
    mail = EmailMessage(_POLICY)
    mail["From"] = Address(one_line(options.name, _MAX_SUBJECT), addr_spec=options.address)
    mail["To"] = [Address(addr_spec=address) for address in recipients_of(outbound)]
    mail["Subject"] = subject
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = f"<{own_id}>"
    answered = [each for each in (outbound.thread_id, outbound.reply_to) if each and _REFERENCE.fullmatch(each)]
    if answered:
        mail["In-Reply-To"] = f"<{answered[-1]}>"
        mail["References"] = " ".join(f"<{each}>" for each in dict.fromkeys(answered))
    # RFC 3834: no vacation notice or other program answers it.
    mail["Auto-Submitted"] = "auto-replied" if answered else "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(outbound.text)
    if html := to_html(outbound.text):
        mail.add_alternative(html, subtype="html")
    return mail


def attach(mail: EmailMessage, file: Attachment, content: Path) -> None:
    kind = _MEDIA_TYPE.fullmatch(file.media_type)
    main, sub = kind.groups() if kind and kind[1] not in {"multipart", "message"} else ("application", "octet-stream")
    name = file.name.plain() or "file"
    mail.add_attachment(content.read_bytes(), maintype=main, subtype=sub, filename=name)
