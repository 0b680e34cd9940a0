"""The API: read, said, waited for, stopped, managed; with what a token may see and do, and no more."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive

from palaver.config.model import Config
from palaver.engine.engine import Engine
from palaver.engine.reply_waiter import PendingReply
from palaver.gateway.terminal import terminal_socket
from palaver.model.attachment import Attachment, TooLarge
from palaver.model.errors import StoreUnavailable
from palaver.model.source import Trust
from palaver.model.turn import Inbound
from palaver.protocols.clock import SystemClock
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.limits import LimitsConfig
from palaver.settings.quotas import CapsConfig, GrantConfig
from palaver.settings.voice import VoiceConfig
from palaver.store.people.api_tokens import ALL_RIGHTS, Right
from palaver.web.bodies import BodyReader, ServerBusy
from palaver.web.message_service import MessageService
from palaver.web.tokens import issue_token
from tests.agents.fake_voice import opus
from tests.platforms.terminal.people import Person
from tests.web.conftest import READERS, Opened, opened

PEOPLE = tuple(GrantConfig(platform="api", user_id=name) for name in ("alice", "bob"))


async def token(window: Opened, identity: str | None = None, *rights: Right, profile: str | None = None) -> str:
    given = rights or ALL_RIGHTS
    made, _ = await issue_token(
        window.store, SystemClock().now(), name="test", identity=identity, rights=given, profile=profile
    )
    return made


@asynccontextmanager
async def program(window: Opened, identity: str | None = None, *rights: Right) -> AsyncGenerator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {await token(window, identity, *rights)}"}
    async with httpx.AsyncClient(base_url=f"{window.url}/api/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=(*PEOPLE, *READERS))


@pytest.fixture
async def owner(window: Opened) -> AsyncIterator[httpx.AsyncClient]:
    async with program(window) as client:
        yield client


async def say(client: httpx.AsyncClient, text: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/messages", json={"text": text, "wait": 20, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_said_answered_and_found_again(owner: httpx.AsyncClient) -> None:
    told = await say(owner, "hello", conversation="plans")
    assert (told["state"], told["answer"], told["waits_for"]) == ("done", "You said: hello", None)
    assert told["used"]["turns"] == 1
    again = await say(owner, "and again", conversation="plans")
    assert again["session"] == told["session"]
    other = await say(owner, "elsewhere")
    assert other["session"] != told["session"]
    session = (await owner.get(f"/sessions/{told['session']}")).json()
    assert (session["platform"], session["state"], session["entries"]) == ("api", "open", 4)
    entries = (await owner.get(f"/sessions/{told['session']}/entries", params={"after": 0, "limit": 2})).json()
    assert [entry["text"] for entry in entries["entries"]] == ["hello", "You said: hello"]
    hello, answer = [(entry["tokens"], entry["cost_micros"]) for entry in entries["entries"]]
    assert hello == (0, None)
    assert answer[0] > 0
    assert answer[1] == 0  # the echo agent is free
    later = (await owner.get(f"/messages/{told['id']}")).json()
    assert later == told
    hits = (await owner.get("/search", params={"q": "elsewhere", "role": "user"})).json()["hits"]
    assert [hit["session"]["id"] for hit in hits] == [other["session"]]
    trace = (await owner.get("/traces", params={"name": told["id"]})).json()["traces"]
    assert [sending["text"] for sending in trace[0]["deliveries"]] == ["You said: hello"]


async def test_sessions_page_by_page_and_filtered(owner: httpx.AsyncClient) -> None:
    sessions = [(await say(owner, f"number {number}"))["session"] for number in range(3)]
    first = (await owner.get("/sessions", params={"limit": 2})).json()
    rest = (await owner.get("/sessions", params={"limit": 2, "after": first["after"]})).json()
    found = [each["id"] for each in first["sessions"] + rest["sessions"]]
    assert found == sessions[::-1]
    assert (rest["after"], first["sessions"][0]["last_said"]) == (None, "number 2")
    assert (await owner.get("/sessions", params={"platform": "telegram"})).json()["sessions"] == []
    renamed = await owner.patch(f"/sessions/{sessions[0]}", json={"title": "Plans <b>"})
    assert renamed.json()["title"] == "Plans <b>"
    assert len((await owner.get("/sessions", params={"title": "plans"})).json()["sessions"]) == 1


async def test_the_same_key_is_the_same_message(owner: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "order-1"}
    body = {"text": "once", "wait": 20}
    first, second = await asyncio.gather(*(owner.post("/messages", json=body, headers=key) for _ in range(2)))
    assert first.json()["id"] == second.json()["id"]
    assert first.json()["answer"] == second.json()["answer"] == "You said: once"
    other = await owner.post("/messages", json={"text": "twice"}, headers=key)
    assert (other.status_code, other.json()["title"]) == (409, "Conflict")
    entries = (await owner.get(f"/sessions/{first.json()['session']}/entries")).json()["entries"]
    assert [entry["text"] for entry in entries if entry["role"] == "user"] == ["once"]
    wrong = await owner.post("/messages", json=body, headers={"idempotency-key": "x" * 101})
    assert wrong.status_code == 400


async def test_the_same_key_is_no_excuse_for_another_message(window: Opened, owner: httpx.AsyncClient) -> None:
    def body(text: str, *contents: str) -> dict[str, Any]:
        return {"text": text, "files": [{"name": "f", "content": content} for content in contents], "wait": 20}

    async def status(path: str, key: str, body: dict[str, Any]) -> int:
        return (await owner.post(path, json=body, headers={"idempotency-key": key})).status_code

    same = {"words": body("yes"), "queue": body("/queue  yes "), "file": body("yes", "aGVsbG8=", "Zm9v")}
    other = [body("no, not yes"), body("/queue yes"), body("yes", "aGVsbG8="), body("yes", "Zm9v", "aGVsbG8=")]
    for key, words in same.items():
        assert [await status("/messages", key, words) for _ in range(2)] == [200, 200], key
    assert [await status("/messages", "words", each) for each in other] == [409] * 4
    assert [await status("/messages", "file", each) for each in other] == [409] * 4
    assert await status("/messages", "queue", body("/queue no yes")) == 409
    path = f"{window.url}/v1/chat/completions"
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for text, expected in (("c", 200), ("c", 200), ("d", 409)):
        words = [*before, {"role": "user", "content": text}]
        assert await status(path, "v1", {"model": "palaver", "messages": words}) == expected


async def test_who_does_not_wait_asks_later(config: Config) -> None:
    async with opened(config) as window, program(window) as owner:
        sent = await owner.post("/messages", json={"text": "!slow 1 hello"})
        assert (sent.status_code, sent.json()["answer"]) == (202, None)
        answered = (await owner.get(f"/messages/{sent.json()['id']}", params={"wait": 20})).json()
        assert (answered["state"], answered["answer"]) == ("done", "You said: hello")


async def test_commands_approvals_and_stops(owner: httpx.AsyncClient) -> None:
    told = await say(owner, "!approve this", conversation="a")
    assert (told["waits_for"], told["answer"]) == ("approval", None)
    assert "Reply /approve" in told["notices"][0]
    (waiting,) = (await owner.get("/approvals")).json()["turns"]
    assert (waiting["id"], waiting["asks"]["name"]) == (told["turn"], "echo")
    other = {"session": (await say(owner, "hello"))["session"]}
    assert (await owner.get("/approvals", params=other)).json() == {"turns": []}
    path, answer = f"/approvals/{waiting['id']}", {"allow": True, "question": waiting["question"]}
    undecided = await owner.post(path, json={"question": waiting["question"]})
    assert undecided.status_code == 400, "silence is no approval"
    assert (await owner.post(path, json={**answer, "question": "1-9"})).json() == {"done": False}
    assert (await owner.post(path, json=answer)).json() == {"done": True}
    assert (await owner.get(f"/messages/{told['id']}?wait=20")).json()["answer"] == "You said: this"
    assert (await owner.post(path, json=answer)).status_code == 404
    asks = 'ask_user {"question": "Where to?", "choices": ["Paris", "Rome"]}'
    question = await say(owner, f"!use {asks}", conversation="q")
    assert (question["waits_for"], question["notices"][0].split("\n")[:2]) == ("answer", ["Where to?", "1. Paris"])
    (asked,) = (await owner.get("/approvals")).json()["turns"]
    assert asked["choices"] == ["Paris", "Rome"]
    path, answer = f"/approvals/{asked['id']}", {"answer": "2", "question": asked["question"]}
    assert (await owner.post(path, json={"allow": True, "question": asked["question"]})).json() == {"done": False}
    assert (await owner.post(path, json={**answer, "answer": ""})).status_code == 400, "silence is no answer"
    assert (await owner.post(path, json=answer)).json() == {"done": True}
    assert (await owner.get(f"/messages/{question['id']}?wait=20")).json()["answer"] == "ask_user: Rome"
    assert "api:owner" in (await say(owner, "/whoami", conversation="a"))["notices"][0]
    undone = await owner.post(f"/sessions/{told['session']}/commands", json={"command": "/undo"})
    assert undone.status_code == 200, undone.text
    left = (await owner.get(f"/sessions/{told['session']}/entries")).json()["entries"]
    assert left == []
    hangs = (await owner.post("/messages", json={"text": "!hang", "conversation": "b"})).json()
    async with asyncio.timeout(60):
        while not (flying := (await owner.get("/turns")).json()["turns"]):  # noqa: ASYNC110 - as programs do
            await asyncio.sleep(0.02)
    assert (await owner.post(f"/turns/{flying[0]['id']}/stop")).json() == {"done": True}
    assert (await owner.get(f"/messages/{hangs['id']}?wait=20")).json()["state"] == "done"
    failed = await say(owner, "!fail now", conversation="c")
    assert (failed["state"], failed["answer"]) == ("failed", None)
    assert failed["notices"]
    assert "asked to fail" not in json.dumps(failed), "what the agent says about itself stays in the log"


async def test_files_come_with_messages_and_are_fetched_again(owner: httpx.AsyncClient) -> None:
    content = base64.b64encode(b"<script>").decode()
    file = {"name": "../x.html", "content": content, "media_type": "text/html"}
    told = await say(owner, "look", files=[file])
    entries = (await owner.get(f"/sessions/{told['session']}/entries")).json()["entries"]
    (kept,) = next(entry["files"] for entry in entries if entry["files"])
    fetched = await owner.get(f"/files/{kept['id']}")
    assert fetched.content == b"<script>"
    assert fetched.headers["content-type"] == "application/octet-stream"
    assert fetched.headers["content-security-policy"].startswith("sandbox")


async def test_a_recording_is_transcribed_as_a_voice_message_is(config: Config) -> None:
    command = [sys.executable, "-c", "print('buy milk')"]
    voice = VoiceConfig.model_validate({"transcription": {"command": command}})
    async with opened(config.model_copy(update={"voice": voice})) as window, program(window) as owner:
        file = {"name": "a.ogg", "content": base64.b64encode(opus()).decode(), "media_type": "audio/ogg"}
        told = await say(owner, "listen", files=[file])
        assert "listen\n[Transcribed from a voice message] buy milk" in told["answer"]


async def test_a_conversation_elsewhere_is_gone_on_with_from_here(window: Opened, owner: httpx.AsyncClient) -> None:
    alice = Person(terminal_socket(window.config), "main")
    async with alice.present():
        await alice.say("from the terminal")
        (session,) = (await owner.get("/sessions")).json()["sessions"]
        told = await say(owner, "from the API", session=session["id"])
        assert told["session"] == session["id"]
        again = await say(owner, "once more", session=session["id"])
        assert again["session"] == session["id"]
    entries = (await owner.get(f"/sessions/{session['id']}/entries")).json()["entries"]
    said = [entry["text"] for entry in entries if entry["role"] == "user"]
    assert said == ["from the terminal", "from the API", "once more"]
    assert (await owner.post("/messages", json={"text": "x", "session": "no such"})).status_code == 404


async def test_a_session_is_spoken_in_no_matter_where_it_has_gone(owner: httpx.AsyncClient) -> None:
    session = (await say(owner, "here", conversation="a"))["session"]
    await say(owner, f"/resume {session}", conversation="b")
    assert (await say(owner, "there", session=session))["session"] == session
    await say(owner, "/new", conversation="b")
    ended = await owner.post("/messages", json={"text": "too late", "session": session})
    assert (ended.status_code, "has ended" in ended.json()["detail"]) == (409, True)


async def test_problems_have_a_cause_and_a_fix_until_the_agent_answers(owner: httpx.AsyncClient) -> None:
    assert (await owner.get("/problems")).json() == {"problems": []}
    await say(owner, "!fail")
    (problem,) = (await owner.get("/problems")).json()["problems"]
    assert (problem["area"], problem["kind"], problem["cause"]) == ("agent", "fatal", "echo failed.")
    assert "palaver doctor" in problem["fix"]
    assert problem["detail"] == "asked to fail"
    await say(owner, "hello")
    assert (await owner.get("/problems")).json() == {"problems": []}


async def test_people_grants_and_pairing_are_the_owners(window: Opened, owner: httpx.AsyncClient) -> None:
    made = await owner.post("/grants", json={"to": "telegram:7", "role": "admin"})
    assert (made.status_code, made.json()["grant"]["role"]) == (201, "admin")
    assert made.json() in (await owner.get("/grants")).json()["grants"]
    groups = await owner.post("/grants", json={"to": "telegram", "kind": "group"})
    assert groups.json()["grant"]["kind"] == "group"
    assert (await owner.post("/grants", json={"to": "telegram", "kind": "crowd"})).status_code == 400
    gone = await owner.delete(f"/grants/{made.json()['number']}")
    assert gone.json() == made.json()
    assert (await owner.delete(f"/grants/{made.json()['number']}")).status_code == 404
    assert (await owner.get("/pairing")).json() == {"strangers": []}
    assert (await owner.post("/pairing/approve", json={"who": "AAAAAAAA"})).status_code == 400
    assert (await owner.post("/pairing/approve", json={"who": "telegram:9"})).status_code == 400
    await say(owner, "hello")
    both, person = (await owner.get("/people")).json()["people"]
    assert {each["identity"] for each in both["identities"]} == {"terminal:owner", "web:owner"}
    assert [each["identity"] for each in person["identities"]] == ["api:owner"]
    assert (await owner.get("/people/api:owner")).json() == person
    async with program(window, "api:alice") as alice:
        for path in ("/people", "/people/api:owner", "/grants", "/pairing", "/platforms", "/problems"):
            assert (await alice.get(path)).status_code == 403, path
        assert (await alice.post("/grants", json={"to": "api:alice", "role": "owner"})).status_code == 403


async def test_scopes_are_kept(window: Opened) -> None:
    async with program(window, None, Right.READ) as reader, program(window, None, Right.CHAT) as talker:
        me = {"identity": None, "profile": None, "scopes": ["read"], "expires": None}
        assert (await reader.get("/me")).json() == me
        refused = await reader.post("/messages", json={"text": "hello"})
        assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
        assert refused.json()["detail"] == "This needs a token with the scope chat."
        told = await say(talker, "hello")
        assert (await talker.get("/sessions")).status_code == 403
        assert (await reader.patch(f"/sessions/{told['session']}", json={"title": "x"})).status_code == 403
    async with httpx.AsyncClient(timeout=60, base_url=f"{window.url}/api/v1") as nobody:
        unknown = await nobody.get("/sessions", headers={"authorization": "Bearer pal_wrong"})
        assert (unknown.status_code, unknown.headers["content-type"]) == (401, "application/problem+json")
    async with program(window, "telegram:7") as elsewhere, program(window, "api:mallory") as stranger:
        assert (await elsewhere.get("/sessions")).json()["sessions"] == []
        mute = await elsewhere.post("/messages", json={"text": "hello"})
        assert (mute.status_code, "--as api:NAME" in mute.json()["detail"]) == (403, True)
        refused = await stranger.post("/messages", json={"text": "hello"})
        assert (refused.status_code, "no access" in refused.json()["detail"]) == (403, True)


async def test_what_is_not_found_is_said_with_the_request_that_lists_it(owner: httpx.AsyncClient) -> None:
    for path, listing in (
        ("/sessions/00000000", "/sessions"),
        ("/jobs/99", "/jobs"),
        ("/processes/p99", "/processes"),
        ("/people/telegram:99", "/people"),
    ):
        told = (await owner.get(path)).json()
        assert (told["status"], told["list"]) == (404, f"GET /api/v1{listing}"), told
        assert (await owner.get(listing)).status_code == 200
    for told, listing in (
        (await owner.delete("/grants/99"), "/grants"),
        (await owner.delete("/memory/99"), "/memory"),
        (await owner.post("/turns/turn:99/stop"), "/turns"),
        (await owner.post("/pairing/deny", json={"who": "telegram:9"}), "/pairing"),
    ):
        assert (told.status_code, told.json()["list"]) == (404, f"GET /api/v1{listing}"), told.text
        assert (await owner.get(listing)).status_code == 200
    assert "list" not in (await owner.get("/messages/in:99-abcdef")).json()


async def test_an_id_of_a_lost_message_is_nobody_elses(owner: httpx.AsyncClient) -> None:
    id_ = (await owner.post("/messages", json={"text": "hello", "wait": 30})).json()["id"]
    number, _, check = id_.partition("-")
    for lost in (number, f"{number}-{'0' * len(check)}"):
        assert (await owner.get(f"/messages/{lost}")).status_code == 404
        assert (await owner.get("/traces", params={"name": lost})).status_code == 404
    (trace,) = (await owner.get("/traces", params={"name": id_})).json()["traces"]
    assert trace["messages"][0]["id"] == id_


async def test_a_message_whose_commit_got_no_answer_is_accepted_once(
    owner: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, unheard = Engine.receive, [True]

    async def receive_unheard(self: Engine, inbound: Inbound, trust: Trust) -> None:
        await receive(self, inbound, trust)
        if unheard and unheard.pop():
            raise StoreUnavailable("PostgreSQL was lost during a commit, which may or may not have happened")

    monkeypatch.setattr(Engine, "receive", receive_unheard)
    said = (await owner.post("/messages", json={"text": "once", "wait": 30})).json()
    assert said["answer"] == "You said: once"
    assert unheard == []
    (session,) = (await owner.get("/sessions")).json()["sessions"]
    assert session["entries"] == 2


async def test_what_is_wrong_is_said_with_what_would_be_right(owner: httpx.AsyncClient) -> None:
    wrong = await owner.post("/messages", json={"text": "hello", "conversaton": "plans"})
    told = wrong.json()
    assert (wrong.status_code, told["found"]) == (400, "conversaton")
    assert "conversation" in told["allowed"].split(", ")
    assert told["detail"] == "Unknown field 'conversaton'. Did you mean conversation?"
    assert json.loads(told["example"])["conversation"] == "plans"
    for path, params, found, allowed in (
        ("/sessions", {"limit": 999_999}, "999999", "1 to 500"),
        ("/sessions", {"limit": "many"}, "many", "1 to 500"),
        ("/sessions", {"since": "today"}, "today", "a time such as 2026-03-29T09:30:00+02:00"),
        ("/usage", {"by": "zzz"}, "zzz", "day, person, model"),
        ("/traces", {"name": ""}, "", "text no shorter than 1"),
        ("/search", {}, "q", None),
    ):
        told = (await owner.get(path, params=params)).json()
        assert (told["status"], told["found"]) == (400, found), told
        assert allowed is None or sorted(told["allowed"].split(", ")) == sorted(allowed.split(", ")), told
    wrong = await owner.post("/messages", json={"text": 7})
    assert (wrong.json()["found"], wrong.json()["allowed"]) == ("7", "text")
    wrong = await owner.post("/messages", json={"text": "hello", "files": [{"name": "a", "content": "!"}]})
    assert wrong.json()["detail"].startswith("files[0].content cannot be '!'. Use base64")
    unknown = (await owner.get("/sessions", params={"limt": 5})).json()
    assert unknown["detail"] == "Unknown field 'limt'. Did you mean limit?"
    assert (await owner.get("/sessions?limit=1&limit=2")).status_code == 400
    by = (await owner.get("/usage", params={"by": "zzz"})).json()
    assert ("day" in by["allowed"].split(", "), by["example"]) == (True, "?by=…")
    assert (await owner.get("/sessions", params={"after": "nonsense"})).status_code == 400
    assert (await owner.post("/messages", content=b"text=hello")).status_code == 415
    for body in (b"{", b'{"text": 7}', b'"\\ud800"', b"\xff", b"[" * 100_000):
        answer = await owner.post("/messages", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    nowhere = await owner.get("/nowhere")
    assert (nowhere.status_code, nowhere.json()["title"]) == (404, "Not Found")
    assert (await owner.get("/sessions/%00")).status_code == 404


async def test_a_body_without_end_is_cut_off(config: Config) -> None:
    small = config.model_copy(
        update={"limits": config.limits.model_copy(update={"file_size": 1000, "files_per_message": 1})}
    )
    async with opened(small) as window, program(window) as owner:
        body = b'{"text": "' + b"x" * 1_100_000
        answer = await owner.post("/messages", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        large = {"name": "x", "content": base64.b64encode(b"0" * 2000).decode()}
        assert (await owner.post("/messages", json={"text": "x", "files": [large]})).status_code == 413


async def test_only_what_brings_files_can_be_large(owner: httpx.AsyncClient) -> None:
    answer = await owner.post("/grants", content=b"x" * 1_100_000, headers={"content-type": "application/json"})
    assert (answer.status_code, "larger than 1000000 bytes" in answer.text) == (413, True)
    file = {"name": "x", "content": base64.b64encode(b"0" * 1_500_000).decode()}
    assert (await owner.post("/messages", json={"text": "x", "files": [file]})).status_code == 202


async def test_bodies_together_take_little_memory_and_leave_some_for_the_next_caller() -> None:
    limits = LimitsConfig(file_size=3_000_000, files_per_message=1)
    bodies, more, kept = BodyReader(), asyncio.Event(), asyncio.Event()

    async def body(size: int) -> AsyncGenerator[bytes]:
        yield b"x" * size
        await more.wait()

    async def read(caller: str, size: int) -> int:
        async with bodies.read(body(size), limits, caller, with_files=True) as content:
            await kept.wait()
            return len(content)

    sizes = {"alice": 4_900_000, "bob": 2_500_000, "carol": 1_200_000, "dave": 600_000}
    each = [asyncio.create_task(read(caller, size)) for caller, size in sizes.items()]
    for event in (more, kept):
        while bodies.held < 8_900_000:  # noqa: ASYNC110 - they begin, and hold what they have read
            await asyncio.sleep(0)
        for caller, size in (("alice", 200_000), ("bob", 200_000), ("erin", 4_900_000), ("erin", 700_000)):
            with pytest.raises(ServerBusy):
                await read(caller, size)
        event.set()
        await asyncio.sleep(0)
    assert await asyncio.gather(*each) == [*sizes.values()]
    assert bodies.held == 0


async def test_a_large_body_is_large_for_its_files_and_not_for_its_many_values() -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield b"[" + b"[]," * 1_000_000

    with pytest.raises(TooLarge):
        async with BodyReader().read(body(), LimitsConfig(), "alice", with_files=True):
            pass


async def test_who_waits_holds_nothing_of_what_they_brought(
    window: Opened, owner: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytes] = []
    held: list[int] = []
    keep, settled = MessageService.store_file, PendingReply.until_settled

    async def kept_by(self: MessageService, name: str, media_type: str, content: bytes) -> Attachment:
        kept.append(content)
        return await keep(self, name, media_type, content)

    async def waits(self: PendingReply, seconds: float, receive: Receive | None = None) -> bool:
        held.append(sys.getrefcount(kept[-1]))
        return await settled(self, seconds, receive)

    monkeypatch.setattr(MessageService, "store_file", kept_by)
    monkeypatch.setattr(PendingReply, "until_settled", waits)
    content = base64.b64encode(b"x" * 1000).decode()
    await say(owner, "look", files=[{"name": "f", "content": content}])
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
    asked = {"model": "palaver", "messages": [{"role": "user", "content": [picture]}]}
    assert (await owner.post(f"{window.url}/v1/chat/completions", json=asked)).status_code == 200
    assert held == [2, 2], "the list here, and the question itself"


async def test_forms_are_no_larger_than_ours(window: Opened, owner: httpx.AsyncClient) -> None:
    many = {f"field{number}": "x" for number in range(50)}
    for fields in (many, {"title": "x" * 200_000}):
        assert (await owner.post(f"{window.url}/sessions/x/rename", data=fields)).status_code == 400
    parts = {name: (None, text) for name, text in many.items()}
    assert (await owner.post(f"{window.url}/chat/main", files=parts)).status_code == 400
    large = await owner.post(f"{window.url}/mcp", content=b" " * 1_000_001)
    assert large.status_code == 413


async def test_nobody_waits_for_who_has_gone(owner: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []
    settled = PendingReply.until_settled

    async def until_settled(waiter: PendingReply, seconds: float, receive: Receive | None) -> bool:
        assert receive

        async def gone() -> Message:
            return {"type": "http.disconnect"}

        left.append(await settled(waiter, seconds, gone))
        return await settled(waiter, seconds, receive)

    monkeypatch.setattr(PendingReply, "until_settled", until_settled)
    await say(owner, "hello")
    assert left == [False]


async def test_what_was_used_is_reported_for_each(window: Opened, owner: httpx.AsyncClient) -> None:
    async with program(window, "api:alice") as alice:
        await say(alice, "hello")
        await say(owner, "hello")
        (mine,) = (await alice.get("/usage", params={"by": "person"})).json()["usage"]
        assert mine["used"]["turns"] == 1
        assert len((await owner.get("/usage", params={"by": "person"})).json()["usage"]) == 2
        assert (await owner.get("/usage")).json()["usage"][0]["used"]["turns"] == 2


async def test_events_go_on_where_they_were_cut_off(owner: httpx.AsyncClient) -> None:
    async def until(name: str, **headers: str) -> str:
        async with owner.stream("GET", "/events", headers=headers) as stream:
            last = ""
            async for line in stream.aiter_lines():
                last = line.removeprefix("id: ") if line.startswith("id: ") else last
                if line == f"event: {name}":
                    return last
        raise AssertionError("the stream ended")

    async with asyncio.timeout(60):
        begun = await until("ready")
        await say(owner, "while nobody looked")
        seen = await until("entries", **{"last-event-id": begun})
        assert seen != begun


async def test_caps_are_reported_by_the_turn(config: Config) -> None:
    caps = CapsConfig.model_validate({"session": {"tokens": 1}})
    async with opened(config.model_copy(update={"caps": caps})) as window, program(window) as owner:
        await say(owner, "hello there", conversation="a")
        told = await say(owner, "more", conversation="a")
        assert (told["state"], told["answer"]) == ("failed", None)
        assert "You have reached" in told["notices"][0]


async def test_answers_that_grow_are_waited_for_to_the_end(config: Config) -> None:
    slowly = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=20))
    async with opened(config.model_copy(update={"agent": slowly})) as window, program(window) as owner:
        assert (await say(owner, "one two three"))["answer"] == "You said: one two three"
