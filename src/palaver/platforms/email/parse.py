"""Parse a mail: who sent it, whether the server could verify that, and what it says."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import HeaderParseError, MessageError
from email.header import Header, decode_header
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import NamedTuple, cast

from imap_tools.message import MailAttachment
from imap_tools.utils import EmailAddress, decode_value, parse_email_addresses

from palaver.platforms.email.body import Words, html_to_text, split_history, unflow
from palaver.platforms.email.mailbox import ADDRESS, EmailOptions, RawMail, Unverified
from palaver.protocols import DM, GROUP, Attachment, Inbound, Label, Labels, Quote, Source, format_size, value

_BULK = frozenset({"bulk", "list", "junk", "auto_reply"})
_ROBOTS = re.compile(r"mailer-daemon|postmaster|bounces?|(?:do[._-]?)?no[t]?[._-]?reply", re.IGNORECASE)
_SUPPRESSED = ("X-Auto-Response-Suppress", "X-Autoreply", "X-Autorespond", "X-Autorespond-To")


def automatic_reason(mail: Message, sender: str) -> str | None:
    """Return why a mail must not be answered; None if a person wrote it to us."""
    local = sender.partition("@")[0]
    checks = {
        "a bounce or report": mail.get_content_type() == "multipart/report" or _has_no_return_path(mail),
        "automatic": _header(mail, "Auto-Submitted").partition(";")[0].strip() not in {"", "no"}
        or any(name in mail for name in _SUPPRESSED),
        "from a mailing list": any(name.lower().startswith("list-") for name in mail.keys()),  # noqa: SIM118
        "bulk mail": _header(mail, "Precedence").strip() in _BULK,
        "from a robot": bool(_ROBOTS.fullmatch(local)),
    }
    return next((reason for reason, is_true in checks.items() if is_true), None)


def _has_no_return_path(mail: Message) -> bool:
    """RFC 5321: a notice has an empty one, so that nobody answers it."""
    return _header(mail, "Return-Path").strip() == "<>"


def _header(mail: Message, name: str) -> str:
    return str(mail.get(name, "")).lower()


@value
class _Result:
    method: str
    result: str
    properties: Mapping[str, str]


def is_verified(mail: Message, sender: str, server: str) -> bool:
    """Return whether our own server vouches for the sender's domain, or for the sender."""
    found = [result for header in _own_results(mail, server) for result in _read_results(header)]
    if any(each.method == "dmarc" and each.result == "fail" for each in found):
        return False
    return any(each.result == "pass" and _vouches(each, sender) for each in found)


def _vouches(found: _Result, sender: str) -> bool:
    domain = sender.rpartition("@")[2]
    match found.method:
        case "dmarc":
            return found.properties.get("header.from") == domain
        case "dkim":
            signer = found.properties.get("header.d") or found.properties.get("header.i", "").rpartition("@")[2]
            return bool(signer) and f".{domain}".endswith(f".{signer}")
        case "auth":
            return found.properties.get("smtp.auth") == sender
        case _:
            return False  # SPF alone says nothing about From.


def _own_results(mail: Message, server: str) -> Iterator[str]:
    """Yield the headers that our server wrote: its topmost, and others before the next hop. The rest can be forged."""
    is_found = False
    for name, text in mail.items():
        match name.lower():
            case "received" if is_found:
                return
            case "authentication-results":
                plain = _without_comments(str(text))
                if plain.partition(";")[0].split()[:1] == [server.lower()]:
                    is_found = True
                    yield plain
            case _:
                pass


def _read_results(header: str) -> Iterator[_Result]:
    """Read `server; dkim=pass header.d=example.org; dmarc=…`."""
    for part in header.split(";")[1:]:
        pairs = [tuple(word.partition("=")[::2]) for word in part.split() if "=" in word]
        if pairs:
            (method, result), *rest = pairs
            # What is stated twice contradicts itself.
            names = [name for name, _ in rest]
            properties = {name: text for name, text in rest if names.count(name) == 1}
            yield _Result(method=method.partition("/")[0], result=result, properties=properties)


