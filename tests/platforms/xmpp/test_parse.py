"""Messages as clients and servers write them, and as nobody should."""

from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from palaver.platforms.xmpp import render
from palaver.platforms.xmpp.archive import read_position, write_position
from palaver.platforms.xmpp.names import CLIENT
from palaver.platforms.xmpp.options import XmppOptions
from palaver.platforms.xmpp.parse import Us, parse, read_live, read_result
from palaver.platforms.xmpp.rooms import Rooms
from palaver.protocols import Inbound, Label, Outbound, Revision, parse_or_skip

# ruff: noqa: S314 - our own texts

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ROOM = "dev@rooms.example.org"
US = Us("main", "bot@example.org", {ROOM: "helper"}, file_hosts=("cdn.example.com",))
ANN = "ann@example.org/phone"


def read(
    xml: str, *, jids: dict[str, str] | None = None, ids: dict[str, str] | None = None, us: Us = US
) -> Inbound | None:
    message = fromstring(xml.replace("<message", f"<message xmlns='{CLIENT}'", 1))
    known = ids or {}
    return parse_or_skip(
        "xmpp", lambda: parse(read_live(message, us), us, (jids or {}).get, lambda given: known.get(given, given), NOW)
    )


def chat(inside: str, sender: str = ANN, name: str = "m1") -> str:
    return f"<message from='{sender}' type='chat' id='{name}'>{inside}</message>"


def said(inside: str, nick: str = "ann") -> str:
    return f"<message from='{ROOM}/{nick}' type='groupchat' id='m1'>{inside}</message>"


def sure(inbound: Inbound | None) -> Inbound:
    assert inbound is not None
    return inbound


def test_a_chat_message() -> None:
    xml = chat(
        "<body>Hi &amp; bye</body><thread>t1</thread><nick xmlns='http://jabber.org/protocol/nick'>Ann</nick>"
        "<delay xmlns='urn:xmpp:delay' from='example.org' stamp='2026-10-31T10:00:00Z'/>"
    )
    inbound = sure(read(xml))
    source = inbound.source
    assert (source.chat_kind, source.chat_id, source.user_id) == ("dm", "ann@example.org", "ann@example.org")
    assert (source.message_id, source.thread_id, inbound.text) == ("m1", "t1", "Hi & bye")
    assert (inbound.labels.user, inbound.at) == (Label("Ann"), datetime(2026, 10, 31, 10, tzinfo=UTC))
    assert sure(read(xml, us=US._replace(has_threads=False))).source.thread_id is None


def test_times_and_ids_of_others_mean_nothing() -> None:
    forged = (
        "<body>x</body><delay xmlns='urn:xmpp:delay' from='evil.example' stamp='2001-01-01T00:00:00Z'/>"
        "<stanza-id xmlns='urn:xmpp:sid:0' by='evil.example' id='forged'/>"
    )
    assert sure(read(chat(forged))).at == NOW
    assert not read_live(fromstring(f"<message xmlns='{CLIENT}' from='{ANN}'>{forged}</message>"), US).archive_id
    future = "<body>x</body><delay xmlns='urn:xmpp:delay' stamp='2999-01-01T00:00:00Z'/>"
    assert sure(read(chat(future))).at == NOW


def test_what_says_nothing_is_skipped() -> None:
    body = "<body>x</body>"
    for xml in (
        chat("<composing xmlns='http://jabber.org/protocol/chatstates'/>"),
        chat("<received xmlns='urn:xmpp:receipts' id='m0'/>"),
        chat(body, "bot@example.org/other"),
        said(body, "helper"),
        f"<message from='{ROOM}' type='groupchat'>{body}</message>",
        f"<message from='unknown@rooms.example.org/eve' type='groupchat'>{body}</message>",
        f"<message from='{ANN}' type='headline'>{body}</message>",
        f"<message from='{ANN}' type='error'>{body}</message>",
        f"<message>{body}</message>",
        chat(body + "<delay xmlns='urn:xmpp:delay' stamp='yesterday'/>"),
        chat(body + "<retract xmlns='urn:xmpp:message-retract:1'/>"),
        chat(body + "<replace xmlns='urn:xmpp:message-correct:0'/>"),
    ):
        assert read(xml) is None, xml


