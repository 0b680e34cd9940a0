"""What the suite does not cover: logging in, receipts, rooms, and a server that goes away."""

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, fromstring

import pytest

from palaver.platforms.xmpp import stream
from palaver.platforms.xmpp.adapter import XmppAdapter
from palaver.platforms.xmpp.archive import Place, write_position
from palaver.platforms.xmpp.parse import CLIENT, MUC_USER, RECEIPTS, bare
from palaver.platforms.xmpp.stream import XmppOptions, connected
from palaver.protocols import Outbound, PlatformDown, PlatformRefused, SendRefused, TargetGone
from palaver.testkit.driver import run_adapter, send
from palaver.testkit.recorder import TIMEOUT_SECONDS, Recorder, running
from tests.platforms.called import ACCOUNT
from tests.platforms.jwts import self_signed
from tests.platforms.xmpp.fakes import FakeRoom, FakeXmpp, options_of, person
from tests.platforms.xmpp.prosody import DOMAIN, Prosody, prosody
from tests.platforms.xmpp.proxy import proxy

_OWNER = "http://jabber.org/protocol/muc#owner"


@pytest.fixture
async def fake(xmpp_server: Prosody) -> AsyncGenerator[FakeXmpp]:
    async with proxy(xmpp_server.port) as between, person(xmpp_server, f"dave{id(between)}") as alice:
        yield FakeXmpp(xmpp_server, between, alice)


@pytest.fixture
async def room(xmpp_server: Prosody) -> AsyncGenerator[FakeRoom]:
    async with proxy(xmpp_server.port) as between, person(xmpp_server, f"erin{id(between)}") as alice:
        fake = FakeRoom(xmpp_server, between, alice)
        await fake.enter()
        yield fake


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _connect_nowhere(_: object) -> None:
    """Without a host, it would ask DNS."""


async def test_check_says_who_we_are_or_what_to_do(xmpp_server: Prosody, monkeypatch: pytest.MonkeyPatch) -> None:
    xmpp_server.register("checked", "secret")
    right, wrong = (options_of(xmpp_server.port, "checked", password=password) for password in ("secret", "wrong"))
    assert await XmppAdapter(ACCOUNT, right).check() == f"checked@{DOMAIN}"
    with pytest.raises(PlatformRefused, match="rejects the password"):
        await XmppAdapter(ACCOUNT, wrong).check()
    # The same server, under an address that is not the loopback's.
    elsewhere = options_of(xmpp_server.port, "checked", host="0.0.0.0")  # noqa: S104
    with pytest.raises(PlatformRefused, match="offers no TLS"):
        await XmppAdapter(ACCOUNT, elsewhere).check()
    with pytest.raises(PlatformDown, match=r"127.0.0.1:1: .*Check host and port"):
        await XmppAdapter(ACCOUNT, options_of(1, "checked")).check()
    monkeypatch.setattr(stream, "_CONNECT_SECONDS", 0.0)
    monkeypatch.setattr(stream.slixmpp.ClientXMPP, "connect", _connect_nowhere)
    nowhere = XmppOptions.model_validate({"jid": "bot@nowhere.invalid", "password": "x"})
    with pytest.raises(PlatformDown, match=r"nowhere.invalid: no answer. Check jid"):
        await XmppAdapter(ACCOUNT, nowhere).check()


@pytest.mark.needs("prosody")
async def test_a_password_is_sent_over_tls_with_a_valid_certificate_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "pem"
    certificate.write_bytes(self_signed(DOMAIN))
    with prosody(certificate) as server:
        server.register("bot", "secret")
        # An address of this machine that is not the loopback's.
        adapter = XmppAdapter(ACCOUNT, options_of(server.port, "bot", host="0.0.0.0"))  # noqa: S104
        with pytest.raises(PlatformRefused, match="certificate"):
            await adapter.check()
        trusting = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr(stream, "_tls", lambda: trusting)
        assert await adapter.check() == f"bot@{DOMAIN}"


@pytest.mark.needs("prosody")
async def test_a_server_on_this_machine_can_require_encryption(tmp_path: Path) -> None:
    """That is Prosody's default, with a certificate that it signed itself."""
    certificate = tmp_path / "pem"
    certificate.write_bytes(self_signed(DOMAIN))
    with prosody(certificate, encryption=True) as server:
        server.register("bot", "secret")
        assert await XmppAdapter(ACCOUNT, options_of(server.port, "bot")).check() == f"bot@{DOMAIN}"


