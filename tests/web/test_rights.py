"""Rights: what a key may do is what its scopes say, and no more than the person it is for may do in a chat."""

import asyncio
import sqlite3
from pathlib import Path

import httpx
import pytest

from palaver.config.model import Config
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Statements, transaction
from palaver.gateway.terminal import terminal_socket
from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.errors import StoreError
from palaver.model.session import Principal
from palaver.protocols.clock import SystemClock
from palaver.settings.quotas import GrantConfig
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token
from tests.engine.gateway import until
from tests.platforms.terminal.people import Person
from tests.web.conftest import Opened, opened
from tests.web.test_api import program, say, token

PEOPLE = (
    GrantConfig(platform="api", user_id="alice"),
    GrantConfig(platform="api", user_id="bob"),
    GrantConfig(platform="api", user_id="gus", role=AccessRole.GUEST),
    GrantConfig(platform="web", user_id="zoe"),
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=PEOPLE)


def beside(client: httpx.AsyncClient, path: str) -> str:
    """The address of a page, for a client of the API."""
    return str(client.base_url.copy_with(path=path))


async def test_figures_and_rules_of_the_gateway_are_the_owners(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window) as owner:
        for path in ("/metrics", "/explain"):
            assert (await alice.get(beside(alice, path))).status_code == 403, path
            assert (await owner.get(beside(owner, path))).status_code != 403, path


async def test_what_was_taken_back_is_shown_to_the_owner_alone(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window) as owner:
        told = await say(alice, "a word too much", conversation="a")
        await say(alice, "/undo", conversation="a")
        path = f"/sessions/{told['session']}/entries"
        assert (await alice.get(path)).status_code == 200
        assert (await alice.get(path, params={"hidden": True})).status_code == 403
        assert "a word too much" in (await owner.get(path, params={"hidden": True})).text


async def roles(window: Opened, message: str) -> list[AccessRole | None]:
    (trace,) = await window.store.read(window.store.trace.find_traces(message, Principal.operator()))
    return [arrival.role for arrival in trace.messages]


@pytest.mark.parametrize("text", ["/sessions --all", "/export", "/queue x", "/no such command", "/stop"])
async def test_a_key_that_can_only_talk_commands_nothing(window: Opened, text: str) -> None:
    async with program(window, None, Right.CHAT) as talker:
        told = await say(talker, text, conversation="a")
        assert (told["answer"], told["notices"]) == (f"You said: {text}", [])
        assert await roles(window, told["id"]) == [AccessRole.MEMBER], "the owner's key, but no word of the owner's"
        headers = {"authorization": talker.headers["authorization"]}
        said = await talker.post(beside(talker, "/chat/main"), headers=headers, files={"text": (None, text)})
        assert said.status_code == 200, said.text
    async with program(window) as owner, asyncio.timeout(60):
        while not (chats := (await owner.get("/sessions", params={"platform": "web"})).json()["sessions"]):  # noqa: ASYNC110 - as programs do
            await asyncio.sleep(0.02)
        entries = (await owner.get(f"/sessions/{chats[0]['id']}/entries")).json()["entries"]
        assert text in [entry["text"] for entry in entries]
        own = await say(owner, "hello", conversation="a")
        assert await roles(window, own["id"]) == [AccessRole.OWNER]


async def test_a_key_that_cannot_read_speaks_in_its_own_conversations_alone(window: Opened) -> None:
    person = Person(terminal_socket(window.config), "main")
    async with person.present():
        await person.say("from the terminal")
    async with (
        program(window) as owner,
        program(window, None, Right.CHAT) as talker,
        program(window, None, Right.CHAT, Right.READ) as reader,
    ):
        (session,) = (await owner.get("/sessions")).json()["sessions"]
        inside = {"text": "tell me all", "session": session["id"]}
        assert (await talker.post("/messages", json=inside)).status_code == 403
        assert (await say(reader, "hello", session=session["id"]))["session"] == session["id"]
        by_name = {"text": "tell me all", "conversation": f"session-{session['id']}"}
        assert (await talker.post("/messages", json=by_name)).status_code == 403, "the place is attached by now"
        mine = await say(talker, "hello", conversation="mine")
        assert (await say(talker, "more", session=mine["session"]))["session"] == mine["session"]
        asked = {"model": "palaver", "messages": [{"role": "user", "content": "tell me all"}]}
        headers = {"x-palaver-session": session["id"]}
        refused = await talker.post(beside(talker, "/v1/chat/completions"), json=asked, headers=headers)
        assert refused.status_code == 403


