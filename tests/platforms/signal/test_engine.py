"""A whole gateway on Signal: one person under two ids, mentions in groups, growing answers, changes, gone people."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.protocols.agent import Event, Final, Request, TextDelta
from palaver.store.status.invariants import violations
from tests.engine.agents import Scripted, noted
from tests.engine.gateway import Bench, NoPauses, running, until
from tests.platforms.signal.fakes import FakeDirect, FakeGroup, adapter_of
from tests.platforms.signal.server import ALICE, GROUP_ID, RpcError, Server, failed, serving


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as server:
        yield server


def gateway(server: Server, folder: Path, **changed: Any) -> AbstractAsyncContextManager[Bench]:
    """Alice may speak there, by her number or her account id."""
    ids = (ALICE["sourceNumber"], f"alt:{ALICE['sourceUuid']}")
    grants = tuple(Grant(platform="signal", role=AccessRole.MEMBER, user_id=name) for name in ids)
    changed = {"grants": grants, "acknowledges": False, **changed}
    return running(folder / "p.db", adapters=[adapter_of(server)], **changed)


async def hears(server: Server, text: str) -> dict[str, Any]:
    await until(lambda: any(text in each["text"] for each in server.sent))
    return next(each for each in server.sent if text in each["text"])


async def test_one_person_has_one_conversation_under_number_and_account_id(server: Server, tmp_path: Path) -> None:
    number, uuid = ({name: ALICE[name]} for name in ("sourceNumber", "sourceUuid"))
    async with gateway(server, tmp_path) as here:
        for text, sender in (("one", number), ("two", ALICE), ("three", uuid), ("four", number)):
            server.receives(sender, {"message": text})
            await hears(server, f"You said: {text}")
        await here.settled()
    async with gateway(server, tmp_path) as here:
        server.receives(number, {"message": "after a restart"})
        await hears(server, "You said: after a restart")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        assert await here.store.read(violations()) == []
    assert [each["chat"] for each in server.sent] == [ALICE["sourceNumber"], *[ALICE["sourceUuid"]] * 4]


async def test_in_a_group_it_answers_who_speaks_to_it(server: Server, tmp_path: Path) -> None:
    fake = FakeGroup(server)
    async with gateway(server, tmp_path) as here:
        await fake.say("hello all")
        asked = await fake.mention("by name")
        answer = await hears(server, "by name")
        await fake.answer(str(answer["timestamp"]), "by reply")
        await hears(server, "by reply")
        await fake.say("/status")
        await hears(server, "idle")
        await here.settled()
    assert {each["chat"] for each in server.sent} == {GROUP_ID}
    assert not any("hello all" in each["text"] for each in server.sent)
    assert f"{answer['quoteTimestamp']}:{answer['quoteAuthor']}" == asked.message_id


async def test_an_answer_grows_in_one_message(server: Server, tmp_path: Path) -> None:
    async def grows(_: Request) -> AsyncGenerator[Event]:
        yield TextDelta(text="**half")
        await until(lambda: bool(server.sent))
        server.errors.append(RpcError(-5, "Failed", failed("RATE_LIMIT_FAILURE", retryAfterSeconds=0.01)))
        yield Final(text="**half an answer** `x`")

    async with gateway(server, tmp_path, agent=Scripted(grows), chance=NoPauses(1)) as here:
        await FakeDirect(server).say("go")
        await hears(server, "half an answer x")
        await here.settled()
    assert [each["text"] for each in server.sent] == ["half an answer x"]


async def test_an_answer_whose_draft_is_lost_comes_as_a_new_message(server: Server, tmp_path: Path) -> None:
    """An edit of an unknown version would be ignored."""

    async def grows(_: Request) -> AsyncGenerator[Event]:
        yield TextDelta(text="half")
        await until(lambda: bool(server.sent))
        server.sent[0]["latest"] = 1
        server.loses = True
        yield Final(text="the whole answer")

    async with gateway(server, tmp_path, agent=Scripted(grows), chance=NoPauses(1)) as here:
        await FakeDirect(server).say("go")
        await hears(server, "the whole answer")
        await here.settled()
        assert await here.rows("SELECT state FROM outbox") == [("delivered",)]


async def test_people_and_answers_wait_while_signal_cli_is_away(server: Server, tmp_path: Path) -> None:
    async def answers(_: Request) -> AsyncGenerator[Event]:
        if len(agent.requests) == 1:
            server.status = 503
            server.cut()
        yield Final(text=f"answer {len(agent.requests)}")

    agent, fake = Scripted(answers), FakeDirect(server)
    async with gateway(server, tmp_path, agent=agent, chance=NoPauses()) as here:
        await fake.say("one")
        await until(lambda: server.refused > 3)
        await fake.say("two")
        server.status = None
        await hears(server, "answer 1")
        await hears(server, "answer 2")
        await here.settled()
        assert await here.rows("SELECT DISTINCT state FROM outbox") == [("delivered",)]


async def test_an_edited_message_reaches_the_agent(server: Server, tmp_path: Path) -> None:
    async def answers(request: Request) -> AsyncGenerator[Event]:
        yield Final(text=f"seen {len(request.messages)}")

    agent, fake = Scripted(answers), FakeDirect(server)
    async with gateway(server, tmp_path, agent=agent) as here:
        said = await fake.say("helo")
        await hears(server, "seen")
        await fake.edit(said, "hello")
        await fake.say("and now?")
        await until(lambda: "hello" in noted(agent.requests[-1]))
        await here.settled()


async def test_somebody_who_has_left_signal_is_remembered(server: Server, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        server.gone.add(ALICE["sourceUuid"])
        await FakeDirect(server).say("hello?")
        await until(lambda: _count(here, "SELECT 1 FROM gone_chats"))
        await here.settled()
    assert not server.sent


async def _count(here: Bench, sql: str) -> bool:
    return bool(await here.rows(sql))