async def test_without_a_connection_nothing_is_sent(xmpp_server: Prosody) -> None:
    adapter = XmppAdapter(ACCOUNT, options_of(xmpp_server.port, "nobody"))
    with pytest.raises(PlatformDown):
        await adapter.send(Outbound(platform="xmpp", chat_id=f"ann@{DOMAIN}", text="hi"), idempotency_key="1")


async def test_a_receipt_is_given_once_the_message_is_stored(fake: FakeXmpp) -> None:
    async with run_adapter(fake) as (adapter, recorder):
        recorder.writes.clear()
        name = await fake.alice.say(fake.target, "keep me", Element(f"{{{RECEIPTS}}}request"))
        await recorder.was_offered(1)
        await send(adapter, fake, "wait")
        given = re.compile(rf"<received [^>]*id=.{name}.".encode())
        assert not given.search(fake.between.sent)
        recorder.writes.set()
        await recorder.has(1)
        await _until(lambda: given.search(fake.between.sent))
        await send(adapter, fake, "done")
    assert len(given.findall(fake.between.sent)) == 1


async def test_what_is_not_stored_is_not_acknowledged(fake: FakeXmpp) -> None:
    """A server without an archive sends again what was not acknowledged (XEP-0198)."""

    def acknowledged() -> int:
        return int(re.findall(rb"<a [^>]*h=.(\d+)", fake.between.sent)[-1])

    async with run_adapter(fake) as (adapter, recorder):
        await fake.say("one")
        await recorder.has(1)
        recorder.writes.clear()
        await fake.say("two")
        await recorder.was_offered(2)
        await send(adapter, fake, "wait")
        before = acknowledged()
        await fake.say("three")
        await send(adapter, fake, "wait more")
        assert acknowledged() == before
        recorder.writes.set()
        await recorder.has(3)
        await send(adapter, fake, "done")
        await _until(lambda: acknowledged() > before + 1)


@pytest.mark.needs("prosody")
async def test_a_server_that_restarts_loses_nothing() -> None:
    with prosody() as server:
        server.register("bot", "secret")
        adapter, recorder = XmppAdapter(ACCOUNT, options_of(server.port, "bot")), Recorder()
        async with running(adapter, recorder):
            for number, hard in enumerate((False, True)):
                async with person(server, "ann") as ann:
                    await ann.say(f"bot@{DOMAIN}", f"before {number}")
                    await recorder.has(2 * number + 1)
                server.stop(hard=hard)
                server.start()
                async with person(server, "ann") as ann:
                    await ann.say(f"bot@{DOMAIN}", f"after {number}")
                    await recorder.has(2 * number + 2)
    assert recorder.texts == ["before 0", "after 0", "before 1", "after 1"]


@pytest.mark.needs("prosody")
async def test_without_an_archive_the_server_keeps_what_is_not_stored() -> None:
    with prosody(has_archive=False) as server:
        server.register("bot", "secret")
        recorder = Recorder()
        async with person(server, "ann") as ann:
            async with running(XmppAdapter(ACCOUNT, options_of(server.port, "bot")), recorder):
                await ann.say(f"bot@{DOMAIN}", "one")
                await recorder.has(1)
                recorder.writes.clear()
                await ann.say(f"bot@{DOMAIN}", "two")
                await recorder.was_offered(2)
            recorder.writes.set()
            await ann.say(f"bot@{DOMAIN}", "three")
            async with running(XmppAdapter(ACCOUNT, options_of(server.port, "bot")), recorder):
                await recorder.has(3)
    assert recorder.texts == ["one", "two", "three"]


async def test_an_unknown_place_in_the_archive_is_found_by_its_time(fake: FakeXmpp) -> None:
    """The archive deletes old messages; and whatever else is saved there stops nothing."""
    for number, saved in enumerate(
        (write_position({"": Place("gone", datetime.now(UTC) - timedelta(minutes=5))}), "{broken", '{"": 7}')
    ):
        recorder = Recorder()
        recorder.position = saved
        await fake.say(f"while away {number}")
        async with running(fake.adapter(), recorder):
            await recorder.has(1 + number)
        assert recorder.texts == [f"while away {each}" for each in range(number + 1)]


async def test_a_long_absence_takes_several_pages(fake: FakeXmpp) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("first")
        await recorder.has(1)
    for number in range(120):
        message = Element(f"{{{CLIENT}}}message", to=fake.target, type="chat", id=f"m{number}")
        SubElement(message, f"{{{CLIENT}}}body").text = str(number)
        fake.alice.stream.write(message)
    await fake.alice.stream.ping()
    async with running(fake.adapter(), recorder):
        await recorder.has(121)
    assert recorder.texts == ["first", *map(str, range(120))]


