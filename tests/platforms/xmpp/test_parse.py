"""Messages as clients and servers write them, and as nobody should."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast
from xml.etree.ElementTree import Element, fromstring

import pytest

from palaver.platforms.xmpp import parse as render
from palaver.platforms.xmpp.archive import Place, read_archive, read_position, write_position
from palaver.platforms.xmpp.parse import CLIENT, Stored, Us, parse, read_live, read_result
from palaver.platforms.xmpp.rooms import Rooms
from palaver.platforms.xmpp.stream import Refusal, Stream, XmppOptions
from palaver.protocols import Inbound, Label, Outbound, PlatformDown, Quote, Revision, parse_or_skip

# ruff: noqa: S314 - our own texts

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ROOM = "dev@rooms.example.org"
US = Us("main", "bot@example.org", {ROOM: "helper"}, file_hosts=("cdn.example.com",))
ANN = "ann@example.org/phone"


def read(xml: str, *, jid: str | None = None, ids: dict[str, str] | None = None, us: Us = US) -> Inbound | None:
    message = fromstring(xml.replace("<message", f"<message xmlns='{CLIENT}'", 1))
    known = ids or {}
    return parse_or_skip(
        "xmpp", lambda: parse(read_live(message, us, jid), us, lambda given: known.get(given, given), NOW)
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
    assert (inbound.quote.text, inbound.quote.is_ours) == ("What time?\nNow?", False)


@pytest.mark.parametrize(
    "where", ["", "start='x' end='7'", "start='0' end=''", "start='-3' end='7'", "start='9' end='7'"]
)
def test_a_reply_whose_quote_is_nowhere_keeps_its_text(where: str) -> None:
    reply = "<reply xmlns='urn:xmpp:reply:0' id='m0' to='bot@example.org'/>"
    fallback = f"<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body {where}/></fallback>"
    inbound = sure(read(chat(f"<body>&gt; tea?\nyes</body>{reply}{fallback}")))
    assert (inbound.text, inbound.quote) == ("> tea?\nyes", None)


def test_a_reply_to_our_message_in_a_direct_chat_quotes_us() -> None:
    fallback = "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='7'/></fallback>"
    for to, is_ours in (("bot@example.org", True), ("bot@example.org/laptop", True), ("ann@example.org", False)):
        reply = f"<reply xmlns='urn:xmpp:reply:0' id='m0' to='{to}'/>"
        inbound = sure(read(chat(f"<body>&gt; tea?\nyes</body>{reply}{fallback}")))
        assert (inbound.text, inbound.mentions_us) == ("yes", False)
        assert inbound.quote == Quote(text="tea?", is_ours=is_ours)


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


OCCUPANT = "<body>x</body><occupant-id xmlns='urn:xmpp:occupant-id:0' id='o1'/>"


def test_only_rooms_of_our_own_server_tell_addresses() -> None:
    """Another could say that somebody there is the owner. There people are the ids that the room gives them."""
    assert sure(read(said(OCCUPANT), jid=ANN)).source.user_id == "ann@example.org"
    evil = "dev@evil.example"
    there = US._replace(nicks={evil: "helper"}, ids={evil: f"{evil}/o0"})
    foreign = sure(read(said(OCCUPANT).replace(ROOM, evil), jid=ANN, us=there)).source
    assert (foreign.user_id, foreign.user_id_alt) == (f"{evil}/o1", None)
    suffix = "dev@notexample.org"
    alike = US._replace(nicks={suffix: "helper"})
    assert sure(read(said(OCCUPANT).replace(ROOM, suffix), jid=ANN, us=alike)).source.user_id == f"{suffix}/ann"


def test_a_nick_is_nobody_where_the_room_gives_ids() -> None:
    us = US._replace(ids={ROOM: f"{ROOM}/o0"})
    assert read(said("<body>x</body>"), us=us) is None
    assert read(said(OCCUPANT.replace("o1", "")), us=us) is None
    assert read(said(OCCUPANT.replace("o1", "o0"), "helper-before"), us=us) is None, "it is ours, under another nick"
    assert sure(read(said(OCCUPANT), us=us)).source.user_id == f"{ROOM}/o1"
    # Where the room gives none, people could write any.
    assert sure(read(said(OCCUPANT))).source.user_id == f"{ROOM}/ann"


def test_a_private_message_in_a_room_is_of_who_sent_it_not_of_a_nick() -> None:
    xml = chat(OCCUPANT, f"{ROOM}/ann")
    source = sure(read(xml, jid=ANN, us=US._replace(ids={ROOM: f"{ROOM}/o0"}))).source
    assert (source.chat_kind, source.chat_id, source.user_id) == ("dm", f"{ROOM}/o1", f"{ROOM}/o1")
    assert read(xml, jid=ANN) is None


def test_an_older_message_is_not_of_who_has_the_nick_now() -> None:
    old = f"{OCCUPANT}<delay xmlns='urn:xmpp:delay' from='{ROOM}' stamp='2026-10-31T10:00:00Z'/>"
    assert sure(read(said(old), jid=ANN)).source.user_id == f"{ROOM}/ann"


def archived(inside: str, sender: str = f"{ROOM}/ann", kind: str = "groupchat") -> Element:
    return fromstring(
        f"<message xmlns='{CLIENT}' from='{ROOM}'><result xmlns='urn:xmpp:mam:2' id='a1'>"
        "<forwarded xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' stamp='2026-10-31T10:00:00Z'/>"
        f"<message xmlns='{CLIENT}' from='{sender}' type='{kind}' id='m1'><body>x</body>{inside}</message>"
        "</forwarded></result></message>"
    )


def test_an_archive_tells_who_had_the_nick_then() -> None:
    told = "<x xmlns='http://jabber.org/protocol/muc#user'><item jid='old@example.org'/></x>"
    stored = read_result(archived(told), ROOM)
    assert (stored.archive_id, sure(parse(stored, US, str, NOW)).source.user_id) == ("a1", "old@example.org")
    # The sender wrote one of them, and could have written that of the owner.
    both = read_result(archived(told.replace("old", "owner") + told), ROOM)
    assert sure(parse(both, US, str, NOW)).source.user_id == f"{ROOM}/ann"
    assert sure(parse(read_result(archived(told), ""), US, str, NOW)).source.user_id == f"{ROOM}/ann"


def test_the_archive_of_a_room_has_only_its_own_messages() -> None:
    """A room that is not ours could send any message as one of its archive."""
    for sender, kind in (
        (ANN, "chat"),
        (ANN, "groupchat"),
        (f"{ROOM}/ann", "chat"),
        ("other@rooms.example.org/a", "groupchat"),
    ):
        us = US._replace(nicks={ROOM: "helper", "other@rooms.example.org": "helper"}, ids={ROOM: f"{ROOM}/o0"})
        assert parse(read_result(archived("", sender, kind), ROOM), us, str, NOW) is None, sender
    assert parse(read_result(archived("", ANN, "chat"), ""), US, str, NOW), "our own archive has them"


def test_carbons_and_forwarded_messages_are_not_read() -> None:
    """Anybody can send one that says it is the owner's."""
    message = f"<message xmlns='{CLIENT}' from='{ANN}'><body>x</body></message>"
    inside = f"<forwarded xmlns='urn:xmpp:forward:0'>{message}</forwarded>"
    for wrapped in (
        inside,
        *(f"<{name} xmlns='urn:xmpp:carbons:2'>{inside}</{name}>" for name in ("sent", "received")),
    ):
        assert read(chat(wrapped, "eve@evil.example/x")) is None
        assert (
            sure(read(chat(f"<body>mine</body>{wrapped}", "eve@evil.example/x"))).source.user_id == "eve@evil.example"
        )