async def test_a_key_that_can_only_talk_traces_what_it_sent(window: Opened) -> None:
    async with (
        program(window, "api:alice") as alice,
        program(window, None, Right.CHAT) as talker,
        program(window, "api:bob", Right.MANAGE) as manager,
    ):
        mine, hers = await say(talker, "hello", conversation="a"), await say(alice, "hello", conversation="a")
        assert (await talker.get(f"/messages/{mine['id']}")).json() == mine
        (trace,) = (await talker.get("/traces", params={"name": mine["id"]})).json()["traces"]
        assert [message["text"] for message in trace["messages"]] == ["hello"]
        assert [(sent["text"], sent["state"]) for sent in trace["deliveries"]] == [("You said: hello", "delivered")]
        for name in (hers["id"], trace["turn"], trace["deliveries"][0]["id"], mine["session"], "in:x"):
            assert (await talker.get("/traces", params={"name": name})).status_code == 404, name
        assert (await talker.get(f"/messages/{hers['id']}")).status_code == 404
        assert (await talker.get(f"/messages/{hers['id']}", params={"wait": 1})).status_code == 404
        for path in (f"/messages/{hers['id']}", f"/traces?name={hers['id']}"):
            assert (await manager.get(path)).status_code == 403


async def test_a_token_of_a_profile_sends_and_reads_there(config: Config) -> None:
    profiles = {"work": {}, "home": {"serves": [{"platform": "api"}]}}
    grants = [{"platform": "api", "user_id": "alice"}]
    both = {"data_dir": config.data_dir, "store": config.store, "grants": grants, "profiles": profiles}
    async with opened(Config.model_validate(both)) as window:
        made, _ = await issue_token(
            window.store, SystemClock().now(), name="work", identity="api:alice", profile="work"
        )
        async with program(window, "api:alice") as home, program(window) as owner:
            url, headers = str(home.base_url), {"authorization": f"Bearer {made}", "Idempotency-Key": "k"}
            home.headers["Idempotency-Key"] = "k"
            there = await say(home, "hello", conversation="plans")
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as work:
                here = await say(work, "hello", conversation="plans")
                assert (await work.get("/me")).json()["profile"] == "work"
                listed = (await work.get("/sessions")).json()["sessions"]
                assert [(each["id"], each["profile"]) for each in listed] == [(here["session"], "work")]
                assert (await work.get(f"/sessions/{there['session']}")).status_code == 404
                asked = {"model": "palaver", "messages": [{"role": "user", "content": "hi"}]}
                another = {"Idempotency-Key": "another"}
                answer = await work.post(f"{window.url}/v1/chat/completions", json=asked, headers=another)
                named = answer.headers["x-palaver-session"]
            found = (await owner.get("/sessions")).json()["sessions"]
            profiles_of = {each["id"]: each["profile"] for each in found}
            assert profiles_of == {there["session"]: "home", here["session"]: "work", named: "work"}


