"""Rooms on a real homeserver: coming in, being meant, missing nothing, moving on."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from palaver.model.source import DM, GROUP
from palaver.model.turn import Outbound
from palaver.platforms.matrix import sync
from palaver.platforms.matrix.adapter import MatrixAdapter
from palaver.platforms.matrix.client import Options
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformRefused, TargetGone
from palaver.testkit.recorder import TIMEOUT_SECONDS, Recorder, running
from tests.platforms.matrix.fakes import ACCOUNT, FakeMatrix, fake_matrix, present
from tests.platforms.matrix.homeserver import PASSWORD, Homeserver, Stage


@pytest.fixture(scope="module")
def stage(home: Homeserver) -> Stage:
    return home.stage()


@pytest.fixture
async def fake(home: Homeserver, stage: Stage, tmp_path: Path) -> AsyncGenerator[FakeMatrix]:
    async with fake_matrix(home, tmp_path, stage) as fake:
        yield fake


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not is_so():  # noqa: ASYNC110 - nobody tells when the other side has done it
            await asyncio.sleep(0.02)


def outbound(fake: FakeMatrix, text: str, chat_id: str | None = None) -> Outbound:
    return Outbound(platform="matrix", account=ACCOUNT, chat_id=chat_id or fake.chat_id, text=text)


async def said_by(
    adapter: MatrixAdapter, fake: FakeMatrix, text: str, chat_id: str | None = None, key: str = ""
) -> str:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                return await adapter.send(outbound(fake, text, chat_id), idempotency_key=key or text)
            except (PlatformDown, PlatformBusy):
                await asyncio.sleep(0.02)


async def test_who_invites_us_is_heard_from_the_invitation_on_as_who_is_alone_with_us(fake: FakeMatrix) -> None:
    recorder, person = Recorder(), fake.person
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        room_id = await person.makes_room(fake.options.user_id, name="For two", direct=True)
        await person.says(room_id, "at once")
        await recorder.has(1)
        first = recorder.received[0].source
        await person.client.room_invite(room_id, "@third:palaver.test")
        await person.says(room_id, "with a third")
        await recorder.has(2)
    assert recorder.texts == ["at once", "with a third"]
    assert (first.chat_id, first.chat_kind) == (room_id, DM)
    assert recorder.received[1].source.chat_kind == GROUP


async def test_who_comes_after_somebody_is_not_in_their_direct_chat(home: Homeserver, fake: FakeMatrix) -> None:
    recorder, person, bob = Recorder(), fake.person, home.register("bob")
    async with running(fake.adapter(), recorder), present(home, bob) as other:
        await fake.is_heard()
        room_id = await person.makes_room(fake.options.user_id, name=None, direct=True)
        await person.says(room_id, "between us")
        await recorder.has(1)
        await person.client.room_invite(room_id, bob.user_id)
        home.join(room_id, bob)
        await person.client.room_leave(room_id)
        await other.says(room_id, "what did she say?")
        await recorder.has(2)
    assert [each.source.chat_kind for each in recorder.received] == [DM, GROUP]


async def test_a_direct_chat_that_a_third_has_come_into_is_a_group_also_after_a_restart(
    home: Homeserver, fake: FakeMatrix
) -> None:
    recorder, person, bob = Recorder(), fake.person, home.register("bob")
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        room_id = await person.makes_room(fake.options.user_id, name=None, direct=True)
        await person.says(room_id, "between us")
        await recorder.has(1)
        await person.client.room_invite(room_id, bob.user_id)
        home.join(room_id, bob)
        await person.says(room_id, "with a third")
        await recorder.has(2)
        await until(lambda: sum("/read_markers" in each for each in fake.proxy.asked) > 1)
    async with running(fake.adapter(), recorder):
        await person.says(room_id, "after a restart")
        await recorder.has(3)
    assert [each.source.chat_kind for each in recorder.received] == [DM, GROUP, GROUP]


async def test_a_direct_chat_of_two_is_one_also_after_a_restart(fake: FakeMatrix) -> None:
    recorder, person = Recorder(), fake.person
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        room_id = await person.makes_room(fake.options.user_id, name=None, direct=True)
        await person.says(room_id, "between us")
        await recorder.has(1)
    async with running(fake.adapter(), recorder):
        await person.says(room_id, "still between us")
        await recorder.has(2)
    assert {each.source.chat_kind for each in recorder.received} == {DM}


async def test_what_is_for_a_person_goes_where_nobody_else_is(home: Homeserver, fake: FakeMatrix) -> None:
    adapter, alice, bob = fake.adapter(), home.register("alice"), home.register("bob")
    async with running(adapter, Recorder()), present(home, alice) as person:
        await said_by(adapter, fake, "one", alice.user_id)
        await person.looks()
        (first,) = person.client.invited_rooms
        home.join(first, alice)
        await said_by(adapter, fake, "two", alice.user_id)
        await person.client.room_invite(first, bob.user_id)
        await said_by(adapter, fake, "three", alice.user_id)
        await person.looks()
        (second,) = person.client.invited_rooms
        home.join(second, alice)
        for room_id, texts in ((first, ["one", "two"]), (second, ["three"])):
            seen = [each["content"] for each in await person.sees(room_id)]
            assert [content["body"] for content in seen if "body" in content] == texts


@pytest.mark.parametrize(
    ("invites", "membership"), [(("elsewhere.org",), "leave"), ("nobody", "invite"), ("everybody", "join")]
)
async def test_invitations_are_answered_by_the_policy(
    home: Homeserver, stage: Stage, tmp_path: Path, invites: Any, membership: str
) -> None:
    async with fake_matrix(home, tmp_path, stage, invites=invites) as fake, running(fake.adapter(), Recorder()):
        await fake.is_heard()
        room_id = await fake.person.makes_room(stage.bot.user_id)
        heard = len(fake.proxy.asked)
        path = f"/_matrix/client/v3/rooms/{room_id}/state/m.room.member/{stage.bot.user_id}"

        def is_answered() -> bool:
            asked = fake.proxy.asked[heard:]
            if membership == "invite":
                return any("/sync" in each for each in asked)
            return home.ask("GET", path, None, stage.human.token)["membership"] == membership

        await until(is_answered)
        assert home.ask("GET", path, None, stage.human.token)["membership"] == membership
        home.ask("POST", f"/_matrix/client/v3/rooms/{room_id}/leave", {}, stage.bot.token)


async def test_more_than_one_batch_of_messages_comes_whole_in_order_and_once(
    fake: FakeMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sync.FILTER["room"]["timeline"], "limit", 2)
    monkeypatch.setattr(sync, "PAGE_SIZE", 3)
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.say("before")
        await recorder.has(1)
        await fake.proxy.answered("/read_markers")
    meanwhile = [f"number {number}" for number in range(9)]
    for text in meanwhile:
        await fake.say(text)
    async with running(fake.adapter(), recorder):
        await recorder.has(10)
    async with running(fake.adapter(), recorder):
        await fake.say("after")
        await recorder.has(11)
    assert [each.text for each in recorder.received] == ["before", *meanwhile, "after"]


async def test_who_answers_us_means_us_also_after_a_restart(fake: FakeMatrix) -> None:
    recorder, adapter = Recorder(), fake.adapter()
    async with running(adapter, recorder):
        receipt = await said_by(adapter, fake, "a question")
    async with running(fake.adapter(), recorder):
        for event_id in (receipt, fake.thread_id or ""):
            await fake.answer(event_id, "an answer")
        await recorder.has(2)
    assert [each.mentions_us for each in recorder.received] == [True, False]
    ours, other = (each.quote for each in recorder.received)
    assert ours is not None
    assert (ours.text, ours.is_ours) == ("a question", True)
    assert other is None or not other.is_ours


async def test_a_reaction_that_is_taken_back_while_we_are_away_is_taken_back(fake: FakeMatrix) -> None:
    recorder, adapter = Recorder(), fake.adapter()
    async with running(adapter, recorder):
        await fake.is_heard()
        receipt = await said_by(adapter, fake, "an answer")
        await fake.react(receipt, "👍")
        await recorder.has(1)
    await fake.react(receipt, "👍", removed=True)
    async with running(adapter, recorder):
        await recorder.has(2)
    found = [(each.reply_to, each.reaction and each.reaction.removed) for each in recorder.received]
    assert found == [(receipt, False), (receipt, True)]


async def test_a_position_that_the_homeserver_does_not_know_is_given_up(fake: FakeMatrix) -> None:
    """It was made anew, or its database is an older one."""
    recorder = Recorder()
    await recorder.save_position(f"{fake.options.user_id} nonsense")
    async with running(fake.adapter(), recorder):
        await fake.proxy.answered("/account_data")
        await until(lambda: sum("/sync" in each for each in fake.proxy.asked) > 1)
        await fake.say("from now on")
        await recorder.has(1)
    assert recorder.texts == ["from now on"]


async def test_malformed_events_stop_nothing_and_notices_are_of_bots(fake: FakeMatrix) -> None:
    recorder = Recorder()
    async with running(fake.adapter(), recorder):
        await fake.is_heard()
        odd = {"msgtype": "m.text", "body": "odd", "formatted_body": ["b"], "m.relates_to": {"x": 1}}
        for content in ({"msgtype": "", "body": "?"}, {"msgtype": "m.image", "body": "x", "info": "none"}, odd):
            await fake.person.sends(fake.chat_id, content)
        await fake.person.sends(fake.chat_id, {"msgtype": "m.notice", "body": "beep"})
        await recorder.has(3)
    assert recorder.texts == ["x", "odd", "beep"]
    assert [trust.is_bot for trust in recorder.trusts] == [False, False, True]


async def test_a_repeated_send_is_known_again_by_another_process(fake: FakeMatrix) -> None:
    receipts = set[str]()
    for _ in range(2):
        adapter = fake.adapter()
        async with running(adapter, Recorder()):
            receipts.add(await said_by(adapter, fake, "once", key="same-key"))
    assert len(receipts) == 1
    assert [shown.text for shown in await fake.shown()] == ["once"]


async def test_a_target_can_be_an_address_or_a_person(fake: FakeMatrix) -> None:
    adapter, alias = fake.adapter(), f"#dev{fake.chat_id[1:6].lower()}:palaver.test"
    await fake.person.client.room_put_alias(alias, fake.chat_id)
    async with running(adapter, Recorder()):
        await said_by(adapter, fake, "to the address", alias)
        with pytest.raises(TargetGone):
            await said_by(adapter, fake, "to nowhere", "#nowhere:palaver.test")
        receipt = await said_by(adapter, fake, "to a person", fake.person.user_id)
    assert receipt.startswith("$")
    assert [shown.text for shown in await fake.shown()] == ["to the address"]


async def test_a_wrong_token_or_password_is_reported_in_words(fake: FakeMatrix) -> None:
    given = {"homeserver": fake.home.url, "user_id": fake.options.user_id}
    for wrong in ({"access_token": "nonsense"}, {"password": "nonsense"}):
        adapter = MatrixAdapter(ACCOUNT, Options.model_validate({**given, **wrong}))
        with pytest.raises(PlatformRefused, match="configure a new one") as refused:
            await adapter.check()
        assert "nonsense" not in str(refused.value)
        assert ("configure password there instead" in str(refused.value)) == ("access_token" in wrong)
    other = {**given, "user_id": "@other:palaver.test", "access_token": fake.stage.bot.token}
    with pytest.raises(PlatformRefused, match="but user_id is @other"):
        await MatrixAdapter(ACCOUNT, Options.model_validate(other)).run(Recorder())


async def test_a_password_is_used_once_and_a_check_ends_no_log_in(fake: FakeMatrix) -> None:
    given = {"homeserver": fake.options.homeserver, "user_id": fake.options.user_id, "password": PASSWORD}
    adapter, recorder = MatrixAdapter(ACCOUNT, Options.model_validate(given)), Recorder()
    assert fake.options.user_id in await adapter.check()
    async with running(adapter, recorder):
        await fake.say("hi")
        await recorder.has(1)
        await adapter.check()
        fake.proxy.cut()
        await fake.say("still here")
        await recorder.has(2)
    log_ins = [each for each in fake.proxy.asked if each.endswith("/login")]
    assert len(log_ins) == 3, "one for each check, and one for the account"


async def test_keys_that_cannot_be_kept_or_read_are_reported_with_what_to_do(fake: FakeMatrix, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / f"{ACCOUNT}.db").write_text("no database, but long enough to be looked at" * 100)
    given = {"homeserver": fake.options.homeserver, "user_id": fake.options.user_id}
    for keys, words in (("file/keys", "Let the gateway write there"), ("keys", "Restore the folder from a backup")):
        options = {**given, "access_token": fake.stage.bot.token, "keys": str(tmp_path / keys)}
        with pytest.raises(PlatformRefused, match=words) as refused:
            await MatrixAdapter(ACCOUNT, Options.model_validate(options)).run(Recorder())
        assert "Error" not in str(refused.value)


async def test_a_log_in_that_was_ended_is_refused(home: Homeserver, tmp_path: Path) -> None:
    stage = home.stage()
    async with fake_matrix(home, tmp_path, stage) as fake:
        home.ask("POST", "/_matrix/client/v3/logout", {}, stage.bot.token)
        with pytest.raises(PlatformRefused, match="access token"):
            await fake.adapter().run(Recorder())


async def test_a_log_in_with_a_password_that_was_ended_is_made_again(home: Homeserver, tmp_path: Path) -> None:
    async with fake_matrix(home, tmp_path) as fake:
        given = {"homeserver": fake.options.homeserver, "user_id": fake.options.user_id, "password": PASSWORD}
        adapter, recorder = MatrixAdapter(ACCOUNT, Options.model_validate(given)), Recorder()
        running_once = asyncio.create_task(adapter.run(recorder))
        await fake.is_heard()
        home.ask("POST", "/_matrix/client/v3/logout/all", {}, fake.stage.bot.token)
        with pytest.raises(PlatformDown) as ended:
            await running_once
        assert not isinstance(ended.value, PlatformRefused)
        async with running(adapter, recorder):
            await fake.say("there again?")
            await recorder.has(1)


async def test_a_room_that_we_are_not_in_is_a_dead_target(fake: FakeMatrix) -> None:
    adapter = fake.adapter()
    async with running(adapter, Recorder()):
        with pytest.raises(TargetGone):
            await said_by(adapter, fake, "anybody?", "!nowhere:palaver.test")


async def test_two_people_are_distinguished_by_their_ids(home: Homeserver, fake: FakeMatrix) -> None:
    recorder, bob = Recorder(), home.register("bob")
    await fake.person.client.room_invite(fake.chat_id, bob.user_id)
    home.join(fake.chat_id, bob)
    async with present(home, bob) as other, running(fake.adapter(), recorder):
        await fake.say("hi", name="the same")
        await other.is_called(fake.chat_id, "the same")
        await other.says(fake.chat_id, "hi")
        await recorder.has(2)
    assert [each.source.user_id for each in recorder.received] == [fake.person.user_id, bob.user_id]
    assert len({each.labels.user for each in recorder.received}) == 1
