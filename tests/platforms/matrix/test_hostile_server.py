"""What a homeserver may answer, and what strangers may send, stops nothing and is taken for nothing else."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from palaver.model.source import DM, GROUP
from palaver.model.turn import Outbound
from palaver.platforms.matrix import session as visiting
from palaver.platforms.matrix import sync
from palaver.platforms.matrix.send import MessageSender, RoomSender
from palaver.platforms.matrix.session import SyncSession
from palaver.platforms.matrix.sync import Batch, DirectChats, SyncReader
from palaver.protocols import background
from palaver.protocols.adapter import PlatformBusy, PlatformDown
from palaver.testkit.recorder import Recorder
from tests.engine.gateway import MovableClock
from tests.platforms.matrix.scripted_server import ROOM, US, Odd, busy, odd, synced

ALICE = "@alice:example.org"


def event(kind: str, content: dict[str, Any], name: str = "$1", **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "event_id": name,
        "sender": ALICE,
        "origin_server_ts": 1,
        "room_id": ROOM,
        "content": content,
        **more,
    }


ENCRYPTED = event("m.room.encryption", {"algorithm": "m.megolm.v1.aes-sha2"}, "$0", state_key="")
UNREADABLE = event(
    "m.room.encrypted",
    {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AAAA", "sender_key": "", "device_id": "D", "session_id": "s"},
)


_INVITED = {
    "type": "m.room.member",
    "state_key": US,
    "sender": ALICE,
    "content": {"membership": "invite", "is_direct": True},
}
INVITING: dict[str, Any] = {
    "next_batch": "s1",
    "rooms": {"invite": {"!new:example.org": {"invite_state": {"events": [_INVITED]}}}},
}


def inviting(position: str, *events: dict[str, Any]) -> dict[str, Any]:
    joined = synced(position, *events)
    return {**joined, "rooms": {**joined["rooms"], **INVITING["rooms"]}}


def unreadable(sender: str, session: str) -> dict[str, Any]:
    content = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AAAA", "sender_key": "x", "device_id": "D"}
    return event("m.room.encrypted", {**content, "session_id": session}, f"${session}", sender=sender)


async def note(sent: list[str], *what: object, **_more: object) -> None:
    sent.append(str(what[0]))


def listening(server: Odd) -> SyncReader:
    return SyncReader(server.client, DirectChats(server.client), "helper", {})


def visit(server: Odd) -> SyncSession:
    return SyncSession(server.client, server.options, "helper", Recorder(), {})


def sender(server: Odd) -> MessageSender:
    return MessageSender(server.client, DirectChats(server.client), RoomSender(server.client))


def down(_request: web.Request) -> web.Response:
    return web.Response(status=503, text="come back later")


async def is_kept(recorder: Recorder, position: str) -> bool:
    return await recorder.load_position() == position


def names(batch: Batch) -> list[str]:
    return [each.event.event_id for each in batch.events]


@pytest.mark.parametrize("limited", [False, True])
async def test_what_nobody_could_have_encrypted_is_passed_over(tmp_path: Path, limited: bool) -> None:
    """In what is new, and in what is fetched because there was too much of it."""
    after = event("m.room.message", {"msgtype": "m.text", "body": "hi"}, "$2")

    def reply(request: web.Request) -> dict[str, Any]:
        if request.path.endswith("/messages"):
            return {"chunk": [after, UNREADABLE], "start": "before", "end": "before"}
        said = () if limited else (UNREADABLE, after)
        return {**synced(f"s{len(server.asked)}", *said, state=(ENCRYPTED,), limited=limited)}

    async with odd(reply, tmp_path / "keys") as server:
        heard = listening(server)
        assert names(await heard.batch("s")) == ["$1", "$2"]
        assert await heard.batch("s1")


async def test_an_invitation_is_taken_and_written_down_once_the_homeserver_has_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what it has written down of other direct chats stays."""
    monkeypatch.setattr(background, "_FIRST_RETRY_SECONDS", 0.0)
    written = {"@bob:example.org": ["!other:example.org"]}

    def reply(request: web.Request) -> dict[str, Any] | web.Response:
        times = server.asked.count(f"{request.method} {request.path}")
        if request.path.endswith("/sync"):
            return INVITING if times == 1 else down(request)
        if "/join/" in request.path:
            return busy() if times < 3 else {"room_id": "!new:example.org"}
        if request.method == "PUT":
            return down(request) if times < 4 else {}
        return written

    async with odd(reply) as server:
        stay = visit(server)
        await stay.start()
        with pytest.raises(PlatformDown):
            await stay.run()
        assert server.told[-2] == {**written, ALICE: ["!new:example.org"]}


async def test_where_it_cannot_be_read_which_chats_are_direct_none_is_written_over() -> None:
    async with odd(down) as server:
        with pytest.raises(PlatformDown):
            await visit(server).start()
        assert [each for each in server.asked if "m.direct" in each] == server.asked