def test_mentions_in_rooms() -> None:
    reference = "<reference xmlns='urn:xmpp:reference:0' type='mention' uri='xmpp:bot@example.org'/>"
    for inside, text, is_ours in (
        ("<body>Helper: hi</body>", "hi", True),
        ("<body>@helper, hi</body>", "hi", True),
        ("<body>ask helper!</body>", "ask helper!", True),
        ("<body>helpers, helper2 and my-helper</body>", "helpers, helper2 and my-helper", False),
        (f"<body>you there</body>{reference}", "you there", True),
        (f"<body>x</body><reply xmlns='urn:xmpp:reply:0' id='s1' to='{ROOM}/helper'/>", "x", True),
        (f"<body>x</body><reply xmlns='urn:xmpp:reply:0' id='s1' to='{ROOM}/bob'/>", "x", False),
        ("<body>/me waves</body>", "* waves", False),
    ):
        inbound = sure(read(said(inside)))
        assert (inbound.text, inbound.mentions_us) == (text, is_ours), inside


def test_a_reply_loses_the_quote_in_front_of_it() -> None:
    inside = (
        "<body>&gt; What time?\n&gt; Now?\nNoon.</body><reply xmlns='urn:xmpp:reply:0' id='s1' to='x@example.org'/>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='20'/></fallback>"
    )
    inbound = sure(read(said(inside), ids={"s1": "bob/m0"}))
    assert (inbound.text, inbound.reply_to) == ("Noon.", "bob/m0")
    assert inbound.quote
    assert inbound.quote.text == "What time?\nNow?"


def test_changes_are_those_of_their_author() -> None:
    """In a room everybody chooses ids: a change of another's message concerns one that does not exist."""
    replace = "<body>new</body><replace xmlns='urn:xmpp:message-correct:0' id='m0'/>"
    edited = sure(read(chat(replace)))
    assert (edited.source.message_id, edited.revision, edited.text) == ("m0", Revision(version="m1"), "new")
    assert sure(read(said(replace, "eve"))).source.message_id == "eve/m0"
    retract = "<retract xmlns='urn:xmpp:message-retract:1' id='s0'/><body>gone</body>"
    deleted = sure(read(said(retract), ids={"s0": "ann/m0"}))
    assert (deleted.source.message_id, deleted.text) == ("ann/m0", "")
    assert deleted.revision
    assert deleted.revision.deleted
    assert sure(read(said(retract, "eve"), ids={"s0": "ann/m0"})).source.message_id == "eve/ann/m0"


def test_only_rooms_of_our_own_server_tell_addresses() -> None:
    """Another could say that somebody there is the owner."""
    jids = {f"{ROOM}/ann": ANN, "dev@evil.example/ann": ANN}
    inside = "<body>x</body><occupant-id xmlns='urn:xmpp:occupant-id:0' id='o1'/>"
    ours = sure(read(said(inside), jids=jids)).source
    assert (ours.user_id, ours.user_id_alt) == ("ann@example.org", None)
    there = US._replace(nicks={"dev@evil.example": "helper"})
    foreign = sure(read(said(inside).replace(ROOM, "dev@evil.example"), jids=jids, us=there)).source
    assert (foreign.user_id, foreign.user_id_alt) == ("dev@evil.example/ann", "dev@evil.example/o1")


