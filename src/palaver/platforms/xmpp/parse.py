"""Stanzas of XMPP: parse those that come, render those that we send."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement

from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    Outbound,
    Quote,
    Revision,
    Source,
    after_name,
    edit_version,
    parse_time,
)
from palaver.protocols.files import named_file
from palaver.protocols.markdown import Layout, Marks, to_marks

"""The namespaces of the extensions that we use."""

CLIENT = "jabber:client"
CORRECT = "urn:xmpp:message-correct:0"
DATA_FORM = "jabber:x:data"
DELAY = "urn:xmpp:delay"
DISCO_INFO = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS = "http://jabber.org/protocol/disco#items"
FALLBACK = "urn:xmpp:fallback:0"
FILE = "urn:xmpp:file:metadata:0"
FORWARD = "urn:xmpp:forward:0"
HINTS = "urn:xmpp:hints"
MAM = "urn:xmpp:mam:2"
MUC = "http://jabber.org/protocol/muc"
MUC_USER = "http://jabber.org/protocol/muc#user"
NICK = "http://jabber.org/protocol/nick"
OCCUPANT = "urn:xmpp:occupant-id:0"
OOB = "jabber:x:oob"
PING = "urn:xmpp:ping"
RECEIPTS = "urn:xmpp:receipts"
REFERENCE = "urn:xmpp:reference:0"
REPLY = "urn:xmpp:reply:0"
RETRACT = "urn:xmpp:message-retract:1"
RSM = "http://jabber.org/protocol/rsm"
SFS = "urn:xmpp:sfs:0"
SID = "urn:xmpp:sid:0"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
STATES = "http://jabber.org/protocol/chatstates"
UPLOAD = "urn:xmpp:http:upload:0"
URL_DATA = "http://jabber.org/protocol/url-data"


T = TypeVar("T")
_ACTION = "/me "
_MAX_FILES = 20


class Us(NamedTuple):
    account: str
    jid: str
    nicks: Mapping[str, str]
    """Our nick in each room."""
    ids: Mapping[str, str] = {}
    """Us in each room that gives people ids (XEP-0421). Elsewhere anybody could write such an id."""
    has_threads: bool = True
    file_hosts: tuple[str, ...] = ()
    """Where files can be, besides the servers of sender and room."""

    @property
    def domain(self) -> str:
        return self.jid.partition("@")[2]

    def is_local(self, domain: str) -> bool:
        """Return whether it belongs to our own server."""
        return f".{domain}".endswith(f".{self.domain}")


class Stored(NamedTuple):
    """A message as it came, or from an archive."""

    message: Element
    archive: str = ""
    """The room whose archive has it; empty for our own."""
    archive_id: str = ""
    stamp: str = ""
    """When an archive or a server took it; empty if it comes right now."""
    jid: str | None = None
    """The address of a person in a room, if the room tells it."""


def bare(jid: str) -> str:
    return jid.partition("/")[0].lower()


def resource(jid: str) -> str:
    return jid.partition("/")[2]


def read_live(message: Element, us: Us, jid: str | None = None) -> Stored:
    """Read the id and time that a server gave a message. Those that somebody else gave it mean nothing.

    `jid` is whose nick it was as the message came. An older one can be somebody else's.
    """
    sender = bare(message.get("from", ""))
    archive = sender if message.get("type") == "groupchat" else ""
    ids = [
        each.get("id", "") for each in message.findall(f"{{{SID}}}stanza-id") if each.get("by") == (archive or us.jid)
    ]
    servers = {sender, us.jid} if archive else {us.jid, us.domain}
    stamps = [
        each.get("stamp", "") for each in message.findall(f"{{{DELAY}}}delay") if each.get("from", us.domain) in servers
    ]
    return Stored(message, archive, ids[0] if ids else "", stamps[0] if stamps else "", None if stamps else jid)


def read_result(message: Element, archive: str) -> Stored:
    """Read a message that an archive sends."""
    result = _need(message.find(f"{{{MAM}}}result"))
    forwarded = _need(result.find(f"{{{FORWARD}}}forwarded"))
    delay = _need(forwarded.find(f"{{{DELAY}}}delay"))
    found = _need(forwarded.find(f"{{{CLIENT}}}message"))
    # The room adds the address. If there are two, the sender wrote one of them.
    told = [item.get("jid") for item in found.iterfind(f"{{{MUC_USER}}}x/{{{MUC_USER}}}item")] if archive else []
    jid = told[0] if len(told) == 1 else None
    return Stored(found, archive, result.get("id", ""), delay.get("stamp", ""), jid)


def error_condition(stanza: Element) -> str:
    names = (each.tag.removeprefix(f"{{{STANZAS}}}") for each in stanza.iterfind(f"{{{CLIENT}}}error/{{{STANZAS}}}*"))
    return next((name for name in names if name != "text"), "undefined-condition")


def has_content(message: Element) -> bool:
    """Return whether somebody says or changes something; most messages only say that somebody is typing."""
    return message.get("type", "normal") in {"chat", "normal", "groupchat"} and any(
        message.find(name) is not None for name in (f"{{{CLIENT}}}body", f"{{{RETRACT}}}retract")
    )


def parse(stored: Stored, us: Us, id_of: Callable[[str], str], now: datetime) -> Inbound | None:
    """Parse a message; None if it is ours or says nothing. `id_of` knows the message behind an id of a room."""
    message = stored.message
    sender = message.attrib["from"]
    room = bare(sender) if bare(sender) in us.nicks else ""
    in_room = message.get("type") == "groupchat"
    # The archive of a room could have a message of anybody, in any chat.
    is_forged = stored.archive and not (in_room and room == stored.archive)
    if is_forged or (in_room and not room) or not has_content(message):
        return None
    # Without ids, a private message in a room could be anybody's, and so could the answer to it.
    if room and (resource(sender) in {"", us.nicks[room]} or not (in_room or room in us.ids)):
        return None
    user = _user(stored, us, room)
    if user in {us.jid, us.ids.get(room)}:
        return None
    body, quote = _body_and_quote(message)
    rest = after_name(body, (us.nicks[room], f"@{us.nicks[room]}")) if in_room else None
    own_id = message.get("id") or stored.archive_id
    target, revision = _revision(message, own_id, body, id_of)
    files = () if revision else tuple(file for file in _files(message) if _is_allowed(file.handle or "", user, us))
    reply = message.find(f"{{{REPLY}}}reply")
    is_reply = reply is not None and _is_us(reply.get("to", ""), us, room)
    text = body if rest is None else rest
    return Inbound(
        source=_source(message, us, room, user, target or own_id),
        text="" if revision and revision.deleted else _without_files(text, files),
        at=_time(stored.stamp, now),
        labels=_labels(message, sender, room if in_room else ""),
        mentions_us=in_room and (is_reply or _is_mentioned(message, body, us, room)),
        reply_to=None if reply is None else id_of(reply.get("id", "")) or None,
        quote=Quote(text=quote, is_ours=is_reply) if quote else None,
        files=files,
        revision=revision,
    )


def _is_us(jid: str, us: Us, room: str) -> bool:
    return jid.lower() == f"{room}/{us.nicks[room]}".lower() if room else bare(jid) == us.jid


def wants_receipt(message: Element) -> str | None:
    """Return the id of a message whose sender wants to know when we have it (XEP-0184)."""
    is_wanted = message.find(f"{{{RECEIPTS}}}request") is not None and message.get("type") != "groupchat"
    return (message.get("id") or None) if is_wanted else None


def _user(stored: Stored, us: Us, room: str) -> str:
    """Return who sent it. Anybody can take a nick; a room verifies who has it: it tells the address, or gives an id."""
    message = stored.message
    sender = message.attrib["from"]
    if not room:
        return bare(sender)
    # Only a room on our own server is believed: it could tell any address. Our own archive tells none.
    if stored.jid and message.get("type") == "groupchat" and us.is_local(_domain(room)):
        return bare(stored.jid)
    if room not in us.ids:
        return sender
    return f"{room}/{_need(_need(message.find(f'{{{OCCUPANT}}}occupant-id')).get('id') or None)}"


def _source(message: Element, us: Us, room: str, user: str, message_id: str) -> Source:
    in_room = message.get("type") == "groupchat"
    thread = message.findtext(f"{{{CLIENT}}}thread")
    return Source(
        platform="xmpp",
        account=us.account,
        chat_kind=GROUP if in_room else DM,
        chat_id=room if in_room else user,
        thread_id=thread if thread and us.has_threads else None,
        user_id=user,
        # In a room everybody chooses ids, so one person could take another's.
        message_id=f"{resource(message.attrib['from'])}/{message_id}" if in_room and message_id else message_id or None,
    )


def _labels(message: Element, sender: str, room: str) -> Labels:
    if room:
        return Labels(user=Label(resource(sender)), chat=Label(room))
    name = message.findtext(f"{{{NICK}}}nick") or resource(sender) * bool(message.find(f"{{{MUC_USER}}}x") is not None)
    return Labels(user=Label.of(name))


def _body_and_quote(message: Element) -> tuple[str, str]:
    """Return the text, without the quote that a client writes in front of a reply for older clients (XEP-0461)."""
    body = message.findtext(f"{{{CLIENT}}}body") or ""
    quote = ""
    for fallback in message.findall(f"{{{FALLBACK}}}fallback"):
        part = fallback.find(f"{{{FALLBACK}}}body")
        if fallback.get("for") == REPLY and part is not None:
            start, end = _range(part)
            quote = "\n".join(line.removeprefix(">").strip() for line in body[start:end].splitlines()).strip()
            body = body[:start] + body[end:]
    return (f"* {body.removeprefix(_ACTION)}" if body.startswith(_ACTION) else body), quote


def _range(part: Element) -> tuple[int, int]:
    """Return which part of a text is for older clients; none if that makes no sense: nothing that was said is lost."""
    try:
        start = int(part.get("start", "0"))
        end = int(part.get("end", "0"))
    except ValueError:
        return 0, 0
    return (start, end) if 0 <= start <= end else (0, 0)


def _revision(message: Element, own_id: str, body: str, id_of: Callable[[str], str]) -> tuple[str, Revision | None]:
    """Return the id of the message that this one changes, and how."""
    replaced = message.find(f"{{{CORRECT}}}replace")
    retracted = message.find(f"{{{RETRACT}}}retract")
    if retracted is not None:
        # In a room people name the id that the room gave the message; only the sender's own can be theirs.
        target = id_of(retracted.attrib["id"]).removeprefix(f"{resource(message.attrib['from'])}/")
        return target, Revision(version="deleted", deleted=True)
    if replaced is None:
        return "", None
    return replaced.attrib["id"], Revision(version=own_id or edit_version("", body))


def _is_mentioned(message: Element, text: str, us: Us, room: str) -> bool:
    nick = us.nicks[room]
    names = {f"xmpp:{us.jid}", f"xmpp:{room}/{nick}".lower()}
    uris = (
        each.get("uri", "") for each in message.findall(f"{{{REFERENCE}}}reference") if each.get("type") == "mention"
    )
    is_named = re.search(rf"(?<![\w@.-]){re.escape(nick)}(?![\w-]|\.\w)", text.replace(f"@{nick}", nick), re.IGNORECASE)
    return bool(is_named) or any(unquote(uri).lower() in names for uri in uris)


def _files(message: Element) -> Iterator[Attachment]:
    """Yield the files: with name and type if the client tells them (XEP-0447), else what their URLs say (XEP-0066)."""
    seen: set[str] = set()
    for sharing in message.findall(f"{{{SFS}}}file-sharing")[:_MAX_FILES]:
        about = sharing.find(f"{{{FILE}}}file")
        source = sharing.find(f"{{{SFS}}}sources/{{{URL_DATA}}}url-data")
        if about is not None and source is not None:
            url = source.attrib["target"]
            size = about.findtext(f"{{{FILE}}}size")
            seen.add(url)
            file = named_file(_name(url), int(size) if size else None, handle=url)
            name = about.findtext(f"{{{FILE}}}name")
            kind = about.findtext(f"{{{FILE}}}media-type")
            yield file._replace(name=Label(name) if name else file.name, media_type=kind or file.media_type)
    for each in message.findall(f"{{{OOB}}}x")[:_MAX_FILES]:
        url = each.findtext(f"{{{OOB}}}url") or ""
        if url not in seen and urlsplit(url).scheme in {"http", "https"}:
            yield named_file(_name(url), handle=url)


def _is_allowed(url: str, user: str, us: Us) -> bool:
    """Return whether to fetch a file. People can send any URL, of our own network, too: that stays text."""
    address = urlsplit(url)
    domain = _domain(user)
    domains = (domain, *((us.domain,) if us.is_local(domain) else ()), *us.file_hosts)
    is_there = any(f".{address.hostname}".endswith(f".{each}") for each in domains)
    return (address.scheme == "https" and is_there) or f"{address.scheme}://{address.netloc}" in us.file_hosts


def _domain(jid: str) -> str:
    return bare(jid).partition("@")[2]


def _name(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2]) or "file"


def _without_files(text: str, files: tuple[Attachment, ...]) -> str:
    """The URL of a file is also the text, for older clients."""
    return "" if text.strip() in {file.handle for file in files} else text


def _time(stamp: str, now: datetime) -> datetime:
    return min(parse_time(stamp), now) if stamp else now


def _need(found: T | None) -> T:
    if found is None:
        raise ValueError("an element or attribute is missing")
    return found


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