async def test_a_quoted_message_is_asked_for_again_until_it_is_known() -> None:
    def reply(_request: web.Request) -> dict[str, Any] | web.Response:
        return busy() if len(server.asked) == 1 else {"type": "m.room.message", "event_id": "$ours", "sender": US}

    async with odd(reply) as server:
        speaks = sender(server)
        with pytest.raises(PlatformBusy):
            await speaks.find_event(ROOM, "$ours")
        found = await speaks.find_event(ROOM, "$ours")
        assert found is not None
        assert found.sender == US


@pytest.mark.parametrize("name", ["$\0", "$\ud800", "$" * 70_000])
async def test_what_cannot_be_an_id_is_not_asked_for(name: str) -> None:
    async with odd(down) as server:
        assert await sender(server).find_event(ROOM, name) is None
        assert not server.asked


async def test_a_room_that_cannot_be_entered_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone can invite us to a room on a server that is dead."""
    monkeypatch.setattr(visiting, "JOIN_TIMEOUT_SECONDS", 0.0)
    said = event("m.room.message", {"msgtype": "m.text", "body": "hi"}, "$2")

    def reply(request: web.Request) -> dict[str, Any] | web.Response:
        if request.path.endswith("/sync"):
            place = request.query.get("since")
            return down(request) if place == "s2" else inviting("s2", said)
        return down(request) if "/join/" in request.path else web.json_response({}, status=403)

    async with odd(reply) as server:
        recorder = Recorder()
        await recorder.save_position(f"{US} s1")
        stay = SyncSession(server.client, server.options, "helper", recorder, {})
        await stay.start()
        with pytest.raises(PlatformDown):
            await stay.run()
        await stay.tasks.end()
        assert str(await recorder.load_position()) == f"{US} s2"
    assert recorder.texts == ["hi"]


@pytest.mark.parametrize(("present", "kind"), [((), GROUP), ((US,), DM), ((US, "@bob:example.org"), GROUP)])
async def test_we_ask_once_how_many_are_in_a_direct_chat_where_the_platform_does_not_say(
    present: tuple[str, ...], kind: str
) -> None:
    """Where that cannot be known either, it is a group."""
    members = [event("m.room.member", {"membership": "join"}, state_key=who) for who in (*present, ALICE)]

    def reply(request: web.Request) -> dict[str, Any] | web.Response:
        if request.path.endswith("/members"):
            return {"chunk": members} if present else web.json_response({}, status=403)
        said = event("m.room.message", {"msgtype": "m.text", "body": "hi"}, f"${len(server.asked)}")
        room = {"timeline": {"events": [said]}}
        return {"next_batch": f"s{len(server.asked)}", "rooms": {"join": {ROOM: room}}}

    async with odd(reply) as server:
        direct = DirectChats(server.client)
        direct.update({ALICE: [ROOM]})
        hearing = SyncReader(server.client, direct, "helper", {})
        for _ in range(2):
            (heard,) = (await hearing.batch("s")).events
            assert heard.context.kind == kind
        assert sum("/members" in each for each in server.asked) == (1 if present else 2)


@pytest.mark.parametrize("limited", [False, True])
async def test_where_the_platform_never_says_how_many_there_are_we_ask_again_when_somebody_comes(limited: bool) -> None:
    """Not every homeserver tells; and what is too much to be told at once may have been that."""
    said = event("m.room.message", {"msgtype": "m.text", "body": "hi"}, "$1")
    bob = event("m.room.member", {"membership": "join"}, "$2", state_key="@bob:example.org")
    members = [event("m.room.member", {"membership": "join"}, state_key=who) for who in (US, ALICE)]

    def reply(request: web.Request) -> dict[str, Any]:
        if request.path.endswith("/members"):
            return {"chunk": members}
        is_second = bob in members
        timeline = {"events": [bob, said] if is_second and not limited else [said], "limited": is_second and limited}
        return {"next_batch": f"s{len(server.asked)}", "rooms": {"join": {ROOM: {"timeline": timeline}}}}

    async with odd(reply) as server:
        direct = DirectChats(server.client)
        direct.update({ALICE: [ROOM]})
        hearing = SyncReader(server.client, direct, "helper", {})
        assert {each.context.kind for each in (await hearing.batch("s")).events} == {DM}
        members.append(bob)
        assert {each.context.kind for each in (await hearing.batch("s")).events} == {GROUP}


async def test_a_direct_chat_is_made_once_however_late_we_learn_of_it() -> None:
    members = [event("m.room.member", {"membership": "join"}, state_key=US)]
    members.append(event("m.room.member", {"membership": "invite"}, state_key=ALICE))

    def reply(request: web.Request) -> dict[str, Any]:
        return {"room_id": ROOM, "joined_rooms": [ROOM], "chunk": members if "/members" in request.path else []}

    async with odd(reply) as server:
        speaks = sender(server)
        for _ in range(2):
            with pytest.raises(PlatformBusy):
                await speaks.send(Outbound(platform="matrix", chat_id=ALICE, text="hi"), "key")
        assert sum("createRoom" in each for each in server.asked) == 1


def nonsense(status: int = 400, **said: str) -> web.Response:
    return web.json_response({"error": "what?", **said}, status=status)


@pytest.mark.parametrize(
    "answer", [{}, {"errcode": "M_BAD_JSON"}, {"errcode": "M_UNKNOWN", "status": 500}, {"errcode": "M_UNKNOWN"}]
)
async def test_only_a_position_that_means_nothing_twice_is_given_up(
    answer: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    def reply(request: web.Request) -> dict[str, Any] | web.Response:
        return nonsense(**answer) if "since" in request.query else {**synced("s9")}

    async with odd(reply) as server:
        if answer == {"errcode": "M_UNKNOWN"}:
            assert (await listening(server).batch("s1")).position == "s9"
            assert len(server.asked) == 3
        else:
            with pytest.raises(PlatformDown):
                await listening(server).batch("s1")
    given_up = [record for record in caplog.records if getattr(record, "action", "") == "matrix.position_lost"]
    assert len(given_up) == (answer == {"errcode": "M_UNKNOWN"})


async def test_a_position_that_means_nothing_once_is_kept() -> None:
    said = event("m.room.message", {"msgtype": "m.text", "body": "hi"})

    def reply(_request: web.Request) -> dict[str, Any] | web.Response:
        return nonsense(errcode="M_UNKNOWN") if len(server.asked) == 1 else {**synced("s2", said)}

    async with odd(reply) as server:
        assert names(await listening(server).batch("s1")) == ["$1"]


@pytest.mark.parametrize("pages", [1, 2, 3])
async def test_what_is_too_much_to_fetch_is_logged(
    pages: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sync, "MAX_PAGES", 2)

    def reply(request: web.Request) -> dict[str, Any]:
        if request.path.endswith("/sync"):
            return {**synced("s2", limited=True)}
        page = sum("/messages" in each for each in server.asked)
        said = event("m.room.message", {"msgtype": "m.text", "body": "hi"}, f"${page}")
        return {"chunk": [said], "start": "x"} | ({"end": f"p{page}"} if page < pages else {})

    async with odd(reply) as server:
        heard = names(await listening(server).batch("s1"))
    assert len(heard) == min(pages, 2)
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert ("matrix.gap" in actions) == (pages > len(heard))


async def test_who_sends_what_cannot_be_read_makes_us_speak_once_in_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many keys they name; and there is a limit for all together."""
    monkeypatch.setattr(visiting, "MAX_SENDERS_PER_HOUR", 1)

    def reply(request: web.Request) -> dict[str, Any]:
        return {**synced("s2", *said, state=(ENCRYPTED,))} if request.path.endswith("/sync") else {}

    async with odd(reply, tmp_path / "keys") as server:
        direct, clock = DirectChats(server.client), MovableClock()
        direct.update({ALICE: [ROOM]})
        sending = RoomSender(server.client)
        monkeypatch.setattr(sending, "send", partial(note, sent := list[str]()))
        closed = visiting.UndecryptableNotices(server.client, sending, clock)
        said = [unreadable(ALICE, "one"), unreadable(ALICE, "two"), unreadable("@bob:example.org", "three")]
        batch = await SyncReader(server.client, direct, "helper", {}).batch("s1")
        for count in (1, 2):
            for each in batch.events:
                assert each.undecrypted
                await closed.notify(each, each.undecrypted)
            assert len(sent) == count
            clock.later(hours=1)
        assert sum("m.room_key_request" in each for each in server.asked) == 1


async def test_a_first_answer_that_never_comes_is_a_connection_that_does_not_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sync, "FIRST_SYNC_TIMEOUT_SECONDS", 0.0)
    async with odd(lambda _: synced("s1")) as server:
        with pytest.raises(PlatformDown):
            await listening(server).batch("s")


async def test_devices_that_cannot_be_are_passed_over_and_keep_the_answer_from_nobody(tmp_path: Path) -> None:
    broken = {ALICE: {"DEVICE": {"keys": 3}}}

    def reply(request: web.Request) -> dict[str, Any]:
        if request.path.endswith("/sync"):
            return {**synced("s1", state=(ENCRYPTED,))}
        if request.path.endswith("/joined_members"):
            return {"joined": {who: {} for who in (US, ALICE, "@bob:example.org")}}
        if request.path.endswith("/keys/query"):
            return {"device_keys": {who: broken.get(who, {}) for who in server.told[-1]["device_keys"]}}
        return {"event_id": "$sent"}

    async with odd(reply, tmp_path / "keys") as server:
        await listening(server).batch("s")
        assert await sender(server).send(Outbound(platform="matrix", chat_id=ROOM, text="hi"), "key") == "$sent"
        assert {"device_keys": {"@bob:example.org": []}} in server.told