def test_files_are_those_of_servers_in_the_chat() -> None:
    """People can send any URL, of our own network, too."""
    us = US._replace(file_hosts=("cdn.example.com", "http://127.0.0.1:5280"))
    eve = "eve@evil.example/x"
    for url, sender, is_file in (
        ("https://upload.example.org/a/photo.jpg", ANN, True),
        ("https://cdn.example.com/photo.jpg", ANN, True),
        ("http://127.0.0.1:5280/photo.jpg", ANN, True),
        ("https://files.evil.example/photo.jpg", eve, True),
        ("https://wiki.example.org/photo.jpg", eve, False),
        ("http://127.0.0.1:5281/photo.jpg", ANN, False),
        ("https://127.0.0.1:5280/photo.jpg", ANN, False),
        ("http://upload.example.org/photo.jpg", ANN, False),
        ("https://evilexample.org/photo.jpg", ANN, False),
        ("https://10.0.0.1/photo.jpg", ANN, False),
        ("https://localhost/photo.jpg", ANN, False),
        ("file:///etc/passwd", ANN, False),
        ("aesgcm://upload.example.org/photo.jpg#00", ANN, False),
    ):
        inside = f"<body>{url}</body><x xmlns='jabber:x:oob'><url>{url}</url></x>"
        inbound = sure(read(chat(inside, sender), us=us))
        assert (len(inbound.files), inbound.text) == ((1, "") if is_file else (0, url)), url
        for file in inbound.files:
            assert (file.name, file.media_type, file.handle) == (Label("photo.jpg"), "image/jpeg", url)


@pytest.mark.parametrize("text", ["a\x00b\x1f\ufffe", "x\r\ny", "\ud800"])
def test_what_we_send_is_always_xml(text: str) -> None:
    outbound = Outbound(platform="xmpp", chat_id="a@b", text=text, thread_id=text)
    message = render.message(outbound, "1", in_room=False)
    assert render.clean(text).isprintable() or "\n" in render.clean(text)
    assert message.findtext(f"{{{CLIENT}}}body") == render.clean(outbound.text)
    assert message.findtext(f"{{{CLIENT}}}thread") == render.clean(text)


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


async def test_an_archive_that_fails_is_asked_again_and_a_room_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the next message would move the position over what was not read."""

    class Failing:
        def __init__(self, answer: Refusal | PlatformDown | str) -> None:
            self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.answer, self.asked = answer, 0

        async def ask_archive(self, _archive: str, _query: Element) -> tuple[list[Element], Element]:
            self.asked += 1
            if not isinstance(self.answer, str):
                raise self.answer
            last = f"<set xmlns='http://jabber.org/protocol/rsm'><last>{self.answer}{self.asked}</last></set>"
            return [], fromstring(f"<iq><fin xmlns='urn:xmpp:mam:2'>{last}</fin></iq>")

    async def read_all(failing: Failing, archive: str) -> list[Stored]:
        found = read_archive(cast("Stream", failing), archive, Place("a0", NOW))
        return [each async for each in found]

    for problem in (Refusal("internal-server-error"), PlatformDown("no answer")):
        with pytest.raises(PlatformDown):
            await read_all(Failing(problem), "")
        caplog.clear()
        assert not await read_all(Failing(problem), ROOM)
        assert [getattr(each, "action", None) for each in caplog.records] == ["xmpp.archive_failed"]
    assert not await read_all(Failing(Refusal("service-unavailable")), "")
    unknown, endless = Failing(Refusal("item-not-found")), Failing("a")
    assert not await read_all(unknown, "")
    assert unknown.asked == 2, "by its place, then by its time"
    assert not await read_all(endless, ROOM)
    assert endless.asked > 1000


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