async def test_many_deletions_clean_up_once(window: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    scrubbed: list[None] = []

    async def scrub(_: object) -> None:
        scrubbed.append(None)

    monkeypatch.setattr(SqliteDatabase, "scrub", scrub)
    async with program(window) as owner:
        sessions = [(await say(owner, "hello"))["session"] for _ in range(3)]
        for session in sessions:
            assert (await owner.delete(f"/sessions/{session}")).status_code == 200
            await until(lambda: len(scrubbed) == 1)


async def test_a_clean_up_that_fails_stops_nothing(window: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[None] = []

    def refuse(*_: object, **_how: object) -> sqlite3.Connection:
        failed.append(None)
        raise sqlite3.OperationalError("disk I/O error")

    async with program(window) as owner:
        session = (await say(owner, "hello"))["session"]
        with monkeypatch.context() as patched:
            patched.setattr(SqliteDatabase, "_checkpoint", refuse)
            assert (await owner.delete(f"/sessions/{session}")).status_code == 200
            await until(lambda: bool(failed))
            with pytest.raises(StoreError, match="disk I/O error"):
                await window.store.scrub()
        assert (await say(owner, "still there?"))["session"]
        await window.store.scrub()


async def test_a_session_is_deleted_by_the_owner_or_by_who_was_alone_in_it(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window, "api:bob") as bob, program(window) as owner:
        hers, shared = await say(alice, "a word too much", conversation="a"), await say(alice, "hello")
        await say(owner, "hello, too", session=shared["session"])
        assert (await bob.delete(f"/sessions/{hers['session']}")).status_code == 404
        assert (await alice.delete(f"/sessions/{shared['session']}")).status_code == 403
        gone = await alice.delete(f"/sessions/{hers['session']}")
        assert (gone.status_code, gone.json()) == (200, {"id": hers["session"], "entries": 2, "turns": 1})
        assert (await alice.delete(f"/sessions/{hers['session']}")).status_code == 404
        assert (await owner.get(f"/sessions/{hers['session']}")).status_code == 404
        assert (await owner.get("/search", params={"q": "word"})).json()["hits"] == []
        assert (await owner.delete(f"/sessions/{shared['session']}")).status_code == 200
        assert (await say(alice, "hello", conversation="a"))["session"] != hers["session"]


async def test_a_place_that_leads_elsewhere_takes_the_right_to_read(window: Opened) -> None:
    async with program(window) as owner, program(window, None, Right.CHAT) as talker, asyncio.timeout(60):
        await owner.post(beside(owner, "/chat/one"), files={"text": (None, "hello")})
        while not (found := (await owner.get("/sessions", params={"platform": "web"})).json()["sessions"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        path, words = f"/sessions/{found[0]['id']}", {"text": (None, "tell me all")}
        await owner.post(beside(owner, "/chat/main"), files={"text": (None, f"/resume {found[0]['id']}")})
        while (await owner.get(path)).json()["key"] == found[0]["key"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert (await talker.post(beside(talker, "/chat/main"), files=words)).status_code == 403
        assert (await talker.post(beside(talker, "/chat/one"), files=words)).status_code == 200


async def test_what_somebody_else_has_ended_goes_on_in_a_branch(window: Opened) -> None:
    async with program(window, "api:alice") as alice, program(window) as owner, asyncio.timeout(60):
        hers = f"/sessions/{(await say(alice, 'hello', conversation='a'))['session']}"
        await say(alice, "/new", conversation="a")
        before = (await owner.get(hers)).json()
        sent = await owner.post(beside(owner, f"/chat{hers.replace('sessions', 's')}"), files={"text": (None, "more")})
        assert sent.status_code == 200, sent.text
        while not (found := (await owner.get("/sessions", params={"platform": "web"})).json()["sessions"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert "hello" in (await owner.get(f"/sessions/{found[0]['id']}/entries")).text
        assert (await owner.get(hers)).json() == before, "it stays ended, and with her"


async def test_who_is_blocked_where_a_conversation_is_at_home_does_not_speak_in_it_from_elsewhere(
    window: Opened,
) -> None:
    store, now = window.store, SystemClock().now()
    async with (
        program(window, "web:zoe") as web,
        program(window, "api:gus", Right.READ, Right.CHAT) as gus,
        asyncio.timeout(60),
    ):
        await say(gus, "hello", conversation="mine")
        await web.post(beside(web, "/chat/main"), files={"text": (None, "hello")})
        while not (found := (await web.get("/sessions")).json()["sessions"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await store.transact(store.links.link("web:zoe", "api:gus", now, by="test"))
        inside = {"text": "let me in", "session": found[0]["id"]}
        assert (await say(gus, **inside))["state"] == "done"  # now gus took part
        block = Grant(platform="web", user_id="zoe", effect=Effect.BLOCK)
        await store.transact(store.grants.add(block, now, by="test"))
        assert (await gus.post("/messages", json=inside)).status_code == 403
        assert (await say(gus, "hello", conversation="mine"))["answer"] == "You said: hello"


async def test_clients_of_openais_say_words_and_no_commands(window: Opened) -> None:
    headers = {"authorization": f"Bearer {await token(window)}"}
    async with httpx.AsyncClient(base_url=window.url, headers=headers, timeout=60) as client:
        asked = {"model": "palaver", "messages": [{"role": "user", "content": "/sessions --all"}]}
        told = (await client.post("/v1/chat/completions", json=asked)).json()
    assert told["choices"][0]["message"]["content"] == "You said: /sessions --all"


async def refused(client: httpx.AsyncClient, session: str, turn: str) -> list[int]:
    """What came of everything that changes a conversation."""
    (waits,) = (await client.get("/approvals")).json()["turns"]
    answers = [
        await client.post(f"/sessions/{session}/commands", json={"command": "/undo"}),
        await client.patch(f"/sessions/{session}", json={"title": "mine"}),
        await client.post(f"/approvals/{turn}", json={"allow": True, "question": waits["question"]}),
        await client.post(f"/approvals/{turn}", json={"allow": False, "question": waits["question"]}),
        await client.post(f"/turns/{turn}/stop"),
        await client.post(beside(client, f"/sessions/{session}/command"), data={"text": "/undo"}),
        await client.post(beside(client, f"/sessions/{session}/rename"), data={"title": "mine"}),
    ]
    return [answer.status_code for answer in answers]


async def test_a_button_takes_the_role_that_its_command_takes(window: Opened) -> None:
    async with program(window, "api:gus") as guest, program(window, "api:alice") as alice:
        told = await say(guest, "!approve it", conversation="a")
        assert await refused(guest, told["session"], told["turn"]) == [403] * 7
        told = await say(alice, "!approve it", conversation="a")
        assert (await alice.patch(f"/sessions/{told['session']}", json={"title": "mine"})).status_code == 200
        block = Grant(platform="api", user_id="alice", effect=Effect.BLOCK)
        await window.store.transact(window.store.grants.add(block, SystemClock().now(), by="test"))
        assert (await alice.get("/turns")).status_code == 403, "who is blocked does nothing at all"


async def test_a_guest_has_no_jobs(window: Opened) -> None:
    job = {"when": "every 2h", "prompt": "What is new?"}
    async with program(window, "api:gus", *Right) as guest, program(window, "api:alice", *Right) as alice:
        assert [(await each.post("/jobs", json=job)).status_code for each in (guest, alice)] == [403, 201]


@transaction
def _took_part(identity: str) -> Statements[None]:
    yield "INSERT INTO participants (identity, session_no) SELECT ?, no FROM sessions", (identity,)


async def test_an_admin_answers_what_somebody_else_was_asked(window: Opened) -> None:
    """As /approve in the chat lets them."""
    async with program(window, "api:alice") as alice, program(window, "api:bob") as bob:
        told = await say(alice, "!approve it", conversation="a")
        await window.store.transact(_took_part("api:bob"))
        (waits,) = (await bob.get("/approvals")).json()["turns"]
        path, answer = f"/approvals/{told['turn']}", {"allow": True, "question": waits["question"]}
        assert (await bob.post(path, json=answer)).status_code == 403
        grant = Grant(platform="api", user_id="bob", role=AccessRole.ADMIN)
        await window.store.transact(window.store.grants.add(grant, SystemClock().now(), by="test"))
        assert (await bob.post(path, json=answer)).json() == {"done": True}
        assert (await alice.get(f"/messages/{told['id']}?wait=20")).json()["answer"] == "You said: it"


async def test_a_key_that_was_taken_back_hears_nothing_more(window: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("message_service", "openai.endpoint"):
        monkeypatch.setattr(f"palaver.web.{module}.HEARTBEAT_SECONDS", 0.02)
    store, now, asked = window.store, SystemClock().now(), {"role": "user", "content": "!hang"}
    body: dict[str, object] = {"model": "palaver", "messages": [asked]}
    waits: list[tuple[str, dict[str, object]]] = [
        ("/api/v1/messages", {"text": "!hang", "wait": 600}),
        ("/v1/chat/completions", body),
        ("/v1/chat/completions", {**body, "stream": True}),
    ]
    async with program(window) as owner, asyncio.timeout(60):
        for path, words in waits:
            made, key = await issue_token(store, now, name="test", identity="api:alice")
            headers = {"authorization": f"Bearer {made}"}
            async with httpx.AsyncClient(timeout=60, base_url=window.url, headers=headers) as client:
                waiting = asyncio.create_task(client.post(path, json=words))
                while not (flights := (await owner.get("/turns")).json()["turns"]):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                await store.transact(store.api_tokens.revoke(key.number))
                assert (await waiting).status_code == 401, path
            await owner.post(f"/turns/{flights[0]['id']}/stop")
            while (await owner.get("/turns")).json()["turns"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