async def test_a_flood_takes_no_more_memory_than_allowed(fake: FakeXmpp, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is given up, and the archive brings the rest."""
    monkeypatch.setattr(stream, "_MAX_READ", 3)
    monkeypatch.setattr(sys.modules["palaver.protocols.read_ahead"], "_MAX_AHEAD", 1)
    async with run_adapter(fake) as (_, recorder):
        await fake.say("first")
        await recorder.has(1)
        recorder.writes.clear()
        before = fake.between.sent.count(b"<stream:stream")
        for number in range(9):
            await fake.say(str(number))
        await recorder.was_offered(2)
        recorder.writes.set()
        await recorder.has(10)
        assert fake.between.sent.count(b"<stream:stream") > before
    assert recorder.texts == ["first", *map(str, range(9))]


async def test_our_own_messages_and_other_clients_of_ours_are_ignored(fake: FakeXmpp) -> None:
    async with run_adapter(fake) as (adapter, recorder), connected(options_of(fake.server.port, fake.bot)) as other:
        await send(adapter, fake, "an answer")
        message = Element(f"{{{CLIENT}}}message", to=fake.target, type="chat", id="note")
        SubElement(message, f"{{{CLIENT}}}body").text = "a note to self"
        other.write(message)
        await other.ping()
        await fake.say("hi")
        await recorder.has(1)
    async with running(fake.adapter(), recorder):
        await fake.say("again")
        await recorder.has(2)
    assert recorder.texts == ["hi", "again"]


async def test_everybody_can_add_the_bot_and_sees_it(fake: FakeXmpp) -> None:
    async with run_adapter(fake) as (adapter, _):
        await send(adapter, fake, "hi")
        fake.alice.stream.write(Element(f"{{{CLIENT}}}presence", to=fake.target, type="subscribe"))
        await _until(lambda: re.search(rb"<presence [^>]*type=.subscribed", fake.between.sent))
    assert not re.search(rb"type=.subscribe[^d]", fake.between.sent), "the bot does not add people"


async def test_targets_that_are_none_are_refused(fake: FakeXmpp) -> None:
    async with run_adapter(fake) as (adapter, _):
        await send(adapter, fake, "hi")
        for chat in ("", "nobody", "two words@x", f"nobody@{DOMAIN}", f"{DOMAIN}"):
            with pytest.raises((TargetGone, SendRefused)):
                await adapter.send(Outbound(platform="xmpp", chat_id=chat, text="x"), idempotency_key="k")


# Rooms


async def test_a_taken_nick_gets_an_addition(room: FakeRoom) -> None:
    async with person(room.server, "mallory") as mallory:
        assert await mallory.stream.rooms.enter(room.chat_id, room.bot, datetime.now(UTC))
        async with run_adapter(room) as (_, recorder):
            await _until(lambda: room.alice.stream.rooms.jid_of(f"{room.chat_id}/{room.bot}_"))
            await room.alice.say(room.chat_id, f"{room.bot}_: hi", kind="groupchat")
            await room.alice.say(room.chat_id, "hello all", kind="groupchat")
            await recorder.has(2)
    assert [(each.text, each.mentions_us) for each in recorder.received] == [("hi", True), ("hello all", False)]


async def test_a_private_message_in_a_room_is_a_direct_chat(room: FakeRoom) -> None:
    """It is with a person: who takes the nick later gets no answer to it."""
    async with run_adapter(room) as (adapter, recorder):
        await room.is_in()
        await room.alice.say(f"{room.chat_id}/{room.bot}", "psst")
        await recorder.has(1)
        source = recorder.received[0].source
        assert (source.chat_kind, source.chat_id) == ("dm", source.user_id)
        assert bare(source.user_id or "") == room.chat_id
        answer = Outbound(platform="xmpp", chat_id=source.chat_id or "", text="yes?")
        await adapter.send(answer, idempotency_key="p")
        await room.alice.stream.ping()
        await _until(lambda: room.alice.heard)
        async with person(room.server, f"mallory{id(room)}") as mallory:
            room.alice.stream.write(Element(f"{{{CLIENT}}}presence", to=f"{room.chat_id}/alice", type="unavailable"))
            await room.alice.stream.ping()
            assert await mallory.stream.rooms.enter(room.chat_id, "alice", datetime.now(UTC))
            await mallory.say(f"{room.chat_id}/{room.bot}", "psst")
            await recorder.has(2)
            assert recorder.received[1].source.chat_id != source.chat_id
            with pytest.raises(TargetGone, match="left the room"):
                await adapter.send(answer, idempotency_key="q")
    assert [each.findtext(f"{{{CLIENT}}}body") for each in room.alice.heard] == ["yes?"]


async def test_nobody_is_somebody_else_in_an_archive(room: FakeRoom) -> None:
    """The server passes on what a message says about its sender."""
    recorder = Recorder()
    async with running(room.adapter(), recorder):
        await room.say("first")
        await recorder.has(1)
    forged = Element(f"{{{MUC_USER}}}x")
    SubElement(forged, f"{{{MUC_USER}}}item", affiliation="owner", role="moderator", jid=room.alice.jid)
    async with person(room.server, f"mallory{id(room)}") as mallory:
        assert await mallory.stream.rooms.enter(room.chat_id, "mallory", datetime.now(UTC))
        await mallory.say(room.chat_id, "I am alice", forged, kind="groupchat")
        async with running(room.adapter(), recorder):
            await recorder.has(2)
    first, second = (each.source.user_id for each in recorder.received)
    assert first == room.alice.jid
    assert second != room.alice.jid


async def test_a_message_is_of_who_had_the_nick_as_it_came(room: FakeRoom) -> None:
    """However long the messages before it take."""
    async with run_adapter(room) as (_, recorder), person(room.server, f"mallory{id(room)}") as mallory:
        await room.is_in()
        recorder.writes.clear()
        await room.say("slow")
        await recorder.was_offered(1)
        assert await mallory.stream.rooms.enter(room.chat_id, "carol", datetime.now(UTC))
        await mallory.say(room.chat_id, "mine", kind="groupchat")
        away = Element(f"{{{CLIENT}}}presence", to=f"{room.chat_id}/carol", type="unavailable")
        mallory.stream.write(away)
        await mallory.stream.ping()
        async with person(room.server, f"carol{id(room)}") as carol:
            assert await carol.stream.rooms.enter(room.chat_id, "carol", datetime.now(UTC))
            await carol.say(room.chat_id, "hers", kind="groupchat")
            recorder.writes.set()
            await recorder.has(3)
    assert [each.source.user_id for each in recorder.received] == [room.alice.jid, mallory.jid, carol.jid]


async def test_a_room_that_cannot_be_entered_stops_nothing(fake: FakeXmpp, caplog: pytest.LogCaptureFixture) -> None:
    options = options_of(fake.between.port, fake.bot, rooms=[f"x@nowhere.{DOMAIN}"])
    recorder = Recorder()
    async with running(XmppAdapter(ACCOUNT, options), recorder):
        await fake.say("hi")
        await recorder.has(1)
    assert "xmpp.not_joined" in {getattr(each, "action", None) for each in caplog.records}


async def test_a_room_that_is_destroyed_stops_nothing(room: FakeRoom, caplog: pytest.LogCaptureFixture) -> None:
    """The bot tries to enter it again, and goes on without it."""
    async with run_adapter(room) as (adapter, recorder):
        await send(adapter, room, "here")
        destroy = fromstring(f"<query xmlns='{_OWNER}'><destroy/></query>")  # noqa: S314
        await room.alice.stream.ask("set", room.chat_id, destroy)
        await _until(lambda: "xmpp.not_joined" in {getattr(each, "action", None) for each in caplog.records})
        await room.alice.say(f"{room.bot}@{DOMAIN}", "still there?")
        await recorder.has(1)
    assert recorder.texts == ["still there?"]


async def test_who_is_removed_stays_away(room: FakeRoom, caplog: pytest.LogCaptureFixture) -> None:
    async with run_adapter(room) as (adapter, recorder):
        await send(adapter, room, "here")
        await room.close_chat()
        await _until(lambda: "xmpp.removed" in {getattr(each, "action", None) for each in caplog.records})
        await room.alice.say(f"{room.bot}@{DOMAIN}", "sorry")
        await recorder.has(1)
    assert recorder.texts == ["sorry"]


async def test_nobody_has_an_address_in_a_room_that_hides_them(room: FakeRoom) -> None:
    """People are then known by the id that the room gives them."""
    hide = (
        f"<query xmlns='{_OWNER}'><x xmlns='jabber:x:data' type='submit'>"
        "<field var='FORM_TYPE'><value>http://jabber.org/protocol/muc#roomconfig</value></field>"
        "<field var='muc#roomconfig_whois'><value>moderators</value></field></x></query>"
    )
    await room.alice.stream.ask("set", room.chat_id, fromstring(hide))  # noqa: S314
    recorder = Recorder()
    async with running(room.adapter(), recorder):
        await room.say("live")
        await recorder.has(1)
    await room.say("while away")
    async with running(room.adapter(), recorder):
        await recorder.has(2)
    assert recorder.texts == ["live", "while away"]
    (user,) = {each.source.user_id or "" for each in recorder.received}
    assert bare(user) == room.chat_id
    assert user != f"{room.chat_id}/alice"