def test_an_archive_tells_who_had_the_nick_then() -> None:
    result = (
        f"<message xmlns='{CLIENT}' from='{ROOM}'><result xmlns='urn:xmpp:mam:2' id='a1'>"
        "<forwarded xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' stamp='2026-10-31T10:00:00Z'/>"
        f"<message xmlns='{CLIENT}' from='{ROOM}/ann' type='groupchat' id='m1'><body>x</body>"
        "<x xmlns='http://jabber.org/protocol/muc#user'><item jid='old@example.org'/></x></message>"
        "</forwarded></result></message>"
    )
    stored = read_result(fromstring(result), ROOM)
    inbound = sure(parse(stored, US, {f"{ROOM}/ann": "new@example.org"}.get, str, NOW))
    assert (stored.archive_id, inbound.source.user_id) == ("a1", "old@example.org")


def test_files_are_those_of_servers_in_the_chat() -> None:
    """People can send any URL, of our own network, too."""
    for url, is_file in (
        ("https://upload.example.org/a/photo.jpg", True),
        ("https://cdn.example.com/photo.jpg", True),
        ("http://upload.example.org/photo.jpg", False),
        ("https://evilexample.org/photo.jpg", False),
        ("https://10.0.0.1/photo.jpg", False),
        ("https://localhost/photo.jpg", False),
        ("file:///etc/passwd", False),
        ("aesgcm://upload.example.org/photo.jpg#00", False),
    ):
        inbound = sure(read(chat(f"<body>{url}</body><x xmlns='jabber:x:oob'><url>{url}</url></x>")))
        assert (len(inbound.files), inbound.text) == ((1, "") if is_file else (0, url)), url
        for file in inbound.files:
            assert (file.name, file.media_type, file.handle) == (Label("photo.jpg"), "image/jpeg", url)


@pytest.mark.parametrize("text", ["a\x00b\x1f\ufffe", "x\r\ny", "\ud800"])
def test_what_we_send_is_always_xml(text: str) -> None:
    message = render.message(Outbound(platform="xmpp", chat_id="a@b", text=text, thread_id=text), "1", in_room=False)
    assert render.clean(text).isprintable() or "\n" in render.clean(text)
    assert message.findtext(f"{{{CLIENT}}}body") == render.clean(text)


def test_formatting_is_message_styling() -> None:
    outbound = Outbound(platform="xmpp", chat_id="a@b", text="**a** *b* ~~c~~ `d`\n\n- e\n\n> f\n\n```py\ng\n```")
    text = render.message(outbound, "1", in_room=True).findtext(f"{{{CLIENT}}}body")
    assert text == "*a* _b_ ~c~ `d`\n\n- e\n\n> f\n\n```\ng\n```"


def test_a_position_survives() -> None:
    saved = '{"": ["a1", "2026-11-01T12:00:00+00:00"], "dev@rooms.example.org": ["", "2026-11-01T12:00:00+00:00"]}'
    assert write_position(read_position(saved)) == saved


def test_options() -> None:
    given: dict[str, Any] = {"jid": "Bot@Example.org", "password": "x", "rooms": "A@rooms.example.org, b@x"}
    options = XmppOptions.model_validate(given)
    assert (options.jid, options.rooms, options.room_nick) == ("bot@example.org", ["a@rooms.example.org", "b@x"], "bot")
    assert not options.is_local
    assert XmppOptions.model_validate({**given, "host": "localhost"}).is_local
    for wrong in ("bot", "bot@", "a b@c", "a@b/c", "a@b:c"):
        with pytest.raises(ValueError, match="jid"):
            XmppOptions.model_validate({**given, "jid": wrong})


async def test_a_room_whose_service_stops_is_entered_again() -> None:
    asked: list[Element] = []
    rooms = Rooms(asked.append)
    rooms.nicks[ROOM] = "helper"
    gone = (
        f"<presence xmlns='{CLIENT}' from='{ROOM}/helper' type='unavailable'>"
        "<x xmlns='http://jabber.org/protocol/muc#user'><status code='110'/><status code='332'/></x></presence>"
    )
    rooms.take(fromstring(gone))
    assert rooms.left.done()
    assert not rooms.nicks