def _without_comments(text: str) -> str:
    """Remove comments, which can be nested, and unquote: a quoted string cannot add results of its own."""
    kept = list[str]()
    depth = 0
    is_quoted = False
    is_escaped = False
    for character in text.lower():
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == '"' and not depth:
            is_quoted = not is_quoted
        elif character in "()" and not is_quoted:
            depth = max(0, depth + (1 if character == "(" else -1))
        elif not depth and not (is_quoted and (character in ";=" or character.isspace())):
            kept.append(character)
    return "".join(kept)


PLATFORM = "email"
UNVERIFIED = "unverified:"
"""In front of the ids of a sender whom nobody vouches for: they share nothing with the real one."""
_ENCODED = "=?"
"""How an encoded word of a header begins."""
_IDS = re.compile(r"<([^<>\s]+)>")
_OWN_ID = re.compile(r"palaver\.[0-9a-f]{40}@.+")
_MAX_FILES = 100
_MAX_TEXT = 200_000
_FORWARD = re.compile(r"\s*(?:fwd?|wg|tr|rv|enc|vs)\s*:", re.IGNORECASE)
_REPLY = re.compile(r"^(?:(?:re|aw|antw|sv|r)\s*(?:\[\d+\])?\s*:\s*)+", re.IGNORECASE)


@value
class NewMail:
    inbound: Inbound
    subject: str


class Skipped(NamedTuple):
    """A mail that is not handed over."""

    reason: str


def parse(raw: RawMail, options: EmailOptions, account: str, handle: str, now: datetime) -> NewMail | Skipped:
    """Parse a mail; `handle` identifies it to `fetch`. Raise ValueError if it is no mail."""
    try:
        return _parse(raw, options, account, handle, now)
    except MessageError as error:
        raise ValueError("not a mail") from error


def _parse(raw: RawMail, options: EmailOptions, account: str, handle: str, now: datetime) -> NewMail | Skipped:
    mail = message_from_bytes(raw.content)
    sender = _sender(mail)
    address = sender.email.lower()
    if address in options.own:
        return Skipped("our own")
    if reason := automatic_reason(mail, address):
        return Skipped(reason)
    prefix = "" if is_verified(mail, address, options.auth_server) else UNVERIFIED
    if prefix and options.unverified is Unverified.REFUSE:
        return Skipped("from an unverified sender")
    others = sorted({address, *_recipients(mail, "To"), *_recipients(mail, "Cc")} - options.own)
    references = message_ids(mail, "References") or message_ids(mail, "In-Reply-To")
    message_id = next(iter(message_ids(mail, "Message-ID")), None) or hashlib.sha256(raw.content).hexdigest()
    replied = (message_ids(mail, "In-Reply-To") or references)[-1:]
    is_reply_to_us = any(_OWN_ID.fullmatch(each) for each in replied)
    subject = subject_of(mail)
    words = _words(mail) if raw.is_whole else Words(f"[mail of {format_size(raw.size)}, too large to read]")
    inbound = Inbound(
        source=Source(
            platform=PLATFORM,
            account=account,
            chat_kind=DM if len(others) == 1 else GROUP,
            chat_id=prefix + ",".join(others),
            thread_id=references[0] if references else message_id,
            user_id=prefix + address,
            message_id=message_id,
        ),
        text=words.new or subject,
        at=_date(mail, now),
        labels=Labels(user=Label.of(sender.name), topic=Label.of(subject)),
        mentions_us=is_reply_to_us or bool(options.own.intersection(_recipients(mail, "To"))),
        reply_to=replied[0] if replied else None,
        quote=Quote(text=words.history, is_ours=is_reply_to_us) if words.history else None,
        files=tuple(
            Attachment(Label(_name(file)), file.content_type, file.size, handle=f"{handle}.{number}")
            for number, file in enumerate(files_of(mail))
        ),
    )
    return NewMail(inbound=inbound, subject=subject)


