"""Calls become messages, once, and are answered where the account says."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.label import marker
from palaver.model.target import Place
from palaver.model.transcript import Role
from palaver.platforms.webhook.signature import Scheme, decode_secret, sign
from palaver.protocols.agent import Event, Failure, FailureKind, Request
from palaver.protocols.capabilities import HttpRequest
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, Slow
from tests.engine.gateway import running
from tests.platforms.webhook.calling import GRANTS, account, call, called, told
from tests.platforms.webhook.loopback import SECRET
from tests.store.conftest import fresh_store


async def test_a_call_is_answered_with_what_the_agent_says(tmp_path: Path) -> None:
    adapter = account()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:
        reply = await called(here, adapter, call({"build": "failed"}))
        assert (reply.status, told(reply)["answer"]) == (200, "You said: Build failed")
        plain = await called(here, adapter, call({"build": "mended"}, accept="text/plain"))
        assert (plain.status, plain.body) == (200, b"You said: Build mended")
        both = await called(here, adapter, call({"build": "both"}, accept="application/json, text/plain, */*"))
        assert told(both)["answer"] == "You said: Build both"


async def test_a_name_that_is_too_long_once_it_is_encoded_is_reported_to_the_caller(postgres_server: str) -> None:
    adapter = account(session="room")
    async with running(await fresh_store(postgres_server), adapters=[adapter], grants=GRANTS) as here:
        reply = await called(here, adapter, call({"build": "failed", "room": "\U0001f600" * 200}))
        assert reply.status == 400
        assert "2048 bytes together" in told(reply)["error"]
        longest = await called(here, adapter, call({"build": "failed", "room": "長" * 200}))
        assert told(longest)["answer"] == "You said: Build failed"


async def test_the_speaker_in_a_call_is_named_with_what_they_say_and_the_section_stays_the_same(tmp_path: Path) -> None:
    agent, adapter = Slow(), account(session="room", name="who")
    agent.go.set()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS, agent=agent) as here:
        for who in ("alice", "bob", None):
            await called(here, adapter, call({"build": "failed", "room": "ops", "who": who}))
        assert len({request.section for request in agent.requests}) == 1
        assert '- Sender: id "ci"' in agent.requests[0].section
        assert "first time" not in str(agent.requests[0].messages)
        said = [message.text for message in agent.requests[-1].messages if message.role is Role.USER]
        expected = [marker('from "alice"') + " Build failed", marker('from "bob"') + " Build failed", "Build failed"]
        assert all(each.endswith(f"+00:00⟧ {end}") for each, end in zip(said, expected, strict=True))


async def _fails(_: Request) -> AsyncGenerator[Event]:
    yield Failure(kind=FailureKind.FATAL, detail="hush")


async def test_a_failure_is_reported_as_one_also_to_those_who_want_words(tmp_path: Path) -> None:
    adapter = account()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS, agent=Scripted(_fails)) as here:
        reply = await called(here, adapter, call({"build": "failed"}, accept="text/plain"))
        assert told(reply)["failed"] is True


async def test_a_redelivery_is_answered_and_not_run_again(tmp_path: Path) -> None:
    adapter = account()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:
        first = told(await called(here, adapter, call({"build": "failed"}, id="msg_a")))
        again = await called(here, adapter, call({"build": "failed"}, id="msg_a"))
        assert (again.status, told(again)) == (200, {**first, "duplicate": True})
        assert await here.rows("SELECT count(*) FROM turns") == [(1,)]


async def test_what_takes_longer_is_answered_with_its_id_and_later_with_its_answer(tmp_path: Path) -> None:
    agent, adapter = Slow(), account(wait=0.05)
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS, agent=agent) as here:
        reply = await called(here, adapter, call({"build": "failed"}, id="msg_a"))
        assert (reply.status, list(told(reply))) == (202, ["id"])
        again = await called(here, adapter, call({"build": "failed"}, id="msg_a"))
        assert (again.status, told(again)) == (200, {**told(reply), "duplicate": True})
        agent.go.set()
        await here.settled()
        late = told(await called(here, adapter, call({"build": "failed"}, id="msg_a")))
        assert late["answer"]
        assert late["duplicate"] is True


async def test_deliveries_have_conversations_of_their_own_or_share_one_by_a_field(tmp_path: Path) -> None:
    each, shared = account("each"), account("shared", session="repository.name")
    async with running(tmp_path / "p.db", adapters=[each, shared], grants=GRANTS) as here:
        for name in ("site", "site", "tool"):
            for adapter in (each, shared):
                await called(here, adapter, call({"build": "failed", "repository": {"name": name}}))
        rows = await here.rows("SELECT key FROM sessions")
        assert len([key for (key,) in rows if ":account:each" in key]) == 3
        assert len([key for (key,) in rows if ":account:shared" in key]) == 2


async def test_answers_go_to_a_target(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    adapter = account(deliver="nowhere")
    adapter.forwards_to = lambda: _places(chat.id)  # the fake platform has no name that a configuration knows
    async with running(tmp_path / "p.db", world, adapters=[FakeAdapter(world), adapter], grants=GRANTS) as here:
        reply = await called(here, adapter, call({"build": "failed"}))
        assert reply.status == 202
        await chat.hears("You said: Build failed")


def _places(chat: str) -> list[Place]:
    return [Place(platform="fake", chat=chat)]


async def test_two_workers_on_one_store_wait_for_the_same_answer(postgres_server: str) -> None:
    url, one, other = await fresh_store(postgres_server), account(), account()
    async with (
        running(url, adapters=[one], worker="w1", alone=False, grants=GRANTS) as here,
        running(url, adapters=[other], worker="w2", alone=False, grants=GRANTS) as there,
    ):
        calls = [(bench, adapter) for bench, adapter in ((here, one), (there, other)) for _ in range(3)]
        replies = await asyncio.gather(
            *(called(bench, adapter, call({"build": str(number)})) for number, (bench, adapter) in enumerate(calls))
        )
        assert [told(reply)["answer"] for reply in replies] == [f"You said: Build {number}" for number in range(6)]
        same = call({"build": "same"}, id="msg_same")
        both = await asyncio.gather(called(here, one, same), called(there, other, same))
        assert {told(reply)["answer"] for reply in both} == {"You said: Build same"}
        assert await here.rows("SELECT count(*) FROM turns") == [(7,)]


async def test_someone_who_is_not_let_in_gets_a_notice(tmp_path: Path) -> None:
    adapter = account()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=()) as here:
        reply = await called(here, adapter, call({"build": "failed"}, accept="text/plain"))
        assert reply.status == 403
        assert told(reply)["error"].endswith("palaver grants add webhook:ci")
        assert await here.rows("SELECT count(*) FROM turns") == [(0,)]
        assert b"failed" not in (await here.rows("SELECT body FROM inbox"))[0][0]


async def test_a_call_that_was_refused_is_taken_under_the_same_id_once_there_is_a_grant(tmp_path: Path) -> None:
    adapter = account()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=()) as here:
        refused = [await called(here, adapter, call({"build": "failed"}, id="msg_a")) for _ in range(2)]
        assert [reply.status for reply in refused] == [403, 403]
        assert told(refused[0]) == told(refused[1])
        await here.store.transact(here.store.grants.add(GRANTS[1], datetime.now(UTC), by="test"))
        taken = [told(await called(here, adapter, call({"build": "failed"}, id="msg_a"))) for _ in range(2)]
        assert [(each["answer"], "duplicate" in each) for each in taken] == [
            ("You said: Build failed", False),
            ("You said: Build failed", True),
        ]
        assert await here.rows("SELECT count(*) FROM turns") == [(1,)]


async def test_an_account_obeys_no_commands_and_keeps_nothing_awake(tmp_path: Path) -> None:
    adapter = account(text="{{ build }}", session="room")
    owner = Grant(platform="webhook", user_id="ci", role=AccessRole.OWNER)
    async with running(tmp_path / "p.db", adapters=[adapter], grants=(owner,)) as here:
        assert told(await called(here, adapter, call({"build": "hi", "room": 1})))["answer"] == "You said: hi"
        awake = await here.rows("SELECT last_human FROM sessions")
        assert told(await called(here, adapter, call({"build": "/new", "room": 1})))["answer"] == "You said: /new"
        assert await here.rows("SELECT last_human FROM sessions") == awake
        assert [entry.text for entry in await here.entries() if entry.role is Role.USER] == ["hi", "/new"]


_WRONG = {
    "no JSON": b"build=failed",
    "not an object": b'"failed"',
    "not UTF-8": b'{"build": "\xff"}',
    "not a number": b'{"build": NaN}',
    "too deep": b"[" * 100_000,
    "empty": b"",
    "nothing to say": b"{}",
}


@pytest.mark.parametrize("body", _WRONG.values(), ids=_WRONG)
async def test_what_cannot_be_understood_is_answered_with_why(tmp_path: Path, body: bytes) -> None:
    adapter = account(text="{{ build }}")
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:
        reply = await called(here, adapter, call(body))
        assert reply.status == 400
        assert told(reply)["error"].endswith(".")
        assert await here.rows("SELECT count(*) FROM inbox") == [(0,)]


@pytest.mark.parametrize("depth", [50, 400, 900, 2000])
async def test_a_payload_can_be_nested_as_deeply_as_it_can_be_reported(tmp_path: Path, depth: int) -> None:
    adapter = account(text="{{ . }}", longest=10)
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:
        assert (await called(here, adapter, call(b"[" * depth + b"]" * depth))).status in {200, 400}


@pytest.mark.parametrize("target", ["telegram:12345", "webhook:deaf"])
async def test_an_answer_that_can_go_nowhere_else_stays_where_it_was_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    adapter = account(deliver=target)
    async with running(tmp_path / "p.db", adapters=[adapter, account("deaf")], grants=GRANTS) as here:
        assert (await called(here, adapter, call({"build": "failed"}))).status == 202
        await here.settled()
        assert await here.rows("SELECT state FROM outbox") == [("delivered",)]
    assert "forward.missing" in [getattr(record, "action", "") for record in caplog.records]


async def test_a_field_that_is_demanded_is_named_where_it_is_missing(tmp_path: Path) -> None:
    adapter = account(missing="error", text="{{ build.status }}")
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:
        reply = await called(here, adapter, call({"build": {}}))
        assert (reply.status, told(reply)["error"]) == (400, "The payload has no build.status.")


async def test_a_standard_call_without_an_id_is_not_run_each_time_it_comes(tmp_path: Path) -> None:
    adapter, own = account(), account("own", id="build")
    async with running(tmp_path / "p.db", adapters=[adapter, own], grants=GRANTS) as here:
        headers = sign(decode_secret(Scheme.STANDARD, SECRET), "", datetime.now(UTC), b'{"build": "1"}')
        del headers["webhook-id"]
        nameless = HttpRequest(method="POST", headers=headers, body=b'{"build": "1"}')
        reply = await called(here, adapter, nameless)
        assert (reply.status, told(reply)["error"]) == (
            400,
            "Add a webhook-id header: without an id a repeated delivery cannot be recognised.",
        )
        assert (await called(here, own, nameless)).status == 200


async def test_wrong_calls_leave_no_trace(tmp_path: Path) -> None:
    adapter, silent = account(), account("silent", url="http://127.0.0.1:9/")
    async with running(tmp_path / "p.db", adapters=[adapter, silent], grants=GRANTS) as here:
        right = call({"build": "failed"})
        unsigned = HttpRequest(
            method="POST", headers={**right.headers, "webhook-signature": "v1,AAAA"}, body=right.body
        )
        statuses = [
            (await called(here, adapter, unsigned)).status,
            (await called(here, adapter, HttpRequest(method="GET"))).status,
            (
                await called(
                    here, adapter, HttpRequest(method="POST", path="x", headers=right.headers, body=right.body)
                )
            ).status,
            (await called(here, silent, right)).status,
        ]
        assert statuses == [401, 405, 404, 404]
        assert await here.rows("SELECT count(*) FROM inbox") == [(0,)]


async def test_forms_are_read_and_github_can_wrap_its_payload(tmp_path: Path) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    plain, wrapped = account(), account("hub", secret=SECRET, scheme="github")
    async with running(tmp_path / "p.db", adapters=[plain, wrapped], grants=GRANTS) as here:
        body = urlencode({"build": "fäiled & more"}).encode()
        assert told(await called(here, plain, call(body, **form)))["answer"] == "You said: Build fäiled & more"
        packed = urlencode({"payload": '{"build": "mended"}'}).encode()
        assert told(await called(here, wrapped, _github(packed, form)))["answer"] == "You said: Build mended"


async def test_a_template_reads_headers_but_none_that_prove_who_calls(tmp_path: Path) -> None:
    proofs = ("x-hub-signature-256", "authorization", "cookie", "x-api-key", "x-gitlab-token", "x-shared-secret")
    shown = "".join(f"{{{{ @headers.{name} }}}}" for name in proofs)
    text = f"{{{{ @headers.X-GitHub-Event }}}} {shown} {{{{ action }}}}"
    hub = account("hub", scheme="github", text=text, session="@headers.x-github-event")
    async with running(tmp_path / "p.db", adapters=[hub], grants=GRANTS) as here:
        headers = {**dict.fromkeys(proofs, "s3cret"), "content-type": "application/json", "x-github-event": "issues"}
        reply = await called(here, hub, _github(b'{"action": "opened"}', headers))
        assert told(reply)["answer"] == "You said: issues  opened"
        headers.pop("x-github-event")
        refused = await called(here, hub, _github(b'{"action": "closed"}', headers))
        assert (refused.status, "@headers.x-github-event" in told(refused)["error"]) == (400, True)


async def test_headers_of_svix_are_those_of_standard_webhooks(tmp_path: Path) -> None:
    adapter = account()
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:
        signed = call({"build": "failed"})
        named = {name.replace("webhook-", "svix-"): text for name, text in signed.headers.items()}
        reply = await called(here, adapter, replace(signed, headers=named))
        assert told(reply)["answer"] == "You said: Build failed"
        again = await called(here, adapter, replace(signed, headers=named))
        assert told(again)["duplicate"] is True
        mixed = {**named, "webhook-id": "another"}
        assert (await called(here, adapter, replace(signed, headers=mixed))).status == 401


def _github(body: bytes, headers: dict[str, str]) -> HttpRequest:
    sign = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    named = {"x-hub-signature-256": f"sha256={sign}", "x-github-delivery": "72d3162e"}
    return HttpRequest(method="POST", headers={**headers, **named}, body=body)


async def test_hostile_ids_and_names_are_kept_or_turned_away_whole(tmp_path: Path) -> None:
    adapter = account(session="room", name="who", scheme=Scheme.TOKEN, id="id")
    async with running(tmp_path / "p.db", adapters=[adapter], grants=GRANTS) as here:

        async def status(**payload: object) -> int:
            headers = {"authorization": f"Bearer {SECRET}"}
            body = {"build": "x", "room": "ops", "id": "1", **payload}
            return (await called(here, adapter, call(body, **headers))).status

        assert await status(room="a:b%3A\n\u202e\x00") == 200
        assert await status(who="\x00\ud800" * 200, id="2") == 200
        assert await status(id="3\n4") == 400
        assert await status(id="x" * 201) == 400
        assert await status(room="x" * 201) == 400
        assert await status(room={"a": 1}) == 400
        assert await status(id=None) == 400
