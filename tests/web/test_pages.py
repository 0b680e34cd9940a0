"""Every page of the dashboard: what it shows, to whom, and what its buttons do."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from palaver.gateway.log_file import LogFile
from palaver.gateway.terminal import terminal_socket
from palaver.model.access import AccessRole, Grant
from palaver.model.attachment import Attachment
from palaver.model.key import Scope, derive_key
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.source import Labels, Source
from palaver.model.turn import Inbound
from palaver.protocols.clock import SystemClock
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token, qr_code
from tests.platforms.terminal.people import Person
from tests.web.conftest import Opened, config_file, opened
from tests.web.demo_data import Stage, dm, entry

PAGES = (
    "/",
    "/sessions",
    "/search?q=hello",
    "/turns",
    "/processes",
    "/messages",
    "/trace?name=in:1",
    "/platforms",
    "/people",
    "/usage",
    "/usage?by=person&metric=cost&days=7",
    "/explain",
    "/doctor",
    "/logs",
)
OPERATOR = Principal.operator()


async def say(window: Opened, text: str, name: str = "main") -> str:
    """From the terminal; gives what was answered."""
    person = Person(terminal_socket(window.config), name)
    async with person.present() as paper:
        await person.say(text)
        return paper.texts[-1]


async def session_of(window: Opened) -> str:
    (preview,) = await window.store.read(window.store.session_list.recent_sessions(OPERATOR, 1))
    return preview.session.id


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_is_there_with_nothing_in_it_yet(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    assert "<h1" in answer.text


async def test_a_session_is_listed_found_by_filters_and_paged_by_key(window: Opened, client: httpx.AsyncClient) -> None:
    await say(window, "hello there")
    session = await session_of(window)
    assert f"/sessions/{session}" in (await client.get("/sessions")).text
    for query in ("platform=terminal", "state=open", "title=echo", "person=terminal:nobody", "state=ended"):
        found = f"/sessions/{session}" in (await client.get(f"/sessions?{query}")).text
        assert found is (query in {"platform=terminal", "state=open"})
    assert (await client.get("/sessions?after=nonsense")).status_code == 400


async def test_a_conversation_has_the_name_of_its_words_and_one_line_for_all_its_versions(
    window: Opened, client: httpx.AsyncClient
) -> None:
    await say(window, "plan a holiday")
    first = await session_of(window)
    entries = await window.store.read(window.store.transcript.load_all(first, OPERATOR))
    said = next(entry.seq for entry in entries if entry.text == "plan a holiday")
    again = await client.post(f"/chat/-/{first}/again", data={"text": "plan a journey", "entry": said})
    second = again.json()["session"]
    assert second != first

    async def is_answered() -> bool:
        return "You said: plan a journey" in (await client.get(f"/sessions/{second}")).text

    await until(is_answered)
    for path in ("/", "/sessions", "/sessions?state=open"):
        page = (await client.get(path)).text
        assert re.findall(r'href="/(?:sessions|chat/s)/(\w+)">([^<]*)', page) == [(second, "plan a holiday")], path
    assert f"/sessions/{first}" in (await client.get("/sessions?state=ended")).text
    transcript = (await client.get(f"/sessions/{second}")).text
    assert "<title>plan a holiday" in transcript
    assert f'href="/chat/s/{second}"' in transcript
    found = [{"title": "plan a holiday", "path": f"/chat/s/{second}", "from": "Terminal"}]
    await window.store.search.catch_up()
    for words in ("", "jour", "a PLAN"):
        assert (await client.get("/palette", params={"q": words})).json() == found
    assert (await client.get("/palette?q=zzz")).json() == []
    people = (await client.get("/people")).text
    assert "<strong>You</strong>" in people
    assert "No name" not in people


async def test_a_friend_is_invited_and_talks_in_the_web_chat(window: Opened, client: httpx.AsyncClient) -> None:
    for wrong in ({"name": "owner"}, {"name": "a b"}, {"name": ""}, {"name": "alice", "role": "owner"}):
        assert (await client.post("/people/invite", data=wrong)).status_code == 400, wrong
    invited = await client.post("/people/invite", data={"name": "Alice"})
    start = "Send alice this link. It works once, within an hour, on this machine only (web.public_url is not set): "
    assert invited.text.startswith(f"{start}{window.url}/login#")
    async with httpx.AsyncClient(timeout=60, base_url=window.url, headers={"accept": "text/html"}) as alice:
        await alice.post("/login", data={"code": invited.text.partition("#")[2]})
        assert (await alice.get("/")).headers["location"] == "/chat"
        found = re.search(r'name="csrf" content="([0-9a-f]+)"', (await alice.get("/chat", follow_redirects=True)).text)
        assert found
        alice.headers["x-csrf-token"] = found[1]
        await alice.post("/chat/main", data={"text": "hello from me", "id": "1"})

        async def is_answered() -> bool:
            return "You said: hello from me" in (await alice.get("/chat", follow_redirects=True)).text

        await until(is_answered)
        assert re.search(r">Alice: </span>.*hello from me", (await client.get("/")).text), "the owner sees whose it is"
        assert "<strong>Alice</strong>" in (await client.get("/people")).text
        second = await client.post("/people/invite", data={"name": "alice"})
        assert "opens the conversations that alice already has" in second.text, "she may be another alice"
        assert (await alice.post("/people/invite", data={"name": "bob"})).status_code == 403
        assert (await alice.get("/people")).status_code == 403
        assert "web:alice <small>role member</small>" in (await client.get("/people")).text
    await window.store.transact(window.store.links.link("web:alias", "web:owner", SystemClock().now(), by="web:owner"))
    mine = await client.post("/people/invite", data={"name": "alias"})
    assert (mine.status_code, "an account of yours" in mine.text) == (400, True), "a link never logs in as the owner"
    now = SystemClock().now()
    second = Grant(platform="web", user_id="boss", role=AccessRole.OWNER)
    await window.store.transact(window.store.grants.add(second, now, by="web:owner"))
    boss = await client.post("/people/invite", data={"name": "boss"})
    assert (boss.status_code, "the rights of an owner" in boss.text) == (400, True), "nor as another owner"


async def test_a_phone_gets_a_code_if_it_can_reach_the_window(tmp_path: Path) -> None:
    for public, shows in (("", False), ("web: {public_url: 'http://phone.test'}", True)):
        folder = tmp_path / str(shows)
        folder.mkdir()
        file = config_file(folder, public)
        async with opened(file.load().config, file=file) as window, window.visit() as client:
            assert 'action="/phone"' in (await client.get("/")).text
            page = (await client.post("/phone")).text
            link = re.search(r'href="(http://phone.test/login#[\w-]+)"', page)
            assert bool(link) is shows
            assert ("Only this machine can open http://127.0.0.1" in page) is not shows
            if link:
                assert qr_code(link[1]).svg_inline(scale=6, border=3, light="#fff") in page
                phone = await client.post("/login", data={"code": link[1].partition("#")[2]})
                assert phone.status_code == 303


async def test_a_transcript_is_shown_renamed_undone_branched_and_exported(
    window: Opened, client: httpx.AsyncClient
) -> None:
    for text in ("*one*", "!tool two"):
        await say(window, text)
    session = await session_of(window)
    page = (await client.get(f"/sessions/{session}")).text
    assert "You said: <em>one</em>" in page
    assert "<details><summary>Uses" in page
    renamed = await client.post(f"/sessions/{session}/rename", data={"title": "Plans"})
    assert (renamed.status_code, renamed.text) == (200, "Renamed to “Plans”.")
    undone = await client.post(f"/sessions/{session}/command", data={"text": "/undo"})
    assert "Undid" in undone.text
    assert "!tool two" not in (await client.get(f"/sessions/{session}")).text
    audit = (await client.get(f"/sessions/{session}?audit=1")).text
    assert "!tool two" in audit
    assert "hidden by operation" in audit
    await client.post(f"/sessions/{session}/command", data={"text": "/redo"})
    branched = await client.post(f"/sessions/{session}/command", data={"text": "/branch", "title": "Idea", "at": "1"})
    child = branched.headers["x-goto"]
    assert child != f"/sessions/{session}"
    shown = (await client.get(child)).text
    assert "Idea" in shown
    assert "!tool two" not in shown
    exported = await client.get(f"/sessions/{session}/export?format=html")
    assert exported.headers["content-disposition"] == "attachment; filename*=UTF-8''Plans.html"
    assert "sandbox" in exported.headers["content-security-policy"]
    assert (await client.get(f"/sessions/{session}/export?format=exe")).status_code == 400
    refused = await client.post(f"/sessions/{session}/command", data={"text": "/forget me --yes"})
    assert refused.status_code == 400


async def test_without_the_script_a_button_leads_back_to_the_page(window: Opened, client: httpx.AsyncClient) -> None:
    await say(window, "one")
    session = await session_of(window)
    csrf = client.headers.pop("x-csrf-token")
    answer = await client.post(f"/sessions/{session}/rename", data={"title": "Plans", "csrf": csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sessions/{session}")
    assert (await client.post(f"/sessions/{session}/rename", data={"title": "No"})).status_code == 403


async def test_a_long_transcript_is_paged_from_its_end_and_jumped_into(
    window: Opened, client: httpx.AsyncClient
) -> None:
    person = Person(terminal_socket(window.config), "main")
    async with person.present():
        for number in range(30):
            await person.say(f"message {number}")
    session = await session_of(window)

    async def seqs(query: str = "") -> list[int]:
        page = (await client.get(f"/sessions/{session}{query}")).text
        return [int(seq) for seq in re.findall(r'id="e(\d+)"', page)]

    newest = await seqs()
    assert len(newest) == 50
    earlier = await seqs(f"?before={newest[0]}")
    assert earlier == list(range(1, newest[0]))
    assert await seqs(f"?after={newest[9]}") == newest[10:]
    assert 5 in await seqs("?at=5")


async def test_search_marks_what_was_found_and_leads_to_it(window: Opened, client: httpx.AsyncClient) -> None:
    await say(window, "the train to <b>Berlin</b>")
    page = (await client.get("/search?q=berlin")).text
    assert page.count("<mark>Berlin</mark>") == 3  # the title, the question and the answer
    assert "<b>" not in page
    assert f"/sessions/{await session_of(window)}?at=" in page
    assert "No results" in (await client.get("/search?q=zebra")).text
    assert "There is no word to search for" in (await client.get('/search?q="&order=best&role=tool&days=7')).text


async def test_what_waits_for_permission_is_allowed_and_what_runs_is_stopped(
    window: Opened, client: httpx.AsyncClient
) -> None:
    await say(window, '!use ask_user {"question": "Where to?", "choices": ["Paris", "Rome"]}', "asks")
    for path in ("/", "/turns"):
        page = (await client.get(path)).text
        assert "Where to?" in page
        assert [each in page for each in (">Paris<", ">Rome<", ">Do not answer<", ">Approve<")] == [True] * 3 + [False]
    said = re.findall(r'action="(/sessions/[^"]+)".*?value="(/answer [0-9-]+ #2)"', page, re.DOTALL)[-1]
    assert "Answered." in (await client.post(said[0], data={"text": said[1]}, follow_redirects=True)).text
    await say(window, "!approve it")
    session = await session_of(window)
    page = (await client.get("/turns")).text
    assert "Waiting for approval" in page
    assert f"/sessions/{session}/command" in page
    shown = re.search(r'value="(/approve [0-9-]+)"', page)
    assert shown
    unseen = await client.post(f"/sessions/{session}/command", data={"text": "/approve"})
    assert unseen.status_code == 400
    allowed = await client.post(f"/sessions/{session}/command", data={"text": shown[1]})
    assert allowed.text == "Approved."

    async def is_over() -> bool:
        return "You said: it" in (await client.get(f"/sessions/{session}")).text

    await until(is_over)
    hangs = asyncio.create_task(say(window, "!hang"))

    async def is_running() -> bool:
        return 'value="/stop"' in (await client.get("/turns")).text

    await until(is_running)
    stopped = await client.post(f"/sessions/{session}/command", data={"text": "/stop"})
    assert stopped.text == "Stopping."

    async def is_done() -> bool:
        return "No turn is running." in (await client.get("/turns")).text

    await until(is_done)
    hangs.cancel()


async def test_messages_have_traces(window: Opened, client: httpx.AsyncClient) -> None:
    await say(window, "hello")
    page = (await client.get("/messages")).text
    assert "in:1" in page
    assert "You said: hello" in page
    trace = (await client.get("/trace?name=in:1")).text
    assert "received from terminal" in trace
    assert "delivered" in trace
    assert "no message" in (await client.get("/trace?name=in:99")).text
    assert (await client.post("/sends/-x/settle", data={"how": "again"})).status_code == 404
    assert (await client.post("/sends/1024/settle", data={"how": "again"})).status_code == 404


async def test_grants_are_given_taken_back_and_audited(client: httpx.AsyncClient) -> None:
    added = await client.post("/people/grants", data={"who": "telegram:7", "role": "admin"})
    assert added.text == "Added grant 1: user 7, telegram, as admin."
    page = (await client.get("/people")).text
    assert "<strong>You</strong>" in page, "the owner"
    assert "user 7, telegram, as admin" in page
    assert "<strong>granted</strong>" in page
    wrong = await client.post("/people/grants", data={"who": "nowhere:7"}, headers={"accept": "*/*"})
    assert wrong.status_code == 400
    assert "Unknown platform" in wrong.json()["error"]
    groups = await client.post("/people/grants", data={"who": "telegram", "kind": "group"})
    assert groups.text == "Added grant 2: everybody, telegram, in groups only, as member."
    crowd = await client.post("/people/grants", data={"who": "telegram", "kind": "crowd"}, headers={"accept": "*/*"})
    assert (crowd.status_code, "dm, group" in crowd.json()["error"]) == (400, True)
    taken = await client.post("/people/grants/1/remove")
    assert "Revoked" in taken.text
    assert (await client.post("/people/grants/1/remove")).status_code == 404


async def test_a_stranger_is_let_in_by_code_or_name_and_turned_away_by_name(
    window: Opened, client: httpx.AsyncClient
) -> None:
    store, now = window.store, SystemClock().now()
    for user, code in (("7", "K7QM3XPR"), ("8", "K7QM3XPA"), ("9", "K7QM3XPC")):
        source = Source(platform="telegram", chat_id=user, user_id=user, message_id=f"m{user}")
        labels = Labels(user=Label("<i>Eve</i>\u202e"))
        inbound = Inbound(source=source, text="hi", at=now, labels=labels)
        key = derive_key(source, Scope())
        await store.transact(store.pairing.request(inbound, key, now, code=code, answer=()))
    page = (await client.get("/people")).text
    assert "telegram:7" in page
    assert "<i>" not in page
    let_in = await client.post("/people/approve", data={"code": "k7qm 3xpr", "role": "guest"})
    assert let_in.text == "Approved telegram:7 as guest."
    assert (
        await client.post("/people/approve", data={"identity": "telegram:9"})
    ).text == "Approved telegram:9 as member."
    denied = await client.post("/people/deny", data={"identity": "telegram:8", "block": "1"})
    assert denied.text == "Blocked telegram:8."
    assert (await client.post("/people/approve", data={"code": "ZZZZZZZZ"})).status_code == 400


async def test_usage_is_drawn_and_said(window: Opened, client: httpx.AsyncClient) -> None:
    await say(window, "hello")
    for by in ("day", "person", "model"):
        for metric in ("tokens", "turns", "cost"):
            page = (await client.get(f"/usage?by={by}&metric={metric}")).text
            assert "<svg" in page
            assert '<th scope="row">All</th><td data-label="Turns">1</td>' in page


async def test_a_key_and_a_reset_are_explained(window: Opened, client: httpx.AsyncClient) -> None:
    page = (await client.get("/explain?platform=telegram&kind=group&chat=-100&user=99")).text
    assert "scope.group" in page
    assert "strangers in groups get no answer" in page
    assert "agent:main:telegram:group:-100:user:99" in page
    assert "Unknown platform" in (await client.get("/explain?platform=nope")).text
    assert "needs a chat id" in (await client.get("/explain?platform=telegram&kind=group")).text
    query = {
        "last_active": "2026-03-28T12:00:00+00:00",
        "policy": "daily",
        "now": "2026-03-29T12:00:00+00:00",
        "zone": "Europe/Berlin",
    }
    assert "Starts fresh: daily" in (await client.get("/explain", params=query)).text
    assert "Unknown policy" in (await client.get("/explain", params={**query, "policy": "x"})).text
    await say(window, "hello")
    assert "Continues." in (await client.get("/explain", params={"session": await session_of(window)})).text


async def test_the_doctor_and_the_platforms_say_what_they_found(client: httpx.AsyncClient) -> None:
    assert "terminal" in (await client.get("/platforms")).text
    assert "Everything is fine." in (await client.get("/doctor")).text


async def test_the_log_is_filtered_by_what_is_picked(window: Opened, client: httpx.AsyncClient) -> None:
    assert "No line matches." in (await client.get("/logs")).text
    handler = LogFile(window.config.data_dir, 1)
    for level, sentence, action in (
        (logging.DEBUG, "a detail", "agent.stderr"),
        (logging.INFO, "turn began", "turn.started"),
        (logging.ERROR, "<b>it</b> failed", "turn.failed"),
    ):
        record = logging.LogRecord("palaver.x", level, "", 0, sentence, (), None)
        record.action, record.turn = action, 7
        handler.handle(record)
    handler.close()
    page = (await client.get("/logs")).text
    assert "turn began" in page
    assert "a detail" not in page
    assert "&lt;b&gt;it&lt;/b&gt; failed" in page
    assert '<option value="agent.stderr">' in page, "every action can be picked"
    page = (await client.get("/logs?level=error&action=turn.failed&since=1h")).text
    assert '<option value="turn.failed" selected>' in page
    assert "turn=7" in page
    assert "turn began" not in page
    assert "No line matches." in (await client.get("/logs?level=x&action=%3Cb&since=y")).text


async def test_somebody_else_sees_their_own_conversations_and_no_page_of_the_owners(window: Opened) -> None:
    await say(window, "the secret of main")
    session = await session_of(window)
    async with window.visit("telegram:7") as client:
        for path in (
            "/platforms",
            "/people",
            "/doctor",
            "/logs",
            "/explain",
            "/settings",
            "/settings/model",
            "/settings/accounts",
        ):
            assert (await client.get(path)).status_code == 403
        for path in ("/sessions", "/search?q=secret", "/turns", "/messages", "/usage", "/"):
            page = await client.get(path, follow_redirects=True)
            assert page.status_code == 200
            assert "the secret of" not in page.text
            assert session not in page.text
        for path in ("", "/export", "/entries/1", "?audit=1"):
            assert (await client.get(f"/sessions/{session}{path}")).status_code == 404
        assert "no message" in (await client.get("/trace?name=in:1")).text
        for path, data in (
            (f"/sessions/{session}/command", {"text": "/undo"}),
            (f"/sessions/{session}/rename", {"title": "mine"}),
        ):
            assert (await client.post(path, data=data)).status_code == 404
        settings = ("/settings/model", "/settings/general", "/settings/tools/servers", "/settings/accounts/telegram")
        for path in ("/people/grants", "/people/approve", "/people/deny", "/people/grants/1/remove", *settings):
            assert (await client.post(path, data={"who": "telegram:7"})).status_code == 403


async def test_somebody_acts_in_their_own_conversations(window: Opened) -> None:
    stage = Stage(window.store, SystemClock().now())
    for text in ("one", "two"):
        session = await stage.exchange(dm("7"), text, text.upper())
    grant = Grant(platform="telegram", user_id="7")
    await window.store.transact(window.store.grants.add(grant, stage.now, by="test"))
    async with window.visit("telegram:7") as client:
        assert session in (await client.get("/sessions")).text
        undone = await client.post(f"/sessions/{session}/command", data={"text": "/undo"})
        assert "Undid" in undone.text
        assert "TWO" not in (page := (await client.get(f"/sessions/{session}?audit=1")).text)
        assert "ONE" in page
        branched = await client.post(f"/sessions/{session}/command", data={"text": "/branch", "title": "Mine"})
        assert "ONE" in (await client.get(branched.headers["x-goto"])).text
        assert "turn 1 in agent:main:telegram:dm:7" in (await client.get("/trace?name=turn:1")).text
    async with window.visit("telegram:8") as client:
        assert (await client.get(branched.headers["x-goto"])).status_code == 404


async def test_pictures_are_shown_and_other_files_saved_for_those_who_can_see_them(window: Opened) -> None:
    stage, shelf = Stage(window.store, SystemClock().now()), BlobStore(window.config.data_dir / "files")
    files = [
        Attachment(name=Label(name), media_type=kind, size=size, sha256=sha)
        for name, kind, content in (
            ("cat\u202egnp.png", "image/png", b"\x89PNG\r\n\x1a\n..."),
            ("../<b>.html", "text/html", b"<script>alert(1)</script>"),
            ("drawing.svg", "image/svg+xml", b"<svg onload='alert(1)'/>"),
        )
        for sha, size, _ in [await shelf.keep(once(content), 1000)]
    ]
    turn = await stage.begin(dm("7"), "look")
    await stage.answer(turn, dm("7"), entry("here", stage.now, files=tuple(files)))
    async with window.visit("telegram:7") as client:
        page = (await client.get(f"/sessions/{turn.session}")).text
        assert page.count("<img ") == 1
        assert "<b>" not in page
        answers = [await client.get(f"/files/{file.id}") for file in files]
    assert [answer.headers["content-type"] for answer in answers] == ["image/png", *["application/octet-stream"] * 2]
    assert [answer.headers["content-disposition"].partition(";")[0] for answer in answers] == [
        "inline",
        "attachment",
        "attachment",
    ]
    assert all("sandbox" in answer.headers["content-security-policy"] for answer in answers)
    async with window.visit("telegram:8") as client:
        assert (await client.get(f"/files/{files[0].id}")).status_code == 404


async def once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_a_key_that_can_only_read_changes_nothing(window: Opened) -> None:
    await say(window, "hello")
    session = await session_of(window)
    token, _ = await issue_token(window.store, SystemClock().now(), name="reads", rights={Right.READ})
    async with httpx.AsyncClient(
        timeout=60, base_url=window.url, headers={"authorization": f"Bearer {token}"}
    ) as client:
        assert 'value="/undo"' not in (await client.get(f"/sessions/{session}")).text
        for path in (
            f"/sessions/{session}/command",
            f"/sessions/{session}/rename",
            "/people/grants",
            "/people/approve",
            "/people/deny",
            "/people/grants/1/remove",
            "/sends/1024/settle",
        ):
            assert (await client.post(path, data={"text": "/undo"})).status_code == 403