def _sender(mail: Message) -> EmailAddress:
    """Return the only sender. Two could be taken for one another."""
    found = _addresses(mail, "From")
    if len(found) != 1 or not ADDRESS.fullmatch(found[0].email.lower()):
        raise ValueError("not one readable sender")
    return found[0]


def _recipients(mail: Message, name: str) -> set[str]:
    found = {each.email.lower() for each in _addresses(mail, name)}
    return {address for address in found if ADDRESS.fullmatch(address)}


def _addresses(mail: Message, name: str) -> Sequence[EmailAddress]:
    return [each for header in mail.get_all(name, []) for each in _read_addresses(header)]


def _read_addresses(header: str | Header) -> Sequence[EmailAddress]:
    try:
        return parse_email_addresses(header)
    except HeaderParseError:  # A name that is encoded wrongly is shown as it is.
        return parse_email_addresses(str(header).replace(_ENCODED, "="))


def message_ids(mail: Message, name: str) -> Sequence[str]:
    return _IDS.findall(str(mail.get(name, "")))


def subject_of(mail: Message) -> str:
    """Return the subject without `Re:`."""
    raw = mail.get("Subject", "")
    try:
        decoded = "".join(decode_value(*part) for part in decode_header(raw))
    except (HeaderParseError, ValueError):
        decoded = str(raw)
    return _REPLY.sub("", " ".join(decoded.split()))


def _date(mail: Message, now: datetime) -> datetime:
    """Return when it was sent; a date that is unreadable or in the future counts as now."""
    try:
        found = parsedate_to_datetime(str(mail.get("Date", "")))
    except (ValueError, OverflowError):
        return now
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return min(found, now)


def _leaves(mail: Message) -> Iterator[Message]:
    """Yield the parts that hold something. An attached mail is one: its text is not the sender's."""
    if mail.is_multipart() and mail.get_content_maintype() == "multipart":
        for part in cast("list[Message]", mail.get_payload()):
            yield from _leaves(part)
    else:
        yield mail


def _is_text(part: Message) -> bool:
    is_body = part.get_content_type() in {"text/plain", "text/html"} and not part.get_filename()
    return is_body and part.get_content_disposition() != "attachment"


def files_of(mail: Message) -> Sequence[MailAttachment]:
    return [MailAttachment(part) for part in _leaves(mail) if not _is_text(part)][:_MAX_FILES]


def _name(file: MailAttachment) -> str:
    try:
        name = file.filename
    except (HeaderParseError, ValueError):
        name = ""
    return name or ("mail.eml" if file.content_type == "message/rfc822" else "file")


def _words(mail: Message) -> Words:
    """Return what is new in it. What somebody forwards is new, too."""
    text = _text(mail)
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}\n[the mail goes on for {len(text) - _MAX_TEXT} more characters]"
    return Words(text.strip()) if _FORWARD.match(str(mail.get("Subject", ""))) else split_history(text)


def _text(mail: Message) -> str:
    """Return the plain text, or the HTML as text if there is none."""
    parts = [part for part in _leaves(mail) if _is_text(part)]
    plain = [_plain_text(part) for part in parts if part.get_content_type() == "text/plain"]
    if any(text.strip() for text in plain):
        return "\n".join(plain)
    return "\n".join(html_to_text(_content(part)) for part in parts if part.get_content_type() == "text/html")


def _plain_text(part: Message) -> str:
    is_flowed = str(part.get_param("format", "")).lower() == "flowed"
    joins_words = str(part.get_param("delsp", "")).lower() == "yes"
    return unflow(_content(part), joins_words=joins_words) if is_flowed else _content(part)


def _content(part: Message) -> str:
    payload = part.get_payload(decode=True)
    try:
        text = decode_value(payload, part.get_content_charset()) if isinstance(payload, bytes) else ""
    except ValueError:  # The name of the character set is none, or it cannot be decoded.
        text = decode_value(payload) if isinstance(payload, bytes) else ""
    return text.replace("\r\n", "\n").replace("\r", "\n")
